"""What the audit needs of a store: a chain of records per tenant that only grows, and checkpoints signed over it."""

from collections.abc import Sequence
from typing import Protocol

from cuebook.records.audit import Checkpoint, Record
from cuebook.records.memory import Scope


class AuditStore(Protocol):
    """Where what was done with prompts is proven. Records join the chain in the transaction of what they tell."""

    async def append(self, scope: Scope, records: Sequence[Record]) -> list[Record]:
        """Chain records behind the last one, in one transaction. Answers with them as chained."""
        ...

    async def records(self, scope: Scope, *, after: int = 0, limit: int = 1000) -> list[Record]:
        """Give records behind a seq, the oldest first."""
        ...

    async def last(self, scope: Scope) -> tuple[int, str]:
        """Give seq and hash of the newest record, (0, GENESIS) for none."""
        ...

    async def checkpoints(self, scope: Scope) -> list[Checkpoint]:
        """Give the checkpoints, the smallest first."""
        ...

    async def keep_checkpoint(self, scope: Scope, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint."""
        ...
