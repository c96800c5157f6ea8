"""Sentiment, signals and the assistant's mood state of a conversation (A)."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import UNSET, Struct, UnsetType, field

from cuebook.records.answer import Answer, Time, as_answer

Polarity = Literal["positive", "neutral", "negative", "unknown"]
Severity = Literal["low", "medium", "high"]
Mood = Literal[
    "neutral", "focused", "empathetic", "curious", "assertive", "analytical", "frustrated", "creative",
    "patient", "helpful", "careful", "engaging", "playful", "enthusiastic",
]  # fmt: skip
Skill = Literal["novice", "intermediate", "advanced", "expert"]
Complexity = Literal["simple", "moderate", "complex", "advanced"]


class Sentiment(Struct, frozen=True, kw_only=True):
    """The sentiment of a text. Both numbers are 0 if the polarity is `unknown`: the method cannot read the text."""

    score: float = 0.0  # -1..1
    intensity: float = 0.0  # 0..1
    polarity: Polarity = "unknown"
    method: str = ""
    negatives: int = 0  # negative words of the text


class Event(Struct, frozen=True, kw_only=True):
    """An event detected in a turn, and its reason."""

    name: str
    severity: Severity = "medium"
    reason: str = ""


class Counters(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Running counters of a path: consecutive messages of a kind, and the last firing of each event."""

    frustration: int = 0
    confusion: int = 0
    satisfaction: int = 0
    neutral: int = 0
    idle: int = 0  # consecutive neutral messages that neither ask nor order anything
    scores: tuple[float, ...] = ()  # of the newest readable messages, oldest first, at most `history_window`
    lengths: tuple[int, ...] = ()  # characters of the newest five messages
    corrected: tuple[int, ...] = ()  # corrections in each of the newest four messages
    trace: tuple[bool, ...] = ()  # whether each of the newest ten results and replies failed, oldest first
    news: int = 0  # newest trace entries: those since the previous message
    task: str = ""  # the newest detected task, and
    task_age: int = 0  # how many messages ago
    fired: Mapping[str, tuple[int, float]] = {}  # by event: `turns` and Unix time of its last firing
    turns: int = 0  # analyzed turns of the path so far
    at: float = 0.0  # Unix time of the newest message


class TurnSignals(Struct, frozen=True, kw_only=True):
    """The signals of one user message. Stored in the turn's metadata."""

    sentiment: Sentiment = Sentiment()
    counters: Counters = Counters()  # including this message
    events: tuple[Event, ...] = ()
    keywords: tuple[str, ...] = ()  # of confusion
    corrections: int = 0  # statements that correct a misunderstanding
    signals: Mapping[str, float] = {}  # measured signals of `prompts.select.SIGNALS`, each 0..1
    task: str = ""  # coding | planning | casual | crisis | reflection, "" for none


class MoodState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The assistant's mood towards its user. A neutral mood adds nothing to the prompt."""

    mood: Mood = "neutral"
    user_skill: Skill = "intermediate"
    task_complexity: Complexity = "moderate"
    strategy: str = ""
    imprints: Mapping[str, str] = {}  # by key, without the prefix `imprint.`


#: The initial state of every conversation.
NEUTRAL: Final = MoodState()


class MetapromptRun(Struct, frozen=True, kw_only=True):
    """One metaprompt run: its trigger, its model and its result."""

    metaprompt: str
    trigger: str  # `event:NAME`, `interval:N` or `manual`
    by: str  # "rules" or the model's name
    outcome: Literal["moved", "unchanged", "refused", "failed"]
    reason: str = ""  # the reason of a refusal or failure, or the answer's rationale
    changes: Mapping[str, Any] = {}  # by key: `[before, after]`
    prompt: str = ""  # the prompt version used, as `slug@branch:number`


class Reflection(Struct, frozen=True, kw_only=True):
    """The result of one turn's reflection: the Mind after it. Immutable once stored."""

    turn: int
    at: float
    mind: MoodState
    runs: tuple[MetapromptRun, ...] = ()
    heard: TurnSignals | None = None  # the sentiment, if a model was asked for it


class MoodEntry(Answer, frozen=True, kw_only=True):
    """A mood state."""

    mood: str
    user_skill: str
    task_complexity: str
    strategy: str
    imprints: dict[str, str]


class ReflectionEntry(Answer, frozen=True, kw_only=True):
    """The metaprompt runs of a turn; `sentiment` if a model rated it."""

    turn: int
    at: Time
    mind: MoodEntry
    runs: tuple[MetapromptRun, ...]
    sentiment: dict[str, Any] | UnsetType = UNSET


class ConversationMood(MoodEntry, frozen=True, kw_only=True):
    """The mood state at a conversation's head, the turn that set it (0: the start), and the pending reflections.

    The reflections are those of all branches, newest first.
    """

    conversation: str = field(name="conversationId")
    turn: int
    due: int
    reflections: tuple[ReflectionEntry, ...]


def reflection_entry(value: Reflection, *, sentiment: Mapping[str, Any] | None) -> ReflectionEntry:
    """Return a reflection as an answer, with the sentiment that a model rated."""
    return as_answer(
        ReflectionEntry,
        value,
        mind=as_answer(MoodEntry, value.mind),
        sentiment=UNSET if sentiment is None else dict(sentiment),
    )
