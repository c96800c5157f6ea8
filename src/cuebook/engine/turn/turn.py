"""One turn: read the state once, decide without side effects, open, stream the answer, close.

A turn answers one request. Its steps are calls of the model: the first one is decided here, later ones of a tool loop
in `decide_step`. Turns that continue what the server keeps form a queue in each conversation. A client that resends its
history does not wait: while another turn runs, its turn runs in parallel, and its answer is a side branch. Background
jobs give priority to a waiting caller.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing, nullcontext
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from cuebook.engine.core.context_limits import limits_of
from cuebook.engine.core.recall import embed_query, recall_query, select_memories
from cuebook.engine.core.services import Services
from cuebook.engine.turn.compare import compare_windows, previous_window
from cuebook.engine.turn.decide_step import decide_step
from cuebook.engine.turn.decision import decision_of
from cuebook.engine.turn.history import HistoryPlace, align_history, name_conversation
from cuebook.engine.turn.plan import plan_window
from cuebook.engine.turn.request import TurnRequest
from cuebook.engine.turn.scene import load_scene
from cuebook.engine.turn.step import OpenStep, OpenTurn, TurnChoice, store_step
from cuebook.engine.turn.stored_reply import StoredReply, find_reply, wait_until_free
from cuebook.engine.turn.system_prompt import system_prompt
from cuebook.engine.turn.turn_signals import detect_signals, feedback_on_previous_turn
from cuebook.engine.turn.window_request import window_request
from cuebook.errors import Busy, Conflict, LeaseLost
from cuebook.records.conversation import Conversation
from cuebook.records.memory import Scope

Piece_co = TypeVar("Piece_co", covariant=True)

#: Retries after concurrent writes before the caller gets an error.
RETRIES = 50


class Speaker(Protocol[Piece_co]):
    """Answers a turn: the configured model or the client's upstream, in the format of the client."""

    def stream(self, turn: OpenTurn, step: OpenStep) -> AsyncGenerator[Piece_co, None]:
        """Stream the answer of an open turn, and finish its step."""
        ...

    def replay(self, reply: StoredReply) -> Iterable[Piece_co]:
        """Return the stored answer of a repeated request."""
        ...


async def answer(
    services: Services, scope: Scope, request: TurnRequest, speaker: Speaker[Piece_co]
) -> AsyncGenerator[Piece_co, None]:
    """Answer a request. The query is durable before the model is called, and the answer before the last piece.

    A repeated Idempotency-Key gets the stored answer. Raises Busy, Conflict, InvalidInput, KeyReused, and the errors of
    the speaker.
    """
    reply = await find_reply(services, scope, request) if request.key else None
    if reply is None:
        request = await name_conversation(services, scope, request)
        resends = request.posted is None and not request.only_new  # the client has the history: it need not wait
        queue = services.queue.hold(scope.tenant, request.ask.conversation)
        async with nullcontext() if resends else queue:
            turn = await open_turn(services, scope, request, in_parallel=resends)
            if turn is not None:
                step = OpenStep(services, turn)
                async with step, aclosing(speaker.stream(turn, step)) as pieces:
                    async for piece in pieces:
                        yield piece
                return
        reply = await find_reply(services, scope, request)  # the same request was first, in another process
        if reply is None:
            msg = f"Conversation {request.ask.conversation!r} was changed by another request. Try again."
            raise Conflict(msg)
    for piece in speaker.replay(reply):
        yield piece


async def open_turn(
    services: Services,
    scope: Scope,
    request: TurnRequest,
    *,
    pauses_jobs: bool = True,
    in_parallel: bool = False,
    before_attempt: Callable[[], Awaitable[None]] | None = None,
) -> OpenTurn | None:
    """Decide and store a step, again after each concurrent write. Return None if another request used its key.

    `pauses_jobs`: a caller waits for the first token. `in_parallel`: if another turn runs, do not wait for its end.
    `before_attempt` runs before each attempt. Raises InvalidInput, LeaseLost if the conversation was erased meanwhile,
    and Conflict after too many concurrent writes.
    """
    name = request.ask.conversation
    conversation: Conversation | None = None
    is_busy = False
    with services.foreground.begin() if pauses_jobs else nullcontext():
        for attempt in range(RETRIES):
            alone = services.queue.hold(scope.tenant, name, parallel=True)  # so that each needs few attempts
            async with alone if in_parallel and attempt else nullcontext():
                place = await align_history(services, scope, request, is_busy=is_busy)
                if before_attempt is not None:
                    await before_attempt()
                choice = await decide_turn(services, scope, request, place)
                before, conversation = conversation, choice.plan.scene.conversation
                if before and (conversation is None or conversation.no != before.no):  # `no` is the row number
                    msg = f"Conversation {name!r} was erased during this request, with its message."
                    raise LeaseLost(msg)
                try:
                    lease = await store_step(services, scope, choice.decision)
                except Busy:
                    is_busy = in_parallel
                    if not in_parallel:
                        await wait_until_free(services, scope, name)
                except Conflict:
                    if request.key and await services.answered(scope, request.key):
                        return None
                else:
                    services.caches.keep_window((scope.tenant, name), choice.cached_window)
                    return OpenTurn(request=request, place=place, choice=choice, lease=lease)
    msg = f"Conversation {name!r} has too many concurrent changes. Try again."
    raise Conflict(msg)


async def decide_turn(services: Services, scope: Scope, request: TurnRequest, place: HistoryPlace) -> TurnChoice:
    """Decide the next step of a turn: load one snapshot of the state, and compute all else from it. Store nothing."""
    if place.waiting_turn is not None:
        return await decide_step(services, scope, request, place, place.waiting_turn)
    ask = replace(place.ask, text="", utility=True) if request.bare else place.ask
    query_vector = await embed_query(services, ask.text) if services.settings.recall else None
    limits = limits_of(services, request.target, ask.conversation).limits
    where: Any = {"parent": place.parent, "query_vector": query_vector, "limits": limits, "listed": place.listed}
    scene = await load_scene(services, scope, ask, **where)
    turn = scene.conversation.turns + 1 if scene.conversation else 1
    apart = place.is_side_branch or ask.utility
    signals = None if apart else await detect_signals(services, scene, ask, place.drafts)
    outcome = None if apart else feedback_on_previous_turn(services, scene, ask, place.drafts, signals)
    prompt = await system_prompt(services, scope, scene, request, ask, signals=signals)
    query = recall_query(services, scene, ask)
    memories = select_memories(services, scene, query, turn=turn)
    contents = window_request(services, scene, request, place, prompt, query=query, memories=memories)
    plan = plan_window(services, scene, contents)
    plan, cached = compare_windows(services, plan, await previous_window(services, scope, scene))
    decision = decision_of(services, request, place, prompt, plan, turn=turn, outcome=outcome)
    return TurnChoice(prompt=prompt, plan=plan, decision=decision, cached_window=cached)
