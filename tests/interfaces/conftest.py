"""Fixtures for the HTTP and CLI tests: an app in this process, or a server on a real socket."""

import asyncio
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from commands import CommandRunner
from shared_app import app_of
from upstream import Upstream

from cuebook import Config, Cuebook
from cuebook.cli import main as cli
from cuebook.config import ConfigSections, ServerConfig, StoreConfig, UpstreamConfig
from cuebook.server.app import Server, listen
from cuebook.testing.doubles import ScriptedModel

BASE = "http://127.0.0.1"


def config(*, store: str = ":memory:", upstream: str = "", responses: Any = "chat", **server: Any) -> Config:
    return Config(
        settings=ConfigSections(
            store=StoreConfig(url=store, synchronous="OFF"),
            upstream=UpstreamConfig(url=upstream, responses=responses),
            server=ServerConfig(**server),
        )
    )


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(default="Hello there.")


@pytest.fixture
async def cue(model: ScriptedModel) -> AsyncIterator[Cuebook]:
    async with Cuebook.open(config(), model=model) as instance:
        yield instance


@pytest.fixture
async def client(cue: Cuebook) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app_of(cue))
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as http_client:
        yield http_client


class Live:
    """A server on a real socket, in its own thread and event loop."""

    def __init__(self, cue: Cuebook, *, stop_timeout_s: float = 0.3) -> None:
        self.cue = cue
        self._sockets = listen("127.0.0.1", 0)
        self.port = self._sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._stop_timeout_s = stop_timeout_s
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._ready.wait(60)

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        async with self.cue:
            app = app_of(self.cue, host="127.0.0.1", port=self.port)
            self.server = Server(app, stop_timeout_s=self._stop_timeout_s)
            self.server.when_started = self._ready.set
            await self.server.serve(sockets=self._sockets)

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()

    def ask_cue(self, make: Callable[[], Any]) -> Any:
        """Run a coroutine in the server's event loop."""
        return asyncio.run_coroutine_threadsafe(make(), self.loop).result(60)


@pytest.fixture
def serve_live() -> Iterator[Callable[..., Live]]:
    running: list[Live] = []

    def start(settings: Config | None = None, *, stop_timeout_s: float = 0.3, **parts: Any) -> Live:
        running.append(Live(Cuebook.open(settings or config(), **parts), stop_timeout_s=stop_timeout_s))
        return running[-1]

    yield start
    for each in running:
        each.stop()


@pytest.fixture
def closing() -> Iterator[Callable[[Any], Any]]:
    """Close a client when its test ends."""
    with ExitStack() as clients:
        yield clients.enter_context


@pytest.fixture
def openai_of(closing: Callable[[Any], Any]) -> Callable[..., Any]:
    """Create a client of OpenAI's library and close it when the test ends."""
    import openai  # takes half a second

    def create_client(live: Live, place: str = "", **more: Any) -> openai.OpenAI:
        client: openai.OpenAI = closing(
            openai.OpenAI(base_url=f"{live.url}{place}/v1", api_key="sk-theirs", max_retries=0, **more)
        )
        return client

    return create_client


@pytest.fixture
def anthropic_of(closing: Callable[[Any], Any]) -> Callable[..., Any]:
    """Create a client of Anthropic's library and close it when the test ends."""
    import anthropic  # takes half a second

    def create_client(live: Live, place: str = "", **more: Any) -> anthropic.Anthropic:
        client: anthropic.Anthropic = closing(
            anthropic.Anthropic(base_url=f"{live.url}{place}", api_key="sk-ant-theirs", max_retries=0, **more)
        )
        return client

    return create_client


@pytest.fixture(scope="session")
def scripted() -> Iterator[Upstream]:
    server = Upstream()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def upstream(scripted: Upstream) -> Upstream:
    scripted.received.clear()
    return scripted


@pytest.fixture
def relayed(upstream: Upstream, serve_live: Callable[..., Live]) -> Live:
    """A live server that relays to the scripted upstream."""
    return serve_live(config(upstream=upstream.url))


@pytest.fixture(scope="session")
def new_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new project. Its first command has stored the prompt files, which takes 50 ms of processor time."""
    folder = tmp_path_factory.mktemp("new") / "project"
    assert cli.run(["init", str(folder)]) == 0
    assert cli.run(["-C", str(folder), "prompt", "list"]) == 0
    return folder


@pytest.fixture
def project(new_project: Path, tmp_path: Path) -> Path:
    """Copy a new project."""
    return shutil.copytree(new_project, tmp_path / "project")


@pytest.fixture
def unused_project(project: Path) -> Path:
    """Return the new project without a database: no command has opened it."""
    for name in (".cuebook", "logs"):
        shutil.rmtree(project / name)
    return project


@pytest.fixture
def here(project: Path, capsys: pytest.CaptureFixture[str]) -> CommandRunner:
    return CommandRunner(project, capsys)
