"""Protocol of the store of reflections and tunings: due ones and results.

A reflection is requested in the transaction that opens its turn, or by hand, and is due until its result is stored. A
turn may have several reflections, counted by `n`.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from cuebook.records.audit import Record
from cuebook.records.conversation import Conversation, PathPost
from cuebook.records.memory import Scope
from cuebook.records.mind import Reflection
from cuebook.records.tuning import Snapshot, Tally, TuningState, TuningTotals
from cuebook.records.turn import TurnOn


class MetapromptTask(Struct, frozen=True, array_like=True):
    """A task of a reflection: a metaprompt's id, and the reason: `event:NAME`, `interval:N`, `manual` or `llm`."""

    metaprompt: str
    trigger: str


class DueReflection(Struct, frozen=True, kw_only=True):
    """A due reflection."""

    tenant: str
    conversation: str
    turn: int
    n: int


class ReflectionInput(Struct, frozen=True, kw_only=True):
    """Input of a reflection."""

    conversation: Conversation
    turn: TurnOn
    n: int
    calls: tuple[MetapromptTask, ...]
    before: Reflection | None  # the newest on the turn's path
    epoch: int  # number of erasures in the conversation


class ReflectionStore(Protocol):
    """Stores reflections."""

    async def due(self, *, limit: int = 100) -> list[DueReflection]:
        """Return the oldest due reflection of each conversation whose turn has ended."""
        ...

    async def due_in(self, scope: Scope, conversation: str, *, limit: int) -> list[DueReflection]:
        """Return a conversation's due reflections of ended turns, oldest first."""
        ...

    async def left(self) -> int:
        """Count all due reflections of ended turns, including several per conversation."""
        ...

    async def read(self, scope: Scope, due: DueReflection) -> ReflectionInput | None:
        """Load the input of a reflection, or None if it is no longer due."""
        ...

    async def save(
        self, scope: Scope, reflecting: ReflectionInput, reflection: Reflection, *, audit: Sequence[Record] = ()
    ) -> bool:
        """Store a reflection. Return False, and store nothing, if it exists or its conversation changed meanwhile."""
        ...

    async def ask(self, scope: Scope, conversation: str, calls: Sequence[MetapromptTask]) -> int:
        """Request a reflection on the newest turn of the head's path. Return the turn's number.

        Raises NotFound, and InvalidInput if there is no turn.
        """
        ...

    async def waiting(self, scope: Scope, conversation: str) -> int:
        """Count a conversation's due reflections, including those of running turns. Raises NotFound."""
        ...

    async def of(
        self, scope: Scope, conversation: str, *, turn: int | None = None, limit: int = 50
    ) -> list[Reflection]:
        """Return reflections of a conversation on all branches, or of one turn, newest first. Raises NotFound."""
        ...


class Entries(Struct, frozen=True, kw_only=True):
    """Posts of the head's path after a seq, oldest first. `anew`: that seq is not on the path, so
    these are all posts.
    """

    conversation: Conversation
    posts: tuple[PathPost, ...]
    anew: bool = False


class LastTuning(Struct, frozen=True, kw_only=True):
    """A conversation's tuning, the position and the time (Unix seconds) of its last run."""

    tuning: TuningState
    seen_seq: int
    updated_at: float


class ChangedConversation(Struct, frozen=True):
    """A conversation that changed since its last run."""

    tenant: str
    conversation: str


class TuningRun(Struct, frozen=True, kw_only=True):
    """The result of a run, based on the tuning of `before` (0 for none). Without a snapshot it only
    moves the position.
    """

    no: int  # the conversation's number when loaded
    seen_seq: int
    before: float
    now: float
    tuning: TuningState
    snapshot: Snapshot | None = None


class TuningStore(Protocol):
    """Stores tunings and the snapshots of their runs, the newest 500 of a conversation."""

    async def entries(self, scope: Scope, conversation: str, *, after: int, limit: int) -> Entries: ...
    async def tuned(self, scope: Scope, conversation: str) -> LastTuning | None: ...
    async def keep(self, scope: Scope, conversation: str, run: TuningRun) -> bool: ...
    async def changed(
        self, *, least: int, since: float, before: float, limit: int = 100, scope: Scope | None = None
    ) -> list[ChangedConversation]: ...
    async def history(self, scope: Scope, conversation: str | None, *, limit: int) -> list[Snapshot]: ...
    async def totals(self, scope: Scope, conversation: str | None) -> TuningTotals: ...
    async def tally(
        self, scope: Scope, conversation: str | None, *, organizations: Sequence[str] | None = None
    ) -> Tally: ...
