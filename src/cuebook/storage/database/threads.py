"""A thread pool for coroutines, and futures by which threads pass results to an event loop.

`run_in_executor` and `asyncio.wrap_future` need two futures and a lock per result, and twice the processor time.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, Generic, TypeVar

from cuebook.errors import BackendError

T = TypeVar("T")


class LoopFuture(Generic[T]):
    """The result of work in a thread, which one coroutine awaits in the event loop that made it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[T] = self._loop.create_future()
        self._is_done = False

    def __await__(self) -> Generator[Any, None, T]:
        return self._future.__await__()

    def is_cancelled(self) -> bool:
        """Return whether no coroutine waits for the result any more."""
        return self._future.cancelled()

    def done(self) -> bool:
        """Return whether a thread has set the result."""
        return self._is_done

    def set_result(self, result: T) -> None:
        """Pass the result to the event loop."""
        self._pass(self._future.set_result, result)

    def set_exception(self, error: BaseException) -> None:
        """Pass an error to the event loop."""
        self._pass(self._future.set_exception, error)

    def _pass(self, finish: Callable[[Any], None], value: object) -> None:
        self._is_done = True
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._finish, finish, value)

    def _finish(self, finish: Callable[[Any], None], value: object) -> None:
        if not self._future.done():
            finish(value)


class ThreadPool:
    """Threads that run work of coroutines. They are started when needed, at most `limit` of them."""

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        self._requests: queue.SimpleQueue[tuple[Callable[[], Any], LoopFuture[Any]] | None] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._pending = 0
        self._closed = False

    def submit(self, work: Callable[[], T]) -> LoopFuture[T]:
        """Queue work for a thread and return its future."""
        future: LoopFuture[T] = LoopFuture()
        with self._guard:
            if self._closed:
                msg = "The store is closed."
                raise BackendError(msg)
            if len(self._threads) < min(self._pending + 1, self._limit):
                name = f"{self._name}-{len(self._threads)}"
                thread = threading.Thread(target=self._loop, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
            self._pending += 1
            self._requests.put((work, future))
        return future

    def close(self) -> None:
        """Finish queued work, then end the threads."""
        with self._guard:
            self._closed = True
            for _ in self._threads:
                self._requests.put(None)
        for thread in self._threads:
            thread.join()

    def _loop(self) -> None:
        while (request := self._requests.get()) is not None:
            self._run(*request)
            del request  # an idle thread keeps nothing alive

    def _run(self, work: Callable[[], Any], future: LoopFuture[Any]) -> None:
        result = failure = None
        try:
            if not future.is_cancelled():
                result = work()
        except BaseException as error:  # noqa: BLE001  passed to the coroutine that waits
            failure = error
        with self._guard:
            self._pending -= 1
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)
        del failure, future, work  # the traceback of the error refers to this frame
