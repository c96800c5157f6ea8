"""Define the metaprompts: which exist, when they fire, the schema of a model's answer, and how it updates the Mind.

AgentOS's five presets for events and its self-reflection at an interval, plus a persona's own. Without a model, rules
update the Mind: one per event, and one for self-reflection (docs/design/011).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, TypeVar, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuebook.errors import InvalidInput
from cuebook.languages import english
from cuebook.records.answers import LONGEST, check, mended, read_object
from cuebook.records.mind import Complexity, Event, Mood, MoodState, Skill, TurnSignals
from cuebook.records.persona import PRESETS as NAMES
from cuebook.records.persona import SHIPPED_TRIGGERS, TEMPERATURE, Metaprompt, SentimentTracking
from cuebook.signals.message_signals import IDLE

MOODS: Final[tuple[Mood, ...]] = get_args(Mood)
SKILLS: Final[tuple[Skill, ...]] = get_args(Skill)
COMPLEXITIES: Final[tuple[Complexity, ...]] = get_args(Complexity)

#: Maximum imprints per answer and per Mind, and maximum characters of a key, a value, a strategy and a rationale.
NEW_IMPRINTS: Final = 8
IMPRINTS: Final = 24
KEY: Final = 64
VALUE: Final = 400
STRATEGY: Final = 600
RATIONALE: Final = 4_000
#: Maximum characters of imprints in a prompt, and how their line begins: memories need room beside it.
NOTED: Final = 1_000
NOTED_AS: Final = "Noted: "
_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_PREFIX: Final = "imprint."
_RATIONALE: Final = "adjustmentRationale"
_IMPRINTS: Final = "newMemoryImprints"

#: The self-reflection's id.
SELF: Final = "gmi_self_trait_adjustment"


def _shipped(id_: str, strategy: str, what: str, *, temperature: float = TEMPERATURE) -> Metaprompt:
    return Metaprompt(
        id=id_, trigger=SHIPPED_TRIGGERS[id_], description=what, key=id_, strategy=strategy, temperature=temperature
    )


#: The built-in ones, which a persona may name without a text.
SHIPPED: Final[Mapping[str, Metaprompt]] = {
    each.id: each
    for each in (
        _shipped("gmi_frustration_recovery", "recoveryStrategy", "Wins a frustrated user back."),
        _shipped("gmi_confusion_clarification", "clarificationStrategy", "Makes what confused the user clear."),
        _shipped("gmi_satisfaction_reinforcement", "engagementStrategy", "Goes on with what pleased the user."),
        _shipped("gmi_error_recovery", "mitigationStrategy", "Gets out of a run of errors."),
        _shipped("gmi_engagement_boost", "engagementStrategy", "Brings a bored user back.", temperature=0.5),
        _shipped(SELF, "strategy", "Looks back at the last turns and adjusts mood, skill and complexity."),
    )
}
#: AgentOS's presets by their name in a persona's `presets`.
PRESETS: Final[Mapping[str, Metaprompt]] = {name: SHIPPED[f"gmi_{name}"] for name in NAMES if f"gmi_{name}" in SHIPPED}


#: A metaprompt that is due, and why: `event:NAME`, `interval:N` or `manual`.
DueMetaprompt = tuple[Metaprompt, str]


def metaprompts_of(metaprompts: Sequence[Metaprompt], tracking: SentimentTracking) -> tuple[Metaprompt, ...]:
    """Return all metaprompts of a persona: the presets that its tracking names (if it tracks), and its own.

    Its own replaces a preset of the same id; one with neither text nor key and a built-in id uses the built-in text.
    """
    presets: list[Metaprompt] = []
    if tracking.enabled:
        every = "all" in tracking.presets
        presets = [each for name, each in PRESETS.items() if every or name in tracking.presets]
    found = {each.id: each for each in (*presets, *map(_completed, metaprompts))}
    return tuple(found.values())


def _completed(metaprompt: Metaprompt) -> Metaprompt:
    shipped = SHIPPED.get(metaprompt.id)
    if shipped is None:
        return metaprompt
    says = metaprompt.template or metaprompt.key
    return replace(
        metaprompt,
        description=metaprompt.description or ("" if says else shipped.description),
        key=metaprompt.key if says else shipped.key,
        strategy=metaprompt.strategy or shipped.strategy,
    )


def fires(metaprompts: Iterable[Metaprompt], *, events: Sequence[Event], turns: int) -> tuple[DueMetaprompt, ...]:
    """Return the metaprompts that run after a turn: events first, then intervals.

    `turns` counts those of the path, from 1: an interval of 5 fires at 5, 10, 15.
    """
    noticed = {event.name for event in events}
    by_event, by_interval = [], []
    for each in metaprompts:
        trigger = each.trigger
        if trigger.type == "event_based" and trigger.event in noticed:
            by_event.append((each, f"event:{trigger.event}"))
        elif (
            trigger.type == "turn_interval" and trigger.interval_turns and turns and not turns % trigger.interval_turns
        ):
            by_interval.append((each, f"interval:{trigger.interval_turns}"))
    return (*by_event, *by_interval)


# ---- answers of a model ---------------------------------------------------------------------------------------------


def schema_of(metaprompt: Metaprompt) -> dict[str, Any]:
    """Return the JSON schema of the answer to a metaprompt."""
    return {
        "type": "object",
        "required": [_RATIONALE],
        "properties": {
            "updatedGmiMood": {"type": "string", "enum": list(MOODS)},
            "updatedUserSkillLevel": {"type": "string", "enum": list(SKILLS)},
            "updatedTaskComplexity": {"type": "string", "enum": list(COMPLEXITIES)},
            _RATIONALE: {"type": "string"},
            strategy_key(metaprompt): {"type": "string"},
            _IMPRINTS: {
                "type": "array",
                "maxItems": NEW_IMPRINTS,
                "items": {
                    "type": "object",
                    "required": ["key", "value"],
                    "properties": {
                        "key": {"type": "string", "minLength": 1, "maxLength": KEY + len(_PREFIX)},
                        "value": {"type": "string", "maxLength": VALUE},
                        "description": {"type": "string", "maxLength": VALUE},
                    },
                },
            },
        },
    }


def strategy_key(metaprompt: Metaprompt) -> str:
    """Return the answer's key whose text reaches the next prompt."""
    return metaprompt.strategy or "strategy"


