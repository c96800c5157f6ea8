"""`/api/conversations`: transcripts stored, listed, read, moved and deleted, and their turns shown and replayed."""

from typing import Annotated, Any

import msgspec
from litestar import Response, delete, get, post, put
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from cuebook.app import shapes
from cuebook.errors import InvalidInput, NotFound
from cuebook.server import wire
from cuebook.server.caller import AnyRequest, book_of, idempotency_key, user_of
from cuebook.server.edge import JsonBody
from cuebook.server.guard import name_in

UserQuery = Annotated[str | None, QueryParameter(name="userId", description="Who asks")]
Limit = Annotated[int, QueryParameter(ge=1, le=200, description="How many at most")]
Last = Annotated[int, QueryParameter(ge=1, le=100_000, description="The newest so many")]
Flag = FromQuery[bool]
#: No turn has a higher number.
HIGHEST = 2**31

_PATH = "/api/conversations/{conversation:str}"
_encode = msgspec.json.Encoder().encode


def _json(value: Any, status: int = 200) -> Response[bytes]:
    return Response(_encode(value), media_type="application/json", status_code=status)


@get("/api/conversations", responses=wire.answers(wire.ConversationPage))
async def list_conversations(
    request: AnyRequest, user_id: UserQuery = None, limit: Limit = 50, cursor: FromQuery[str | None] = None
) -> Response[bytes]:
    """List conversations, the most recent first."""
    page = await book_of(request).conversations.list(user=user_of(request, user_id), limit=limit, cursor=cursor)
    shown: dict[str, Any] = {"items": [shapes.conversation(each) for each in page.items]}
    if page.cursor is not None:
        shown["next"] = page.cursor
    return _json(shown)


@get(_PATH, responses=wire.answers(wire.ConversationAnswer))
async def get_conversation(
    request: AnyRequest, conversation: FromPath[str], user_id: UserQuery = None
) -> Response[bytes]:
    """Give a conversation's own data."""
    return _json(await book_of(request).conversations.describe(name_in(conversation), user=user_of(request, user_id)))


@delete(_PATH, status_code=200, responses=wire.answers(wire.Deleted))
async def delete_conversation(
    request: AnyRequest, conversation: FromPath[str], user_id: UserQuery = None
) -> Response[bytes]:
    """Forget a conversation and everything derived from it."""
    gone = await book_of(request).conversations.delete(name_in(conversation), user=user_of(request, user_id))
    return _json({"deleted": gone})


@get(f"{_PATH}/rounds", responses=wire.answers(wire.Listing))
async def get_rounds(
    request: AnyRequest,
    conversation: FromPath[str],
    user_id: UserQuery = None,
    role: FromQuery[str | None] = None,
    include_failed: Annotated[bool, QueryParameter(name="includeFailed")] = True,  # noqa: FBT002 - a query parameter
) -> Response[bytes]:
    """Give the rounds of the head's path, oldest first; with `role` the posts only that it sent or got."""
    rounds = await book_of(request).conversations.rounds(
        name_in(conversation), user=user_of(request, user_id), role=role, include_failed=include_failed
    )
    ids = shapes.ids_of([each for round_ in rounds for each in round_.posts])
    return _json({"items": [shapes.round_(each, ids) for each in rounds]})


@get(f"{_PATH}/posts", responses=wire.answers(wire.Listing))
async def get_posts(
    request: AnyRequest,
    conversation: FromPath[str],
    user_id: UserQuery = None,
    branches: Flag = False,  # noqa: FBT002 - a query parameter
    last: Annotated[int | None, QueryParameter(ge=1, le=HIGHEST)] = None,
) -> Response[bytes]:
    """Give the posts of the head's path, oldest first; with `branches` those of all branches."""
    posts = await book_of(request).conversations.posts(
        name_in(conversation), user=user_of(request, user_id), branches=branches, last=last
    )
    ids = shapes.ids_of(posts)
    return _json({"items": [shapes.post(each, ids) for each in posts]})


