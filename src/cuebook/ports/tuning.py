"""What keeps how conversations tune themselves, and reads what the analyzer judges."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from cuebook.records.conversation import Conversation, PathPost
from cuebook.records.memory import Scope
from cuebook.records.tuning import Snapshot, Tally, Totals, Tuning


class Entries(Struct, frozen=True, kw_only=True):
    """Posts of the head's path behind a seq, oldest first. `anew`: that seq is not on the path, these begin it."""

    conversation: Conversation
    posts: tuple[PathPost, ...]
    anew: bool = False


class Tuned(Struct, frozen=True, kw_only=True):
    """A conversation's tuning, how far its last run had seen, and when that was (Unix seconds)."""

    tuning: Tuning
    seen_seq: int
    updated_at: float


class Changed(Struct, frozen=True):
    """A conversation that changed since its last run."""

    tenant: str
    conversation: str


class Run(Struct, frozen=True, kw_only=True):
    """What a run leaves, decided on the tuning of `before` (0 where there was none); without a snapshot it saw only."""

    no: int  # the conversation's number as it was read
    seen_seq: int
    before: float
    now: float
    tuning: Tuning
    snapshot: Snapshot | None = None


class TuningStore(Protocol):
    """Keeps tunings and the snapshots of their runs, the newest 500 of a conversation."""

    async def entries(self, scope: Scope, conversation: str, *, after: int, limit: int) -> Entries: ...
    async def tuned(self, scope: Scope, conversation: str) -> Tuned | None: ...
    async def keep(self, scope: Scope, conversation: str, run: Run) -> bool: ...
    async def changed(
        self, *, least: int, since: float, before: float, limit: int = 100, scope: Scope | None = None
    ) -> list[Changed]: ...
    async def history(self, scope: Scope, conversation: str | None, *, limit: int) -> list[Snapshot]: ...
    async def totals(self, scope: Scope, conversation: str | None) -> Totals: ...
    async def tally(
        self, scope: Scope, conversation: str | None, *, organizations: Sequence[str] | None = None
    ) -> Tally: ...
