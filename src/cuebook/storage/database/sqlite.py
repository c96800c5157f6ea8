"""The SQLite database, a file or `:memory:`: reads use their own connections, writes go through one writer thread."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from cuebook.errors import BackendError, StoreFull
from cuebook.storage.database.columns import UNREADABLE
from cuebook.storage.database.holders import Holders
from cuebook.storage.database.sqlite_files import (
    LARGE,
    MEMORY,
    OpenFiles,
    connect,
    damaged_cell,
    free_reserve,
    make_reserve,
    prepare,
    remove_copies,
    rewritten,
    text_or_bytes,
    truncated,
)
from cuebook.storage.database.sqlite_writer import Writer, explain
from cuebook.storage.database.statements import prepared_statements
from cuebook.storage.database.transaction import Failpoints, Transaction

T = TypeVar("T")

_STATEMENTS: Final = prepared_statements("sqlite")
_NO_FAILPOINTS: Final = Failpoints()
#: Reader threads per process: reads are short, and two cores run two of them.
READERS = 4
#: Seconds between two checks whether readers have released the log.
PAUSE_S = 0.02


def transaction_on(connection: sqlite3.Connection, failpoints: Failpoints | None = None) -> Transaction:
    """Return the transaction of a connection."""
    return Transaction(connection.execute, _STATEMENTS, failpoints or _NO_FAILPOINTS)


def _touch(connection: sqlite3.Connection) -> None:
    """Write a page without changing a row."""
    connection.execute("UPDATE schema_version SET version = version")


class SqliteDatabase:
    """A database in one file, or in memory. A write that has returned is durable (`FULL`)."""

    def __init__(
        self,
        path: str = MEMORY,
        *,
        synchronous: str = "FULL",
        failpoints: Failpoints | None = None,
        holders: Holders | None = None,
        key: bytes = b"",
    ) -> None:
        self.path = path if path == MEMORY else str(Path(path).resolve())
        self.holders = holders or Holders(Path(self.path) if self.path != MEMORY else None)
        self.key = key
        self._failpoints = failpoints or Failpoints()
        self._files: OpenFiles | None = None
        self._writer = Writer(lambda: self._prepared(synchronous), self._failpoints, self._check_files)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="cuebook-reader")
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._closed = False
        self._reserves = False
        self.unclean = False

    def _prepared(self, synchronous: str) -> sqlite3.Connection:
        connection = prepare(self.path, synchronous=synchronous, failpoints=self._failpoints)
        if self.path != MEMORY:
            self._files = OpenFiles(self.path)
        return connection

    def _check_files(self, *, writes: bool = True) -> None:
        if self._files is not None:
            self._files.check(writes=writes)

    @property
    def commits(self) -> int:
        """Return the number of committed transactions."""
        return self._writer.commits

    @property
    def shared_snapshots(self) -> bool:
        return self.path != MEMORY

    @property
    def is_full(self) -> bool:
        return self._writer.is_full

    def shared(self) -> bool:
        return self.holders.has_others()

    async def write(self, work: Callable[[Transaction], T], *, tenant: str = "", subject: str = "") -> T:  # noqa: ARG002  # a file has one writer
        return await asyncio.wrap_future(
            self._writer.submit(lambda connection: work(transaction_on(connection, self._failpoints)))
        )

    async def read(self, work: Callable[[Transaction], T], *, lenient: bool = False) -> T:
        if self._closed:
            msg = "The store is closed."
            raise BackendError(msg)
        if self.path == MEMORY:
            return await self.write(work)
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._snapshot, work, lenient)

    def _snapshot(self, work: Callable[[Transaction], T], lenient: bool) -> T:  # noqa: FBT001  # as in `_clean`
        """Run a read in one snapshot on this thread's connection."""
        try:
            connection = self._reader()
            connection.text_factory = text_or_bytes if lenient else str
            connection.execute("BEGIN")
            try:
                return work(transaction_on(connection, self._failpoints))
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except (sqlite3.Error, *UNREADABLE, UnicodeError, OverflowError) as error:
            raise explain(error, partial(self._check_files, writes=False)) from error

    def _reader(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = connect(self.path, read_only=True)
            self._connections.append(connection)
            self._check_files(writes=False)  # it may have opened another file
            self._local.connection = connection
        return connection

    async def clean(self, *, patience_ms: int = 0, large: bool = False) -> bool:
        if self.path == MEMORY:
            return True
        loop = asyncio.get_running_loop()
        self.unclean = not await loop.run_in_executor(self._readers, self._clean, patience_ms, large)
        return not self.unclean

    def _clean(self, patience_ms: int, large: bool) -> bool:  # noqa: FBT001  # executors pass no keyword arguments
        """Remove erased data from file and log; return False if another process still reads or writes."""
        end = time.monotonic() + patience_ms / 1000
        self._check_files()
        remove_copies(Path(self.path).parent)
        try:
            with closing(connect(self.path)) as connection:
                connection.execute("PRAGMA busy_timeout = 0")  # do not wait: another thread may do the same
                if not large and Path(self.path).stat().st_size > LARGE:
                    truncated(connection)
                    return False
                clean = False
                while not (clean := clean or rewritten(connection)) or not truncated(connection):
                    if time.monotonic() >= end:
                        return False
                    time.sleep(PAUSE_S)
        except sqlite3.Error as error:
            explained = explain(error, self._check_files)
            if isinstance(explained, StoreFull):
                return False
            raise explained from error
        if self._reserves:
            make_reserve(self.path)
        return True

    async def reserve(self) -> None:
        if self.path != MEMORY:
            self._reserves = True
            await asyncio.to_thread(make_reserve, self.path)

    def release_reserve(self) -> bool:
        return free_reserve(self.path)

    async def remains(self) -> str:
        return ""

    async def version(self) -> tuple[int, int]:
        def look(connection: sqlite3.Connection) -> tuple[int, int]:
            others = connection.execute("PRAGMA data_version").fetchone()[0]
            return id(connection), others + connection.total_changes  # its own: it may be the writer's

        return await self._inspect(look)

    async def check(self, *, whole: bool = False) -> dict[str, Any]:
        def look(connection: sqlite3.Connection) -> dict[str, Any]:
            self._check_files()
            data = {
                "kind": "sqlite",
                "file": Path(self.path).name,
                "sqlite": sqlite3.sqlite_version,
                "journal": connection.execute("PRAGMA journal_mode").fetchone()[0],
            }
            if whole:
                data["integrity"] = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
                data |= {"damaged": cell} if (cell := damaged_cell(connection)) else {}
            return data

        if self._writer.is_full:  # there may be space again
            with suppress(BackendError):
                await asyncio.wrap_future(self._writer.submit(_touch))
        return await self._inspect(look)

    async def _inspect(self, look: Callable[[sqlite3.Connection], T]) -> T:
        """Run a read of the database itself, which no statement can express."""
        if self.path == MEMORY:
            return await asyncio.wrap_future(self._writer.submit(look))
        return await self.read(lambda _: look(self._reader()))

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(None, self._shut)

    def _shut(self) -> None:
        self._writer.close()
        if self._reserves and not self.holders.has_others():
            free_reserve(self.path)
        self.holders.close()
        self._readers.shutdown(wait=True)
        for connection in self._connections:
            connection.close()
