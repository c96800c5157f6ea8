"""What a persona asks of the mind: whether and how sentiment is tracked, and the metaprompts run behind replies (A)."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, get_args

from msgspec import Meta, Struct, field

from cuebook.validate import Document, Name

Method = Literal["lexicon_based", "llm", "trained_classifier", "lexicon_and_classifier"]
EventName = Literal["user_frustrated", "user_confused", "user_satisfied", "error_threshold_exceeded", "low_engagement"]
TriggerType = Literal["turn_interval", "event_based", "manual"]
#: Metaprompts that ship, by the names a persona's `presets` switches them on with; the last one means every other.
Preset = Literal[
    "frustration_recovery", "confusion_clarification", "satisfaction_reinforcement", "error_recovery",
    "engagement_boost", "all",
]  # fmt: skip
ModelId = Annotated[str, Meta(max_length=200)]

EVENTS: Final[tuple[EventName, ...]] = get_args(EventName)
METHODS: Final[tuple[str, ...]] = get_args(Method)
TRIGGERS: Final[tuple[str, ...]] = get_args(TriggerType)
PRESETS: Final[tuple[str, ...]] = get_args(Preset)
#: Of a metaprompt that says neither (seed 000's own presets).
TEMPERATURE: Final = 0.3
OUTPUT_TOKENS: Final = 512
#: What a template of a metaprompt may name.
VARIABLES: Final = (
    "current_mood", "user_skill", "task_complexity", "current_sentiment", "recent_conversation", "recent_errors",
    "evidence", "sentiment_score", "consecutive_frustration", "consecutive_confusion", "consecutive_satisfaction",
    "confusion_keywords", "consecutive_neutral",
)  # fmt: skip


class Tracking(Document, frozen=True, kw_only=True):
    """A `sentimentTracking` object of a persona or of a profile. Scores are in -1..1."""

    enabled: bool = False
    method: Annotated[str, Meta(max_length=80)] = "lexicon_based"  # a Method, or one that was given to the project
    model_id: ModelId = ""  # for `llm`; "" = the work model
    provider_id: ModelId = ""
    history_window: Annotated[int, Meta(ge=1, le=1_000)] = 10  # messages the means are taken over
    frustration_threshold: Annotated[float, Meta(ge=-1, le=1)] = -0.3
    satisfaction_threshold: Annotated[float, Meta(ge=-1, le=1)] = 0.3
    consecutive_turns: Annotated[int, Meta(ge=1, le=1_000)] = field(default=2, name="consecutiveTurnsForTrigger")
    presets: tuple[Preset, ...] = ()  # of metaprompts, `all` for every one
    cooldown_turns: Annotated[int, Meta(ge=0, le=10_000)] = 3  # turns after an event in which it does not fire again
    cooldown_ms: Annotated[int, Meta(ge=0, le=31 * 86_400_000)] = 0  # likewise, in time
    profile: Name | None = None  # of the presets file; it holds where a persona's definition says nothing
    label: str = ""
    description: str = ""


#: What holds for a persona that says nothing of it.
UNTRACKED: Final = Tracking()


class Trigger(Document, frozen=True, kw_only=True):
    """When a metaprompt runs: every so many turns, on an event, or when asked for by hand."""

    type: TriggerType
    interval_turns: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    event: EventName | None = field(default=None, name="eventName")


class Metaprompt(Struct, frozen=True, kw_only=True):
    """A question about the conversation, put to a model behind the reply; its answer moves the Mind."""

    id: str
    trigger: Trigger
    description: str = ""
    template: str = ""  # with {{variables}}; "" = the prompt under `key`
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
