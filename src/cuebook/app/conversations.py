"""Store, list, read, compress and delete conversations: the `cue.conversations` API."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import tzinfo
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from cuebook.app.arguments import (
    OWNER,
    Actor,
    CallerOf,
    Conversation,
    Cursor,
    IdempotencyKey,
    MaybePageSize,
    PageSize,
    User,
)
from cuebook.app.check_arguments import check_append, check_users
from cuebook.app.namespace import Namespace, append, check_first, zone_of
from cuebook.app.paging import LIMIT, check_alone, no_cursor, page_of, read_cursor, write_cursor
from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.drafts import Posted, PostFactory, check_text, check_time, content_of, dated
from cuebook.engine.core.offload import slices
from cuebook.engine.jobs.compaction import compress_by_hand
from cuebook.engine.jobs.erasure import forget
from cuebook.errors import Conflict, InvalidInput, NotFound
from cuebook.interfaces.store import Batch
from cuebook.operations import Argument, operation
from cuebook.records.answer import Page
from cuebook.records.conversation import Appended, Draft, LoadedConversation, Post, Round
from cuebook.records.conversation import Conversation as StoredConversation
from cuebook.records.conversation_answers import (
    ConversationEntry,
    PostEntry,
    RoundEntry,
    SessionMessage,
    SharedNote,
    SummaryState,
    conversation_entry,
    ids_of,
    post_entry,
    round_entry,
    session_of,
    shared_note,
    summary_state,
)
from cuebook.records.erasure import Target
from cuebook.records.memory import Scope
from cuebook.records.portable import role_rounds, rounds_of, shared_entries
from cuebook.records.turn import title_of
from cuebook.wire.chat_messages import MessageContent, digest, read_message

#: Number of posts loaded at a time for a page of rounds.
ROUND_POSTS = 200
#: Number of conversations loaded at a time.
MARKS = 500
#: Seconds between posts without a time, so that sorting by time keeps their order.
TICK_S = 0.001

Failed = Annotated[bool, Meta(description="Include failed rounds."), Argument(flag="failed")]


def _amount_of(posts: Any) -> tuple[int, int]:
    """Return the characters of posts, about, and the number of posts and parts; their types may be wrong."""
    with suppress(TypeError, AttributeError):
        parts = [part for each in posts if isinstance(each, Posted) for part in each.parts]
        texts = [each.message if isinstance(each, Posted) else str(each.get("content")) for each in posts]
        return sum(map(len, texts)) + sum(len(part.content) for part in parts), len(texts) + len(parts)
    return 0, 0


def draft_posts(
    writer: PostFactory,
    numbered: Sequence[tuple[int, str, Posted | Mapping[str, Any]]],
    *,
    user: str | None,
    persona: str | None,
    now: float,
    zone: tzinfo,
    stored: Mapping[str, bytes] = MappingProxyType({}),
) -> tuple[Draft, ...]:
    """Return the drafts of posts, given by number and new id. Raises InvalidInput naming the post.

    `stored` are the digests of stored posts by id: posts with the same content need no draft.
    """
    terms: Any = {"user": user, "persona": persona}
    new = (each for each in numbered if not _is_stored(each[2], stored, **terms))
    return dated(
        [_draft(writer, value, number=number, fresh=fresh, now=now, **terms) for number, fresh, value in new], zone
    )


def _is_stored(
    value: Posted | Mapping[str, Any], stored: Mapping[str, bytes], *, user: str | None, persona: str | None
) -> bool:
    """Return whether a post is surely stored. One whose secrets were redacted is compared again as a draft."""
    before = stored.get(id_of(value))
    if before is None:
        return False
    try:
        if isinstance(value, Posted):
            content = content_of(value, sender=value.sender, persona=persona, user=user)
        else:
            fields = {name: each for name, each in value.items() if name not in ("id", "timestamp")}
            content = read_message(msgspec.json.encode(fields))
        return digest(content) == before
    except (InvalidInput, TypeError, UnicodeEncodeError, RecursionError):
        return False  # its draft raises the error


def id_of(value: Posted | Mapping[str, Any]) -> str:
    """Return the id of a post, "" for none."""
    return value.id if isinstance(value, Posted) else str(value.get("id") or "")


def _draft(
    writer: PostFactory,
    value: Posted | Mapping[str, Any],
    *,
    number: int,
    fresh: str,
    user: str | None,
    persona: str | None,
    now: float,
) -> Draft:
    at = now + number * TICK_S
    try:
        if isinstance(value, Posted):
            return writer.posted(value, id=fresh, now=at, persona=persona, user=user)
        fields = dict(value)
        id_, when = fields.pop("id", None), fields.pop("timestamp", None)
        check_time(at if when is None else when)
        raw = msgspec.json.encode(fields)
        message_content = read_message(raw, index=number)
        if fields.get("content") is None:
            _check_said(message_content, f"messages[{number}].content")
        at = at if when is None else float(when)
        return writer.message(raw, message_content, id=id_ or fresh, user=user, now=at, owner=user)
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        msg = f"posts[{number}]: cannot be encoded as JSON ({error})."
        raise InvalidInput(msg, where=f"posts[{number}]") from error
    except InvalidInput as error:
        if error.where and error.where.startswith("messages[") and not isinstance(value, Posted):
            raise  # the error already names the field
        where = f"posts[{number}].{error.where}" if error.where else f"posts[{number}]"
        raise type(error)(f"posts[{number}]: {error}", where=where) from error


class Conversations(Namespace):
    """The conversations of a project. `user` is the caller; None stands for the project's owner."""

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
        names = {"user": user, "persona": persona, "parent": parent, "idempotency_key": idempotency_key}
        offload, (size, items) = self._services.offload, _amount_of(posts)
        await offload.run(size, partial(check_append, conversation, posts, **names), items=items)
        if not conversation:
            msg = "conversation: empty. Provide a conversation id."
            raise InvalidInput(msg, where="conversation")
        if not posts:
            msg = "posts: empty. Send at least one."
            raise InvalidInput(msg, where="posts")
        zone = await zone_of(self._services, conversation, user=user, time_zone=time_zone)
        now = self._services.clock.now()
        new = [(number, self._services.dice.new_id("post"), each) for number, each in enumerate(posts)]
        terms: Any = {"user": user, "persona": persona, "now": now, "zone": zone}
        if idempotency_key is None:  # whose request is identified by all drafts
            ids = [each for each in map(id_of, posts) if each]
            terms["stored"] = await self._services.store.post_digests(Scope(user=user), conversation, ids)
        drafts: list[Draft] = []
        for part in slices(new):
            draft = partial(draft_posts, self._services.writer, part, **terms)
            drafts += await offload.compute(draft, size=size, items=items)
        batch = Batch(
            conversation=conversation,
            drafts=tuple(drafts),
            time_zone=time_zone,
            now=now,
            persona=persona,
            parent=parent,
        )
        work = partial(append, self._services, Scope(user=user), batch)
        asked = ["append", conversation, parent, [draft.digest.hex() for draft in drafts]]
        return await self._run_once(idempotency_key, asked, Appended, work, user=user)

    @operation(
        "GET /api/conversations",
        role="viewer",
        cli="conversation list",
        examples=("cuebook conversation list", "cuebook conversation list --find 'ferry vlieland' --limit 5"),
        none="no conversations. Run `cuebook chat` or `cuebook conversation import FILE` to add one.",
    )
    async def list(
        self,
        *,
        q: Annotated[
            str | None,
            Meta(
                max_length=1_000,
                description="Show only conversations with all these words in the ID, user or first message.",
            ),
            Argument(flag="find", metavar="WORDS"),
        ] = None,
        utility: Annotated[
            bool,
            Meta(description="List the utility calls of proxy clients instead: titles, tags, rewritten queries."),
            Argument(flag="utility"),
        ] = False,
        user: User = None,
        limit: PageSize = LIMIT,
        cursor: Cursor = None,
    ) -> Page[ConversationEntry]:
        """List conversations, most recent first, without their summaries. Raises InvalidInput."""
        scope = Scope(user=user)
        words, talks = (q or "").split(), self._services.store.talks
        page = await talks.find(scope, words, limit=limit, cursor=cursor, utility=utility)
        items = []
        for each in page.items:
            with suppress(NotFound):  # it was deleted after the page was read
                head = await self._head(each.conversation, scope)
                items.append(conversation_entry(each.conversation, head=head, title=each.title))
        return Page(items=tuple(items), next=page.next)

    async def _head(self, conversation: StoredConversation, scope: Scope) -> str | None:
        if not conversation.head:
            return None
        posts = await self._services.store.posts_in(scope, conversation.id, [(conversation.head, conversation.head)])
        return posts[0].id if posts else None

    @operation("GET /api/conversations/{conversation}", role="viewer")
    async def get(self, conversation: Conversation, *, user: User = None) -> ConversationEntry:
        """Return a conversation with the state of its summary. Raises NotFound."""
        scope, store = Scope(user=user), self._services.store
        found = await store.conversation(scope, conversation)
        summary = await store.summary(scope, conversation)
        head, said = await self._head(found, scope), await store.talks.first_words(scope, conversation)
        return conversation_entry(found, head=head, title=title_of(said), summary=summary)

    async def load(self, conversation: str, *, user: str | None = None, branches: bool = False) -> LoadedConversation:
        """Load a conversation with the posts of its head's path, or of all `branches`, as exports need them.

        Raises NotFound.
        """
        scope, store = Scope(user=user), self._services.store
        found = await store.conversation(scope, conversation)
        posts = await store.posts(scope, conversation, path=not branches)
        rounds = () if branches else rounds_of(posts, await store.round_states(scope, conversation))
        return LoadedConversation(conversation=found, posts=tuple(posts), rounds=tuple(rounds))

    async def marks(self, conversation: str | None = None) -> dict[str, int]:
        """Return the number of the last summarized post of a conversation, or of all. Raises NotFound."""
        store, cursor = self._services.store, None
        if conversation is not None:
            return {conversation: (await store.conversation(Scope(), conversation)).mark}
        results: dict[str, int] = {}
        while True:
            page = await store.conversations(Scope(), limit=MARKS, cursor=cursor)
            results |= {each.id: each.mark for each in page.items}
            if not (cursor := page.next):
                return results

    @operation("GET /api/conversations/{conversation}/posts", role="viewer")
    async def posts(
        self,
        conversation: Conversation,
        *,
        user: User = None,
        branches: Annotated[
            Literal["head", "all"], Meta(description="`all` includes side branches, ordered by post number.")
        ] = "head",
        last: Annotated[int | None, Meta(ge=1, le=2**31, description="Return only the newest N posts.")] = None,
        limit: MaybePageSize = None,
        cursor: Cursor = None,
    ) -> Page[PostEntry]:
        """Return the posts of the head's branch, oldest first, or of all branches.

        Returns all, with `last` the newest, or with `limit` or `cursor` a page. Pages stay on the same branch if the
        head moves.
        """
        scope, store, path = Scope(user=user), self._services.store, branches == "head"
        if limit is None and cursor is None:
            posts = await store.posts(scope, conversation, path=path, last=last)
            return Page(items=await self._post_entries(scope, conversation, posts))
        check_alone("last", last)
        limit = limit or LIMIT
        found, head, after = await self._start(conversation, "posts", scope, branches=not path, cursor=cursor)
        posts = await store.posts(scope, conversation, after=after, limit=limit + 1, path=path, head=head)
        more = write_cursor("posts", head, posts[limit - 1].seq, no=found.no) if len(posts) > limit else None
        return Page(items=await self._post_entries(scope, conversation, posts[:limit]), next=more)

    async def _start(
        self, conversation: str, name: str, scope: Scope, *, branches: bool, cursor: str | None
    ) -> tuple[StoredConversation, int, int]:
        """Return the conversation, the head of the path (0 for all branches), and the seq after which a page starts.

        Raises InvalidInput for a foreign cursor.
        """
        found = await self._services.store.conversation(scope, conversation)
        if cursor is None:
            return found, 0 if branches else found.head, 0
        head, after = map(int, read_cursor(cursor, name, no=found.no))
        if head > found.last_seq or bool(head) == branches:
            raise no_cursor(cursor)
        return found, head, after

    async def _post_entries(self, scope: Scope, conversation: str, posts: Sequence[Post]) -> tuple[PostEntry, ...]:
        ids = await self._ids(scope, conversation, posts)
        return tuple(post_entry(each, ids) for each in posts)

    async def _ids(self, scope: Scope, conversation: str, posts: Sequence[Post]) -> dict[int, str]:
        """Return the ids of posts and of their parents, by `seq`."""
        ids = ids_of(posts)
        before = {post.parent for post in posts} - ids.keys() - {0}
        spans = [(seq, seq) for seq in sorted(before)]
        followed = await self._services.store.posts_in(scope, conversation, spans) if spans else []
        return ids | {post.seq: post.id for post in followed}

    @operation("GET /api/conversations/{conversation}/rounds", role="viewer")
    async def rounds(
        self,
        conversation: Conversation,
        *,
        user: User = None,
        role: Annotated[str | None, Meta(description="Only posts that this role sent or received.")] = None,
        include_failed: Failed = True,
        limit: MaybePageSize = None,
        cursor: Cursor = None,
    ) -> Page[RoundEntry]:
        """Return the rounds of the head's branch, oldest first: all, or with `limit` or `cursor` a page."""
        scope, store = Scope(user=user), self._services.store
        most = None if limit is None and cursor is None else limit or LIMIT
        found, head, after = await self._start(conversation, "rounds", scope, branches=False, cursor=cursor)
        states = await store.round_states(scope, conversation)
        posts: Any = []
        more = None
        while True:  # load only the posts that a page needs
            read = await store.posts(scope, conversation, after=after, limit=ROUND_POSTS if most else None, head=head)
            posts += read
            rounds = _seen(rounds_of(posts, states), role, include_failed=include_failed)
            if most and len(rounds) > most:  # the last one may be incomplete: leave it out
                more, rounds = write_cursor("rounds", head, rounds[most].seq - 1, no=found.no), rounds[:most]
                break
            if not most or len(read) < ROUND_POSTS:
                break
            after = read[-1].seq
        ids = await self._ids(scope, conversation, [each for round_ in rounds for each in round_.posts])
        return Page(items=tuple(round_entry(each, ids) for each in rounds), next=more)

    async def _rounds(self, scope: Scope, conversation: str) -> Sequence[Round]:
        posts = await self._services.store.posts(scope, conversation)
        return rounds_of(posts, await self._services.store.round_states(scope, conversation))

    @operation(
        "GET /api/conversations/{conversation}/shared-entries",
        role="viewer",
        cli="conversation shared",
        examples=("cuebook conversation shared c1", "cuebook conversation shared c1 --type plan --json"),
        none="no shared memory entries",
    )
    async def shared_entries(
        self,
        conversation: Conversation,
        *,
        user: User = None,
        entry_type: Annotated[
            str | None, Meta(description="Only this type."), Argument(wire="type", flag="type", metavar="TYPE")
        ] = None,
        include_failed: Failed = False,
        limit: MaybePageSize = None,
        cursor: Cursor = None,
    ) -> Page[SharedNote]:
        """List shared memory entries: the notes that the roles of a conversation leave for each other.

        Notes of scope `round` are valid in the last round only.
        """
        scope = Scope(user=user)
        found = await self._services.store.conversation(scope, conversation)
        rounds = await self._rounds(scope, conversation)
        rows = shared_entries(rounds, entry_type=entry_type, include_failed=include_failed)
        view = f"shared {entry_type} {include_failed}"
        page = page_of(rows, view, no=found.no, state=found.last_seq, limit=limit, cursor=cursor)
        return Page(items=tuple(map(shared_note, page.items)), next=page.next)

    @operation(
        "GET /api/conversations/{conversation}/session",
        role="viewer",
        cli="conversation session",
        examples=("cuebook conversation session c1", "cuebook conversation session c1 --compressed --json"),
    )
    async def session(
        self,
        conversation: Conversation,
        *,
        user: User = None,
        include_compressed: Annotated[
            bool, Meta(description="Include summarized posts."), Argument(flag="compressed")
        ] = False,
        limit: MaybePageSize = None,
        cursor: Cursor = None,
    ) -> Page[SessionMessage]:
        """Return a conversation as a BrowserOS session, as a model would load it.

        The summary comes first, then the posts after it, oldest first.
        """
        scope, store = Scope(user=user), self._services.store
        found = await store.conversation(scope, conversation)
        summary, posts = await store.summary(scope, conversation), await store.posts(scope, conversation)
        rows = session_of(posts, summary, count=self._services.count, include_compressed=include_compressed)
        view = f"session {include_compressed}"
        return page_of(rows, view, no=found.no, state=found.mark, limit=limit, cursor=cursor)

    @operation("GET /api/conversations/{conversation}/summary", role="viewer", wrap="summary")
    async def summary(
        self,
        conversation: Conversation,
        *,
        user: User = None,
        version: Annotated[
            int | None, Meta(ge=1, le=2**31, description="Summary version. Default: the newest of the head's branch.")
        ] = None,
    ) -> SummaryState | None:
        """Return the rolling summary of the head's branch, null if there is none yet, or one version of it."""
        summary = await self._services.store.summary(Scope(user=user), conversation, version=version)
        return summary_state(summary) if summary else None

    @operation(
        "POST /api/conversations/{conversation}/compress",
        role="editor",
        status=201,
        cli="conversation compress",
        stores=True,
        wrap="summary",
        examples=(
            "cuebook conversation compress c1 --before p40 --summary 'They chose the blue boat.'",
            "cuebook conversation compress c1 --before p40 --summary - < summary.txt",
        ),
    )
    async def compress(
        self,
        conversation: Conversation,
        *,
        older_than: Annotated[
            str,
            Meta(min_length=1, description="ID of the first post that the summary omits."),
            Argument(flag="before", metavar="POST"),
        ],
        summary: Annotated[
            str, Meta(min_length=1, description="Summary of the earlier posts."), Argument(metavar="TEXT|-")
        ],
        user: User = None,
        caller: CallerOf = OWNER,
        idempotency_key: IdempotencyKey = None,
    ) -> SummaryState | None:
        """Replace all posts before one in prompts by the caller's own summary (BrowserOS's compressMessages).

        The transcript and the memories of these posts are kept. Raises NotFound, InvalidInput, and Conflict while a
        round is open or if the branch changed meanwhile.
        """
        check_text(summary, "summary")
        if not summary.strip():
            msg = "summary: empty. Provide a summary of the earlier posts."
            raise InvalidInput(msg, where="summary")
        services, scope = self._services, Scope(user=user)
        await check_first(services, conversation, user, caller, "Summarizing another user's conversation")
        if not await compress_by_hand(services, scope, conversation, older_than=older_than, text=summary):
            msg = f"Conversation {conversation!r} changed during the compression. Read it again, then retry."
            raise Conflict(msg)
        return await self.summary(conversation, user=user)

    @operation("PUT /api/conversations/{conversation}/head", role="editor")
    async def move_head(
        self,
        conversation: Conversation,
        post: Annotated[str, Meta(min_length=1, description="ID of the post."), Argument(wire="postId")],
        *,
        user: User = None,
        caller: CallerOf = OWNER,
    ) -> ConversationEntry:
        """Make a post the head. The other branches stay and can become the head again. Raises NotFound."""
        scope = Scope(user=user)
        await check_first(self._services, conversation, user, caller, "Moving the head of another user's conversation")
        await self._services.store.move_head(scope, conversation, post, now=self._services.clock.now())
        return await self.get(conversation, user=user)

    @operation("PUT /api/conversations/{conversation}/participants", role="owner", hidden=True)
    async def participants(
        self,
        conversation: Conversation,
        participants: Annotated[
            Sequence[Annotated[str, Meta(min_length=1)]],
            Meta(max_length=1000, description="User IDs besides the first user."),
        ],
        *,
        user: User = None,
        by: Actor = "",
    ) -> ConversationEntry:
        """Set the participants besides the first user. Nobody else can see the conversation. Raises NotFound."""
        check_users(participants)
        values = {"conversation": conversation, "participants": [*participants]}
        record = receipt(self._services, f"conversation:{conversation}", "participants", agent=by, context=values)
        await self._services.store.participate(Scope(user=user), conversation, participants, audit=[record])
        return await self.get(conversation, user=user)

    @operation("DELETE /api/conversations/{conversation}", role="editor", wrap="deleted")
    async def delete(
        self, conversation: Conversation, *, user: User = None, caller: CallerOf = OWNER
    ) -> Mapping[str, int]:
        """Delete a conversation and everything derived from it. Return the counts of its receipt.

        Raises NotFound, and Conflict naming a hold that forbids it. The receipt is stored.
        """
        scope, store = Scope(user=user), self._services.store
        await check_first(self._services, conversation, user, caller, "Forgetting another user's conversation")
        await store.conversation(scope, conversation)
        counts = (await forget(self._services, scope, Target("conversation", (conversation,)))).counts
        if not counts.get("conversations"):  # a concurrent call deleted it first
            await store.conversation(scope, conversation)
        return counts


def _seen(rounds: Sequence[Round], role: str | None, *, include_failed: bool) -> Sequence[Round]:
    if role is not None:
        return role_rounds(rounds, role, include_failed=include_failed)
    return rounds if include_failed else [each for each in rounds if each.state != "failed"]


def _check_said(message_content: MessageContent, where: str) -> None:
    """Refuse a message without content and without tool calls: no model accepts it in a prompt."""
    if not message_content.message and not message_content.parts:
        msg = f"{where}: missing. Provide the message content."
        raise InvalidInput(msg, where=where)
