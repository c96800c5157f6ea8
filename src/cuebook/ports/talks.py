"""What is read of conversations to list them, and to say where their posts and turns stand."""

from collections.abc import Sequence
from typing import Protocol

from cuebook.records.memory import Scope
from cuebook.records.talk import Answering, PostPlace, Run, Talks


class TalkStore(Protocol):
    """Reads conversations as lists and readers see them."""

    async def written(self) -> tuple[int, int]:
        """Give a reader and its mark: read again by the same reader it differs when anything was written meanwhile.

        By whichever process, and to whichever tenant: it says when to look again, and nothing else.
        """
        ...

    async def find(self, scope: Scope, words: Sequence[str], *, limit: int, cursor: str | None = None) -> Talks:
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

    async def answers(self, scope: Scope, conversation: str, rounds: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Give the turn and step of each answer in some rounds, by its seq. Raises NotFound."""
        ...

    async def places(self, scope: Scope, conversation: str, ids: Sequence[str]) -> dict[str, PostPlace]:
        """Give the places of posts by id; of a post that is not there, nothing. Raises NotFound."""
        ...
