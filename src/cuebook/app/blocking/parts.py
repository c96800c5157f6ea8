"""What a blocking book's parts are: transcripts, turns and memory without `await`, and the loop they all wait for."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from cuebook.app.book import Cuebook
from cuebook.app.feedback import Thumb
from cuebook.app.loop import LoopThread
from cuebook.app.paging import LIMIT, Paged
from cuebook.app.session import SessionMessage
from cuebook.app.turns import Replay
from cuebook.engine.drafts import Posted
from cuebook.errors import CuebookError
from cuebook.ports.store import Appended, Page
from cuebook.records.conversation import Conversation, Post, Round, SharedEntry
from cuebook.records.outcome import Known
from cuebook.records.prompt import TaskOutcome
from cuebook.records.turn import Turn

_CLOSED = "the book is not open; use it inside `with BlockingCuebook.open(...) as book:`"


T = TypeVar("T")


class Host:
    """The book and, while it is open, its loop."""

    def __init__(self, book: Cuebook) -> None:
        self.book = book
        self._loop: LoopThread | None = None

    def run(self, call: Callable[[Cuebook], Coroutine[Any, Any, T]]) -> T:
        """Wait for what a method of the book gives."""
        return self._opened().run(lambda: call(self.book))

    def iterate(self, call: Callable[[Cuebook], AsyncIterator[T]]) -> Iterator[T]:
        """Give what a method of the book yields."""
        yield from self._opened().iterate(lambda: call(self.book))

    def read(self, call: Callable[[Cuebook], T]) -> T:
        """Give what the open book gives without waiting."""
        self._opened()
        return call(self.book)

    def _opened(self) -> LoopThread:
        if self._loop is None:
            raise CuebookError(_CLOSED)
        return self._loop

    def of(self, tenant: str) -> "Host":
        """Give the same for the open book as a tenant sees it."""
        seen = Host(self.read(lambda book: book.of(tenant)))
        seen._loop = self._loop
        return seen

    def open(self) -> None:
        if self._loop is not None:
            msg = "the book is open already; open another with BlockingCuebook.open(...)"
            raise CuebookError(msg)
        loop = LoopThread("cuebook")
        try:
            loop.run(self.book.__aenter__)
        except BaseException:
            loop.close()
            raise
        self._loop = loop

    def close(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.close(last=self.book.aclose)


class BlockingConversations:
    """`Cuebook.conversations` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def append(
        self,
        conversation: str,
        posts: Sequence[Posted | Mapping[str, Any]],
        *,
        user: str | None = None,
        persona: str | None = None,
        parent: str | None = None,
        idempotency_key: str | None = None,
        time_zone: str | None = None,
    ) -> Appended:
        """Store posts made elsewhere, all or none."""
        return self._host.run(
            lambda book: book.conversations.append(
                conversation,
                posts,
                user=user,
                persona=persona,
                parent=parent,
                idempotency_key=idempotency_key,
                time_zone=time_zone,
            )
        )

    def list(
        self, *, q: str | None = None, user: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page:
        """Conversations, the most recent first; with `q` those that have each of its words."""
        return self._host.run(lambda book: book.conversations.list(q=q, user=user, limit=limit, cursor=cursor))

    def get(self, conversation: str, *, user: str | None = None) -> Conversation:
        """One conversation. Raises NotFound."""
        return self._host.run(lambda book: book.conversations.get(conversation, user=user))

    def describe(self, conversation: str, *, user: str | None = None) -> dict[str, Any]:
        """One conversation in INTERFACE's shape, with its summary's state."""
        return self._host.run(lambda book: book.conversations.describe(conversation, user=user))

    def posts(
        self, conversation: str, *, user: str | None = None, branches: bool = False, last: int | None = None
    ) -> Sequence[Post]:
        """Read the posts of the head's path, oldest first; with `branches` those of all branches by seq."""
        return self._host.run(
            lambda book: book.conversations.posts(conversation, user=user, branches=branches, last=last)
        )

    def posts_page(
        self,
        conversation: str,
        *,
        user: str | None = None,
        branches: bool = False,
        limit: int = LIMIT,
        cursor: str | None = None,
    ) -> Paged[Post]:
        """Read a page of the same."""
        return self._host.run(
            lambda book: book.conversations.posts_page(
                conversation, user=user, branches=branches, limit=limit, cursor=cursor
            )
        )

    def ids(self, conversation: str, posts: Sequence[Post], *, user: str | None = None) -> dict[int, str]:
        """Read ids by seq, of posts and of those they follow."""
        return self._host.run(lambda book: book.conversations.ids(conversation, posts, user=user))

    def rounds(
        self, conversation: str, *, user: str | None = None, role: str | None = None, include_failed: bool = True
    ) -> Sequence[Round]:
        """Read the rounds of the head's path; with `role` those posts only that it sent or got."""
        return self._host.run(
            lambda book: book.conversations.rounds(conversation, user=user, role=role, include_failed=include_failed)
        )

    def rounds_page(
        self,
        conversation: str,
        *,
        user: str | None = None,
        role: str | None = None,
        include_failed: bool = True,
        limit: int = LIMIT,
        cursor: str | None = None,
    ) -> Paged[Round]:
        """Read a page of the same."""
        return self._host.run(
            lambda book: book.conversations.rounds_page(
                conversation, user=user, role=role, include_failed=include_failed, limit=limit, cursor=cursor
            )
        )

    def shared_entries(
        self, conversation: str, *, user: str | None = None, entry_type: str | None = None, include_failed: bool = False
    ) -> Sequence[SharedEntry]:
        """Read the notes the roles left for each other, those of a type if named."""
        return self._host.run(
            lambda book: book.conversations.shared_entries(
                conversation, user=user, entry_type=entry_type, include_failed=include_failed
            )
        )

    def session(
        self, conversation: str, *, user: str | None = None, include_compressed: bool = False
    ) -> Sequence[SessionMessage]:
        """Read the conversation as C's session loads it: the summary first, then what is not compressed under it."""
        return self._host.run(
            lambda book: book.conversations.session(conversation, user=user, include_compressed=include_compressed)
        )

    def compress(
        self,
        conversation: str,
        *,
        older_than: str,
        summary: str,
        user: str | None = None,
        idempotency_key: str | None = None,
    ) -> bool:
        """Put a summary of the caller's own in the place of all posts before one. False when the path has moved on."""
        return self._host.run(
            lambda book: book.conversations.compress(
                conversation, older_than=older_than, summary=summary, user=user, idempotency_key=idempotency_key
            )
        )

    def move_head(self, conversation: str, post: str, *, user: str | None = None) -> Conversation:
        """Make a post the head."""
        return self._host.run(lambda book: book.conversations.move_head(conversation, post, user=user))

    def participants(
        self, conversation: str, users: Sequence[str], *, user: str | None = None, by: str = ""
    ) -> Conversation:
        """Say who takes part: its first user in any case, and these."""
        return self._host.run(lambda book: book.conversations.participants(conversation, users, user=user, by=by))

    def delete(self, conversation: str, *, user: str | None = None) -> Mapping[str, int]:
        """Forget a conversation and everything derived from it. Counts of what went, by kind."""
        return self._host.run(lambda book: book.conversations.delete(conversation, user=user))


class BlockingTurns:
    """`Cuebook.turns` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def get(self, conversation: str, n: int, *, user: str | None = None) -> Turn:
        """One turn. Raises NotFound."""
        return self._host.run(lambda book: book.turns.get(conversation, n, user=user))

    def last(self, conversation: str, *, user: str | None = None, last: int = 20) -> list[Turn]:
        """Read the newest turns, oldest first."""
        return self._host.run(lambda book: book.turns.last(conversation, user=user, last=last))

    def page(
        self, conversation: str, *, user: str | None = None, limit: int = LIMIT, cursor: str | None = None
    ) -> Paged[Turn]:
        """Read a page of all turns, oldest first."""
        return self._host.run(lambda book: book.turns.page(conversation, user=user, limit=limit, cursor=cursor))

    def show(self, conversation: str, n: int, *, step: int | None = None, user: str | None = None) -> dict[str, Any]:
        """Show a turn in INTERFACE's shape: query, reply, and every block of its window with its source and tokens."""
        return self._host.run(lambda book: book.turns.show(conversation, n, step=step, user=user))

    def replay(
        self,
        conversation: str,
        n: int,
        *,
        step: int | None = None,
        user: str | None = None,
        with_prompt: Sequence[str] = (),
        as_of: datetime | str | int | None = None,
        without: Sequence[str] = (),
        ask: bool = False,
    ) -> Replay:
        """Render a turn's window again from what is stored, and say what it would have been: `Turns.replay`."""
        other: Any = {"with_prompt": with_prompt, "as_of": as_of, "without": without, "ask": ask}
        return self._host.run(lambda book: book.turns.replay(conversation, n, step=step, user=user, **other))

    def feedback(
        self,
        conversation: str,
        n: int,
        *,
        score: float | None = None,
        thumb: Thumb | None = None,
        outcome: TaskOutcome | None = None,
        corrections: int | None = None,
        comment: str = "",
        user: str | None = None,
        idempotency_key: str | None = None,
    ) -> Known:
        """Say how a turn was, in the place of what its user's next message says; the newest word stands."""
        said: dict[str, Any] = {"score": score, "thumb": thumb, "outcome": outcome, "corrections": corrections}
        said |= {"comment": comment, "user": user, "idempotency_key": idempotency_key}
        return self._host.run(lambda book: book.turns.feedback(conversation, n, **said))
