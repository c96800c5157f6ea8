"""Serve the routes of `/api/conversations` that no operation declares: imports of posts, and replays of turns."""

from litestar import Response, get, post
from litestar.params import FromPath, FromQuery, JSONBody

from cuebook.app.turns.turns import Replay, replay_entry
from cuebook.errors import InvalidInput
from cuebook.records.answer import to_json
from cuebook.records.conversation import SYSTEM
from cuebook.records.conversation_answers import ReplayEntry
from cuebook.server.api import types as wire
from cuebook.server.authorization import AnyRequest, caller_of, cue_of, idempotency_key, user_of
from cuebook.server.guard import name_in
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import PATH, UserQuery, json_of

#: Roles of OpenAI messages that are system posts.
SYSTEM_ROLES = ("system", "developer")
#: The highest number of a turn or a post.
HIGHEST = 2**31


class ReplayBody(wire.In, frozen=True, kw_only=True):
    """The changes to a turn's first window.

    `withPrompt`: prompt versions that replace the original ones, each as `SLUG`, `SLUG@BRANCH` or
    `SLUG@BRANCH:NUMBER`. `asOf`: use the memory as of a time (ISO 8601, UTC without a zone) or a turn number.
    `without`: memory IDs, or other sources beside the query (`post:ID`, `experience:ID`), to leave out. `ask`: call
    the configured model; the audit log records the call.
    """

    with_prompt: tuple[wire.Text, ...] = ()
    as_of: str | int | None = None
    without: tuple[wire.Text, ...] = ()
    ask: bool = False
    user_id: str | None = None


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


@get(f"{PATH}/turns/{{n:int}}/replay", responses=wire.answers(ReplayEntry))
async def replay_turn(
    request: AnyRequest,
    conversation: FromPath[str],
    n: FromPath[int],
    user_id: UserQuery = None,
    step: FromQuery[int | None] = None,
) -> Response[bytes]:
    """Render a turn's window from stored data, and compare it with the digest of the sent bytes."""
    name, user = name_in(conversation), user_of(request, user_id)
    return _answer(await cue_of(request).turns.replay(name, n, step=step, user=user))


@post(f"{PATH}/turns/{{n:int}}/replay", dto=JsonBody[ReplayBody], status_code=200, responses=wire.answers(ReplayEntry))
async def what_if(
    request: AnyRequest,
    conversation: FromPath[str],
    n: FromPath[int],
    data: JSONBody[ReplayBody],
    user_id: UserQuery = None,
) -> Response[bytes]:
    """Return a turn's prompt as it would be with other prompt versions, another memory state, or fewer blocks."""
    replay = await cue_of(request).turns.replay(
        name_in(conversation),
        n,
        user=user_of(request, data.user_id, user_id),
        with_prompt=data.with_prompt,
        as_of=data.as_of,
        without=data.without,
        ask=data.ask,
    )
    return _answer(replay)


def _answer(replay: Replay) -> Response[bytes]:
    return Response(to_json(replay_entry(replay)), media_type="application/json")


ROUTES = [add_posts, replay_turn, what_if]
