"""Decide a later step of a tool loop: the system prompt and recalled text of the turn's first step stay the same."""

from cuebook.engine.core.services import Services
from cuebook.engine.turn.compare import compare_windows, frozen_volatile, previous_window
from cuebook.engine.turn.decision import decision_of
from cuebook.engine.turn.history import HistoryPlace
from cuebook.engine.turn.plan import plan_window
from cuebook.engine.turn.request import TurnRequest
from cuebook.engine.turn.scene import load_step_scene
from cuebook.engine.turn.step import TurnChoice
from cuebook.engine.turn.system_prompt import first_system_prompt
from cuebook.engine.turn.window_request import window_request
from cuebook.records.memory import Scope
from cuebook.records.turn import Turn


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
