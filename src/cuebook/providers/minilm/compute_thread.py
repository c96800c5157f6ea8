"""A priority queue for one compute thread: foreground calls go before background work."""

import asyncio
import heapq
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Any, Final, TypeVar

from cuebook.errors import BackendError

T = TypeVar("T")

#: Seconds after which a background piece is no longer overtaken: under constant load it continues, but slower.
PASSED_S: Final = 0.25


class ComputeQueue:
    """A queue of work for one thread, which uses at most one core."""

    def __init__(self, name: str, *, passed_s: float = PASSED_S) -> None:
        self._passed_s = passed_s
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._waiting: list[tuple[float, int, Future[Any], Callable[[], Any]]] = []
        self._numbers = count()
        self._closed = False

    async def run(self, piece: Callable[[], T], *, urgent: bool) -> T:
        """Compute a piece when its turn comes, unless it was cancelled before. Raises BackendError."""
        future: Future[T] = Future()
        turn = time.monotonic() + (0.0 if urgent else self._passed_s)
        with self._lock:
            if self._closed:
                raise _gone()
            heapq.heappush(self._waiting, (turn, next(self._numbers), future, piece))
            self._thread.submit(self._first)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Cancel queued work and wait for the running piece."""
        with self._lock:
            self._closed = True
        self._thread.shutdown(wait=True, cancel_futures=True)
        for *_, future, _ in self._waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(_gone())
        self._waiting.clear()

    def _first(self) -> None:
        """Compute the piece that is now first in the queue."""
        with self._lock:
            *_, future, piece = heapq.heappop(self._waiting)
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(piece())
        except BaseException as error:  # noqa: BLE001 - raised to the caller that waits for the piece
            future.set_exception(error)


def _gone() -> BackendError:
    return BackendError("The embedder is closed.", retryable=True)
