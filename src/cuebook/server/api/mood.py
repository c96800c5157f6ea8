"""`/api/conversations/{id}/mind`: the state of mind a conversation is in, what moved it, and reflecting by hand."""

from typing import Annotated, Any

from litestar import Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter
from msgspec import Struct

from cuebook.app.turns.mood import mind_shape
from cuebook.server.api.types import In, Text, answers
from cuebook.server.authorization import AnyRequest, book_of, check_first, user_of
from cuebook.server.guard import name_in
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import PATH, UserQuery, json_of

ReflectionLimit = Annotated[int, QueryParameter(name="limit", ge=1, le=500, description="Reflections at most")]


class MindBody(Struct, frozen=True, kw_only=True, rename="camel"):
    """A state of mind."""

    mood: str
    user_skill: str
    task_complexity: str
    strategy: str
    imprints: dict[str, str]


class RunShown(Struct, frozen=True, kw_only=True):
    """A metaprompt that ran: why, who decided, what came of it, and what it changed as `[before, after]`."""

    metaprompt: str
    trigger: str
    by: str
    outcome: str
    reason: str
    changes: dict[str, list[Any]]
    prompt: str


class ReflectionShown(Struct, frozen=True, kw_only=True):
    """What came of reflecting on a turn; `sentiment` where a model judged it."""

    turn: int
    at: str
    mind: MindBody
    runs: list[RunShown]
    sentiment: dict[str, Any] = {}


class MindAnswer(MindBody, frozen=True, kw_only=True, rename="camel"):
    """A conversation's state of mind, and its reflections, the newest first."""

    conversation_id: str
    turn: int
    due: int
    reflections: list[ReflectionShown]


class MindRunBody(In, frozen=True, kw_only=True):
    """Which metaprompt to run: one of the persona's, or one that ships."""

    metaprompt: Text
    user_id: Text | None = None


class MindResetBody(In, frozen=True, kw_only=True):
    """Whose conversation it is."""

    user_id: Text | None = None


@get(f"{PATH}/mind", responses=answers(MindAnswer))
async def get_mind(
    request: AnyRequest, conversation: FromPath[str], user_id: UserQuery = None, limit: ReflectionLimit = 20
) -> Response[bytes]:
    """Return a conversation's mood, its picture of the user's skill and the task, and what moved them."""
    user = user_of(request, user_id)
    return json_of(mind_shape(await book_of(request).mind.show(name_in(conversation), user=user, limit=limit)))


@post(f"{PATH}/mind/run", dto=JsonBody[MindRunBody], status_code=200, responses=answers(MindAnswer))
async def run_metaprompt(
    request: AnyRequest, conversation: FromPath[str], data: JSONBody[MindRunBody], user_id: UserQuery = None
) -> Response[bytes]:
    """Run a metaprompt now, on the newest turn."""
    book, user, name = book_of(request), user_of(request, data.user_id, user_id), name_in(conversation)
    await check_first(request, name, user, "moving another's conversation's state of mind")
    return json_of(mind_shape(await book.mind.run(name, data.metaprompt, user=user)))


@post(f"{PATH}/mind/reset", dto=JsonBody[MindResetBody], status_code=200, responses=answers(MindAnswer))
async def reset_mind(
    request: AnyRequest,
    conversation: FromPath[str],
    data: JSONBody[MindResetBody | None] = None,
    user_id: UserQuery = None,
) -> Response[bytes]:
    """Make it neutral again; the history stays."""
    body = data or MindResetBody()
    book, user, name = book_of(request), user_of(request, body.user_id, user_id), name_in(conversation)
    await check_first(request, name, user, "moving another's conversation's state of mind")
    return json_of(mind_shape(await book.mind.reset(name, user=user)))


ROUTES = [get_mind, run_metaprompt, reset_mind]
