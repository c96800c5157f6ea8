"""Serve `/api/conversations`: list, read, import and delete transcripts, and show and replay turns."""

from collections.abc import Sequence
from typing import Annotated, Any

from litestar import Response, delete, get, post, put
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from cuebook.app import json_shapes as shapes
from cuebook.app.paging import LIMIT
from cuebook.app.turns.turns import replay_shape
from cuebook.errors import InvalidInput, NotFound
from cuebook.records.conversation import SYSTEM
from cuebook.records.turn import Turn
from cuebook.server.api import types as wire
from cuebook.server.authorization import AnyRequest, actor_of, caller_of, check_first, cue_of, idempotency_key, user_of
from cuebook.server.guard import name_in
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import PATH, Limit, PageCursor, PageLimit, UserQuery, json_of, listed

Last = Annotated[int | None, QueryParameter(ge=1, le=100_000, description="Number of newest turns")]
Flag = FromQuery[bool]
#: Default number of turns in a list.
NEWEST = 20
#: Roles of OpenAI messages that are system posts.
SYSTEM_ROLES = ("system", "developer")
#: The highest turn number.
HIGHEST = 2**31


@get("/api/conversations", responses=wire.answers(wire.ConversationPage))
async def list_conversations(
    request: AnyRequest,
    *,
    q: FromQuery[str | None] = None,
    user_id: UserQuery = None,
    limit: Limit = 50,
    cursor: FromQuery[str | None] = None,
) -> Response[bytes]:
    """List conversations, most recent first, without their summaries.

    `q` filters by words in the ID, the user or the start of the first post.
    """
    user = user_of(request, user_id)
    page = await cue_of(request).conversations.listed(q=q, user=user, limit=limit, cursor=cursor)
    return listed(list(page.items), page.next)


@get(PATH, responses=wire.answers(wire.ConversationAnswer))
async def get_conversation(
    request: AnyRequest, conversation: FromPath[str], user_id: UserQuery = None
) -> Response[bytes]:
    """Return a conversation's metadata."""
    return json_of(await cue_of(request).conversations.describe(name_in(conversation), user=user_of(request, user_id)))


@delete(PATH, status_code=200, responses=wire.answers(wire.Deleted))
async def delete_conversation(
    request: AnyRequest, conversation: FromPath[str], user_id: UserQuery = None
) -> Response[bytes]:
    """Forget a conversation and everything derived from it. Only for its first user."""
    cue, user, name = cue_of(request), user_of(request, user_id), name_in(conversation)
    await check_first(request, name, user, "Forgetting another user's conversation")
    gone = await cue.conversations.delete(name, user=user)
    return json_of({"deleted": gone})


@get(f"{PATH}/rounds", responses=wire.answers(wire.Listing))
async def get_rounds(
    request: AnyRequest,
    conversation: FromPath[str],
    *,
    user_id: UserQuery = None,
    role: FromQuery[str | None] = None,
    include_failed: Annotated[bool, QueryParameter(name="includeFailed")] = True,
    limit: PageLimit = None,
    cursor: PageCursor = None,
) -> Response[bytes]:
    """Return the rounds of the head's branch, oldest first; with `role` only posts from or to it.

    Returns all, or with `limit` or `cursor` a page.
    """
    conversations, name, user = cue_of(request).conversations, name_in(conversation), user_of(request, user_id)
    view: Any = {"user": user, "role": role, "include_failed": include_failed}
    if limit is None and cursor is None:
        rounds, more = await conversations.rounds(name, **view), None
    else:
        page = await conversations.rounds_page(name, **view, limit=limit or LIMIT, cursor=cursor)
        rounds, more = page.items, page.next
    ids = await conversations.ids(name, [each for round_ in rounds for each in round_.posts], user=user)
    return listed([shapes.round_(each, ids) for each in rounds], more)


@get(f"{PATH}/posts", responses=wire.answers(wire.Listing))
async def get_posts(
    request: AnyRequest,
    conversation: FromPath[str],
    *,
    user_id: UserQuery = None,
    branches: Flag = False,
    last: Annotated[int | None, QueryParameter(ge=1, le=HIGHEST)] = None,
    limit: PageLimit = None,
    cursor: PageCursor = None,
) -> Response[bytes]:
    """Return the posts of the head's branch, oldest first; with `branches` those of all branches.

    Returns all, with `last` the newest, or with `limit` or `cursor` a page. Pages stay on the same branch if the head
    moves.
    """
    conversations, name, user = cue_of(request).conversations, name_in(conversation), user_of(request, user_id)
    if limit is None and cursor is None:
        posts, more = await conversations.posts(name, user=user, branches=branches, last=last), None
    else:
        _only_one("last", last)
        page = await conversations.posts_page(name, user=user, branches=branches, limit=limit or LIMIT, cursor=cursor)
        posts, more = page.items, page.next
    ids = await conversations.ids(name, posts, user=user)
    return listed([shapes.post(each, ids) for each in posts], more)


