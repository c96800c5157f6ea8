"""What is read of past model calls to say what they took, and of posts to say where they stand."""

from collections.abc import Sequence
from typing import Protocol

from cuebook.records.memory import Scope
from cuebook.records.spent import PostPlace, Spent


class SpentStore(Protocol):
    """Reads what model calls took."""

    async def calls(self, scope: Scope, conversation: str, *, first: int, last: int) -> list[Spent]:
        """Give the calls of turns `first`..`last` of a conversation, both included. Raises NotFound."""
        ...

    async def places(self, scope: Scope, conversation: str, ids: Sequence[str]) -> dict[str, PostPlace]:
        """Give the places of posts by id; of a post that is not there, nothing. Raises NotFound."""
        ...
