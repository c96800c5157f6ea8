"""The same book without `await`: one event loop in a thread of its own, and thin methods that wait for it.

Any thread may call; calls of several threads run at the same time. Its parts are made from `Cuebook`'s.
"""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cuebook.app.blocking.generated.parts import BlockingParts
from cuebook.app.blocking.host import Host
from cuebook.app.book import Cuebook
from cuebook.config import Config
from cuebook.interfaces.dice import Clock, Dice
from cuebook.interfaces.embedder import Embedder
from cuebook.interfaces.model import Analyzer, Model, Upstream
from cuebook.interfaces.sink import Sink


class BlockingCuebook(BlockingParts):
    """A book without `await`: `with BlockingCuebook.open("cuebook.toml") as book:` opens it, leaving closes it."""

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
        given: dict[str, Any] = {"model": model, "clock": clock, "dice": dice, "upstream": upstream}
        book = Cuebook(config, **given, embedder=embedder, sinks=sinks, analyzers=analyzers, worker=worker)
        self._host = Host(book)

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
        """Name a book, as `Cuebook.open` does; `with` opens it. Raises InvalidInput."""
        config = Cuebook.open(where, arguments=arguments).config
        given: dict[str, Any] = {"model": model, "clock": clock, "dice": dice, "upstream": upstream}
        return cls(config, **given, embedder=embedder, sinks=sinks, analyzers=analyzers, worker=worker)

    def __enter__(self) -> Self:
        self._host.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the work behind, end what is under way, close store and connections, and end the thread."""
        self._host.close()

    @property
    def config(self) -> Config:
        """The settings in force."""
        return self._host.book.config

    def of(self, tenant: str) -> "BlockingCuebook":
        """Return this book as a tenant with keys sees it, while it is open: nothing of others' is there."""
        seen = copy.copy(self)
        seen._host = self._host.of(tenant)  # noqa: SLF001  # it is one of us
        return seen
