"""Fixtures that open pages of a real server in a real browser, and fail on errors, dialogs and foreign requests."""

import asyncio
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cuebook import Cuebook
from cuebook.config import Config, build
from cuebook.server.app import Server, create_app, listen

CHROMIUM = os.environ.get("CUEBOOK_CHROMIUM") or shutil.which("chromium")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip
#: Directory for screenshots. Default: the temporary directory of each test.
SCREENSHOTS = os.environ.get("CUEBOOK_SHOTS", "")


class Served:
    """A project served on a real socket, with its own event loop in a thread."""

    def __init__(self, cue: Cuebook) -> None:
        self.cue = cue
        self._sockets = listen("127.0.0.1", 0)
        port = self._sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._port = port
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._ready.wait(60)

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        async with self.cue:
            self._server = Server(create_app(self.cue, host="127.0.0.1", port=self._port), stop_timeout_s=0.3)
            self._server.when_started = self._ready.set
            await self._server.serve(sockets=self._sockets)

    def run(self, make: Callable[[Cuebook], Any]) -> Any:
        """Run a coroutine with the open project in the server's event loop."""
        return asyncio.run_coroutine_threadsafe(make(self.cue), self.loop).result(60)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.fixture
def served_cue() -> Iterator[Callable[[Cuebook], Served]]:
    """Return a function that serves an open project."""
    running: list[Served] = []

    def start(cue: Cuebook) -> Served:
        running.append(Served(cue))
        return running[-1]

    yield start
    for each in running:
        each.stop()


@pytest.fixture
def serve(served_cue: Callable[[Cuebook], Served]) -> Callable[..., Served]:
    """Return a function that serves the project in a folder; settings are named section__key."""

    def start(folder: Path, model: Any = None, **settings: Any) -> Served:
        return served_cue(Cuebook.open(config(folder, **settings), model=model))

    return start


def config(folder: Path, **settings: Any) -> Config:
    arguments = {name.replace("__", "."): value for name, value in settings.items()}
    return build(arguments={"store.synchronous": "OFF", **arguments}, folder=str(folder))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Start a browser for the tests of one file. While it runs, the thread can run no other event loop."""
    if CHROMIUM is None:
        pytest.skip("no chromium: scripts/browser installs it")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


class Tab:
    """A browser page that records errors, dialogs and requests to other hosts as faults."""

    def __init__(self, browser: Any, url: str, screenshots: Path, **context: Any) -> None:
        self.url, self._screenshots, self.faults = url, screenshots, []
        self._context = browser.new_context(**context)
        self._context.set_default_timeout(60_000)
        self.page = self._context.new_page()
        self.page.on("console", lambda each: self.faults.append(each.text) if each.type == "error" else None)
        self.page.on("pageerror", lambda each: self.faults.append(str(each)))
        self.page.on("dialog", self._dialog)
        self.page.on("request", self._request)

    def _dialog(self, dialog: Any) -> None:
        self.faults.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.url + "/", "data:")):
            self.faults.append(f"a request to {request.url}")

    def open(self, path: str) -> Any:
        """Open a page."""
        self.page.goto(self.url + path, wait_until="load")
        return self.page

    def screenshot_page(self, name: str) -> None:
        """Save a screenshot of the full page."""
        self.page.screenshot(path=self._screenshots / f"{name}.png", full_page=True)

    def close(self) -> None:
        self._context.close()


@pytest.fixture
def tab(chromium: Any, tmp_path: Path) -> Iterator[Callable[..., Tab]]:
    """Return a function that opens a tab of a served project. Fails if the tab has faults at the end."""
    opened: list[Tab] = []
    screenshots = Path(SCREENSHOTS) if SCREENSHOTS else tmp_path
    screenshots.mkdir(parents=True, exist_ok=True)

    def make(served: Served, **context: Any) -> Tab:
        opened.append(
            Tab(chromium, served.url, screenshots, **({"viewport": {"width": 1200, "height": 900}} | context))
        )
        return opened[-1]

    yield make
    for each in opened:
        each.close()
        assert each.faults == []
