"""`POST /api/conversations/{id}/turns/{n}/replay`: what a turn's prompt would have been, and what would be answered."""

from typing import Any

from litestar import Response, post
from litestar.params import FromPath, JSONBody

from cuebook.app.turns.turns import replay_shape
from cuebook.server.api import types as wire
from cuebook.server.api.conversations import number_of
from cuebook.server.authorization import AnyRequest, book_of, user_of
from cuebook.server.guard import name_in
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import PATH, UserQuery, json_of


class ReplayBody(wire.In, frozen=True, kw_only=True):
    """What is to be other in a turn's first window.

    `withPrompt`: versions of prompts, each as `SLUG`, `SLUG@BRANCH` or `SLUG@BRANCH:NUMBER`, in the place of those that
    stood in front. `asOf`: a time (ISO 8601, UTC where it names no zone) or the number of a turn of the conversation:
    what memory held then. `without`: memories by their ids, or other sources of what stood beside the query
    (`post:ID`, `experience:ID`). `ask`: the configured model answers it; the audit keeps that it was asked.
    """

    with_prompt: tuple[wire.Text, ...] = ()
    as_of: str | int | None = None
    without: tuple[wire.Text, ...] = ()
    ask: bool = False
    user_id: str | None = None


class SaidBlock(wire.Out, frozen=True, kw_only=True):
    """A block of a window."""

    kind: str
    source: str
    role: str
    tokens: int
    text: str


class WindowChange(wire.Out, frozen=True, kw_only=True):
    """Tokens of a turn's window as it was, and as it would have been; null where it could not have been made."""

    before: int
    after: int | None
    change: int | None


class PostsLeftOut(wire.Out, frozen=True, kw_only=True):
    """How many posts of the path are left out of the window, before and after."""

    before: int
    after: int


class CounterfactualAnswer(wire.Out, frozen=True, kw_only=True):
    """A turn's first window as it was and as it would have been.

    `leftOut` stands in the one before alone, `letIn` in the one after, `changed` in both with another text.
    `reproduced`: deciding it anew without the change gave the recorded window, byte for byte. `refused`: why it could
    not have been made. `answer`: the model's, where it was asked.
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
    """A turn's window rendered again, and what its first one would have been where anything was to be other."""

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
    """Return what a turn's prompt would have been with other prompts, another memory, or without a memory of it."""
    found = await book_of(request).turns.replay(
        name_in(conversation),
        number_of(n),
        user=user_of(request, data.user_id, user_id),
        with_prompt=data.with_prompt,
        as_of=data.as_of,
        without=data.without,
        ask=data.ask,
    )
    return json_of(replay_shape(found))


ROUTES = [what_if]
