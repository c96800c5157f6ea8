"""Run an asyncio event loop in its own thread, so that other threads can call coroutines and wait for them."""

import asyncio
import atexit
import concurrent.futures
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from cuebook.errors import CuebookError

T = TypeVar("T")
#: Registers a function that runs at the end of the process, before thread pools refuse work as they do in `atexit`.
at_exit: Callable[[Callable[[], None]], Any] = vars(threading).get("_register_atexit", atexit.register)
#: Marks the end of an iterator.
_END: Any = object()
#: Creates the coroutine to run, on the loop's thread.
Make = Callable[[], Coroutine[Any, Any, T]]


class _InlinePool(ThreadPoolExecutor):
    """Runs work at once in the calling thread: Python 3.12 starts no thread at the end of the process."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future = Future[T]()
        future.set_result(fn(*args, **kwargs))
        return future


def run_at_exit(make: Make[None]) -> None:
    """Run a coroutine at the end of the process, in an event loop that starts no thread."""
    loop = asyncio.new_event_loop()
    loop.set_default_executor(_InlinePool(1))
    try:
        loop.run_until_complete(make())
    finally:
        loop.close()


class LoopThread:
    """Runs coroutines for other threads. The thread is a daemon: a program that forgets to close it can still exit."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._pool = ThreadPoolExecutor(thread_name_prefix=f"{name}-pool")
        self._loop.set_default_executor(self._pool)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._flows: dict[AsyncIterator[Any], asyncio.Task[Any] | None] = {}  # open iterators, with their last step
        self._guard = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._turn, name=name, daemon=True)
        self._thread.start()

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._pool.shutdown()  # the loop's own method starts a thread, which Python 3.12 refuses at exit
        finally:
            self._loop.close()

    def submit(self, make: Make[T]) -> "concurrent.futures.Future[T]":
        """Run a coroutine and return its future."""
        with self._guard:
            if self._closed:
                raise _closed()
            return asyncio.run_coroutine_threadsafe(self._tracked(make), self._loop)

    def run(self, make: Make[T]) -> T:
        """Run a coroutine and return its result. An interrupt (Ctrl-C) cancels it."""
        if threading.current_thread() is self._thread:
            msg = "Deadlock: called from Cuebook's own thread. Call from another thread, or use Cuebook with await."
            raise CuebookError(msg)
        future = self.submit(make)
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
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await make()

    def iterate(self, make: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """Yield the items of an async iterator, fetching each on demand. An early exit closes the iterator."""
        flow = make()
        try:
            while (piece := self.run(lambda: self._next(flow))) is not _END:
                yield piece
        finally:
            if threading.current_thread() is self._thread:  # an iterator garbage-collected here: cannot wait
                self._tasks.add(self._loop.create_task(self._end(flow)))
            elif not self._closed:
                self.run(lambda: self._end(flow))

    async def _next(self, flow: AsyncIterator[Any]) -> Any:
        self._flows[flow] = asyncio.current_task()
        return await anext(flow, _END)

    async def _end(self, flow: AsyncIterator[Any]) -> None:
        """Close an iterator after its last step, and wait until it has released its resources."""
        step = self._flows.pop(flow, None)
        if step is not None and not step.done():
            await asyncio.wait({step})
        if isinstance(flow, AsyncGenerator):
            await flow.aclose()

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
        for flow in list(self._flows):
            await self._end(flow)
        if last is not None:
            await last()


def _closed() -> CuebookError:
    return CuebookError("This BlockingCuebook is closed. Open it with `with BlockingCuebook.open(...) as cue:`.")
