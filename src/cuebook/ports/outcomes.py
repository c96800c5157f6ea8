"""What keeps the outcomes of turns until prompts have learnt from them, and what they learnt."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from cuebook.ports.prompts import Once
from cuebook.records.audit import Record
from cuebook.records.memory import Scope
from cuebook.records.outcome import Known, Outcome
from cuebook.records.prompt import Observation


class DueOutcome(Struct, frozen=True):
    """A turn whose prompts have not been taught its outcome."""

    tenant: str
    conversation: str
    turn: int


class Lesson(Struct, frozen=True, kw_only=True):
    """An observation to be folded in, and its record for the audit."""

    observation: Observation
    audit: Record | None = None


class OutcomeStore(Protocol):
    """Keeps one outcome a turn. `Opening.outcome` adds that of the turn before; one that stands is left as it is."""

    async def get(self, scope: Scope, conversation: str, turn: int) -> Known | None:
        """Give a turn's outcome, None where nothing was heard. Raises NotFound for a conversation of others."""
        ...

    async def lately(self, scope: Scope, conversation: str, *, limit: int) -> list[Outcome]:
        """Give the outcomes of a conversation's newest turns that have one, newest first. Raises NotFound."""
        ...

    async def give(self, scope: Scope, conversation: str, turn: int, outcome: Outcome, *, once: Once | None) -> Known:
        """Put an outcome in the place of what stands; what was taught of it is due to be corrected.

        Raises NotFound where there is no such turn, Conflict while it runs.
        """
        ...

    async def due(self, *, limit: int) -> list[DueOutcome]:
        """Give turns whose outcome is due, in a fixed order."""
        ...

    async def fold(
        self, scope: Scope, conversation: str, turn: int, known: Known, lessons: Sequence[Lesson]
    ) -> Known | None:
        """Fold an outcome's observations in, and note that, in one transaction.

        A version that was taught this outcome before has its observation corrected. None, and nothing is done, where
        the outcome has changed since it was read, or is gone.
        """
        ...
