"""One turn: load the state once, decide without side effects, open a step, stream the answer, close the step.

A turn answers one request. Its steps are calls of the model: the first one is decided here, later ones of a tool loop
in `decide_step`. Turns that continue what the server keeps form a queue in each conversation. A client that resends its
history does not wait: while another turn runs, its turn runs in parallel, and its answer is a side branch. Background
jobs give priority to a waiting caller.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, nullcontext
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from cuebook.engine.core.context_limits import restore_token_ratios
from cuebook.engine.core.recall import recall_query, select_memories
from cuebook.engine.core.services import Services
from cuebook.engine.core.token_limit import admit_key
from cuebook.engine.turn.compare import compare_with_previous
from cuebook.engine.turn.decide_step import decide_step
from cuebook.engine.turn.decision import Decision, decision_of
from cuebook.engine.turn.experiences import advising
from cuebook.engine.turn.history import HistoryPosition, align_history, name_conversation
from cuebook.engine.turn.plan import plan_window
from cuebook.engine.turn.request import TurnRequest, find_stored_reply, wait_until_free
from cuebook.engine.turn.scene import load_scene
from cuebook.engine.turn.step import OpenStep, Speaker, store_step
from cuebook.engine.turn.system_prompt import is_silent, system_prompt, with_advice
from cuebook.engine.turn.traced import traced
from cuebook.engine.turn.turn_signals import detect_signals, feedback_on_previous_turn
from cuebook.engine.turn.window_request import window_request
from cuebook.errors import Busy, Conflict, LeaseLost

Piece = TypeVar("Piece")

#: Attempts to store a step while others write, before the caller gets an error.
ATTEMPTS = 50


@traced
async def answer(services: Services, request: TurnRequest, speaker: Speaker[Piece]) -> AsyncGenerator[Piece, None]:
    """Answer a request. The query is durable before the model is called, and the answer before the last piece.

    A repeated Idempotency-Key gets the stored answer. Raises Busy, Conflict, InvalidInput, KeyReused, and the errors of
    the speaker.
    """
    reply = await find_stored_reply(services, request)
    if reply is None:
        await admit_key(services, request.ask.key)
        request = await name_conversation(services, request)
        queue = services.queue.hold(request.scope.tenant, request.ask.conversation)
        async with nullcontext() if request.resends_history else queue:
            step = await open_step(services, request)
            if step is not None:
                async with step, aclosing(speaker.stream(step)) as pieces:
                    async for piece in pieces:
                        yield piece
                return
        reply = await find_stored_reply(services, request)  # another process was first with the same request
        if reply is None:
            msg = f"Conversation {request.ask.conversation!r} was changed by another request. Try again."
            raise Conflict(msg)
    for piece in speaker.replay(reply):
        yield piece


async def open_step(
    services: Services, request: TurnRequest, *, before_attempt: Callable[[], Awaitable[None]] | None = None
) -> OpenStep | None:
    """Decide a step and store it by compare-and-set: if another request wrote to the conversation first, decide again.

    Return None if another request with its Idempotency-Key was stored meanwhile. `before_attempt` runs before each
    attempt. Raises InvalidInput, LeaseLost if the conversation was erased meanwhile, and Conflict after too many
    concurrent writes.
    """
    scope, name = request.scope, request.ask.conversation
    in_parallel = request.resends_history and not request.shadow
    row_no, is_busy = 0, False
    pause = nullcontext() if request.shadow else services.foreground.begin()  # background jobs pause meanwhile
    with pause, request.span.current():
        for attempt in range(ATTEMPTS):
            # Parallel turns that another write overtook retry one after another, so that each needs few attempts.
            retry_lock = services.queue.hold(scope.tenant, name, parallel=True)
            async with retry_lock if in_parallel and attempt else nullcontext():
                position = await align_history(services, request, is_busy=is_busy)
                request = replace(request, paths=None)  # another attempt finds other paths of the history
                if before_attempt is not None:
                    await before_attempt()
                decision = await decide_turn(services, request, position)
                previous, row_no = row_no, decision.plan.scene.conversation.no
                if previous not in (0, row_no):  # another row has the name now
                    msg = f"Conversation {name!r} was erased during this request."
                    raise LeaseLost(msg)
                try:
                    lease = await store_step(services, scope, decision)
                except Busy:  # another turn runs
                    services.caches.lease_conflicts += 1
                    is_busy = in_parallel
                    if not in_parallel:
                        await wait_until_free(services, scope, name)
                except Conflict:
                    services.caches.lease_conflicts += 1
                    if request.key and await services.idempotency_record(scope, request.key):
                        return None
                else:
                    return OpenStep(services, request, position, decision, lease)
    msg = f"Conversation {name!r} has too many concurrent changes. Try again."
    raise Conflict(msg)


async def decide_turn(services: Services, request: TurnRequest, position: HistoryPosition) -> Decision:
    """Decide the next step of a turn from one snapshot of the stored state, the scene. Store nothing."""
    await restore_token_ratios(services, request.scope)  # into the caches, once per process
    if position.waiting_turn is not None:
        return await decide_step(services, request, position, position.waiting_turn)
    # a request for a summary recalls nothing, and is no part of the conversation
    ask = replace(position.ask, text="", utility=True) if request.compacts else position.ask
    scene = await load_scene(services, request, replace(position, ask=ask))
    signals = outcome = None
    has_advice = not (ask.relayed and is_silent(services, scene, ask))
    async with advising(services, scene, request, ask) if has_advice else nullcontext() as choosing:
        if not (position.is_side_branch or ask.utility):  # those say nothing about the user
            signals = await detect_signals(services, scene, ask, position.drafts)
            outcome = feedback_on_previous_turn(services, scene, ask, position.drafts, signals)
        prompt = await system_prompt(services, scene, ask, signals=signals)
        query, turn = recall_query(services, scene, ask, quotes=request.quotes), scene.conversation.turns + 1
        memories = select_memories(services, scene, query, turn=turn)
        if choosing is not None and (prompt.texts or not ask.relayed):
            prompt = with_advice(prompt, *await choosing)
    contents = window_request(services, scene, request, position, prompt, query=query, memories=memories)
    longest = max((4 * post.tokens + len(post.wire or b"") for post in contents.path), default=0)  # characters
    plan = await services.offload.run(longest, partial(plan_window, services, scene, contents))
    plan = await compare_with_previous(services, request.scope, plan)
    return decision_of(services, request, position, prompt, plan, turn=turn, outcome=outcome)