@post(f"{PATH}/posts", dto=JsonBody[wire.PostsBody], responses=wire.answers(wire.Stored, 201))
async def add_posts(
    request: AnyRequest, conversation: FromPath[str], data: JSONBody[wire.PostsBody], user_id: UserQuery = None
) -> Response[bytes]:
    """Import posts, all or none. The same id and content is stored once; different content is a conflict."""
    if (data.posts is None) == (data.messages is None):
        msg = "posts: send either posts or messages."
        raise InvalidInput(msg, where="posts")
    posts, messages = data.posts or [], data.messages or []
    if any(each.send_from == SYSTEM for each in posts) or any(each.get("role") in SYSTEM_ROLES for each in messages):
        caller_of(request).need("agent", "Storing a system post")
    appended = await cue_of(request).append(
        name_in(conversation),
        [wire.posted_of(each, number) for number, each in enumerate(posts)]
        or [wire.message_with_time(each, number) for number, each in enumerate(messages)],
        user=user_of(request, data.user_id, user_id),
        persona=data.persona_id or None,
        parent=wire.chain_of(posts),
        idempotency_key=idempotency_key(request.scope),
        time_zone=data.time_zone,
    )
    return json_of({"stored": appended.stored, "lastSeq": appended.last_seq}, 201)


@put(f"{PATH}/head", dto=JsonBody[wire.HeadBody], responses=wire.answers(wire.ConversationAnswer))
async def put_head(
    request: AnyRequest, conversation: FromPath[str], data: JSONBody[wire.HeadBody], user_id: UserQuery = None
) -> Response[bytes]:
    """Move the head to a post. The other branches are kept. Only for the conversation's first user."""
    cue, user, name = cue_of(request), user_of(request, user_id), name_in(conversation)
    await check_first(request, name, user, "Moving the head of another user's conversation")
    await cue.conversations.move_head(name, data.post_id, user=user)
    return json_of(await cue.conversations.describe(name, user=user))


@put(f"{PATH}/participants", dto=JsonBody[wire.ParticipantsBody], responses=wire.answers(wire.ConversationAnswer))
async def put_participants(
    request: AnyRequest,
    conversation: FromPath[str],
    data: JSONBody[wire.ParticipantsBody],
    user_id: UserQuery = None,
) -> Response[bytes]:
    """Set the participants besides the first user. Only for owners; others get 404."""
    cue, user, name = cue_of(request), user_of(request, user_id), name_in(conversation)
    await cue.conversations.participants(name, data.participants, user=user, by=actor_of(request))
    return json_of(await cue.conversations.describe(name, user=user))


@get(f"{PATH}/turns", responses=wire.answers(wire.Listing))
async def get_turns(
    request: AnyRequest,
    conversation: FromPath[str],
    *,
    user_id: UserQuery = None,
    last: Last = None,
    limit: PageLimit = None,
    cursor: PageCursor = None,
) -> Response[bytes]:
    """Return turns without windows, oldest first: the newest 20, the newest `last`, or a page of all."""
    cue, name, user = cue_of(request), name_in(conversation), user_of(request, user_id)
    turns: Sequence[Turn]
    if limit is None and cursor is None:
        turns, more = await cue.turns.last(name, user=user, last=last or NEWEST), None
    else:
        _only_one("last", last)
        page = await cue.turns.page(name, user=user, limit=limit or LIMIT, cursor=cursor)
        turns, more = page.items, page.next
    items = [shapes.turn(each, query="", reply="", shown=None) for each in turns]
    hidden = ("query", "reply", "window")
    return listed([{key: value for key, value in each.items() if key not in hidden} for each in items], more)


@get(f"{PATH}/turns/{{n:int}}", responses=wire.answers(wire.TurnAnswer))
async def get_turn(
    request: AnyRequest,
    conversation: FromPath[str],
    n: FromPath[int],
    user_id: UserQuery = None,
    step: FromQuery[int | None] = None,
) -> Response[bytes]:
    """Return a turn: query, reply, and the blocks of its window with sources and tokens."""
    name, user = name_in(conversation), user_of(request, user_id)
    return json_of(await cue_of(request).turns.show(name, number_of(n), step=step, user=user))


@get(f"{PATH}/turns/{{n:int}}/replay", responses=wire.answers(wire.ReplayAnswer))
async def replay_turn(
    request: AnyRequest,
    conversation: FromPath[str],
    n: FromPath[int],
    user_id: UserQuery = None,
    step: FromQuery[int | None] = None,
) -> Response[bytes]:
    """Render a turn's window from stored data, and compare it with the digest of the sent bytes."""
    name, user = name_in(conversation), user_of(request, user_id)
    return json_of(replay_shape(await cue_of(request).turns.replay(name, number_of(n), step=step, user=user)))


@get(f"{PATH}/summary", responses=wire.answers(wire.SummaryAnswer))
async def get_summary(request: AnyRequest, conversation: FromPath[str], user_id: UserQuery = None) -> Response[bytes]:
    """Return the rolling summary of the head's branch."""
    summary = await cue_of(request).memory.summary(name_in(conversation), user=user_of(request, user_id))
    return json_of({"summary": shapes.summary_state(summary) if summary else None})


def _only_one(name: str, value: int | None) -> None:
    if value is not None:
        msg = f"{name}: send either {name}, or limit and cursor."
        raise InvalidInput(msg, where=name)


def number_of(n: int) -> int:
    """Check a turn number. Raises NotFound if it is out of range."""
    if not 1 <= n <= HIGHEST:
        msg = f"Unknown turn {n}. Turns are numbered from 1."
        raise NotFound(msg)
    return n


ROUTES = [
    list_conversations,
    get_conversation,
    delete_conversation,
    get_rounds,
    get_posts,
    add_posts,
    put_head,
    put_participants,
    get_turns,
    get_turn,
    replay_turn,
    get_summary,
]
