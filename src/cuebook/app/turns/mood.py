"""Show the mood state of conversations and what changed it, run metaprompts (reflections) by hand, and reset it."""

from typing import Any

import msgspec
from msgspec import Struct

from cuebook.app.json_shapes import Wire, iso
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.reflection import reflect_on
from cuebook.engine.turn.mood import BY_HAND, RESET, may_run, mood_of, mood_to_wire
from cuebook.engine.turn.turn_signals import signals_to_wire
from cuebook.errors import InvalidInput
from cuebook.interfaces.reflections import MetapromptTask
from cuebook.interfaces.store import PathQuery
from cuebook.records.memory import Scope
from cuebook.records.mind import MoodState, Reflection

#: Maximum number of reflections per call.
MOST = 500


class MindState(Struct, frozen=True, kw_only=True):
    """The mood state at a conversation's head, the turn that set it (0: the start), and its reflections.

    The reflections are those of all branches, newest first.
    """

    conversation: str
    mind: MoodState
    turn: int = 0
    due: int = 0  # number of pending reflections
    reflections: tuple[Reflection, ...] = ()


class MindOf:
    """The mood states of a project's conversations."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def show(self, conversation: str, *, user: str | None = None, limit: int = 20) -> MindState:
        """Return a conversation's mood state and what changed it. Raises NotFound, InvalidInput."""
        if not 1 <= limit <= MOST:
            msg = f"limit: {limit}. Must be between 1 and {MOST}."
            raise InvalidInput(msg, where="limit")
        scope = Scope(user=user)
        reflections = await self._services.store.reflections.of(scope, conversation, limit=limit)
        scene = await self._services.store.scene(
            scope, PathQuery(conversation=conversation, full_tokens=1, use_summary=False)
        )
        known = scene.conversation
        due = await self._services.store.reflections.waiting(scope, conversation)
        return MindState(
            conversation=known.id if known else conversation,
            mind=mood_of(scene),
            turn=scene.reflection.turn if scene.reflection else 0,
            due=due,
            reflections=tuple(reflections),
        )

    async def run(self, conversation: str, metaprompt: str, *, user: str | None = None) -> MindState:
        """Run a metaprompt on the newest turn now, after the conversation's pending jobs.

        It is one of the persona's or a built-in one. While a turn is running, the run is queued (`due`).
        Raises NotFound, and InvalidInput for an unknown metaprompt or a conversation without turns.
        """
        scope = Scope(user=user)
        known = await self._services.store.conversation(scope, conversation)
        scene = await self._services.store.scene(
            scope, PathQuery(conversation=conversation, full_tokens=1, use_summary=False)
        )
        may_run(self._services, known, scene, metaprompt)
        return await self._reflected(scope, conversation, MetapromptTask(metaprompt, BY_HAND))

    async def reset(self, conversation: str, *, user: str | None = None) -> MindState:
        """Reset the mood state to neutral and keep its history. Raises NotFound, and InvalidInput without turns."""
        return await self._reflected(Scope(user=user), conversation, MetapromptTask("", RESET))

    async def _reflected(self, scope: Scope, conversation: str, call: MetapromptTask) -> MindState:
        await self._services.store.reflections.ask(scope, conversation, [call])
        await reflect_on(self._services, scope, conversation)
        return await self.show(conversation, user=scope.user)


def mind_shape(state: MindState) -> Wire:
    """Return a conversation's mood state as a JSON object."""
    return {
        "conversationId": state.conversation,
        **_mind(state.mind),
        "turn": state.turn,
        "due": state.due,
        "reflections": [reflection_shape(each) for each in state.reflections],
    }


def _mind(mind: MoodState) -> Wire:
    return {**mood_to_wire(mind), "strategy": mind.strategy, "imprints": dict(mind.imprints)}


def reflection_shape(made: Reflection) -> Wire:
    """Return a reflection as a JSON object."""
    runs: list[dict[str, Any]] = [
        {"reason": "", "changes": {}, "prompt": "", **msgspec.to_builtins(run)} for run in made.runs
    ]
    heard = {"sentiment": signals_to_wire(made.heard)} if made.heard else {}
    return {"turn": made.turn, "at": iso(made.at), "mind": _mind(made.mind), "runs": runs, **heard}
