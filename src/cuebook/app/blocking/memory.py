"""A blocking book's memory: found, listed, summed up and forgotten without `await`."""

from collections.abc import Sequence
from datetime import tzinfo

from cuebook.app.analysis import Budget, Judgement, MemoryStats
from cuebook.app.blocking.parts import Host
from cuebook.app.memory import Compressed
from cuebook.app.paging import LIMIT, Paged
from cuebook.app.utility import TURNS, Utilities
from cuebook.records.erasure import Receipt
from cuebook.records.memory import Hit, Item, Summary


class BlockingMemory:
    """`Cuebook.memory` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def search(
        self,
        query: str,
        *,
        conversation: str | None = None,
        user: str | None = None,
        persona: str | None = None,
        organization: str | None = None,
        scopes: Sequence[str] | None = None,
        as_of: float | None = None,
        limit: int = 10,
        token_budget: int | None = None,
        time_zone: str | None = None,
    ) -> list[Hit]:
        """Find posts and memories that answer a query, best first."""
        return self._host.run(
            lambda book: book.memory.search(
                query,
                conversation=conversation,
                user=user,
                persona=persona,
                organization=organization,
                scopes=scopes,
                as_of=as_of,
                limit=limit,
                token_budget=token_budget,
                time_zone=time_zone,
            )
        )

    def zone(self, *, conversation: str | None = None, user: str | None = None, time_zone: str | None = None) -> tzinfo:
        """Whose days hold: those of the zone named, else of the one the conversation keeps, else the book's."""
        return self._host.run(lambda book: book.memory.zone(conversation=conversation, user=user, time_zone=time_zone))

    def items(self, conversation: str, *, user: str | None = None, ended: bool = False) -> list[Item]:
        """Items of a conversation as they stand at its head; with `ended` those that no longer hold too."""
        return self._host.run(lambda book: book.memory.items(conversation, user=user, ended=ended))

    def items_page(
        self,
        conversation: str,
        *,
        user: str | None = None,
        ended: bool = False,
        limit: int = LIMIT,
        cursor: str | None = None,
    ) -> Paged[Item]:
        """Read a page of the same."""
        return self._host.run(
            lambda book: book.memory.items_page(conversation, user=user, ended=ended, limit=limit, cursor=cursor)
        )

    def take_up(self, conversation: str, *, timeout: float = 2.0) -> None:
        """Let what a conversation told be known across conversations now, within `timeout` seconds."""
        self._host.run(lambda book: book.memory.take_up(conversation, timeout=timeout))

    def compress(self, text: str) -> Compressed:
        """Shorten a text as a full window does: first line, last line, every fact."""
        return self._host.read(lambda book: book.memory.compress(text))

    def digest(self, conversation: str, *, user: str | None = None, last: int = 15) -> str:
        """Read the newest posts of a conversation in C's batch form: actions, results, key facts."""
        return self._host.run(lambda book: book.memory.digest(conversation, user=user, last=last))

    def summary(self, conversation: str, *, user: str | None = None, version: int | None = None) -> Summary | None:
        """Read the rolling summary that stands for the head's path, or a named version."""
        return self._host.run(lambda book: book.memory.summary(conversation, user=user, version=version))

    def analyze(self, conversation: str, *, user: str | None = None) -> Judgement:
        """Judge a conversation's posts and say what should become of them. Nothing is changed. Raises NotFound."""
        return self._host.run(lambda book: book.memory.analyze(conversation, user=user))

    def stats(
        self, conversation: str | None = None, *, user: str | None = None, organizations: Sequence[str] | None = None
    ) -> MemoryStats:
        """Count what is remembered, of a conversation or in all that a user may see. Raises NotFound."""
        return self._host.run(lambda book: book.memory.stats(conversation, user=user, organizations=organizations))

    def budget(self, conversation: str | None = None, *, user: str | None = None) -> Budget:
        """Say what posts may take of a prompt, and what a conversation's take of it. Raises NotFound."""
        return self._host.run(lambda book: book.memory.budget(conversation, user=user))

    def forget(
        self,
        *,
        user: str | None = None,
        conversation: str | Sequence[str] | None = None,
        persona: str | None = None,
        organization: str | None = None,
        memories: Sequence[str] = (),
        reason: str = "",
        by: str | None = None,
    ) -> Receipt:
        """Forget one of these with everything derived from it; a user's transcripts too. Answers with the receipt."""
        return self._host.run(
            lambda book: book.memory.forget(
                user=user,
                conversation=conversation,
                persona=persona,
                organization=organization,
                memories=memories,
                reason=reason,
                by=by,
            )
        )

    def utility(
        self, conversations: Sequence[str] = (), *, user: str | None = None, turns: int = TURNS, budget: int = 0
    ) -> Utilities:
        """Measure of what use each memory was in the turns that said it: `Memory.utility`."""
        return self._host.run(lambda book: book.memory.utility(conversations, user=user, turns=turns, budget=budget))

    def prune(self, found: Utilities, *, user: str | None = None) -> Receipt | None:
        """Forget what a measure proposes to let go, for good; answers with the receipt, None where there is nothing."""
        return self._host.run(lambda book: book.memory.prune(found, user=user))
