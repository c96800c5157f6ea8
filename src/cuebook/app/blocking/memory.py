"""Made by scripts/blocking.py from `cuebook.app.memory`: `scripts/check --fix` makes it anew."""

from collections.abc import Sequence
from datetime import tzinfo

from cuebook.app.analysis import Budget, Judgement, MemoryStats
from cuebook.app.blocking.host import Host
from cuebook.app.memory import Compressed
from cuebook.app.paging import LIMIT, Paged
from cuebook.app.utility import TURNS, Cost, Utilities
from cuebook.records.erasure import Receipt, WouldForget
from cuebook.records.memory import Hit, Item, Summary


class BlockingMemory:
    """`Cuebook.memory` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def analyze(self, conversation: str, *, user: str | None = None) -> Judgement:
        """Judge a conversation's posts and say what should become of them. Nothing is changed. Raises NotFound."""
        return self._host.run(lambda book: book.memory.analyze(conversation, user=user))

    def stats(
        self, conversation: str | None = None, *, user: str | None = None, organizations: Sequence[str] | None = None
    ) -> MemoryStats:
        """Count what is remembered, of a conversation or in all that a user may see. Raises NotFound.

        Without a user `organizations` says whose memories count beside all users': all of them unless given.
        """
        return self._host.run(lambda book: book.memory.stats(conversation, user=user, organizations=organizations))

    def budget(self, conversation: str | None = None, *, user: str | None = None) -> Budget:
        """Say what posts may take of a prompt, and what a conversation's take of it. Raises NotFound."""
        return self._host.run(lambda book: book.memory.budget(conversation, user=user))

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
        """Give what answers a query, best first: posts of the conversation named, else of all the user's, and memories.

        Memories are those of the user, their personas and the organization named, that hold, or held at `as_of` (Unix
        seconds); posts said after it are left out. With `token_budget` (tokens) the hits are packed by value per token.
        What was just stored is found at once. "Yesterday" and the like are days of `time_zone` (an IANA name), else of
        the conversation's.
        """
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
        """Give whose days hold: those of the zone named, else of the one the conversation keeps, else the book's."""
        return self._host.run(lambda book: book.memory.zone(conversation=conversation, user=user, time_zone=time_zone))

    def items(
        self, conversation: str, *, user: str | None = None, ended: bool = False, as_of: float | None = None
    ) -> list[Item]:
        """Give a conversation's items as they stand at its head; with `ended` those that no longer hold too.

        With `as_of` (Unix seconds) those that held then, as they are known now.

        What was said since the last pass is read too (the newest UNREAD posts of it), so that nothing waits for a pass.
        """
        return self._host.run(lambda book: book.memory.items(conversation, user=user, ended=ended, as_of=as_of))

    def items_page(
        self,
        conversation: str,
        *,
        user: str | None = None,
        ended: bool = False,
        as_of: float | None = None,
        limit: int = LIMIT,
        cursor: str | None = None,
    ) -> Paged[Item]:
        """Give a page of the same."""
        return self._host.run(
            lambda book: book.memory.items_page(
                conversation, user=user, ended=ended, as_of=as_of, limit=limit, cursor=cursor
            )
        )

    def take_up(self, conversation: str, *, timeout: float = 2.0) -> None:
        """Let what a conversation told be known across conversations now, within `timeout` seconds.

        What is not done by then is left to the work behind, which does it by itself anyway. No summary is made.
        """
        self._host.run(lambda book: book.memory.take_up(conversation, timeout=timeout))

    def compress(self, text: str) -> Compressed:
        """Shorten a text as a full window does: first line, last line, every fact.

        The text itself if that is no smaller.
        """
        return self._host.read(lambda book: book.memory.compress(text))

    def digest(self, conversation: str, *, user: str | None = None, last: int = 15) -> str:
        """Give the newest posts of a conversation in C's batch form: actions, results, key facts."""
        return self._host.run(lambda book: book.memory.digest(conversation, user=user, last=last))

    def summary(self, conversation: str, *, user: str | None = None, version: int | None = None) -> Summary | None:
        """Give the rolling summary that stands for the head's path, or a named version."""
        return self._host.run(lambda book: book.memory.summary(conversation, user=user, version=version))

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
        """Forget one of these with everything derived from it; a user's transcripts too. Answers with the receipt.

        It is `pending` while another process still reads what a file holds; the work behind signs it then. What is not
        there, or not of user `by`, counts nothing. Raises InvalidInput, and Conflict naming a hold that forbids it.
        """
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

    def would_forget(
        self,
        *,
        user: str | None = None,
        conversation: str | Sequence[str] | None = None,
        persona: str | None = None,
        organization: str | None = None,
        memories: Sequence[str] = (),
        by: str | None = None,
    ) -> WouldForget:
        """Say what `forget` would take, were it asked now, what would stay, and which holds forbid it.

        Nothing is changed; writes wait as long as for the forget itself. Raises InvalidInput.
        """
        return self._host.run(
            lambda book: book.memory.would_forget(
                user=user,
                conversation=conversation,
                persona=persona,
                organization=organization,
                memories=memories,
                by=by,
            )
        )

    def utility(
        self, conversations: Sequence[str] = (), *, user: str | None = None, turns: int = TURNS, budget: int = 0
    ) -> Utilities:
        """Measure of what use each memory was in the turns that said it, of conversations named or of all.

        By the words of the answers that were given; with a `budget` (calls, at least 3) by asking the book's model with
        and without each. Of each conversation the last `turns` are measured. Nothing is changed. Raises NotFound,
        InvalidInput.
        """
        return self._host.run(lambda book: book.memory.utility(conversations, user=user, turns=turns, budget=budget))

    def utility_cost(
        self, conversations: Sequence[str] = (), *, user: str | None = None, turns: int = TURNS, budget: int = 0
    ) -> Cost:
        """Say what `utility` would ask the book's model with this budget, and cost at most; none is asked.

        Raises NotFound, and InvalidInput for prices of the project that cannot be read too.
        """
        return self._host.run(
            lambda book: book.memory.utility_cost(conversations, user=user, turns=turns, budget=budget)
        )

    def prune(self, found: Utilities, *, user: str | None = None) -> Receipt | None:
        """Forget what a measure proposes to let go, for good; answers with the receipt, None where there is nothing.

        Raises Conflict naming a hold that forbids it.
        """
        return self._host.run(lambda book: book.memory.prune(found, user=user))
