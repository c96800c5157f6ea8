"""Serve `POST /api/memories/utility`: measure the usefulness of memories, and propose which to forget."""

from typing import Annotated, Any, Literal

from litestar import Response, post
from litestar.params import JSONBody
from msgspec import Meta
from msgspec.structs import replace

from cuebook.app.memories.reading import may_know
from cuebook.app.reports.memory_use import LOOKED_AT, MOST_TURNS, TURNS, Utilities, Verdict, cost_to_wire, to_wire
from cuebook.errors import InvalidInput
from cuebook.server.api.types import In, Out, Text, answers
from cuebook.server.authorization import AnyRequest, caller_of, cue_of, user_of
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import UserQuery, json_of


class UtilityBody(In, frozen=True, kw_only=True):
    """The turns to measure: the last `turns` of these conversations, or of all.

    `budget`: maximum calls of the configured model, with and without each memory, up to `server.max_calls`. 0 calls no
    model and compares the words of recorded answers. `estimate`: return the cost without calls.
    """

    conversation_ids: Annotated[tuple[Text, ...], Meta(max_length=LOOKED_AT)] = ()
    turns: Annotated[int, Meta(ge=1, le=MOST_TURNS)] = TURNS
    budget: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    estimate: bool = False
    user_id: str | None = None


class UseAnswer(Out, frozen=True, kw_only=True):
    """A turn whose prompt contained the memory, and the share of its answer due to it, from 0 to 1."""

    conversation_id: str
    turn: int
    score: float


class UsedMemory(Out, frozen=True, kw_only=True):
    """A memory and its uses. `said` counts turns whose prompt contained it, `uses` how often it was newly selected.

    `verdict`: `useless` is proposed for deletion (`prune`); `useful`; or the reason to keep it: `seldom` in prompts,
    `silent` (an answer follows it without its words), `bound` (health, diet, identity), `written` manually, `twin`
    (duplicates are proposed instead).
    """

    memory_id: str
    category: str
    text: str
    uses: int
    utility: float
    turns: list[UseAnswer]
    said: int
    verdict: Verdict
    prune: bool


class CostAnswer(Out, frozen=True, kw_only=True):
    """The maximum cost of a measurement: model calls, prompt and answer tokens, money by currency.

    `costs` is empty if the model has no known price. Without model calls `model` is empty and all is 0.
    """

    model: str
    turns: int
    calls: int
    prompt_tokens: int
    answer_tokens: int
    costs: dict[str, float]


class UtilityAnswer(Out, frozen=True, kw_only=True):
    """Memories, most useful first. `missed`: turns that contain one and could not be measured, by reason.

    With `estimate` nothing was measured: `cost` has the maximum cost.
    """

    by: Literal["words", "model"]
    turns: int
    calls: int
    missed: dict[str, int]
    items: list[UsedMemory]
    cost: CostAnswer | None = None


@post("/api/memories/utility", dto=JsonBody[UtilityBody], status_code=200, responses=answers(UtilityAnswer))
async def utility(request: AnyRequest, data: JSONBody[UtilityBody], user_id: UserQuery = None) -> Response[bytes]:
    """Measure the usefulness of each memory, and propose which to forget. Changes nothing.

    `POST /api/memories/forget` with their ids deletes them. One measurement at a time: 429 if several wait.
    """
    cue, most = cue_of(request), cue_of(request).config.settings.server.max_calls
    if data.budget > most:
        msg = f"budget: {data.budget:,} calls exceed server.max_calls ({most:,}). Use fewer, or raise it."
        raise InvalidInput(msg, where="budget")
    value: Any = {"user": user_of(request, data.user_id, user_id), "turns": data.turns, "budget": data.budget}
    asks = data.budget > 0 and not data.estimate
    async with request.app.state.measures.hold("memory measurements by model" if asks else "a memory measurement"):
        if data.estimate:
            cost = await cue.memory.utility_cost(data.conversation_ids, **value)
            utilities = Utilities(items=(), by=cost.by, turns=cost.turns)
            return json_of(to_wire(utilities) | {"cost": cost_to_wire(cost)})
        utilities = await cue.memory.utility(data.conversation_ids, **value)
    return json_of(to_wire(known_of(request, utilities)))


def known_of(request: AnyRequest, found: Utilities) -> Utilities:
    """Return a measurement without memories that the caller may not read."""
    return replace(found, items=tuple(each for each in found.items if may_know(caller_of(request), each.memory)))


ROUTES = [utility]
