"""What keeps the reflections on turns: those that are due, and what came of each.

Level-triggered: a reflection is asked for in the transaction that opens its turn, or by hand, and stays due until it is
kept. A turn may be reflected on more than once: `n` counts them.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from cuebook.records.audit import Record
from cuebook.records.conversation import Conversation, PathPost
from cuebook.records.memory import Scope
from cuebook.records.mind import Reflection
from cuebook.records.tuning import Snapshot, Tally, Tuning, TuningTotals
from cuebook.records.turn import TurnOn


class MetapromptTask(Struct, frozen=True, array_like=True):
    """What a reflection is to do: a metaprompt by its id, and why; `event:NAME`, `interval:N`, `manual` or `llm`."""

    metaprompt: str
    trigger: str


class DueReflection(Struct, frozen=True, kw_only=True):
    """A reflection that is to be made."""

    tenant: str
    conversation: str
    turn: int
    n: int


class Reflecting(Struct, frozen=True, kw_only=True):
    """What a reflection is made from."""

    conversation: Conversation
    turn: TurnOn
    n: int
    calls: tuple[MetapromptTask, ...]
    before: Reflection | None  # the newest on the turn's path
    epoch: int  # how often something in the conversation was erased


class ReflectionStore(Protocol):
    """Keeps reflections."""

    async def due(self, *, limit: int = 100) -> list[DueReflection]:
        """Name the oldest due reflection of each conversation whose turn has ended."""
        ...

    async def due_in(self, scope: Scope, conversation: str, *, limit: int) -> list[DueReflection]:
        """Name a conversation's due reflections of turns that have ended, oldest first; none where there is none."""
        ...

    async def left(self) -> int:
        """Count all that is due of turns that have ended, of several in one conversation each."""
        ...

    async def read(self, scope: Scope, due: DueReflection) -> Reflecting | None:
        """Read what a reflection is made from; None where it is no longer due."""
        ...

    async def save(self, scope: Scope, read: Reflecting, made: Reflection, *, audit: Sequence[Record] = ()) -> bool:
        """Keep a reflection; False, and nothing is kept, where it was made or its conversation changed meanwhile."""
        ...

    async def ask(self, scope: Scope, conversation: str, calls: Sequence[MetapromptTask]) -> int:
        """Ask for a reflection on the newest turn of the head's path. Answers with the turn's number.

        Raises NotFound, and InvalidInput where no turn is there.
        """
        ...

    async def waiting(self, scope: Scope, conversation: str) -> int:
        """Count a conversation's due reflections, of turns that run too. Raises NotFound."""
        ...

    async def of(
        self, scope: Scope, conversation: str, *, turn: int | None = None, limit: int = 50
    ) -> list[Reflection]:
        """Return a conversation's reflections on all branches, or on one turn, the newest first. Raises NotFound."""
        ...


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


class TuningRun(Struct, frozen=True, kw_only=True):
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
    async def keep(self, scope: Scope, conversation: str, run: TuningRun) -> bool: ...
    async def changed(
        self, *, least: int, since: float, before: float, limit: int = 100, scope: Scope | None = None
    ) -> list[Changed]: ...
    async def history(self, scope: Scope, conversation: str | None, *, limit: int) -> list[Snapshot]: ...
    async def totals(self, scope: Scope, conversation: str | None) -> TuningTotals: ...
    async def tally(
        self, scope: Scope, conversation: str | None, *, organizations: Sequence[str] | None = None
    ) -> Tally: ...
