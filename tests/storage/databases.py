"""Direct access to the databases of tests, by statements and by bytes, past the store: SQLite files and PostgreSQL."""

import os
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from cuebook.config import SERVERS
from cuebook.storage.database.holders import Holders
from cuebook.storage.database.transaction import Failpoints
from cuebook.storage.store import Store, open_store, sqlite_store

#: The kinds of database on which tests run that concern both.
KINDS = ("sqlite", "postgresql")

_FOLDER = "SELECT current_setting('data_directory'), oid FROM pg_database WHERE datname = current_database()"
_WITH_ROWS = """SELECT relname FROM pg_class
WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND relname <> 'schema_version'"""
_OTHERS = """SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"""

#: The option of a PostgreSQL URL whose commits do not wait for a disk.
NOT_SYNCED = "options=-csynchronous_commit%3Doff"

#: Runs a statement and returns all its rows.
Rows = Callable[[str], list[tuple[Any, ...]]]


def on_server(url: str) -> bool:
    """Return whether a database is on a PostgreSQL server, and not a file."""
    return url.startswith(SERVERS)


@contextmanager
def snapshot(url: str) -> Iterator[Rows]:
    """Open a database and yield a function that runs statements, all in one snapshot."""
    if on_server(url):
        with psycopg.connect(url) as server:
            server.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            yield lambda sql: server.execute(sql).fetchall()
            server.rollback()
        return
    with closing(sqlite3.connect(url, isolation_level=None)) as file:
        file.execute("PRAGMA busy_timeout = 30000")
        file.execute("BEGIN")
        yield lambda sql: file.execute(sql).fetchall()
        file.execute("ROLLBACK")


def open_alone(url: str, *, failpoints: Failpoints | None = None) -> Store:
    """Open the store of a database whose leases name no process: the ends of processes change nothing. Blocks."""
    if on_server(url):
        return open_store(url, failpoints=failpoints)
    return sqlite_store(url, failpoints=failpoints, holders=Holders(None))


def empty(url: str) -> None:
    """Delete all rows of a PostgreSQL database."""
    with psycopg.connect(url, autocommit=True) as server:
        tables = [name for (name,) in server.execute(_WITH_ROWS).fetchall()]
        server.execute(SQL("TRUNCATE {} RESTART IDENTITY").format(SQL(", ").join(map(Identifier, tables))))


def database_files(url: str) -> list[Path]:
    """Return the files with a database's rows, after writing them: on PostgreSQL without the write-ahead log."""
    if not on_server(url):
        return [each for ending in ("", "-wal", "-shm", "-journal") if (each := Path(url + ending)).exists()]
    with psycopg.connect(url, autocommit=True) as server:
        folder, number = server.execute(_FOLDER).fetchone() or ("", 0)
        server.execute("CHECKPOINT")
    return [each for each in Path(folder, "base", str(number)).iterdir() if each.is_file()]


def content_of(file: Path) -> bytes:
    """Return a file's bytes, none if PostgreSQL has just removed it."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


def wait_until_unused(url: str) -> None:
    """Wait until PostgreSQL has ended the connections of killed processes: it still runs their last message."""
    if not on_server(url):
        return
    with psycopg.connect(url, autocommit=True) as server:
        until = time.monotonic() + 30
        while (server.execute(_OTHERS).fetchone() or (0,))[0]:
            assert time.monotonic() < until, "a connection is still open"
            time.sleep(0.005)


@contextmanager
def mounted(size: str) -> Iterator[Path]:
    """Mount a file system of a size, which other users may enter: a server runs as one of them."""
    place = Path(tempfile.mkdtemp())
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", str(place)]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(mount, check=False).returncode:
        pytest.skip("LOUDLY: no small disk can be mounted here; a full disk was tested by a limit of pages only")
    place.parent.chmod(place.parent.stat().st_mode | 0o011)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
    place.rmdir()


def wait_until_waiting(url: str, count: int) -> None:
    """Wait until so many connections wait for a lock of a PostgreSQL database."""
    with psycopg.connect(url, autocommit=True) as server:
        while len(server.execute("SELECT FROM pg_locks WHERE NOT granted").fetchall()) < count:
            time.sleep(0.005)
