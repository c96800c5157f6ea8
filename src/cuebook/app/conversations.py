"""Store, list, read, compress and delete conversations: the `cue.conversations` API."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Any

import msgspec

from cuebook.app import json_shapes as shapes
from cuebook.app.check_arguments import check_append, check_users
from cuebook.app.keys import record_of
from cuebook.app.paging import LIMIT, check_limit, no_cursor, read_cursor, write_cursor
from cuebook.app.session import SessionMessage, session_of
from cuebook.app.transcript_views.conversation_list import ConversationListing
from cuebook.engine.core.drafts import Posted, check_text, check_time
from cuebook.engine.core.services import Key, Services
from cuebook.engine.core.time_zones import dated, zone_of
from cuebook.engine.jobs.compaction import compress_by_hand
from cuebook.engine.jobs.erasure import forget
from cuebook.errors import Conflict, CuebookError, InvalidInput, KeyReused, NotFound
from cuebook.interfaces.store import Appended, Batch, PageOfConversations
from cuebook.memory.scopes import Participants, personal_places
from cuebook.records.answer import Page
from cuebook.records.conversation import Conversation, Draft, Post, Round, SharedEntry
from cuebook.records.erasure import Target
from cuebook.records.memory import Scope
from cuebook.records.portable import role_rounds, rounds_of, shared_entries
from cuebook.wire.chat_messages import MessageContent, read_message

#: Posts above this many characters, or more than MANY posts, are parsed in a thread so that streams do not wait.
LARGE, MANY = 100_000, 64
#: Number of posts loaded at a time for a page of rounds.
ROUND_POSTS = 200
#: Seconds between posts without a time, so that sorting by time keeps their order.
TICK_S = 0.001


class Conversations:
    """The conversations of a project. `user` is the caller; None stands for the project's owner."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def append(
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
        """Store posts from elsewhere, all or none: Posted records, or OpenAI chat messages as mappings.

        `time_zone` (an IANA name) sets their calendar days; the conversation keeps it.
        `parent` is the id of the post they follow (default: the head; "": none). A post id that exists with the same
        content is skipped; with other content it raises Conflict. Raises InvalidInput naming the post.
        """
        check_append(conversation, posts, user=user, persona=persona, parent=parent, idempotency_key=idempotency_key)
        if not conversation:
            msg = "conversation: empty. Provide a conversation id."
            raise InvalidInput(msg, where="conversation")
        if not posts:
            msg = "posts: empty. Send at least one."
            raise InvalidInput(msg, where="posts")
        zone = await self._zone(Scope(user=user), conversation, time_zone)
        now = self._services.clock.now()

        def draft_all() -> tuple[Draft, ...]:
            return dated([self._draft(each, number, user, persona, now) for number, each in enumerate(posts)], zone)

        large = len(posts) > MANY or any(_size(each) > LARGE for each in posts)
        drafts = await asyncio.to_thread(draft_all) if large else draft_all()
        key = None
        if idempotency_key:
            data = b"".join(draft.digest for draft in drafts)
            asked = msgspec.json.encode([conversation, parent]) + data
            key = (idempotency_key, self._services.settings.request_digest(asked))
            if repeated := await self._repeated(Scope(user=user), key):
                return repeated
        batch = Batch(
            conversation=conversation,
            drafts=drafts,
            time_zone=time_zone,
            now=now,
            user=user,
            persona=persona,
            parent=parent,
            idempotency=self._services.settings.keyed_digest_of(key),
            delivers=bool(personal_places(self._services.settings.memory_policy, Participants(user=user, persona="-"))),
        )
        try:
            appended = await self._services.store.append(Scope(user=user), batch)
        except Conflict:  # an identical concurrent request may have been stored first
            if key and (repeated := await self._repeated(Scope(user=user), key)):
                return repeated
            raise
        self._services.notify_jobs()
        return appended

    def _draft(
        self, value: Posted | Mapping[str, Any], number: int, user: str | None, persona: str | None, now: float
    ) -> Draft:
        services, at = self._services, now + number * TICK_S
        fresh = services.dice.new_id("post")
        try:
            if isinstance(value, Posted):
                return services.writer.posted(value, id=fresh, now=at, persona=persona, user=user)
            fields = dict(value)
            id_, when = fields.pop("id", None), fields.pop("timestamp", None)
            check_time(at if when is None else when)
            raw = msgspec.json.encode(fields)
            message_content = read_message(raw, index=number)
            if fields.get("content") is None:
                _check_said(message_content, f"messages[{number}].content")
            now = at if when is None else float(when)
            return services.writer.message(raw, message_content, id=id_ or fresh, user=user, now=now, owner=user)
        except (TypeError, UnicodeEncodeError, RecursionError) as error:
            msg = f"posts[{number}]: cannot be encoded as JSON ({error})."
            raise InvalidInput(msg, where=f"posts[{number}]") from error
        except InvalidInput as error:
            if error.where and error.where.startswith("messages[") and not isinstance(value, Posted):
                raise  # the error already names the field
            where = f"posts[{number}].{error.where}" if error.where else f"posts[{number}]"
            raise type(error)(f"posts[{number}]: {error}", where=where) from error

    async def _zone(self, scope: Scope, conversation: str, name: str | None) -> tzinfo:
        """Return the time zone of the posts' calendar days. Raises InvalidInput naming the field."""
        if name is not None:
            return zone_of(name, None, UTC)
        try:
            known = await self._services.store.conversation(scope, conversation)
        except NotFound:
            known = None  # new, or another user's: then storing raises the error
        return zone_of(None, known, self._services.settings.zone)

    async def _repeated(self, scope: Scope, key: Key) -> Appended | None:
        response = await self._response(scope, key)
        if response is None:
            return None
        fields = msgspec.json.decode(response)
        return Appended(fields["stored"], fields["lastSeq"])

    async def _response(self, scope: Scope, key: Key) -> bytes | None:
        """Return the stored answer of an idempotency key, None for a new key. Raises KeyReused."""
        answered = await self._services.answered(scope, key)
        if answered is None:
            return None
        if answered.digest != key[1]:
            msg = f"Idempotency-Key {key[0]!r} was used with a different request. Choose a new key."
            raise KeyReused(msg, where="Idempotency-Key")
        return answered.response

    async def list(
        self, *, q: str | None = None, user: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> PageOfConversations:
        """Return a page of conversations, the most recent first.

        `q` selects those that contain each of its words in their id, their user or the beginning of their first post,
        ignoring case. Raises InvalidInput.
        """
        if not q:
            return await self._services.store.conversations(Scope(user=user), limit=limit, cursor=cursor)
        conversation_summaries = await ConversationListing(self._services).find(
            q, user=user, limit=limit, cursor=cursor
        )
        return PageOfConversations(
            tuple(each.conversation for each in conversation_summaries.items), conversation_summaries.cursor
        )

    async def listed(
        self, *, q: str | None = None, user: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[dict[str, Any]]:
        """Return a page of conversations as JSON objects (INTERFACE's shape), without the state of their summaries."""
        page = await self.list(q=q, user=user, limit=limit, cursor=cursor)
        conversations: Sequence[Conversation] = page.items
        items = [shapes.conversation(each, head=await self._head(each, user)) for each in conversations]
        return Page(items=tuple(items), next=page.cursor)

    async def _head(self, conversation: Conversation, user: str | None) -> str | None:
        if not conversation.head:
            return None
        span = [(conversation.head, conversation.head)]
        posts = await self._services.store.posts_in(Scope(user=user), conversation.id, span)
        return posts[0].id if posts else None

    async def get(self, conversation: str, *, user: str | None = None) -> Conversation:
        """Return a conversation. Raises NotFound."""
        return await self._services.store.conversation(Scope(user=user), conversation)

    async def describe(self, conversation: str, *, user: str | None = None) -> dict[str, Any]:
        """Return a conversation as a JSON object (INTERFACE's shape), with its summary's state. Raises NotFound."""
        scope = Scope(user=user)
        found = await self.get(conversation, user=user)
        summary = await self._services.store.summary(scope, conversation)
        return shapes.conversation(found, head=await self._head(found, user), summary=summary)

    async def posts(
        self, conversation: str, *, user: str | None = None, branches: bool = False, last: int | None = None
    ) -> Sequence[Post]:
        """Return the posts of the head's path, oldest first; with `branches`, those of all branches by `seq`."""
        return await self._services.store.posts(Scope(user=user), conversation, path=not branches, last=last)

    async def posts_page(
        self,
        conversation: str,
        *,
        user: str | None = None,
        branches: bool = False,
        limit: int = LIMIT,
        cursor: str | None = None,
    ) -> Page[Post]:
        """Return a page of the posts. Later pages keep the path of the first page, even if the head moves."""
        found, head, after = await self._start(conversation, "posts", user=user, branches=branches, cursor=cursor)
        check_limit(limit)
        posts = await self._services.store.posts_behind(
            Scope(user=user), conversation, after=after, limit=limit + 1, path=not branches, head=head
        )
        shown = tuple(posts[:limit])
        more = write_cursor("posts", head, shown[-1].seq, no=found.no) if len(posts) > limit else None
        return Page(items=shown, next=more)

    async def _start(
        self, conversation: str, name: str, *, user: str | None, branches: bool, cursor: str | None
    ) -> tuple[Conversation, int, int]:
        """Return the conversation, the head of the path (0 for all branches), and the seq after which a page starts.

        Raises InvalidInput for a foreign cursor.
        """
        found = await self.get(conversation, user=user)
        if cursor is None:
            return found, 0 if branches else found.head, 0
        head, after = map(int, read_cursor(cursor, name, no=found.no))
        if head > found.last_seq or bool(head) == branches:
            raise no_cursor(cursor)
        return found, head, after

    async def ids(self, conversation: str, posts: Sequence[Post], *, user: str | None = None) -> dict[int, str]:
        """Return the ids of posts and of their parents, by `seq`."""
        ids = shapes.ids_of(posts)
        before = {post.parent for post in posts} - ids.keys() - {0}
        spans = [(seq, seq) for seq in sorted(before)]
        followed = await self._services.store.posts_in(Scope(user=user), conversation, spans) if spans else []
        return ids | {post.seq: post.id for post in followed}

    async def rounds(
        self, conversation: str, *, user: str | None = None, role: str | None = None, include_failed: bool = True
    ) -> Sequence[Round]:
        """Return the rounds of the head's path; with `role`, only the posts that this role sent or received."""
        posts = await self.posts(conversation, user=user)
        rounds = rounds_of(posts, await self._services.store.round_states(Scope(user=user), conversation))
        return _seen(rounds, role, include_failed=include_failed)

    async def rounds_page(
        self,
        conversation: str,
        *,
        user: str | None = None,
        role: str | None = None,
        include_failed: bool = True,
        limit: int = LIMIT,
        cursor: str | None = None,
    ) -> Page[Round]:
        """Return a page of the rounds, loading only the posts that it needs."""
        found, head, after = await self._start(conversation, "rounds", user=user, branches=False, cursor=cursor)
        check_limit(limit)
        scope = Scope(user=user)
        states = await self._services.store.round_states(scope, conversation)
        posts: list[Post] = []
        while True:
            read = await self._services.store.posts_behind(
                scope, conversation, after=after, limit=ROUND_POSTS, head=head
            )
            posts += read
            rounds = _seen(rounds_of(posts, states), role, include_failed=include_failed)
            if len(rounds) > limit:  # the last one may be incomplete: leave it out
                more = write_cursor("rounds", head, rounds[limit].seq - 1, no=found.no)
                return Page(items=tuple(rounds[:limit]), next=more)
            if len(read) < ROUND_POSTS:
                return Page(items=tuple(rounds))
            after = read[-1].seq

    async def shared_entries(
        self, conversation: str, *, user: str | None = None, entry_type: str | None = None, include_failed: bool = False
    ) -> Sequence[SharedEntry]:
        """Return the notes that roles left for each other (D); `entry_type` selects one type.

        Notes of scope `round` are valid in the last round only.
        """
        rounds = await self.rounds(conversation, user=user)
        return shared_entries(rounds, entry_type=entry_type, include_failed=include_failed)

    async def session(
        self, conversation: str, *, user: str | None = None, include_compressed: bool = False
    ) -> Sequence[SessionMessage]:
        """Return the conversation as a BrowserOS session: the summary, then the messages after it, oldest first.

        With `include_compressed` the covered messages too, marked as compressed.
        """
        summary = await self._services.store.summary(Scope(user=user), conversation)
        posts = await self.posts(conversation, user=user)
        return session_of(posts, summary, count=self._services.count, include_compressed=include_compressed)

    async def compress(
        self,
        conversation: str,
        *,
        older_than: str,
        summary: str,
        user: str | None = None,
        idempotency_key: str | None = None,
    ) -> bool:
        """Replace all posts before `older_than` with the caller's summary in prompts (BrowserOS's compressMessages).

        The posts stay in the transcript, and the items in memory. Return False if the path changed meanwhile.
        Raises NotFound, InvalidInput, KeyReused, and Conflict while a round is open.
        """
        check_text(summary, "summary")
        if not summary.strip():
            msg = "summary: empty. Provide a summary of the earlier posts."
            raise InvalidInput(msg, where="summary")
        services, scope, key = self._services, Scope(user=user), None
        if idempotency_key:
            asked = msgspec.json.encode(["compress", conversation, older_than, summary])
            key = (idempotency_key, services.settings.request_digest(asked))
            if await self._response(scope, key) is not None:
                return True
        try:
            done = await compress_by_hand(
                services,
                scope,
                conversation,
                older_than=older_than,
                text=summary,
                idempotency=services.settings.keyed_digest_of(key),
            )
        except CuebookError:  # an identical concurrent request may have been stored first
            if key is None or await self._response(scope, key) is None:
                raise
            return True
        return done

    async def move_head(self, conversation: str, post: str, *, user: str | None = None) -> Conversation:
        """Make a post the head. The other branches stay and can become the head again."""
        return await self._services.store.move_head(
            Scope(user=user), conversation, post, now=self._services.clock.now()
        )

    async def participants(
        self, conversation: str, users: Sequence[str], *, user: str | None = None, by: str = ""
    ) -> Conversation:
        """Set the participants: its first user and `users`. Nobody else can see the conversation. Raises NotFound."""
        check_users(users)
        values = {"conversation": conversation, "participants": list(users)}
        record = record_of(self._services, f"conversation:{conversation}", "participants", by=by, said=values)
        return await self._services.store.participate(Scope(user=user), conversation, users, audit=[record])

    async def delete(self, conversation: str, *, user: str | None = None) -> Mapping[str, int]:
        """Delete a conversation and everything derived from it. Return the counts of its receipt. Raises NotFound.

        Raises Conflict naming a hold that forbids it. The receipt is stored (`cue.memory.receipts`).
        """
        scope = Scope(user=user)
        await self._services.store.conversation(scope, conversation)
        receipt = await forget(self._services, scope, Target("conversation", (conversation,)))
        if not receipt.counts.get("conversations"):  # a concurrent call deleted it first
            await self._services.store.conversation(scope, conversation)
        return receipt.counts


def _seen(rounds: Sequence[Round], role: str | None, *, include_failed: bool) -> Sequence[Round]:
    if role is not None:
        return role_rounds(rounds, role, include_failed=include_failed)
    return rounds if include_failed else [each for each in rounds if each.state != "failed"]


def _size(value: Posted | Mapping[str, Any]) -> int:
    """Return the approximate number of characters of a post."""
    return len(value.message) if isinstance(value, Posted) else len(str(value.get("content", "")))


def _check_said(message_content: MessageContent, where: str) -> None:
    """Refuse a message without content and without tool calls: no model accepts it in a prompt."""
    if not message_content.message and not message_content.parts:
        msg = f"{where}: missing. Provide the message content."
        raise InvalidInput(msg, where=where)
