"""Decide a step again: a later step of a tool loop, or the same one with a smaller window.

The system prompt and recalled text of the turn's first step stay the same.
"""

from msgspec.structs import replace

from cuebook.engine.core.context_limits import learn_limits
from cuebook.engine.core.services import Services
from cuebook.engine.turn.compare import compare_with_previous
from cuebook.engine.turn.decision import Decision, decision_of
from cuebook.engine.turn.history import HistoryPosition
from cuebook.engine.turn.plan import plan_window, plan_with_tuning
from cuebook.engine.turn.request import TurnRequest
from cuebook.engine.turn.scene import load_step_scene
from cuebook.engine.turn.step import OpenStep
from cuebook.engine.turn.system_prompt import first_system_prompt
from cuebook.engine.turn.window_request import window_request
from cuebook.errors import InvalidInput
from cuebook.records.turn import Turn
from cuebook.wire.too_long import read_too_long


async def decide_step(services: Services, request: TurnRequest, position: HistoryPosition, turn: Turn) -> Decision:
    """Load the state and decide the next step of an open turn, after the results of its tools."""
    scene = await load_step_scene(services, request, position, turn)
    prompt = await first_system_prompt(services, request.scope, turn)
    contents = window_request(services, scene, request, position, prompt)
    plan = await compare_with_previous(services, request.scope, plan_window(services, scene, contents, waiting=turn))
    return decision_of(services, request, position, prompt, plan, turn=turn.n)


async def replan_step(services: Services, step: OpenStep, status: int, error: bytes) -> bool:
    """Replace the window of an open step after an error answer for a prompt that is too long, and remember the limit.

    Return False for any other error, or if there is no smaller window.
    """
    before, lease, target, too_long = step.plan, step.lease, step.request.target, read_too_long(status, error)
    if too_long is None or not target.base_url:
        return False
    limits = learn_limits(services, target, lease.conversation, too_long, before.window.tokens)
    contents = replace(before.request, limits=limits)
    try:
        plan = plan_with_tuning(services, before.scene, contents, fence=before.sheet.fence, tuning=before.tuning)
    except InvalidInput:
        return False
    if plan.window.tokens >= before.window.tokens:
        return False
    plan = await compare_with_previous(services, lease.scope, plan)
    new = decision_of(services, step.request, step.position, step.decision.prompt, plan, turn=lease.turn)
    rows = {"manifest": new.start.manifest, "texts": new.start.texts, "metadata": new.start.metadata}
    await step.replan(replace(new, start=replace(step.decision.start, **rows)))
    return True
