"""What a message says beside its words, and the state of mind a conversation is in because of it (A)."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct

Polarity = Literal["positive", "neutral", "negative", "unknown"]
Severity = Literal["low", "medium", "high"]
Mood = Literal[
    "neutral", "focused", "empathetic", "curious", "assertive", "analytical", "frustrated", "creative",
    "patient", "helpful", "careful", "engaging", "playful", "enthusiastic",
]  # fmt: skip
Skill = Literal["novice", "intermediate", "advanced", "expert"]
Complexity = Literal["simple", "moderate", "complex", "advanced"]


class Sentiment(Struct, frozen=True, kw_only=True):
    """How a text sounds. Both numbers are 0 where the polarity is `unknown`: the method cannot read it."""

    score: float = 0.0  # -1..1
    intensity: float = 0.0  # 0..1, how strongly it is meant
    polarity: Polarity = "unknown"
    method: str = ""
    negatives: int = 0  # words of the text that sound bad


class Event(Struct, frozen=True, kw_only=True):
    """Something that was noticed in a turn, and why."""

    name: str
    severity: Severity = "medium"
    reason: str = ""


class Counters(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What the messages of a path leave behind for the next: consecutive messages of a kind, and when events fired."""

    frustration: int = 0
    confusion: int = 0
    satisfaction: int = 0
    neutral: int = 0
    idle: int = 0  # of the neutral ones, the newest that neither ask nor order anything
    scores: tuple[float, ...] = ()  # of the newest messages that could be read, oldest first, `history_window` at most
    lengths: tuple[int, ...] = ()  # characters of the newest five messages
    corrected: tuple[int, ...] = ()  # corrections in each of the newest four messages
    trace: tuple[bool, ...] = ()  # whether each of the newest ten results and replies failed, oldest first
    news: int = 0  # of the trace, the newest: those since the message before
    task: str = ""  # the newest task that stood out, and
    task_age: int = 0  # how many messages ago
    fired: Mapping[str, tuple[int, float]] = {}  # by event: `turns` and Unix time of its last firing
    turns: int = 0  # turns of the path so far that were heard
    at: float = 0.0  # Unix time of the newest message


class TurnSignals(Struct, frozen=True, kw_only=True):
    """What one message of the user says beside its words. Kept in the turn's metadata."""

    sentiment: Sentiment = Sentiment()
    counters: Counters = Counters()  # with this message
    events: tuple[Event, ...] = ()
    keywords: tuple[str, ...] = ()  # of confusion
    corrections: int = 0  # statements that take back or set right what was understood
    signals: Mapping[str, float] = {}  # those of `prompts.select.SIGNALS` that were read, each 0..1
    task: str = ""  # coding | planning | casual | crisis | reflection, "" where none stands out


class Mind(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the assistant stands to its user now. Neutral says nothing in the prompt."""

    mood: Mood = "neutral"
    user_skill: Skill = "intermediate"
    task_complexity: Complexity = "moderate"
    strategy: str = ""
    imprints: Mapping[str, str] = {}  # by key, without the `imprint.` they are told with


#: What every conversation begins with.
NEUTRAL: Final = Mind()


class MetapromptRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One metaprompt that ran: why, who decided, and what came of it."""

    metaprompt: str
    trigger: str  # `event:NAME`, `interval:N` or `manual`
    by: str  # "rules" or the model's name
    outcome: Literal["moved", "unchanged", "refused", "failed"]
    reason: str = ""  # of a refusal or failure; the answer's rationale
    changes: Mapping[str, Any] = {}  # by key: what it was and is, `[before, after]`
    prompt: str = ""  # the version that was said, as `slug@branch:number`


class Reflection(Struct, frozen=True, kw_only=True):
    """What came of one turn: the Mind after it. Never changed once kept."""

    turn: int
    at: float
    mind: Mind
    runs: tuple[MetapromptRun, ...] = ()
    heard: TurnSignals | None = None  # where a model was asked for the sentiment: what it says
