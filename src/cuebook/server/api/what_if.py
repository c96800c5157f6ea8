"""Serve `POST /api/conversations/{id}/turns/{n}/replay`: what-if replay of a turn with other prompts or memory."""

from typing import Any

from litestar import Response, post
from litestar.params import FromPath, JSONBody

from cuebook.app.turns.turns import replay_shape
from cuebook.server.api import types as wire
from cuebook.server.api.conversations import number_of
from cuebook.server.authorization import AnyRequest, cue_of, user_of
from cuebook.server.guard import name_in
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import PATH, UserQuery, json_of


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


class SaidBlock(wire.Out, frozen=True, kw_only=True):
    """A block of a prompt window."""

    kind: str
    source: str
    role: str
    tokens: int
    text: str


class WindowChange(wire.Out, frozen=True, kw_only=True):
    """Tokens of a turn's original and changed window; null if it could not be assembled."""

    before: int
    after: int | None
    change: int | None


class PostsLeftOut(wire.Out, frozen=True, kw_only=True):
    """Number of the branch's posts left out of the window, before and after."""

    before: int
    after: int


class CounterfactualAnswer(wire.Out, frozen=True, kw_only=True):
    """A turn's original and changed first window.

    `leftOut` lists blocks only in the original, `letIn` only in the changed one, `changed` those with a different text.
    `reproduced`: assembling it again without changes gave the recorded bytes. `refused`: why it could not be
    assembled. `answer`: the model's answer, if it was called.
    """

    tokens: WindowChange
    left_out: list[SaidBlock]
    let_in: list[SaidBlock]
    changed: list[SaidBlock]
    posts_left_out: PostsLeftOut
    reproduced: bool
    refused: str | None
    answer: str | None
    before: dict[str, Any]
    after: dict[str, Any] | None


class WhatIfAnswer(wire.ReplayAnswer, frozen=True, kw_only=True):
    """A replay check of a turn, and a what-if replay if there are changes."""

    counterfactual: CounterfactualAnswer | None = None


@post(
    f"{PATH}/turns/{{n:int}}/replay",
    dto=JsonBody[ReplayBody],
    status_code=200,
    responses=wire.answers(WhatIfAnswer),
)
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
        number_of(n),
        user=user_of(request, data.user_id, user_id),
        with_prompt=data.with_prompt,
        as_of=data.as_of,
        without=data.without,
        ask=data.ask,
    )
    return json_of(replay_shape(replay))


ROUTES = [what_if]
