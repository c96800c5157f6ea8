"""Rules that update the Mind without a model: one per event, and one for self-reflection (docs/design/011)."""

from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cuebook.records.mind import Mood, MoodState, TurnSignals
from cuebook.signals.events import IDLE
from cuebook.signals.metaprompts import COMPLEXITIES, SKILLS, DueMetaprompt

T = TypeVar("T", bound=str)

#: The decider recorded for a rule.
RULES: Final = "rules"


class MoodRule(Struct, frozen=True, kw_only=True):
    """An update: a mood, steps up or down for the user's skill and the task's complexity, and a strategy."""

    mood: Mood
    skill: int = 0
    complexity: int = 0
    strategy: str = ""
    because: str = ""


#: By event.
MOVES: Final = {
    "user_frustrated": MoodRule(
        mood="empathetic",
        complexity=-1,
        strategy="Say in one sentence that you see the trouble, without excuses. Then give the shortest way that "
        "works, one step at a time, and say how to tell that each step worked.",
        because="the user is frustrated: smaller steps, and some understanding",
    ),
    "user_confused": MoodRule(
        mood="patient",
        skill=-1,
        complexity=-1,
        strategy="Explain the last point anew in plain words with one concrete example, define each term at its first "
        "use, and end with one short question that shows whether it is clear.",
        because="the user is confused: explained from one step lower",
    ),
    "user_satisfied": MoodRule(
        mood="engaging",
        complexity=+1,
        strategy="Go on in the manner that pleased. Offer one next step that goes a little further.",
        because="the user is satisfied: the manner stays, and a little more may be asked",
    ),
    "error_threshold_exceeded": MoodRule(
        mood="careful",
        strategy="Stop repeating what failed. Name the likeliest cause, check it with the smallest test, and propose a "
        "simpler way if it fails again.",
        because="errors pile up: look before the next try",
    ),
    "low_engagement": MoodRule(
        mood="curious",
        strategy="Be short and concrete. Ask one open question about what the user wants to reach, or offer two "
        "choices.",
        because="the user says little: find out what they care about",
    ),
}
#: Calm turns in a row after which a mood caused by an event ends.
CALM: Final = 2
#: Moods caused by an event, which end with it.
_FOR_AN_EVENT: Final = frozenset(rule.mood for rule in MOVES.values())
#: The mood for each task type (`Heard.task`).
_OF_TASK: Final[dict[str, Mood]] = {
    "coding": "focused", "planning": "analytical", "crisis": "careful", "reflection": "empathetic", "casual": "neutral",
}  # fmt: skip
_PLEASED: Final = 0.3


def by_rules(due_metaprompt: DueMetaprompt, mind: MoodState, turn_signals: TurnSignals) -> tuple[MoodState, str]:
    """Return the Mind updated by a rule, and why. A persona's own metaprompt uses the rule of its event."""
    rule = MOVES.get(due_metaprompt.event)
    return _looked_back(mind, turn_signals) if rule is None else (_moved(mind, rule), rule.because)


def _moved(mind: MoodState, rule: MoodRule) -> MoodState:
    return replace(
        mind,
        mood=rule.mood,
        user_skill=_step(SKILLS, mind.user_skill, rule.skill),
        task_complexity=_step(COMPLEXITIES, mind.task_complexity, rule.complexity),
        strategy=rule.strategy,
    )


def _step(names: tuple[T, ...], now: T, by: int) -> T:
    at = min(max(names.index(now) + by, 0), len(names) - 1)
    return names[at]


def _looked_back(mind: MoodState, turn_signals: TurnSignals) -> tuple[MoodState, str]:
    """Reset what an event caused once it is over, set the mood for the task, and raise the skill if it went well."""
    counters = turn_signals.counters
    if turn_signals.events or counters.frustration or counters.confusion or counters.idle >= IDLE:
        return mind, "the last turns still need this mood"
    over = mind.mood in _FOR_AN_EVENT
    mood = _OF_TASK.get(turn_signals.task, "neutral" if over else mind.mood)
    scores = counters.scores
    went_well = len(scores) > CALM and sum(scores) / len(scores) >= _PLEASED
    skill = _step(SKILLS, mind.user_skill, +1) if went_well and over else mind.user_skill
    moved = replace(mind, mood=mood, user_skill=skill, strategy="" if over else mind.strategy)
    if moved == mind:
        return mind, "nothing to adjust"
    return moved, "the last turns were calm" + (f"; the task is {turn_signals.task}" if turn_signals.task else "")
