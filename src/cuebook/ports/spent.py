"""What is read of past model calls to say what they took, and of posts and turns to say where they stand."""

from collections.abc import Sequence
from typing import Protocol

from cuebook.records.memory import Scope
from cuebook.records.spent import PostPlace, Spent
from cuebook.records.talk import Answering, Run, Talks


class SpentStore(Protocol):
    """Reads what model calls took."""

    async def calls(self, scope: Scope, conversation: str, *, first: int, last: int) -> list[Spent]:
        """Give the calls of turns `first`..`last` of a conversation, both included. Raises NotFound."""
        ...

    async def places(self, scope: Scope, conversation: str, ids: Sequence[str]) -> dict[str, PostPlace]:
        """Give the places of posts by id; of a post that is not there, nothing. Raises NotFound."""
        ...

    async def talks(self, scope: Scope, words: Sequence[str], *, limit: int, cursor: str | None = None) -> Talks:
        """List conversations who asks takes part in, the most recent first.

        With `words` those that have each of them, in either case, in their id, their user or how their first post
        begins. Raises InvalidInput for a cursor that is none.
        """
        ...

    async def runs(self, scope: Scope, conversation: str) -> list[Run]:
        """Give the runs of a conversation's tree, by their first post. Raises NotFound."""
        ...

    async def answering(self, scope: Scope, conversation: str, *, first: int, last: int) -> list[Answering]:
        """Give the turns of the rounds `first`..`last`, both included, oldest first. Raises NotFound."""
        ...
