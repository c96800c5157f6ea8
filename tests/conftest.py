"""Shared fixtures: Hypothesis profiles, asyncio as the only event loop, and a network limited to this machine."""

import gc
import inspect
import ipaddress
import os
import secrets
import shutil
import signal
import sys
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from urllib.parse import urlsplit

import certifi
import httpx
import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.internal.constants_ast import Constants

from cuebook.app.setup.embedded_postgres import start, stop
from cuebook.storage.database.postgres import upgrade

# Failing assertions of the store contract show the compared values, like those of a test module.
pytest.register_assert_rewrite("storage")

#: Examples per property test in each Hypothesis profile: for pure tests, and for tests that open a database.
EXAMPLES = {"ci": (10, 4), "full": (300, 60), "deep": (2000, 400)}


def register_profiles(chosen: str) -> None:
    """Register the profiles. "database" is for tests that open one, with the examples of the chosen profile.

    Only "deep" draws new examples each time, so failures of the other profiles come from a change and not from chance.
    """
    for name, (examples, _) in EXAMPLES.items():
        settings.register_profile(
            name,
            deadline=None,
            max_examples=examples,
            derandomize=name != "deep",
            suppress_health_check=[HealthCheck.too_slow],  # a busy machine draws slowly
            print_blob=True,
        )
    settings.register_profile("database", settings.get_profile(chosen), max_examples=EXAMPLES[chosen][1])
    settings.load_profile(chosen)


register_profiles("ci")


def pytest_configure(config: pytest.Config) -> None:
    """Use the profile that `--hypothesis-profile` names, and seed no generators: no test draws from global ones."""
    register_profiles(config.getoption("--hypothesis-profile", None) or "ci")
    config.option.randomly_reset_seed = False
    if settings().derandomize:
        # Hypothesis also draws constants from the loaded modules, and which ones are loaded depends on earlier tests.
        HypothesisProvider._local_constants = Constants()  # noqa: SLF001


gc.disable()  # while tests are collected


def pytest_collection_finish() -> None:
    """Freeze the garbage collector: thousands of collected tests and modules stay alive anyway. Run it more rarely."""
    gc.set_threshold(10_000, 10, 10)
    gc.enable()
    gc.collect()
    gc.freeze()


# httpx gives up after 5 s by default, and a busy machine may need longer.
_patience = inspect.signature(httpx.Client).parameters["timeout"].default
_patience.connect = _patience.read = _patience.write = _patience.pool = 60.0


@pytest.fixture(autouse=True, scope="session")
def one_certificate() -> Iterator[None]:
    """Let clients trust one authority instead of 140: loading them takes 20 ms per client, and no test needs one."""
    with NamedTemporaryFile("w", suffix=".pem") as file, pytest.MonkeyPatch.context() as environment:
        file.write("".join(certifi.contents().partition("-----END CERTIFICATE-----\n")[:2]))
        file.flush()
        environment.setenv("SSL_CERT_FILE", file.name)
        yield


# A shell ignores interrupts in background processes, and programs that a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


#: Functions that get the audit events of a name and their arguments.
listeners: dict[str, Callable[[str, tuple[Any, ...]], None]] = {}


def _hear(event: str, args: tuple[Any, ...]) -> None:
    if event in listeners:
        listeners[event](event, args)


# One function for all: Python calls it at each `id()` too, and a bound method would take 10 µs instead of 2.
sys.addaudithook(_hear)


class NetworkIsOffError(RuntimeError):
    """A test tried to reach another machine. It is no OSError, so no client takes it for a failed connection."""


def is_loopback(host: object) -> bool:
    if isinstance(host, bytes):
        host = host.decode("ascii", errors="replace")
    if host in (None, "", "localhost"):
        return True
    try:
        return ipaddress.ip_address(str(host).partition("%")[0]).is_loopback
    except ValueError:
        return False


