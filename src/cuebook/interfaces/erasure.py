"""Protocols for erasure and for the audit log: delete data in one transaction, then clean the files."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from cuebook.records.audit import Checkpoint, Record
from cuebook.records.conversation import PathPost
from cuebook.records.erasure import Receipt, Target, WouldForget
from cuebook.records.memory import Correction, Scope


class ErasureInput(Struct, frozen=True, kw_only=True):
    """An erasure: its target, its receipt so far, the time, and a function that counts the tokens
    of a redacted post.
    """

    target: Target
    receipt: Receipt
    now: float
    weigh: Callable[[PathPost], int]
    corrections: tuple[Correction, ...] = ()  # removed from conversations
    posts: Mapping[str, Collection[int]] = {}  # of items: by conversation, their posts by seq


class ErasureStore(Protocol):
    """Erases data, and stores only receipts of it."""

    async def forget(self, scope: Scope, erasing: ErasureInput) -> Receipt:
        """Raise the epoch and erase everything in one transaction. Return the pending receipt.

        Missing targets and targets of another owner count as zero. Earlier work fails its compare-and-set. Raises
        Conflict naming the hold that forbids it.
        """
        ...

    async def would_forget(self, scope: Scope, erasing: ErasureInput) -> WouldForget:
        """Return what `forget` would delete, and what forbids it. Change nothing. It takes as long."""
        ...

    @property
    def unclean(self) -> bool:
        """Return whether files may still contain erased data, as far as this process knows."""
        ...

    async def emptied(self, *, patience_ms: int = 0, large: bool = False) -> bool:
        """Remove all bytes of erased data from the files. Return False while another reader uses them.

        Do work of many seconds only if `large`, else return False.
        """
        ...

    async def receipt(self, scope: Scope, receipt: str) -> Receipt:
        """Return a receipt. Raises NotFound."""
        ...

    async def receipts(self, scope: Scope, *, limit: int = 100) -> list[Receipt]:
        """Return the newest receipts, newest first."""
        ...

    async def pending(self, *, limit: int = 100) -> list[tuple[str, Receipt]]:
        """Return unsigned receipts of all tenants, with their tenant."""
        ...

    async def finish(self, scope: Scope, receipt: Receipt) -> bool:
        """Replace a pending receipt by its signed form. Return False if another process did."""
        ...

    async def idle(self, *, before: float, limit: int) -> list[tuple[str, str]]:
        """Return conversations without posts since a time: tenant and id, oldest first."""
        ...

    async def untouched(self, *, before: float, limit: int) -> list[tuple[str, str]]:
        """Return memories neither repeated nor changed since a time, likewise."""
        ...


class AuditStore(Protocol):
    """Audit log of prompts. Records join the hash chain in the transaction of the action."""

    async def append(self, scope: Scope, records: Sequence[Record]) -> list[Record]:
        """Append records to the chain in one transaction. Return them as chained."""
        ...

    async def records(self, scope: Scope, *, after: int = 0, limit: int = 1000) -> list[Record]:
        """Return records after a seq, oldest first."""
        ...

    async def last(self, scope: Scope) -> tuple[int, str]:
        """Return seq and hash of the newest record, (0, GENESIS) for none."""
        ...

    async def checkpoints(self, scope: Scope) -> list[Checkpoint]:
        """Return the checkpoints, smallest first."""
        ...

    async def keep_checkpoint(self, scope: Scope, checkpoint: Checkpoint) -> None:
        """Store a checkpoint."""
        ...