@post(f"{_PATH}/posts", dto=JsonBody[wire.PostsBody], responses=wire.answers(wire.Stored, 201))
async def add_posts(
    request: AnyRequest, conversation: FromPath[str], data: JSONBody[wire.PostsBody], user_id: UserQuery = None
) -> Response[bytes]:
    """Store posts made elsewhere, all or none. The same id and content is stored once, other content is a conflict."""
    if (data.posts is None) == (data.messages is None):
        msg = "posts: send either posts or messages"
        raise InvalidInput(msg, where="posts")
    posts, messages = data.posts or [], data.messages or []
    appended = await book_of(request).append(
        name_in(conversation),
        [wire.posted_of(each, number) for number, each in enumerate(posts)]
        or [wire.message_with_time(each, number) for number, each in enumerate(messages)],
        user=user_of(request, data.user_id, user_id),
        persona=data.persona_id or None,
        parent=wire.chain_of(posts),
        idempotency_key=idempotency_key(request.scope),
    )
    return _json({"stored": appended.stored, "lastSeq": appended.last_seq}, 201)


@put(f"{_PATH}/head", dto=JsonBody[wire.HeadBody], responses=wire.answers(wire.ConversationAnswer))
async def put_head(
    request: AnyRequest, conversation: FromPath[str], data: JSONBody[wire.HeadBody], user_id: UserQuery = None
) -> Response[bytes]:
    """Make a post the head; the other branches stay."""
    book, user, name = book_of(request), user_of(request, user_id), name_in(conversation)
    await book.conversations.move_head(name, data.post_id, user=user)
    return _json(await book.conversations.describe(name, user=user))


@get(f"{_PATH}/turns", responses=wire.answers(wire.Listing))
async def get_turns(
    request: AnyRequest, conversation: FromPath[str], user_id: UserQuery = None, last: Last = 20
) -> Response[bytes]:
    """Give the newest turns, oldest first, without their windows."""
    turns = await book_of(request).turns.last(name_in(conversation), user=user_of(request, user_id), last=last)
    shown = [shapes.turn(each, query="", reply="", shown=None) for each in turns]
    hidden = ("query", "reply", "window")
    return _json({"items": [{name: value for name, value in each.items() if name not in hidden} for each in shown]})


@get(f"{_PATH}/turns/{{n:int}}", responses=wire.answers(wire.TurnAnswer))
async def get_turn(
    request: AnyRequest,
    conversation: FromPath[str],
    n: FromPath[int],
    user_id: UserQuery = None,
    step: FromQuery[int | None] = None,
) -> Response[bytes]:
    """Give a turn: query, reply, and every block of its window with its source and tokens."""
    name, user = name_in(conversation), user_of(request, user_id)
    return _json(await book_of(request).turns.show(name, _number(n), step=step, user=user))


@get(f"{_PATH}/turns/{{n:int}}/replay", responses=wire.answers(wire.ReplayAnswer))
async def replay_turn(
    request: AnyRequest,
    conversation: FromPath[str],
    n: FromPath[int],
    user_id: UserQuery = None,
    step: FromQuery[int | None] = None,
) -> Response[bytes]:
    """Render a turn's window again from what is stored, and hold it against the digest of what was sent."""
    name, user = name_in(conversation), user_of(request, user_id)
    replay = await book_of(request).turns.replay(name, _number(n), step=step, user=user)
    window = shapes.window(replay.window) if replay.window else None
    return _json({"verdict": replay.verdict, "digest": replay.digest, "reason": replay.reason, "window": window})


@get(f"{_PATH}/summary", responses=wire.answers(wire.SummaryAnswer))
async def get_summary(request: AnyRequest, conversation: FromPath[str], user_id: UserQuery = None) -> Response[bytes]:
    """Give the rolling summary that stands for the head's path."""
    summary = await book_of(request).memory.summary(name_in(conversation), user=user_of(request, user_id))
    return _json({"summary": shapes.summary_state(summary) if summary else None})


@get(f"{_PATH}/items", responses=wire.answers(wire.Listing))
async def get_items(
    request: AnyRequest,
    conversation: FromPath[str],
    user_id: UserQuery = None,
    ended: Flag = False,  # noqa: FBT002 - a query parameter
) -> Response[bytes]:
    """Give what is remembered of the head's path; with `ended` what no longer holds too."""
    items = await book_of(request).memory.items(name_in(conversation), user=user_of(request, user_id), ended=ended)
    return _json({"items": [shapes.item(each) for each in items]})


def _number(n: int) -> int:
    if not 1 <= n <= HIGHEST:
        msg = f"there is no turn {n}; turns count from 1"
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
    get_turns,
    get_turn,
    replay_turn,
    get_summary,
    get_items,
]
