"""Run an asyncio event loop in its own thread, so that other threads can call coroutines and wait for them."""

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

from cuebook.errors import CuebookError

T = TypeVar("T")
#: Creates the coroutine to run, on the loop's thread.
Make = Callable[[], Coroutine[Any, Any, T]]


class LoopThread:
    """Runs coroutines for other threads. The thread is a daemon: a program that forgets to close it can still exit."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._guard = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._turn, name=name, daemon=True)
        self._thread.start()

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    def run(self, make: Make[T]) -> T:
        """Run a coroutine and return its result. An interrupt (Ctrl-C) cancels it."""
        if threading.current_thread() is self._thread:
            msg = "Deadlock: called from Cuebook's own thread. Call from another thread, or use Cuebook with await."
            raise CuebookError(msg)
        with self._guard:
            if self._closed:
                raise _closed()
            future = asyncio.run_coroutine_threadsafe(self._tracked(make), self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise _closed() from None
        except BaseException:
            future.cancel()
            raise

    async def _tracked(self, make: Make[T]) -> T:
        task = asyncio.current_task()
        if task is not None:
            self._track(task)
        return await make()

    def _track(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def iterate(self, make: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """Yield the items of an async iterator, fetching each on demand. An early exit closes the iterator."""
        flow = self.run(lambda: self._begin(make))
        try:
            while not isinstance(piece := self.run(flow.next), _End):
                yield piece
        finally:
            self._stop(flow)

    async def _begin(self, make: Callable[[], AsyncIterator[T]]) -> "_Flow[T]":
        flow = _Flow(make())
        self._track(flow.task)
        return flow

    def _stop(self, flow: "_Flow[Any]") -> None:
        if flow.task.done():
            return
        if threading.current_thread() is self._thread:  # an iterator garbage-collected here: cannot wait
            flow.task.cancel()
        elif not self._closed:
            self.run(flow.stop)

    def close(self, last: Make[None] | None = None) -> None:
        """Cancel running tasks, run `last`, and end the thread. Waiting and later calls raise CuebookError."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
        future = asyncio.run_coroutine_threadsafe(self._shut(last), self._loop)
        try:
            future.result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    async def _shut(self, last: Make[None] | None) -> None:
        running = set(self._tasks)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        if last is not None:
            await last()


class _End:
    """Marks the end of an iterator."""


class _Flow(Generic[T]):
    """An async iterator consumed by one task, one item per request: it never runs ahead of its consumer."""

    def __init__(self, source: AsyncIterator[T]) -> None:
        self._wanted = asyncio.Semaphore(0)
        self._pieces: asyncio.Queue[T] = asyncio.Queue()
        self.task = asyncio.create_task(self._pump(source))

    async def _pump(self, source: AsyncIterator[T]) -> None:
        try:
            await self._wanted.acquire()
            async for piece in source:
                self._pieces.put_nowait(piece)
                await self._wanted.acquire()
        finally:
            if isinstance(source, AsyncGenerator):
                await source.aclose()

    async def next(self) -> T | _End:
        """Return the next item, or raise what the iterator raised."""
        self._wanted.release()
        piece = asyncio.create_task(self._pieces.get())
        try:
            await asyncio.wait({piece, self.task}, return_when=asyncio.FIRST_COMPLETED)
            if piece.done():
                return piece.result()
        finally:
            piece.cancel()
        self.task.result()
        return _End()

    async def stop(self) -> None:
        """Close the iterator, and wait until it has released its resources."""
        self.task.cancel()
        await asyncio.wait({self.task})
        if not self.task.cancelled():
            self.task.result()


def _closed() -> CuebookError:
    return CuebookError("This BlockingCuebook is closed. Open it with `with BlockingCuebook.open(...) as cue:`.")
