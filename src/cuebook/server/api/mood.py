"""Serve `/api/conversations/{id}/mind`: a conversation's mood state, its history, and manual metaprompt runs."""

from typing import Annotated, Any

from litestar import Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter
from msgspec import Struct

from cuebook.app.turns.mood import mind_shape
from cuebook.server.api.types import In, Text, answers
from cuebook.server.authorization import AnyRequest, check_first, cue_of, user_of
from cuebook.server.guard import name_in
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import PATH, UserQuery, json_of

ReflectionLimit = Annotated[int, QueryParameter(name="limit", ge=1, le=500, description="Maximum reflections")]


class MindBody(Struct, frozen=True, kw_only=True, rename="camel"):
    """A mood state."""

    mood: str
    user_skill: str
    task_complexity: str
    strategy: str
    imprints: dict[str, str]


class RunShown(Struct, frozen=True, kw_only=True):
    """A metaprompt run: trigger, decider, outcome, and changes as `[before, after]`."""

    metaprompt: str
    trigger: str
    by: str
    outcome: str
    reason: str
    changes: dict[str, list[Any]]
    prompt: str


class ReflectionShown(Struct, frozen=True, kw_only=True):
    """The metaprompt runs of a turn; `sentiment` if a model rated it."""

    turn: int
    at: str
    mind: MindBody
    runs: list[RunShown]
    sentiment: dict[str, Any] = {}


class MindAnswer(MindBody, frozen=True, kw_only=True, rename="camel"):
    """A conversation's mood state, and its reflections, newest first."""

    conversation_id: str
    turn: int
    due: int
    reflections: list[ReflectionShown]


class MindRunBody(In, frozen=True, kw_only=True):
    """The metaprompt to run: one of the persona's, or a built-in one."""

    metaprompt: Text
    user_id: Text | None = None


class MindResetBody(In, frozen=True, kw_only=True):
    """The user of the conversation."""

    user_id: Text | None = None


@get(f"{PATH}/mind", responses=answers(MindAnswer))
async def get_mind(
    request: AnyRequest, conversation: FromPath[str], user_id: UserQuery = None, limit: ReflectionLimit = 20
) -> Response[bytes]:
    """Return a conversation's mood, the estimated user skill and task complexity, and their history."""
    user = user_of(request, user_id)
    return json_of(mind_shape(await cue_of(request).mind.show(name_in(conversation), user=user, limit=limit)))


@post(f"{PATH}/mind/run", dto=JsonBody[MindRunBody], status_code=200, responses=answers(MindAnswer))
async def run_metaprompt(
    request: AnyRequest, conversation: FromPath[str], data: JSONBody[MindRunBody], user_id: UserQuery = None
) -> Response[bytes]:
    """Run a metaprompt on the newest turn now."""
    cue, user, name = cue_of(request), user_of(request, data.user_id, user_id), name_in(conversation)
    await check_first(request, name, user, "Changing the mood of another user's conversation")
    return json_of(mind_shape(await cue.mind.run(name, data.metaprompt, user=user)))


@post(f"{PATH}/mind/reset", dto=JsonBody[MindResetBody], status_code=200, responses=answers(MindAnswer))
async def reset_mind(
    request: AnyRequest,
    conversation: FromPath[str],
    data: JSONBody[MindResetBody | None] = None,
    user_id: UserQuery = None,
) -> Response[bytes]:
    """Reset the mood to neutral. The history is kept."""
    body = data or MindResetBody()
    cue, user, name = cue_of(request), user_of(request, body.user_id, user_id), name_in(conversation)
    await check_first(request, name, user, "Changing the mood of another user's conversation")
    return json_of(mind_shape(await cue.mind.reset(name, user=user)))


ROUTES = [get_mind, run_metaprompt, reset_mind]
