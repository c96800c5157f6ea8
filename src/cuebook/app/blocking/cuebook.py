"""The synchronous API: `BlockingCuebook` runs a `Cuebook` on an event loop in its own thread, and waits for results.

It is thread-safe: calls of several threads run concurrently. Its namespaces are generated from `Cuebook`'s.
"""

import copy
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from cuebook.app.blocking.generated.parts import BlockingParts
from cuebook.app.cuebook import Cuebook
from cuebook.config import Config

T = TypeVar("T")


class BlockingCuebook(BlockingParts):
    """A project, without `await`: `with BlockingCuebook.open("cuebook.toml") as cue:` opens and closes it.

    Without `with`, the first call opens it, and it is open until `close` or the end of the process.
    """

    def __enter__(self) -> Self:
        self._host.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop background jobs and running calls, close the store and all connections, and end the thread."""
        self._host.close()

    def submit(self, work: Callable[[Cuebook], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run `work` of the asynchronous `Cuebook` on its own thread, and return its future."""
        return self._host.submit(work)

    @property
    def config(self) -> Config:
        """The effective settings."""
        return self._host.cue.config

    def of(self, tenant: str) -> "BlockingCuebook":
        """Return this BlockingCuebook limited to one tenant's data, usable while this one is open."""
        blocking_cuebook = copy.copy(self)
        blocking_cuebook._host = self._host.of(tenant)  # noqa: SLF001  # an instance of this class
        return blocking_cuebook
