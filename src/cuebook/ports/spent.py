"""What is read of past model calls to say what they took."""

from typing import Protocol

from cuebook.records.memory import Scope
from cuebook.records.spent import Spent


class SpentStore(Protocol):
    """Reads what model calls took."""

    async def calls(self, scope: Scope, conversation: str, *, first: int, last: int) -> list[Spent]:
        """Give the calls of turns `first`..`last` of a conversation, both included. Raises NotFound."""
        ...