def read_answer(
    text: str, metaprompt: Metaprompt, mind: MoodState, *, clean: Callable[[str], str] = str
) -> tuple[MoodState, str]:
    """Return the Mind updated by a model's answer, and the rationale. `clean` removes secrets from its texts.

    Each field and each imprint is judged alone. An invalid one changes nothing, and the rationale names it. Null means
    omitted; letter case and unpublished keys are ignored. Raises InvalidInput, naming the paths, if nothing is usable.
    """
    properties = schema_of(metaprompt)["properties"]
    fields, faults = dict[str, Any](), list[str]()
    answer = read_object(text, keys=properties)
    for key, value in answer.items():
        if key in properties and key != _IMPRINTS and value is not None:
            with _collected(faults):
                fields[key] = _checked(_plain(key, value), properties[key], where=f"answer.{key}")
    rationale, noted = _line(fields.pop(_RATIONALE, ""), clean)[:RATIONALE], dict(mind.imprints)
    for place, each in enumerate(_plain(_IMPRINTS, answer.get(_IMPRINTS) or [])[:NEW_IMPRINTS]):
        with _collected(faults):
            key, value = _imprint(each, properties[_IMPRINTS]["items"], clean, where=f"answer.{_IMPRINTS}[{place}]")
            noted.pop(key, None)
            noted[key] = value
    if not fields and noted == mind.imprints and (faults or not rationale):
        msg = "; ".join(faults) or f"no usable key. Available: {', '.join(properties)}."
        raise InvalidInput(msg, where="answer")
    strategy = _line(fields.get(strategy_key(metaprompt), ""), clean)[:STRATEGY]
    moved = replace(
        mind,
        mood=fields.get("updatedGmiMood", mind.mood),
        user_skill=fields.get("updatedUserSkillLevel", mind.user_skill),
        task_complexity=fields.get("updatedTaskComplexity", mind.task_complexity),
        strategy=strategy or mind.strategy,
        imprints=dict(list(noted.items())[-IMPRINTS:]),
    )
    ignored = f"ignored {_line('; '.join(faults), clean)}" if faults else ""
    return moved, "; ".join(filter(None, (rationale, ignored)))


@contextmanager
def _collected(faults: list[str]) -> Iterator[None]:
    """Add the fault of a part of an answer, instead of raising it."""
    try:
        yield
    except InvalidInput as error:
        faults.append(f"{error.where}: {error}")


def _line(text: str, clean: Callable[[str], str]) -> str:
    """Return a text as one line without secrets and lone surrogates."""
    return " ".join(clean(mended(text)).split())


def _checked(value: Any, schema: Mapping[str, Any], *, where: str) -> Any:
    check(value, schema, where=where)
    return value


def _plain(key: str, value: Any) -> Any:
    """Return a value normalized for checking: names in lower case, imprints as a list, no endless text."""
    if key == _IMPRINTS:
        return value if isinstance(value, list) else [value]
    if not isinstance(value, str):
        return value
    return value.strip().casefold() if key.startswith("updated") else value[:LONGEST]


