"""The write queue: one thread owns the write connection and commits queued writes together (group commit)."""

import queue
import re
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

from cuebook.errors import BackendError, Conflict, CuebookError, InvalidInput, StoreFull
from cuebook.storage.database.columns import UNREADABLE, unreadable_value
from cuebook.storage.database.transaction import Failpoints

T = TypeVar("T")

#: Most requests per commit, which limits the wait of the first (measured: 64 is 65 times as fast as single commits).
BATCH = 256

#: The error for each of SQLite's codes, by prefix. {} is SQLite's message.
_ERRORS: Final[tuple[tuple[tuple[str, ...], Callable[[str], CuebookError], str], ...]] = (
    (("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY"), Conflict, "A conflicting row already exists ({})."),
    (("SQLITE_TOOBIG",), InvalidInput, "A value is too large for the store ({}). Shorten it."),
    (  # no space, a quota or a file size limit (ENOSPC, EDQUOT, EFBIG), or no page for the -shm file
        ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE"),
        StoreFull,
        "The store could not write ({}). Nothing of this request was stored. Free some space.",
    ),
    (
        ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH"),
        BackendError,
        "The store cannot be opened or written ({}). Check the permissions of the file and its folder.",
    ),
    (
        ("SQLITE_BUSY", "SQLITE_LOCKED"),
        partial(BackendError, retryable=True),
        "The store is locked by another process ({}). Try again.",
    ),
    (
        ("SQLITE_CORRUPT", "SQLITE_NOTADB"),
        BackendError,
        "The store's file is damaged or not a Cuebook database ({}). Restore it from a backup.",
    ),
    (("",), BackendError, "The store failed ({})."),
)

#: The message of Python's driver, which also has the text.
_NOT_UTF8: Final = re.compile(r"Could not decode to UTF-8 column '(?P<column>[^']*)'")

#: One write: a function of the connection, and the future of its result.
WriteRequest = tuple[Callable[[sqlite3.Connection], Any], "Future[Any]"]
#: A request with its result or exception.
Outcome = tuple[WriteRequest, Any, BaseException | None]


class _GivenUpError(Exception):
    """SQLite rolled back the whole transaction inside a request: nothing of the batch is stored."""


def explain(error: BaseException, check: Callable[[], None]) -> BaseException:
    """Return the Cuebook error for any exception inside the store.

    SQLite's message on a removed or replaced file depends on the moment. So `check`, which raises for one, goes first.
    """
    if not isinstance(error, sqlite3.Error):
        return _explain_value(error)
    try:
        check()
    except CuebookError as cause:
        return cause
    if damaged := _NOT_UTF8.match(str(error)):
        msg = f"The database is damaged: a text in column {damaged['column']!r} is not UTF-8."
        return BackendError(f"{msg} Run `cuebook doctor`, which names the row, and restore a backup.")
    code = getattr(error, "sqlite_errorname", "") or ""
    return next(kind(text.format(error)) for codes, kind, text in _ERRORS if code.startswith(codes))


def _explain_value(error: BaseException) -> BaseException:
    if isinstance(error, UNREADABLE):
        return unreadable_value()
    if isinstance(error, UnicodeError):
        return InvalidInput(f"A text cannot be stored ({error}). Send valid Unicode.")
    if isinstance(error, OverflowError):
        return InvalidInput(f"A number cannot be stored ({error}). Use a smaller number.")
    return error


