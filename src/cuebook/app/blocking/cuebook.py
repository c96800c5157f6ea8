"""The synchronous API: `BlockingCuebook` runs a `Cuebook` on an event loop in its own thread, and waits for results.

It is thread-safe: calls of several threads run concurrently. Its namespaces are generated from `Cuebook`'s.
"""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cuebook.app.blocking.generated.parts import BlockingParts
from cuebook.app.blocking.host import Host
from cuebook.app.cuebook import Cuebook
from cuebook.config import Config
from cuebook.interfaces import Analyzer, Clock, Dice, Embedder, Model, Sink, Upstream


class BlockingCuebook(BlockingParts):
    """An open project, without `await`: `with BlockingCuebook.open("cuebook.toml") as cue:`."""

    def __init__(
        self,
        config: Config,
        *,
        model: Model | None = None,
        clock: Clock | None = None,
        dice: Dice | None = None,
        upstream: Upstream | None = None,
        embedder: Embedder | None = None,
        sinks: Sequence[Sink] = (),
        analyzers: Sequence[Analyzer] = (),
        worker: bool = True,
    ) -> None:
        data: dict[str, Any] = {"model": model, "clock": clock, "dice": dice, "upstream": upstream}
        cue = Cuebook(config, **data, embedder=embedder, sinks=sinks, analyzers=analyzers, worker=worker)
        self._host = Host(cue)

    @classmethod
    def open(
        cls,
        where: str | Path | Config | None = None,
        *,
        arguments: Mapping[str, Any] | None = None,
        model: Model | None = None,
        clock: Clock | None = None,
        dice: Dice | None = None,
        upstream: Upstream | None = None,
        embedder: Embedder | None = None,
        sinks: Sequence[Sink] = (),
        analyzers: Sequence[Analyzer] = (),
        worker: bool = True,
    ) -> "BlockingCuebook":
        """Return a BlockingCuebook with the arguments of `Cuebook.open`; `with` opens it. Raises InvalidInput."""
        config = Cuebook.open(where, arguments=arguments).config
        data: dict[str, Any] = {"model": model, "clock": clock, "dice": dice, "upstream": upstream}
        return cls(config, **data, embedder=embedder, sinks=sinks, analyzers=analyzers, worker=worker)

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

    @property
    def config(self) -> Config:
        """The effective settings."""
        return self._host.cue.config

    def of(self, tenant: str) -> "BlockingCuebook":
        """Return this BlockingCuebook limited to one tenant's data, usable while this one is open."""
        blocking_cuebook = copy.copy(self)
        blocking_cuebook._host = self._host.of(tenant)  # noqa: SLF001  # an instance of this class
        return blocking_cuebook
