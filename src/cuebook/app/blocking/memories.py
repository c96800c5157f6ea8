"""A blocking book's memories across conversations."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from cuebook.app.blocking.parts import Host
from cuebook.app.memories import Decayed
from cuebook.app.paging import LIMIT, Paged
from cuebook.memory.recall import Query
from cuebook.records.erasure import Receipt
from cuebook.records.memory import Hit, Memory, Place


class BlockingMemories:
    """`Cuebook.memories` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def places(
        self, *, user: str | None = None, persona: str | None = None, organization: str | None = None
    ) -> list[Place] | None:
        """Give the places somebody means; None = all there are."""
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
        """Find memories that answer a query, best first: those that hold, or that held at `as_of` (Unix seconds)."""
        return self._host.run(
            lambda book: book.memories.search(
                query, user=user, persona=persona, organization=organization, scopes=scopes, as_of=as_of, limit=limit
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
        """List memories in the order they came."""
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

    def knowledge(
        self,
        query: str | None = None,
        *,
        category: str | None = None,
        user: str | None = None,
        limit: int = 20,
        cursor: str | None = None,
    ) -> tuple[list[Memory], str | None]:
        """Read knowledge of a user, or of the book: what answers a query best first, else in the order it came."""
        return self._host.run(
            lambda book: book.memories.knowledge(query, category=category, user=user, limit=limit, cursor=cursor)
        )

    def get(self, id: str, *, user: str | None = None, organization: str | None = None) -> Memory:  # noqa: A002
        """Read a memory by its id. Raises NotFound, also for another user's."""
        return self._host.run(lambda book: book.memories.get(id, user=user, organization=organization))

    def export(self, *, user: str | None = None, organization: str | None = None) -> Iterator[Memory]:
        """Read all memories of a user or an organization with their history."""
        cursor: str | None = None
        while True:
            page = self.page(user=user, organization=organization, ended=True, limit=200, cursor=cursor)
            yield from page.items
            if page.cursor is None:
                return
            cursor = page.cursor

    def correct(
        self,
        id: str,  # noqa: A002  # the wire's name
        text: str,
        *,
        user: str | None = None,
        organization: str | None = None,
    ) -> Memory:
        """Say what a memory should have said; nothing of the old text is kept."""
        return self._host.run(lambda book: book.memories.correct(id, text, user=user, organization=organization))

    def put(
        self, category: str, key: str, value: str, *, user: str | None = None, confidence: float | None = None
    ) -> Memory:
        """Keep knowledge under a category and a key. A repeat raises its confidence."""
        return self._host.run(lambda book: book.memories.put(category, key, value, user=user, confidence=confidence))

    def use(self, id: str, *, user: str | None = None) -> Memory:  # noqa: A002
        """Count a use of a memory: it raises its confidence by 0.05."""
        return self._host.run(lambda book: book.memories.use(id, user=user))

    def decay(self, *, as_of: float | datetime | None = None) -> Decayed:
        """Let knowledge that lay idle lose confidence, once a period."""
        return self._host.run(lambda book: book.memories.decay(as_of=as_of))

    def remove(self, id: str, *, user: str | None = None, organization: str | None = None) -> Receipt:  # noqa: A002
        """Remove a memory with its words. Raises NotFound."""
        return self._host.run(lambda book: book.memories.remove(id, user=user, organization=organization))
