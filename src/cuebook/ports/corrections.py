"""What keeps what somebody corrected or forgot of a conversation by hand, and brings its summary after it.

Level-triggered: a conversation is due while a correction is newer than the summary that stands for its head.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from cuebook.records.conversation import Conversation
from cuebook.records.memory import Correction, Item, Memory, Scope, Summary


class Correcting(Struct, frozen=True, kw_only=True):
    """A summary that does not know of the newest corrections, with its items, ended ones too."""

    conversation: Conversation
    summary: Summary
    items: tuple[Item, ...]
    corrections: tuple[Correction, ...]  # all of the conversation's, in the order they were made
    epoch: int  # how often something in the conversation was erased


class Corrected(Struct, frozen=True, kw_only=True):
    """What comes in a summary's place: one of the same posts, and its items as they are to stand."""

    read: Correcting
    summary: Summary
    added: tuple[Item, ...]
    gone: tuple[Item, ...]
    now: float
    sinks: tuple[str, ...] = ()


class CorrectionStore(Protocol):
    """Keeps corrections of conversations."""

    async def of(self, scope: Scope, conversation: str) -> tuple[Correction, ...]:
        """Give a conversation's corrections, in the order they were made. Raises NotFound."""
        ...

    async def keep(self, scope: Scope, correction: Correction) -> None:
        """Keep a correction. Raises NotFound."""
        ...

    async def said_in(self, scope: Scope, conversation: str, posts: Sequence[str]) -> list[Memory]:
        """Give memories of users and personas that come from some of a conversation's posts."""
        ...

    async def due(self, *, limit: int = 100) -> list[tuple[str, str]]:
        """Name conversations whose head's summary does not know of their newest correction: tenant and id."""
        ...

    async def read(self, scope: Scope, conversation: str, *, upto: int | None = None) -> Correcting | None:
        """Read the summary that ends at a post, the head's without one; None where it knows of all corrections."""
        ...

    async def save(self, scope: Scope, corrected: Corrected) -> bool:
        """Keep a corrected summary; False, and nothing is kept, where a pass or another correction came first."""
        ...
