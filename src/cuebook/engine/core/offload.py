"""Run work that grows with a text outside the event loop: in a thread, or in a child process of a server.

Threads share the interpreter's lock, and a regular expression holds it until it has searched the whole text. So a
server computes pure functions in a child process, which it starts with the first one, and again if it dies.
"""

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import asynccontextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, Final, TypeVar

from cuebook.errors import BackendError

T = TypeVar("T")

#: Characters from which work leaves the event loop (measured: these take 10 ms), and those that an item counts for.
LARGE: Final = 50_000
_ITEM: Final = 200
_SLICE: Final = 1_000
#: Added to the child's niceness, so that requests of others go first.
_NICE: Final = 5


def slices(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield values in parts that are computed at once, so that their transfer takes little time."""
    return (values[first : first + _SLICE] for first in range(0, len(values), _SLICE))


class Offload:
    """Runs work outside the event loop. One thread at a time, because all wait for the same lock."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._has_child = False
        self._child: _Child | None = None

    async def run(self, size: int, work: Callable[[], T], *, items: int = 0) -> T:
        """Return the result of work on `size` characters and some items: in a thread if they are many."""
        if size + _ITEM * items <= LARGE:
            return work()
        async with self._lock:
            return await asyncio.to_thread(work)

    async def compute(self, function: Callable[..., T], *args: Any, size: int = LARGE, items: int = 1) -> T:
        """Return the result of a pure function: of a module, with arguments that can be pickled.

        In a library it runs in a thread. Raises BackendError if the child process died twice.
        """
        if size + _ITEM * items <= LARGE or not self._has_child:
            return await self.run(size, lambda: function(*args), items=items)
        for _ in range(2):
            child = self._child = self._child or _Child()
            try:
                submitted = await asyncio.to_thread(child.pool.submit, function, *args)
                return await asyncio.wrap_future(submitted)
            except BrokenExecutor:
                if child.is_ended:
                    break  # the server is stopping
                if self._child is child:
                    self._child = None
        msg = "The process for long texts ended twice. Send less text at once, or free some memory."
        raise BackendError(msg, retryable=True)

    @asynccontextmanager
    async def child_process(self) -> AsyncIterator[None]:
        """Compute in a child process meanwhile."""
        self._has_child = True
        try:
            yield
        finally:
            self._has_child = False
            child, self._child = self._child, None
            if child is not None:
                await asyncio.to_thread(child.end)


class _Child:
    """One child process. It ends with this process, also if that is killed."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        reader, self._alive = context.Pipe(duplex=False)
        self.is_ended = False
        self.pool = ProcessPoolExecutor(1, mp_context=context, initializer=_begin, initargs=(reader,))

    def end(self) -> None:
        """End the process without waiting for its work."""
        self.is_ended = True
        self._alive.close()
        self.pool.shutdown(cancel_futures=True)


def _begin(alive: "Connection[Any, Any]") -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends this process
    if hasattr(os, "nice"):
        os.nice(_NICE)
    threading.Thread(target=_end_with, args=(alive,), daemon=True).start()


def _end_with(alive: "Connection[Any, Any]") -> None:
    with suppress(EOFError, OSError):
        alive.recv_bytes()
    os._exit(0)