def _imprint(value: Any, schema: Mapping[str, Any], clean: Callable[[str], str], *, where: str) -> tuple[str, str]:
    """Return an imprint's key and value; a number or boolean becomes text. Raises InvalidInput.

    A key cannot leave its namespace. A value is cleaned together with its key, as it will be printed: `password: …`
    marks a secret.
    """
    if isinstance(value, dict):
        value = {key: value[key] for key in schema["properties"] if value.get(key) is not None}
        if isinstance(value.get("value"), bool | int | float):
            value["value"] = str(value["value"])
    check(value, schema, where=where)
    key = value["key"].strip().removeprefix(_PREFIX)
    if not _KEY.fullmatch(key):
        msg = f"Invalid key {key!r}. Use letters, digits, '.', '_' and '-'."
        raise InvalidInput(msg, where=f"{where}.key")
    text = _line(f"{key}: {value['value']}", clean)
    if not text.startswith(f"{key}:"):
        msg = "The key is a secret. Use a key that names its topic."
        raise InvalidInput(msg, where=f"{where}.key")
    return key, text[len(key) + 1 :].strip()


# ---- print a Mind ---------------------------------------------------------------------------------------------------


def changes_of(before: MoodState, after: MoodState) -> dict[str, list[Any]]:
    """Return the changed fields by name: old and new value."""
    plain = {"mood": "mood", "userSkill": "user_skill", "taskComplexity": "task_complexity", "strategy": "strategy"}
    pairs = {name: [getattr(before, field), getattr(after, field)] for name, field in plain.items()}
    keys = dict.fromkeys([*before.imprints, *after.imprints])
    pairs |= {_PREFIX + key: [before.imprints.get(key), after.imprints.get(key)] for key in keys}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def describe_mood(mind: MoodState) -> str:
    """Return a Mind as text for the next model call, with the newest NOTED characters of imprints; "" if neutral."""
    if mind == MoodState():
        return ""
    skill, task = mind.user_skill, mind.task_complexity
    lines = [f"How this conversation stands: mood {mind.mood}; the user's skill: {skill}; the task: {task}."]
    if mind.strategy:
        lines.append(f"What helps now: {mind.strategy}")
    noted: list[str] = []
    room = NOTED
    for key, value in reversed(list(mind.imprints.items())):
        room -= len(key) + len(value)
        if noted and room < 0:
            break
        noted.append(f"{key}: {value}")
    if noted:
        lines.append(NOTED_AS + "; ".join(reversed(noted)))
    return "\n".join(lines)


# ---- rules without a model ------------------------------------------------------------------------------------------

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


#: Calm turns in a row after which a mood caused by an event ends.
CALM: Final = 2
#: The mood for each task type (`Heard.task`).
_OF_TASK: Final[dict[str, Mood]] = {
    "coding": "focused", "planning": "analytical", "crisis": "careful", "reflection": "empathetic", "casual": "neutral",
}  # fmt: skip
_PLEASED: Final = 0.3


@cache
def moves() -> dict[str, MoodRule]:
    """Return the rule of each event."""
    return msgspec.convert(english("moods"), dict[str, MoodRule])


def by_rules(due_metaprompt: DueMetaprompt, mind: MoodState, turn_signals: TurnSignals) -> tuple[MoodState, str]:
    """Return the Mind updated by a rule, and why. A persona's own metaprompt uses the rule of its event."""
    metaprompt, trigger = due_metaprompt
    kind, _, name = trigger.partition(":")
    event = (
        name if kind == "event" else metaprompt.trigger.event if kind == "manual" else None
    )  # the one it is made for
    rule = moves().get(event or "")
    if rule is None:
        return _looked_back(mind, turn_signals)
    skill = _step(SKILLS, mind.user_skill, rule.skill)
    complexity = _step(COMPLEXITIES, mind.task_complexity, rule.complexity)
    moved = replace(mind, mood=rule.mood, user_skill=skill, task_complexity=complexity, strategy=rule.strategy)
    return moved, rule.because


def _step(names: tuple[T, ...], now: T, by: int) -> T:
    at = min(max(names.index(now) + by, 0), len(names) - 1)
    return names[at]


def _looked_back(mind: MoodState, turn_signals: TurnSignals) -> tuple[MoodState, str]:
    """Reset what an event caused once it is over, set the mood for the task, and raise the skill if it went well."""
    counters = turn_signals.counters
    if turn_signals.events or counters.frustration or counters.confusion or counters.idle >= IDLE:
        return mind, "the last turns still need this mood"
    over = mind.mood in {rule.mood for rule in moves().values()}  # of an event, which has ended
    mood = _OF_TASK.get(turn_signals.task, "neutral" if over else mind.mood)
    scores = counters.scores
    went_well = len(scores) > CALM and sum(scores) / len(scores) >= _PLEASED
    skill = _step(SKILLS, mind.user_skill, +1) if went_well and over else mind.user_skill
    moved = replace(mind, mood=mood, user_skill=skill, strategy="" if over else mind.strategy)
    if moved == mind:
        return mind, "nothing to adjust"
    return moved, "the last turns were calm" + (f"; the task is {turn_signals.task}" if turn_signals.task else "")
