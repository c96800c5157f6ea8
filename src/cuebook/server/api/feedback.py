"""Serve `/api/conversations/{id}/turns/{n}/feedback`: store explicit feedback on a turn."""

from typing import Annotated, Literal

from litestar import Response, post
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from cuebook.app.turns.feedback import to_wire
from cuebook.records.prompt import TaskOutcome
from cuebook.server.api import types as wire
from cuebook.server.api.conversations import number_of
from cuebook.server.authorization import AnyRequest, cue_of, idempotency_key, user_of
from cuebook.server.guard import name_in
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import PATH, UserQuery, json_of


class FeedbackBody(wire.In, frozen=True, kw_only=True):
    """Feedback: `score` from 0 to 1 or a thumb (1 or 0), task outcome, number of corrections; at least one.

    The observation's score is 0.5 sentiment + 0.3 (1 - 0.1 corrections) + 0.2 success. Defaults: neutral sentiment, no
    corrections, unknown outcome.
    """

    score: Annotated[float, Meta(ge=0, le=1)] | None = None
    thumb: Literal["up", "down"] | None = None
    outcome: TaskOutcome | None = None
    corrections: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    comment: Annotated[str, Meta(max_length=2_000)] = ""
    user_id: str | None = None


class TaughtVersion(wire.Out, frozen=True, kw_only=True):
    """A version that received the observation; `counted` is false if the user's share is used up."""

    prompt_id: str
    branch: str
    version: int
    counted: bool


class ObservationAnswer(wire.Out, frozen=True, kw_only=True):
    """The observation of a turn, from the user's next message or feedback, and the versions that received it.

    `pending`: they have not received it yet.
    """

    by: str
    at: str
    score: float
    sentiment: float | None
    corrections: int | None
    outcome: TaskOutcome
    reasons: list[str]
    next_turn: int | None
    user_id: str | None
    comment: str
    pending: bool
    taught: list[TaughtVersion]


@post(
    f"{PATH}/turns/{{n:int}}/feedback",
    dto=JsonBody[FeedbackBody],
    status_code=200,
    responses=wire.answers(ObservationAnswer),
)
async def give_feedback(
    request: AnyRequest,
    conversation: FromPath[str],
    n: FromPath[int],
    data: JSONBody[FeedbackBody],
    user_id: UserQuery = None,
) -> Response[bytes]:
    """Store feedback on a turn. It replaces earlier feedback, also in the scores of prompt versions."""
    stored_outcome = await cue_of(request).turns.feedback(
        name_in(conversation),
        number_of(n),
        score=data.score,
        thumb=data.thumb,
        outcome=data.outcome,
        corrections=data.corrections,
        comment=data.comment,
        user=user_of(request, data.user_id, user_id),
        idempotency_key=idempotency_key(request.scope),
    )
    return json_of(to_wire(stored_outcome))


ROUTES = [give_feedback]
