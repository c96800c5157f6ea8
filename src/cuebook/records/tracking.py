"""What a persona asks of the mind: whether and how sentiment is tracked, and the metaprompts run behind replies (A)."""

from collections.abc import Mapping
from typing import Final, Literal, get_args

from msgspec import Struct

Method = Literal["lexicon_based", "llm", "trained_classifier", "lexicon_and_classifier"]
EventName = Literal["user_frustrated", "user_confused", "user_satisfied", "error_threshold_exceeded", "low_engagement"]
TriggerType = Literal["turn_interval", "event_based", "manual"]

EVENTS: Final[tuple[EventName, ...]] = (
    "user_frustrated", "user_confused", "user_satisfied", "error_threshold_exceeded", "low_engagement",
)  # fmt: skip
METHODS: Final[tuple[str, ...]] = get_args(Method)
TRIGGERS: Final[tuple[str, ...]] = get_args(TriggerType)
#: Metaprompts that ship, by the names a persona's `presets` switches them on with; the last one means every other.
PRESETS: Final = (
    "frustration_recovery", "confusion_clarification", "satisfaction_reinforcement", "error_recovery",
    "engagement_boost", "all",
)  # fmt: skip
#: Of a metaprompt that says neither (seed 000's own presets).
TEMPERATURE: Final = 0.3
OUTPUT_TOKENS: Final = 512
#: What a template of a metaprompt may name.
VARIABLES: Final = (
    "current_mood", "user_skill", "task_complexity", "current_sentiment", "recent_conversation", "recent_errors",
    "evidence", "sentiment_score", "consecutive_frustration", "consecutive_confusion", "consecutive_satisfaction",
    "confusion_keywords", "consecutive_neutral",
)  # fmt: skip


class Tracking(Struct, frozen=True, kw_only=True):
    """A persona's `sentimentTracking`. Scores are in -1..1."""

    enabled: bool = False
    method: str = "lexicon_based"  # a Method, or the name of one that was given to the book
    model_id: str = ""  # for `llm`; "" = the book's work model
    provider_id: str = ""
    history_window: int = 10  # messages the means are taken over
    frustration_threshold: float = -0.3
    satisfaction_threshold: float = 0.3
    consecutive_turns: int = 2  # `consecutiveTurnsForTrigger`
    presets: tuple[str, ...] = ()  # of metaprompts, `all` for every one
    cooldown_turns: int = 3  # turns after an event in which it does not fire again
    cooldown_ms: int = 0  # likewise, in time
    profile: str = ""  # the presets file's, that holds where the definition says nothing
    given: frozenset[str] = frozenset()  # names of the fields the definition says something of


#: What holds for a persona that says nothing of it.
UNTRACKED: Final = Tracking()


class Trigger(Struct, frozen=True, kw_only=True):
    """When a metaprompt runs: every so many turns, on an event, or when asked for by hand."""

    type: TriggerType
    interval_turns: int = 0
    event: str = ""


class Metaprompt(Struct, frozen=True, kw_only=True):
    """A question about the conversation, put to a model behind the reply; its answer moves the Mind."""

    id: str
    trigger: Trigger
    description: str = ""
    template: str = ""  # with {{variables}}; "" = the prompt of the book under `key`
    key: str = ""
    strategy: str = ""  # the answer's key whose text reaches the next prompt; "" = `strategy`
    model_id: str = ""
    temperature: float = TEMPERATURE
    max_output_tokens: int = OUTPUT_TOKENS


#: The metaprompts that ship with a text, by id, and when each runs where a definition does not say. The last one looks
#: back every few turns and needs no sentiment (A, "Turn-interval self-reflection").
SHIPPED_TRIGGERS: Final[Mapping[str, Trigger]] = {
    "gmi_frustration_recovery": Trigger(type="event_based", event="user_frustrated"),
    "gmi_confusion_clarification": Trigger(type="event_based", event="user_confused"),
    "gmi_satisfaction_reinforcement": Trigger(type="event_based", event="user_satisfied"),
    "gmi_error_recovery": Trigger(type="event_based", event="error_threshold_exceeded"),
    "gmi_engagement_boost": Trigger(type="event_based", event="low_engagement"),
    "gmi_self_trait_adjustment": Trigger(type="turn_interval", interval_turns=5),
}