class Writer:
    """The only writer of this process. `commits` counts the transactions it has committed."""

    def __init__(
        self, connect: Callable[[], sqlite3.Connection], failpoints: Failpoints, check: Callable[[], None]
    ) -> None:
        """`connect` opens the connection, `check` raises if a commit would be lost."""
        self._connect = connect
        self._failpoints = failpoints
        self._check = check
        self._requests: queue.SimpleQueue[WriteRequest | None] = queue.SimpleQueue()
        self._gate = threading.Lock()  # all queued requests came before the end
        self._closed = False
        self.commits = 0
        self.is_full = False  # whether the last write failed because there was no space
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._loop, args=(ready,), name="cuebook-writer", daemon=True)
        self._thread.start()
        ready.result()

    def submit(self, run: Callable[[sqlite3.Connection], T]) -> "Future[T]":
        """Queue a write; the future is done when it is durable."""
        future: Future[T] = Future()
        with self._gate:
            if self._closed:
                raise _closed()
            self._requests.put((run, future))
        return future

    def close(self) -> None:
        """Finish queued writes, then end the thread."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._requests.put(None)
        self._thread.join()

    def _loop(self, ready: "Future[None]") -> None:
        try:
            connection = self._connect()
        except BaseException as error:  # noqa: BLE001  passed to the caller that opens the store
            self._closed = True
            ready.set_exception(explain(error, self._check))
            return
        ready.set_result(None)
        try:
            while (first := self._requests.get()) is not None:
                batch, more = self._gather(first)
                self._commit(connection, batch)
                if not more:
                    break
        finally:
            self._refuse_rest()
            connection.close()

    def _gather(self, first: WriteRequest) -> tuple[list[WriteRequest], bool]:
        batch = [first]
        while len(batch) < BATCH:
            try:
                request = self._requests.get_nowait()
            except queue.Empty:
                break
            if request is None:
                return batch, False
            batch.append(request)
        return batch, True

    def _refuse_rest(self) -> None:
        """Fail the queued requests if the thread ends early, so that none waits forever."""
        with self._gate:
            self._closed = True
        while True:
            try:
                request = self._requests.get_nowait()
            except queue.Empty:
                return
            if request is not None and request[1].set_running_or_notify_cancel():
                request[1].set_exception(_closed())

    def _commit(self, connection: sqlite3.Connection, batch: Sequence[WriteRequest]) -> None:
        """Run a batch in one transaction; if SQLite rolls it back (a full disk), run each request in its own."""
        waiting = [request for request in batch if request[1].set_running_or_notify_cancel()]
        try:
            if not self._together(connection, waiting):
                for request in waiting:
                    self._together(connection, [request])
        except BaseException as error:
            for _, future in waiting:
                if not future.done():
                    future.set_exception(explain(error, self._check))
            raise

    def _together(self, connection: sqlite3.Connection, requests: Sequence[WriteRequest]) -> bool:
        """Run requests, commit once, then set all results. Return False if each must be tried alone."""
        outcomes: list[Outcome] = []
        begun = committed = False
        try:
            if connection.in_transaction:  # an earlier rollback that failed
                connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
            begun = True
            outcomes.extend(_run(connection, request, alone=len(requests) == 1) for request in requests)
            if connection.in_transaction:
                self._failpoints("commit.before")
                self._check()
                connection.execute("COMMIT")
                committed = True
                self.is_full = False
                self.commits += 1
                self._failpoints("commit.after")
        except (sqlite3.Error, CuebookError, _GivenUpError) as error:
            _roll_back(connection)
            if begun and not committed and len(requests) > 1 and not isinstance(error, CuebookError):
                return False
            outcomes = [(request, None, error) for request in requests]
        for (_, future), result, failure in outcomes:
            if failure is None:
                future.set_result(result)
            else:
                explained = explain(failure, self._check)
                self.is_full |= isinstance(explained, StoreFull)
                future.set_exception(explained)
        return True


def _run(connection: sqlite3.Connection, request: WriteRequest, *, alone: bool) -> Outcome:
    """Run one request in a savepoint; a failed request is rolled back alone."""
    if not alone:
        connection.execute("SAVEPOINT request")
    try:
        result = request[0](connection)
    except BaseException as error:
        if not connection.in_transaction and not alone:
            raise _GivenUpError from error
        if connection.in_transaction:
            connection.execute("ROLLBACK" if alone else "ROLLBACK TO request")
        if not alone:
            connection.execute("RELEASE request")
        return request, None, error
    if not alone:
        connection.execute("RELEASE request")
    return request, result, None


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            return  # tried again before the next transaction


def _closed() -> BackendError:
    return BackendError("The store is closed.")
