"""Pages of a real server in a real browser: every one is watched for errors, dialogs, and requests to anywhere else."""

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
#: Where screenshots are kept: each test run's own, or a folder that is named.
SHOTS = os.environ.get("CUEBOOK_SHOTS", "")


class Served:
    """A book served on a real socket by a loop of its own."""

    def __init__(self, cue: Cuebook) -> None:
        self.cue = cue
        self._sockets = listen("127.0.0.1", 0)
        port = self._sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._port = port
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._ready.wait(30)

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        async with self.cue:
            self._server = Server(create_app(self.cue, host="127.0.0.1", port=self._port), grace_s=0.3)
            self._server.when_started = self._ready.set
            await self._server.serve(sockets=self._sockets)

    def run(self, make: Callable[[Cuebook], Any]) -> Any:
        """Run a coroutine of the book where it lives."""
        return asyncio.run_coroutine_threadsafe(make(self.cue), self.loop).result(60)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.fixture
def served_cue() -> Iterator[Callable[[Cuebook], Served]]:
    """Serve a book."""
    running: list[Served] = []

    def start(cue: Cuebook) -> Served:
        running.append(Served(cue))
        return running[-1]

    yield start
    for each in running:
        each.stop()


@pytest.fixture
def serve(served_cue: Callable[[Cuebook], Served]) -> Callable[..., Served]:
    """Serve a book in a folder; settings by section__key."""

    def start(folder: Path, model: Any = None, **settings: Any) -> Served:
        return served_cue(Cuebook.open(config(folder, **settings), model=model))

    return start


def config(folder: Path, **settings: Any) -> Config:
    arguments = {name.replace("__", "."): value for name, value in settings.items()}
    return build(arguments={"store.synchronous": "OFF", **arguments}, folder=str(folder))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser for the tests of a file: while its driver runs, no other event loop may, so it ends with the file."""
    if CHROMIUM is None:
        pytest.skip("no chromium: scripts/browser installs it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


class Tab:
    """A page of a browser that fails the test for an error, a dialog, or a request to another host."""

    def __init__(self, browser: Any, url: str, shots: Path, **context: Any) -> None:
        self.url, self._shots, self.faults = url, shots, []
        self._context = browser.new_context(**context)
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
        """Go to a view."""
        self.page.goto(self.url + path, wait_until="load")
        return self.page

    def shoot(self, name: str) -> None:
        """Keep a screenshot of the whole view."""
        self.page.screenshot(path=self._shots / f"{name}.png", full_page=True)

    def close(self) -> None:
        self._context.close()


@pytest.fixture
def tab(chromium: Any, tmp_path: Path) -> Iterator[Callable[..., Tab]]:
    """Open a tab of a served book; at the end nothing may have gone wrong in it."""
    opened: list[Tab] = []
    shots = Path(SHOTS) if SHOTS else tmp_path
    shots.mkdir(parents=True, exist_ok=True)

    def make(served: Served, **context: Any) -> Tab:
        opened.append(Tab(chromium, served.url, shots, **({"viewport": {"width": 1200, "height": 900}} | context)))
        return opened[-1]

    yield make
    for each in opened:
        each.close()
        assert each.faults == []
