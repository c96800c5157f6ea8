"""Hold the `Cuebook` and its event loop for all namespaces of a `BlockingCuebook`."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from cuebook.app.cuebook import Cuebook
from cuebook.app.loop import LoopThread
from cuebook.errors import CuebookError

_CLOSED = "This BlockingCuebook is not open. Use it inside `with BlockingCuebook.open(...) as cue:`."


T = TypeVar("T")


class Host:
    """A `Cuebook` and, while it is open, its event loop."""

    def __init__(self, cue: Cuebook) -> None:
        self.cue = cue
        self._loop: LoopThread | None = None

    def run(self, call: Callable[[Cuebook], Coroutine[Any, Any, T]]) -> T:
        """Return the result of an asynchronous method, waiting for it."""
        return self._opened().run(lambda: call(self.cue))

    def iterate(self, call: Callable[[Cuebook], AsyncIterator[T]]) -> Iterator[T]:
        """Yield the items of an asynchronous iterator."""
        yield from self._opened().iterate(lambda: call(self.cue))

    def read(self, call: Callable[[Cuebook], T]) -> T:
        """Return the result of a synchronous method of the open `Cuebook`."""
        self._opened()
        return call(self.cue)

    def _opened(self) -> LoopThread:
        if self._loop is None:
            raise CuebookError(_CLOSED)
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
        loop = LoopThread("cuebook")
        try:
            loop.run(self.cue.__aenter__)
        except BaseException:
            loop.close()
            raise
        self._loop = loop

    def close(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.close(last=self.cue.aclose)
