"""Made by scripts/blocking.py from `cuebook.app.memories`: `scripts/check --fix` makes it anew."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from cuebook.app.blocking.host import Host
from cuebook.app.memories.knowledge import Decayed
from cuebook.app.paging import LIMIT, Paged
from cuebook.memory.recall import Query
from cuebook.records.erasure import Receipt
from cuebook.records.memory import Dense, Hit, Memory, Place


class BlockingMemories:
    """`Cuebook.memories` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def places(
        self, *, user: str | None = None, persona: str | None = None, organization: str | None = None
    ) -> list[Place] | None:
        """Give the places somebody means: a user's with all their personas', or those named; None = all there are."""
        return self._host.run(lambda book: book.memories.places(user=user, persona=persona, organization=organization))

    def search(
        self,
        query: Query,
        *,
        user: str | None = None,
        persona: str | None = None,
        organization: str | None = None,
        scopes: Sequence[str] | None = None,
        as_of: float | None = None,
        limit: int = 10,
    ) -> list[Hit]:
        """Give memories that answer a query, best first: those that hold, or that held at `as_of` (Unix seconds)."""
        return self._host.run(
            lambda book: book.memories.search(
                query, user=user, persona=persona, organization=organization, scopes=scopes, as_of=as_of, limit=limit
            )
        )

    def answer(
        self,
        query: Query,
        dense: Dense | None,
        *,
        user: str | None,
        persona: str | None,
        organization: str | None,
        scopes: Sequence[str] | None,
        as_of: float | None,
        limit: int,
    ) -> list[Hit]:
        """Give the same for a query whose vector is known."""
        return self._host.run(
            lambda book: book.memories.answer(
                query,
                dense,
                user=user,
                persona=persona,
                organization=organization,
                scopes=scopes,
                as_of=as_of,
                limit=limit,
            )
        )

    def page(
        self,
        *,
        user: str | None = None,
        persona: str | None = None,
        organization: str | None = None,
        category: str | None = None,
        ended: bool = False,
        as_of: float | None = None,
        limit: int = LIMIT,
        cursor: str | None = None,
    ) -> Paged[Memory]:
        """List memories in the order they came; with `ended` those that no longer hold too.

        With `as_of` (Unix seconds) those that held then.
        """
        return self._host.run(
            lambda book: book.memories.page(
                user=user,
                persona=persona,
                organization=organization,
                category=category,
                ended=ended,
                as_of=as_of,
                limit=limit,
                cursor=cursor,
            )
        )

    def get(self, id: str, *, user: str | None = None, organization: str | None = None) -> Memory:
        """Give a memory by its id, or an item of a conversation by `item:CONVERSATION:ID`.

        Raises NotFound, also for another user's.
        """
        return self._host.run(lambda book: book.memories.get(id, user=user, organization=organization))

    def export(self, *, user: str | None = None, organization: str | None = None) -> Iterator[Memory]:
        """Give all memories of a user or an organization, ended ones too, with what they come from."""
        return self._host.iterate(lambda book: book.memories.export(user=user, organization=organization))

    def correct(self, id: str, text: str, *, user: str | None = None, organization: str | None = None) -> Memory:
        """Say what a memory should have said; it was wrong, so nothing of the old text is kept.

        Raises NotFound, and Denied where it is the book's and a user or an organization is named.
        """
        return self._host.run(lambda book: book.memories.correct(id, text, user=user, organization=organization))

    def remove(self, id: str, *, user: str | None = None, organization: str | None = None) -> Receipt:
        """Forget a memory, with its words in windows that said it.

        Raises NotFound, Conflict naming a hold, and Denied where it is the book's and a user or an organization named.
        """
        return self._host.run(lambda book: book.memories.remove(id, user=user, organization=organization))

    def knowledge(
        self,
        query: str | None = None,
        *,
        category: str | None = None,
        user: str | None = None,
        limit: int = 20,
        cursor: str | None = None,
    ) -> tuple[list[Memory], str | None]:
        """Give knowledge of a user, or of the book, that holds: what answers a query best first, else in the order it
        came.

        Raises InvalidInput.
        """
        return self._host.run(
            lambda book: book.memories.knowledge(query, category=category, user=user, limit=limit, cursor=cursor)
        )

    def put(
        self, category: str, key: str, value: str, *, user: str | None = None, confidence: float | None = None
    ) -> Memory:
        """Keep knowledge under a category and a key, of a user or of the book. A repeat raises its confidence.

        Another value takes the place of the one before, which stays as history. Raises InvalidInput.
        """
        return self._host.run(lambda book: book.memories.put(category, key, value, user=user, confidence=confidence))

    def use(self, id: str, *, user: str | None = None) -> Memory:
        """Count a use of a memory: it raises its confidence by 0.05. Raises NotFound."""
        return self._host.run(lambda book: book.memories.use(id, user=user))

    def decay(self, *, as_of: float | datetime | None = None) -> Decayed:
        """Let knowledge that lay idle lose confidence, 0.1 for each 30 days, once; below 0.1 it goes."""
        return self._host.run(lambda book: book.memories.decay(as_of=as_of))
