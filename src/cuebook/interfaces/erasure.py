"""What forgetting needs of a store: all of it in one transaction, then files that hold no byte of it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from cuebook.records.audit import Checkpoint, Record
from cuebook.records.conversation import PathPost
from cuebook.records.erasure import Receipt, Target, WouldForget
from cuebook.records.memory import Correction, Scope


class Erasing(Struct, frozen=True, kw_only=True):
    """A forget: what of, its receipt so far, the time, and what weighs a post whose words were replaced (tokens)."""

    target: Target
    receipt: Receipt
    now: float
    weigh: Callable[[PathPost], int]
    corrections: tuple[Correction, ...] = ()  # what conversations tell no more
    posts: Mapping[str, Collection[int]] = {}  # of items: by conversation, their posts by seq


class ErasureStore(Protocol):
    """Forgets, and remembers only that it did."""

    async def forget(self, scope: Scope, erasing: Erasing) -> Receipt:
        """Raise the epoch and erase everything, in one transaction; answers with the receipt, pending.

        What is not there, or another's, counts nothing.
        Work of before finds its compare-and-set refused. Raises Conflict naming the hold that forbids it.
        """
        ...

    async def would_forget(self, scope: Scope, erasing: Erasing) -> WouldForget:
        """Return what `forget` would take, and what forbids it; nothing is changed. It takes as long."""
        ...

    @property
    def unclean(self) -> bool:
        """Whether what was forgotten may still lie somewhere, as far as this process knows."""
        ...

    async def emptied(self, *, patience_ms: int = 0, large: bool = False) -> bool:
        """Leave no byte of what was forgotten; False while somebody still reads it.

        What would take many seconds is done only where `large` says so; it answers False otherwise.
        """
        ...

    async def receipt(self, scope: Scope, receipt: str) -> Receipt:
        """Return a receipt. Raises NotFound."""
        ...

    async def receipts(self, scope: Scope, *, limit: int = 100) -> list[Receipt]:
        """Return the newest receipts, the newest first."""
        ...

    async def pending(self, *, limit: int = 100) -> list[tuple[str, Receipt]]:
        """Return receipts that are not signed, of all tenants, with their tenant."""
        ...

    async def finish(self, scope: Scope, receipt: Receipt) -> bool:
        """Keep a signed receipt in the place of its pending form; False where another process did."""
        ...

    async def idle(self, *, before: float, limit: int) -> list[tuple[str, str]]:
        """Return conversations nothing was said in since a time: tenant and id, the oldest first."""
        ...

    async def untouched(self, *, before: float, limit: int) -> list[tuple[str, str]]:
        """Return memories nobody said, repeated or changed since a time: likewise."""
        ...


class AuditStore(Protocol):
    """Where what was done with prompts is proven. Records join the chain in the transaction of what they tell."""

    async def append(self, scope: Scope, records: Sequence[Record]) -> list[Record]:
        """Chain records behind the last one, in one transaction. Answers with them as chained."""
        ...

    async def records(self, scope: Scope, *, after: int = 0, limit: int = 1000) -> list[Record]:
        """Return records behind a seq, the oldest first."""
        ...

    async def last(self, scope: Scope) -> tuple[int, str]:
        """Return seq and hash of the newest record, (0, GENESIS) for none."""
        ...

    async def checkpoints(self, scope: Scope) -> list[Checkpoint]:
        """Return the checkpoints, the smallest first."""
        ...

    async def keep_checkpoint(self, scope: Scope, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint."""
        ...
