"""Mood state in a turn: load it for the path, select its text for the prompt, and request reflections."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cuebook.engine.core.services import Services
from cuebook.engine.turn.turn_signals import persona_in, signals_in, speaker_in, tracking_in
from cuebook.errors import InvalidInput
from cuebook.interfaces.store import MetapromptTask, Scene
from cuebook.records.conversation import Conversation
from cuebook.records.mind import NEUTRAL, MoodState, TurnSignals
from cuebook.records.persona import Persona, SentimentTracking
from cuebook.records.turn import Ask, Dropped
from cuebook.signals.metaprompts import NOTED_AS, SHIPPED, describe_mood, fires, metaprompts_of
from cuebook.window.tokens import Counter
from cuebook.window.window import Text

#: Reason of a reflection that asks a model for a message's sentiment.
BY_MODEL = "llm"
#: Reason of a reflection that resets the mood state to neutral.
RESET = "reset"
#: Reason of a reflection requested by a user.
BY_HAND = "manual"
#: Turns that show advice for an event: the interval of retrospectives (`gmi_self_trait_adjustment`).
LASTS = 5
#: Metadata key of the mood state that a turn was answered with.
MIND = "mind"


class TurnMood(Struct, frozen=True, kw_only=True):
    """The mood state of a turn: its text for the prompt, the tasks of its reflection, and its metadata."""

    text: Text | None = None
    tasks: tuple[MetapromptTask, ...] = ()
    metadata: Mapping[str, Any] = {}


def mood_in_turn(services: Services, scene: Scene, ask: Ask, signals: TurnSignals | None) -> TurnMood:
    """Return the path's mood state and its requested reflection.

    Only for a persona that tracks sentiment or has metaprompts, or after a manual change of the mood. A regenerated
    answer requests no second reflection.
    """
    persona = speaker_in(services, scene, ask)
    tracking = tracking_in(services, scene, persona, ask.mode)
    set_by_hand = scene.reflection is not None and any(run.trigger == BY_HAND for run in scene.reflection.runs)
    if not (metaprompts_of(persona.metaprompts, tracking) or tracking.enabled or set_by_hand):
        return TurnMood()
    tasks = () if signals is None or has_same_signals(scene, signals) else reflection_tasks(persona, tracking, signals)
    return TurnMood(text=mood_text(scene), tasks=tasks, metadata={MIND: mood_to_wire(mood_of(scene))})


def has_same_signals(scene: Scene, turn_signals: TurnSignals) -> bool:
    """Return whether the path's previous turn has the signals of the same message."""
    before = signals_in(scene.last_turn.metadata) if scene.last_turn else None
    return before is not None and before.counters.turns == turn_signals.counters.turns


def mood_of(scene: Scene) -> MoodState:
    """Return the mood state of the loaded path."""
    return scene.reflection.mind if scene.reflection else NEUTRAL


def mood_text(scene: Scene) -> Text | None:
    """Return the path's mood state, or None if it is neutral.

    Advice for an event is shown in the next answers. Then the event ends, unless a retrospective kept it.
    """
    reflection = scene.reflection
    if reflection is None:
        return None
    turn = scene.conversation.turns + 1 if scene.conversation else 1
    over = turn - reflection.turn > LASTS and all(run.trigger.startswith("event:") for run in reflection.runs)
    text = describe_mood(replace(reflection.mind, strategy="") if over else reflection.mind)
    return Text(kind="mind", source=f"mind:{reflection.turn}", text=text, role="user") if text else None


def fit_mind(text: Text | None, room: int, count: Counter) -> tuple[list[Text], list[Dropped], int]:
    """Return the part of a mood state that fits into the volatile block, the part that does not, and the tokens left.

    Notes are omitted first.
    """
    if text is None:
        return [], [], room
    whole = count(text.text) + 1
    if whole <= room:
        return [text], [], room - whole
    reason = f"the block beside the query has {max(0, room)} tokens of this window"
    bare = replace(text, text=text.text.partition(f"\n{NOTED_AS}")[0])
    size = count(bare.text) + 1
    if size < whole and size <= room:
        return [bare], [Dropped(kind="mind", source=text.source, tokens=whole - size, reason=reason)], room - size
    return [], [Dropped(kind="mind", source=text.source, tokens=whole, reason=reason)], room


def reflection_tasks(
    persona: Persona, tracking: SentimentTracking, turn_signals: TurnSignals
) -> tuple[MetapromptTask, ...]:
    """Return a reflection's tasks: the metaprompts to run, and whether to ask a model for the sentiment.

    If a model is asked, metaprompts for events are triggered by its answer.
    """
    due_metaprompts = fires(
        metaprompts_of(persona.metaprompts, tracking), events=turn_signals.events, turns=turn_signals.counters.turns
    )
    calls = tuple(MetapromptTask(each.metaprompt.id, each.trigger) for each in due_metaprompts)
    return (MetapromptTask("", BY_MODEL), *calls) if tracking.enabled and tracking.method == BY_MODEL else calls


def may_run(services: Services, conversation: Conversation, scene: Scene, metaprompt: str) -> None:
    """Check that a metaprompt may run on a path: the last speaker's persona or a shipped one has it. Raises
    InvalidInput.
    """
    persona = persona_in(services, conversation, scene.last_turn)
    known = sorted({*(each.id for each in persona.metaprompts), *SHIPPED})
    if metaprompt not in known:
        msg = f"Unknown metaprompt {metaprompt!r} of persona {persona.id!r}. Available: {', '.join(known)}."
        raise InvalidInput(msg, where="metaprompt")


def mood_to_wire(mind: MoodState) -> dict[str, Any]:
    """Return a mood state as a reply's `metadata.mind`."""
    return {"mood": mind.mood, "userSkill": mind.user_skill, "taskComplexity": mind.task_complexity}