class NetworkGuard:
    """Refuses connections, datagrams and name look-ups to other hosts while closed.

    It listens to Python's audit events, so nothing is patched and no client can bypass it. An audit hook cannot be
    removed, so there is a switch. Binding is allowed: a server under test may listen anywhere.
    """

    def __init__(self) -> None:
        self.closed = False
        for event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            listeners[event] = self._hear_address
        for event in ("socket.getaddrinfo", "socket.gethostbyname"):
            listeners[event] = self._hear_name

    def _hear_address(self, event: str, args: tuple[Any, ...]) -> None:
        address = args[1]
        # a path is a Unix socket, None a connected one
        self._check(event, address[0] if isinstance(address, tuple) else None)

    def _hear_name(self, event: str, args: tuple[Any, ...]) -> None:
        self._check(event, args[0])

    def _check(self, event: str, host: object) -> None:
        if self.closed and not is_loopback(host):
            message = (
                f"{event} to {host!r}: tests reach loopback only; use a double from cuebook.testing or a local server"
            )
            raise NetworkIsOffError(message)


network_guard = NetworkGuard()


@pytest.fixture(autouse=True, scope="session")
def network_off() -> Iterator[None]:
    """Block the network for the whole session, including session fixtures."""
    network_guard.closed = True
    yield
    network_guard.closed = False


class SocketWatch:
    """Finds sockets that a test leaves open, so that this test fails and not the one in which they are collected.

    Accepted server sockets are ignored: they close a moment after the client's side. So are those with which an event
    loop wakes itself: a loop that is left open warns.
    """

    def __init__(self) -> None:
        self._made: list[tuple[weakref.ref[Any], str]] = []
        listeners["socket.__new__"] = self._hear

    def _hear(self, _: str, args: tuple[Any, ...]) -> None:
        frame: Any = inspect.currentframe()
        frame = frame.f_back.f_back.f_back  # the creator of the socket: the caller of socket.__init__
        if frame.f_code.co_name == "accept" or frame.f_back.f_code.co_name == "_make_self_pipe":
            return
        while frame.f_back is not None and os.sep + "tests" + os.sep not in frame.f_code.co_filename:
            frame = frame.f_back
        self._made.append((weakref.ref(args[0]), f"{frame.f_code.co_filename}:{frame.f_lineno}"))

    def dropped(self) -> list[str]:
        """Return the places of open sockets without references. Sockets still referenced are checked again later."""
        opened = [made for made in self._made if (one := made[0]()) is not None and one.fileno() >= 0]
        one = None
        self._made = []  # a socket that stays alive belongs to a session fixture
        if not opened:
            return []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ResourceWarning)
            gc.collect()
        # Without a warning, another thread has closed its socket meanwhile.
        return [place for held, place in opened if held() is None] if caught else []


watch = SocketWatch()


@pytest.fixture
def socket_watch() -> SocketWatch:
    return watch


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Fail a test that leaves a socket open that nobody can close."""
    yield
    if dropped := watch.dropped():
        pytest.fail(f"left open, close what opened it: {', '.join(dropped)}")


@pytest.fixture(autouse=True, scope="session")
def faker_seed() -> int:
    """Replace the fixture that pytest-randomly makes for each test: no test uses Faker."""
    return 0


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests and fixtures on asyncio, the only loop we support."""
    return "asyncio"


# ---- PostgreSQL


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Start a PostgreSQL server, or use CUEBOOK_TEST_DATABASE_URL. Return the URL of a superuser."""
    given = os.environ.get("CUEBOOK_TEST_DATABASE_URL")
    if given:
        upgrade(given)
        yield given
        return
    # pytest closes its own folder to other users at each start; the server runs as one of them
    made = Path(tempfile.mkdtemp(prefix="cuebook-postgres-"))
    made.chmod(0o711)
    url = start(made / "data").url
    assert url is not None
    upgrade(url)
    yield url
    stop(made / "data")
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def new_postgres_url(postgres_server: str) -> Iterator[Callable[..., str]]:
    """Return a function that creates a database, with empty tables unless `tables=False`, and returns its URL."""
    parts, names = urlsplit(postgres_server), []
    with psycopg.connect(parts._replace(path="/postgres").geturl(), autocommit=True) as connection:

        def create(*, tables: bool = True) -> str:
            names.append(name := f"t{secrets.token_hex(6)}")
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {parts.path[1:] if tables else 'template0'}")
            return parts._replace(path=f"/{name}").geturl()

        yield create
        for name in names:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def postgres_url(new_postgres_url: Callable[..., str]) -> str:
    """Return the URL of a new database with empty tables."""
    return new_postgres_url()
