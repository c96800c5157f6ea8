"""Decide a step again: a later step of a tool loop, or the same one with a smaller window.

The system prompt and recalled text of the turn's first step stay the same.
"""

from msgspec.structs import replace

from cuebook.engine.core.context_limits import learn_limits
from cuebook.engine.core.services import Services
from cuebook.engine.turn.compare import compare_windows, frozen_volatile, previous_window
from cuebook.engine.turn.decision import decision_of
from cuebook.engine.turn.history import HistoryPlace
from cuebook.engine.turn.plan import plan_window, plan_with_marks
from cuebook.engine.turn.request import TurnRequest
from cuebook.engine.turn.scene import load_step_scene
from cuebook.engine.turn.step import OpenTurn, TurnChoice
from cuebook.engine.turn.system_prompt import first_system_prompt
from cuebook.engine.turn.window_request import window_request
from cuebook.errors import InvalidInput
from cuebook.records.memory import Scope
from cuebook.records.turn import Turn
from cuebook.wire.too_long import read_too_long


async def decide_step(
    services: Services, scope: Scope, request: TurnRequest, place: HistoryPlace, turn: Turn
) -> TurnChoice:
    """Load the state and decide the next step of an open turn, after the results of its tools."""
    scene = await load_step_scene(services, scope, place.ask, turn, parent=place.parent, whole=place.listed)
    prompt = await first_system_prompt(services, scope, turn)
    frozen = await frozen_volatile(services, scope, turn)
    contents = window_request(services, scene, request, place, prompt, frozen=frozen)
    plan = plan_window(services, scene, contents, waiting=turn)
    plan, cached = compare_windows(services, plan, await previous_window(services, scope, scene))
    decision = decision_of(services, request, place, prompt, plan, turn=turn.n)
    return TurnChoice(prompt=prompt, plan=plan, decision=decision, cached_window=cached)


async def replan_turn(services: Services, turn: OpenTurn, status: int, error: bytes) -> OpenTurn | None:
    """Replace the window of an open step after an error answer for a prompt that is too long, and remember the limit.

    Return None for any other error, or if there is no smaller window.
    """
    before, lease, target, too_long = turn.plan, turn.lease, turn.request.target, read_too_long(status, error)
    if too_long is None or not target.base_url:
        return None
    limits = learn_limits(services, target, lease.conversation, too_long, before.window.tokens)
    contents = replace(before.request, limits=limits)
    try:
        plan = plan_with_marks(services, before.scene, contents, fence=before.sheet.fence, marks=before.marks)
    except InvalidInput:
        return None
    if plan.window.tokens >= before.window.tokens:
        return None
    plan, cached = compare_windows(services, plan, await previous_window(services, lease.scope, plan.scene))
    new = decision_of(services, turn.request, turn.place, turn.choice.prompt, plan, turn=lease.turn)
    decision = replace(turn.choice.decision, manifest=new.manifest, texts=new.texts, metadata=new.metadata)
    await services.store.replan(lease, decision)
    services.caches.keep_window((lease.scope.tenant, lease.conversation), cached)
    choice = TurnChoice(prompt=turn.choice.prompt, plan=plan, decision=decision, cached_window=cached)
    return replace(turn, choice=choice)
