"""How writes become durable: one thread owns the writing connection and commits what waits together (group commit)."""

import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from cuebook.backends.failpoints import Failpoints
from cuebook.errors import BackendError, CuebookError, StoreFull

T = TypeVar("T")

#: The most requests one commit carries: bounds how long the first of them waits (measured: 64 gives 65x one by one).
BATCH = 256


class Request(Generic[T]):
    """One write: a function of the connection, and the future its result goes to."""

    __slots__ = ("future", "run")

    def __init__(self, run: Callable[[sqlite3.Connection], T]) -> None:
        self.run = run
        self.future: Future[T] = Future()


def translate(error: sqlite3.Error) -> CuebookError:
    """Say what a driver's error means for a caller."""
    text = str(error)
    code = getattr(error, "sqlite_errorname", "") or ""
    if code.startswith("SQLITE_FULL") or code in ("SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC"):
        return StoreFull(f"the store could not write ({text}); nothing of this request was stored; free some space and try again")
    if code.startswith("SQLITE_READONLY") or code.startswith("SQLITE_CANTOPEN"):
        return BackendError(f"the store cannot be written ({text}); check the file's and its folder's permissions")
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return BackendError(f"the store is locked by another process ({text}); try again", retryable=True)
    if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return BackendError(f"the store's file is damaged or no Cuebook database ({text}); restore it from a backup")
    return BackendError(f"the store failed ({text})")


class Writer:
    """The only writer of this process. `commits` counts the transactions it has committed."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], failpoints: Failpoints) -> None:
        self._connect = connect
        self._failpoints = failpoints
        self._requests: queue.SimpleQueue[Request[Any] | None] = queue.SimpleQueue()
        self._closed = False
        self.commits = 0
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._loop, args=(ready,), name="cuebook-writer", daemon=True)
        self._thread.start()
        ready.result()

    def submit(self, run: Callable[[sqlite3.Connection], T]) -> "Future[T]":
        """Queue a write; the future is done when it is durable."""
        if self._closed:
            msg = "the store is closed"
            raise BackendError(msg)
        request = Request(run)
        self._requests.put(request)
        return request.future

    def close(self) -> None:
        """Finish what waits, then end the thread."""
        if not self._closed:
            self._closed = True
            self._requests.put(None)
            self._thread.join()

    def _loop(self, ready: "Future[None]") -> None:
        try:
            connection = self._connect()
        except (sqlite3.Error, CuebookError, OSError) as error:
            self._closed = True
            ready.set_exception(translate(error) if isinstance(error, sqlite3.Error) else error)
            return
        ready.set_result(None)
        try:
            while (first := self._requests.get()) is not None:
                batch, more = self._gather(first)
                self._commit(connection, batch)
                if not more:
                    break
        finally:
            connection.close()

    def _gather(self, first: Request[Any]) -> tuple[list[Request[Any]], bool]:
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

    def _commit(self, connection: sqlite3.Connection, batch: list[Request[Any]]) -> None:
        """Run a batch in one transaction; a request that fails rolls back alone."""
        done: list[tuple[Request[Any], Any]] = []
        try:
            connection.execute("BEGIN IMMEDIATE")
            for request in batch:
                if request.future.set_running_or_notify_cancel():
                    self._run(connection, request, done)
            if connection.in_transaction:
                self._failpoints("commit.before")
                connection.execute("COMMIT")
            self.commits += 1
            self._failpoints("commit.after")
        except (sqlite3.Error, CuebookError) as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            failure = translate(error) if isinstance(error, sqlite3.Error) else error
            for request in batch:
                if not request.future.done():
                    request.future.set_exception(failure)
            return
        for request, result in done:
            request.future.set_result(result)

    def _run(self, connection: sqlite3.Connection, request: Request[Any], done: list[tuple[Request[Any], Any]]) -> None:
        connection.execute("SAVEPOINT request")
        try:
            result = request.run(connection)
        except BaseException as error:  # a request's own failure is its caller's; the batch goes on
            if not connection.in_transaction:
                raise  # SQLite gave up the whole transaction (disk full): nothing of the batch stands
            connection.execute("ROLLBACK TO request")
            connection.execute("RELEASE request")
            request.future.set_exception(translate(error) if isinstance(error, sqlite3.Error) else error)
            return
        connection.execute("RELEASE request")
        done.append((request, result))
