"""Made by scripts/blocking.py from `cuebook.app.conversations`: `scripts/check --fix` makes it anew."""

from collections.abc import Mapping, Sequence
from typing import Any

from cuebook.app.blocking.host import Host
from cuebook.app.paging import LIMIT, Paged
from cuebook.app.session import SessionMessage
from cuebook.engine.drafts import Posted
from cuebook.ports.store import Appended, Page
from cuebook.records.conversation import Conversation, Post, Round, SharedEntry


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
        """Store posts made elsewhere, all or none.

        `time_zone` (an IANA name) is whose days they were said on; the conversation keeps it.
        `parent` is the id of the post they follow: the head unless given, none if empty. The same id with the same
        content is stored once; with other content: Conflict. Raises InvalidInput naming the post.
        """
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
        """Conversations, the most recent first.

        With `q` those that have each of its words in their id, their user or how their first post begins, in either
        case. Raises InvalidInput.
        """
        return self._host.run(lambda book: book.conversations.list(q=q, user=user, limit=limit, cursor=cursor))

    def listed(
        self, *, q: str | None = None, user: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Paged[dict[str, Any]]:
        """Give the same in INTERFACE's shape, without the summaries' state."""
        return self._host.run(lambda book: book.conversations.listed(q=q, user=user, limit=limit, cursor=cursor))

    def get(self, conversation: str, *, user: str | None = None) -> Conversation:
        """One conversation. Raises NotFound."""
        return self._host.run(lambda book: book.conversations.get(conversation, user=user))

    def describe(self, conversation: str, *, user: str | None = None) -> dict[str, Any]:
        """One conversation in INTERFACE's shape, with its summary's state."""
        return self._host.run(lambda book: book.conversations.describe(conversation, user=user))

    def posts(
        self, conversation: str, *, user: str | None = None, branches: bool = False, last: int | None = None
    ) -> Sequence[Post]:
        """Give the posts of the head's path, oldest first; with `branches` those of all branches by seq."""
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
        """Give a page of the same. Behind the first, the path stays the one it was, wherever the head moves."""
        return self._host.run(
            lambda book: book.conversations.posts_page(
                conversation, user=user, branches=branches, limit=limit, cursor=cursor
            )
        )

    def ids(self, conversation: str, posts: Sequence[Post], *, user: str | None = None) -> dict[int, str]:
        """Give ids by seq, of posts and of those they follow."""
        return self._host.run(lambda book: book.conversations.ids(conversation, posts, user=user))

    def rounds(
        self, conversation: str, *, user: str | None = None, role: str | None = None, include_failed: bool = True
    ) -> Sequence[Round]:
        """Give the rounds of the head's path; with `role` those posts only that it sent or got."""
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
        """Give a page of the same, read as far as it takes."""
        return self._host.run(
            lambda book: book.conversations.rounds_page(
                conversation, user=user, role=role, include_failed=include_failed, limit=limit, cursor=cursor
            )
        )

    def shared_entries(
        self, conversation: str, *, user: str | None = None, entry_type: str | None = None, include_failed: bool = False
    ) -> Sequence[SharedEntry]:
        """Give notes the roles left for each other (D), those of a type if named.

        Scope `round` holds in the last round only.
        """
        return self._host.run(
            lambda book: book.conversations.shared_entries(
                conversation, user=user, entry_type=entry_type, include_failed=include_failed
            )
        )

    def session(
        self, conversation: str, *, user: str | None = None, include_compressed: bool = False
    ) -> Sequence[SessionMessage]:
        """Give the conversation as C's session loads it.

        The summary first, then what is not compressed under it, oldest first.
        """
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
        """Put a summary of the caller's own in the place of all posts before one (C's compressMessages).

        The posts stay in the transcript; items that memory holds stay. False when the path has moved on meanwhile.
        Raises NotFound, InvalidInput, KeyReused, and Conflict while a round is open.
        """
        return self._host.run(
            lambda book: book.conversations.compress(
                conversation, older_than=older_than, summary=summary, user=user, idempotency_key=idempotency_key
            )
        )

    def move_head(self, conversation: str, post: str, *, user: str | None = None) -> Conversation:
        """Make a post the head: the other branches stay, and can be made the head again."""
        return self._host.run(lambda book: book.conversations.move_head(conversation, post, user=user))

    def participants(
        self, conversation: str, users: Sequence[str], *, user: str | None = None, by: str = ""
    ) -> Conversation:
        """Say who takes part: its first user in any case, and these. Nobody else sees it. Raises NotFound."""
        return self._host.run(lambda book: book.conversations.participants(conversation, users, user=user, by=by))

    def delete(self, conversation: str, *, user: str | None = None) -> Mapping[str, int]:
        """Forget a conversation and everything derived from it. Counts of what went, as its receipt. Raises NotFound.

        Raises Conflict naming a hold that forbids it. The receipt is kept (`book.receipts`).
        """
        return self._host.run(lambda book: book.conversations.delete(conversation, user=user))
