"""Hold the `Cuebook` and its event loop for all namespaces of a `BlockingCuebook`."""

import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from cuebook.app.cuebook import Cuebook
from cuebook.app.loop import LoopThread, at_exit
from cuebook.errors import CuebookError

_CLOSED = "This BlockingCuebook is closed. Create another with BlockingCuebook.open(...)."


T = TypeVar("T")


class Host:
    """A `Cuebook` and, while it is open, its event loop."""

    def __init__(self, cue: Cuebook) -> None:
        self.cue = cue
        self._loop: LoopThread | None = None
        self._closed = False
        self._guard = threading.Lock()

    def run(self, call: Callable[[Cuebook], Coroutine[Any, Any, T]]) -> T:
        """Return the result of an asynchronous method, waiting for it."""
        return self._opened().run(lambda: call(self.cue))

    def submit(self, call: Callable[[Cuebook], Coroutine[Any, Any, T]]) -> Future[T]:
        """Return the future of an asynchronous method, without waiting for it."""
        return self._opened().submit(lambda: call(self.cue))

    def iterate(self, call: Callable[[Cuebook], AsyncIterator[T]]) -> Iterator[T]:
        """Yield the items of an asynchronous iterator."""
        yield from self._opened().iterate(lambda: call(self.cue))

    def read(self, call: Callable[[Cuebook], T]) -> T:
        """Return the result of a synchronous method of the open `Cuebook`."""
        self._opened()
        return call(self.cue)

    def _opened(self) -> LoopThread:
        """Return the event loop. The first call opens the `Cuebook`, unless `with` has."""
        with self._guard:
            if self._closed:
                raise CuebookError(_CLOSED)
            if self._loop is None:
                self._loop = self._open()
                at_exit(self.close)
            return self._loop

    def of(self, tenant: str) -> "Host":
        """Return a host limited to one tenant's data."""
        host = Host(self.read(lambda cue: cue.of(tenant)))
        host._loop = self._loop
        return host

    def open(self) -> None:
        if self._loop is not None:
            msg = "Cannot open: this BlockingCuebook is already open. Create another with BlockingCuebook.open(...)."
            raise CuebookError(msg)
        self._loop, self._closed = self._open(), False

    def _open(self) -> LoopThread:
        loop = LoopThread("cuebook")
        try:
            loop.run(self.cue.__aenter__)
        except BaseException:
            loop.close()
            raise
        return loop

    def close(self) -> None:
        loop, self._loop, self._closed = self._loop, None, True
        if loop is not None:
            loop.close(last=self.cue.aclose)
