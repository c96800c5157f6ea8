"""Parse persona files: the definition, sentiment tracking, metaprompts, and kAI's prompt chain."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

import msgspec
from msgspec import Meta, Struct, field, structs

from cuebook.validate import Document, Fault, Name, check_unique, unknown, validate

# ---- sentiment tracking ---------------------------------------------------------------------------------------------


Method = Literal["lexicon_based", "llm", "trained_classifier", "lexicon_and_classifier"]
EventName = Literal["user_frustrated", "user_confused", "user_satisfied", "error_threshold_exceeded", "low_engagement"]
TriggerType = Literal["turn_interval", "event_based", "manual"]
#: Built-in metaprompts by their names in a persona's `presets`; the last name enables all others.
Preset = Literal[
    "frustration_recovery", "confusion_clarification", "satisfaction_reinforcement", "error_recovery",
    "engagement_boost", "all",
]  # fmt: skip
ModelId = Annotated[str, Meta(max_length=200)]

EVENTS: Final[tuple[EventName, ...]] = get_args(EventName)
METHODS: Final[tuple[str, ...]] = get_args(Method)
PRESETS: Final[tuple[str, ...]] = get_args(Preset)
#: Defaults of a metaprompt.
TEMPERATURE: Final = 0.3
OUTPUT_TOKENS: Final = 512
#: Variables of metaprompt templates.
VARIABLES: Final = (
    "current_mood", "user_skill", "task_complexity", "current_sentiment", "recent_conversation", "recent_errors",
    "evidence", "sentiment_score", "consecutive_frustration", "consecutive_confusion", "consecutive_satisfaction",
    "confusion_keywords", "consecutive_neutral",
)  # fmt: skip


class SentimentTracking(Document, frozen=True, kw_only=True):
    """A `sentimentTracking` object of a persona or of a profile. Scores are in -1..1."""

    enabled: bool = False
    method: Annotated[str, Meta(max_length=80)] = "lexicon_based"  # a Method, or a custom one of the project
    model_id: ModelId = ""  # for `llm`; "" = the work model
    provider_id: ModelId = ""
    history_window: Annotated[int, Meta(ge=1, le=1_000)] = 10  # messages in the moving averages
    frustration_threshold: Annotated[float, Meta(ge=-1, le=1)] = -0.3
    satisfaction_threshold: Annotated[float, Meta(ge=-1, le=1)] = 0.3
    consecutive_turns: Annotated[int, Meta(ge=1, le=1_000)] = field(default=2, name="consecutiveTurnsForTrigger")
    presets: tuple[Preset, ...] = ()  # of metaprompts, `all` for every one
    cooldown_turns: Annotated[int, Meta(ge=0, le=10_000)] = 3  # cooldown of an event in turns
    cooldown_ms: Annotated[int, Meta(ge=0, le=31 * 86_400_000)] = 0  # cooldown in time
    profile: Name | None = None  # of the presets file; default for fields that a persona's definition omits
    label: str = ""
    description: str = ""


#: The default tracking of a persona.
UNTRACKED: Final = SentimentTracking()


class Trigger(Document, frozen=True, kw_only=True):
    """The trigger of a metaprompt: every N turns, on an event, or by hand."""

    type: TriggerType
    interval_turns: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    event: EventName | None = field(default=None, name="eventName")


#: The built-in metaprompts with a text, by id, and their default triggers. The last one reflects every few turns and
#: needs no sentiment (A, "Turn-interval self-reflection").
SHIPPED_TRIGGERS: Final[Mapping[str, Trigger]] = {
    "gmi_frustration_recovery": Trigger(type="event_based", event="user_frustrated"),
    "gmi_confusion_clarification": Trigger(type="event_based", event="user_confused"),
    "gmi_satisfaction_reinforcement": Trigger(type="event_based", event="user_satisfied"),
    "gmi_error_recovery": Trigger(type="event_based", event="error_threshold_exceeded"),
    "gmi_engagement_boost": Trigger(type="event_based", event="low_engagement"),
    "gmi_self_trait_adjustment": Trigger(type="turn_interval", interval_turns=5),
}


#: Fields of the original definitions without an effect here: accepted with a warning.
UNUSED: Final = frozenset({
    "defaultModelCompletionOptions", "modelTargetPreferences", "costSavingStrategy", "promptEngineConfigOverrides",
    "defaultModelId", "defaultProviderId", "toolIds", "allowedCapabilities", "embeddedTools", "allowedInputModalities",
    "allowedOutputModalities", "voiceConfig", "avatarConfig", "personalityTraits", "moodAdaptation", "defaultLanguage",
    "uiInteractionStyle", "memoryConfig", "conversationContextConfig", "isCreatorPersona", "isPublic",
    "activationKeywords", "strengths", "minSubscriptionTier", "initialMemoryImprints", "customFields",
})  # fmt: skip
#: The same for a metaprompt: the project's own model and schema are used.
_UNUSED_OF_METAPROMPT: Final = frozenset({"providerId", "outputSchema"})
#: The links of a persona's prompt chain (E), in order; `fallback` replaces a link that cannot be rendered.
CHAIN: Final = ("init", "persona", "summary", "fallback")
_VARIABLE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
#: Most characters of a template; a built-in metaprompt has about 1,500.
_Question = Annotated[str, Meta(min_length=1, max_length=32_768, description="a question to the model")]


class _Template(Document, frozen=True, kw_only=True):
    """A template in the original's format."""

    template: _Question
    variables: Any = None


class _Metaprompt(Document, frozen=True, kw_only=True):
    """A metaprompt in a file."""

    IGNORED: ClassVar[frozenset[str]] = _UNUSED_OF_METAPROMPT

    id: Name
    description: str = ""
    trigger: Trigger | None = None
    template: _Question | _Template | None = field(default=None, name="promptTemplate")
    key: Annotated[str, Meta(max_length=160)] = field(default="", name="promptKey")
    strategy: Annotated[str, Meta(max_length=80)] = field(default="", name="strategyKey")
    model_id: ModelId = ""
    temperature: Annotated[float, Meta(ge=0, le=2)] = TEMPERATURE
    max_output_tokens: Annotated[int, Meta(ge=1, le=32_000)] = OUTPUT_TOKENS


class Metaprompt(_Metaprompt, frozen=True, kw_only=True):
    """A question about the conversation that a model answers in the background; its answer changes the Mind.

    `template` has {{variables}}; without one the prompt under `key` is used. The answer's key `strategy`, or the one of
    that name, has the text that is added to the next prompt.
    """

    trigger: Trigger
    template: str = ""


class Persona(Struct, frozen=True, kw_only=True):
    """A persona: its id, its system prompt, and its sentiment tracking."""

    id: str
    name: str = ""
    version: str = "1.0.0"
    description: str = ""
    model: str = ""
    base_system_prompt: str = ""
    role: str = "assistant"
    chain: Mapping[str, str] = {}  # prompt ids by link
    tracking: SentimentTracking = UNTRACKED  # from its own definition; `signals.profiles.tracking_of` adds the profile
    tracked: frozenset[str] = frozenset()  # the tracking fields that its definition sets
    metaprompts: tuple[Metaprompt, ...] = ()


class _Piece(Document, frozen=True, kw_only=True):
    """One piece of a system prompt."""

    content: str = ""
    priority: float = 0


class _Chain(Document, frozen=True, kw_only=True):
    init: Name | None = None
    persona: Name | None = None
    summary: Name | None = None
    fallback: Name | None = None


class _Definition(Document, frozen=True, kw_only=True):
    """A persona file."""

    IGNORED: ClassVar[frozenset[str]] = UNUSED

    id: Name
    name: str = ""
    version: str = "1.0.0"
    description: str = ""
    role: str = "assistant"
    model: ModelId = ""
    base_system_prompt: str | _Template | tuple[_Piece, ...] = ""
    prompts: _Chain = _Chain()
    sentiment_tracking: Name | SentimentTracking = UNTRACKED
    meta_prompts: Annotated[tuple[_Metaprompt, ...], Meta(max_length=64)] = ()


def read_persona(document: object) -> tuple[Persona | None, list[Fault]]:
    """Return a persona, as far as its definition is valid, and all faults."""
    definition, faults = validate(document, _Definition)
    if definition is None or not isinstance(document, Mapping):
        return None, faults
    named = definition.sentiment_tracking
    tracking = SentimentTracking(profile=named) if isinstance(named, str) else named
    if not tracking.profile:  # with one, the check waits until the profile is known
        faults += check_thresholds(tracking, "sentimentTracking")
    faults += check_unique("metaPrompts", [each.id for each in definition.meta_prompts])
    for at, each in enumerate(definition.meta_prompts):
        path = f"metaPrompts[{at}]"
        if not any(fault.path.startswith(path) for fault in faults):
            faults += _check(each, path)
    written = document.get("sentimentTracking")
    persona = Persona(
        id=definition.id,
        name=definition.name or definition.id,
        version=definition.version,
        description=definition.description,
        model=definition.model,
        role=definition.role,
        base_system_prompt=_text(definition.base_system_prompt),
        chain={link: slug for link, slug in structs.asdict(definition.prompts).items() if slug},
        tracking=tracking,
        tracked=frozenset() if isinstance(named, str) or not isinstance(written, Mapping) else fields_of(written),
        metaprompts=tuple({each.id: _metaprompt(each) for each in definition.meta_prompts}.values()),
    )
    return persona, faults


def fields_of(written: Mapping[str, Any]) -> frozenset[str]:
    """Return the tracking fields that an object of a file sets."""
    return frozenset(
        each.name
        for each in structs.fields(SentimentTracking)
        if written.get(each.encode_name) is not None and each.name not in ("label", "description")
    )


def _text(value: str | _Template | tuple[_Piece, ...]) -> str:
    """Return a system prompt's text; several pieces are joined in ascending priority."""
    if isinstance(value, str):
        return value
    if isinstance(value, _Template):
        return value.template
    return "\n\n".join(each.content for each in sorted(value, key=lambda each: each.priority) if each.content)


def _metaprompt(metaprompt: _Metaprompt) -> Metaprompt:
    trigger = metaprompt.trigger or SHIPPED_TRIGGERS.get(metaprompt.id, Trigger(type="manual"))
    return Metaprompt(
        **(structs.asdict(metaprompt) | {"trigger": trigger, "template": _text(metaprompt.template or "")})
    )


def _check(metaprompt: _Metaprompt, path: str) -> Iterator[Fault]:
    """Yield the faults of inconsistent fields of a metaprompt."""
    if metaprompt.template and metaprompt.key:
        yield Fault(f"{path}.promptKey", "cannot be combined with promptTemplate. Write one of them.")
    if not metaprompt.template and not metaprompt.key and metaprompt.id not in SHIPPED_TRIGGERS:
        near = get_close_matches(metaprompt.id, SHIPPED_TRIGGERS, n=1)
        meant = f" Did you mean the id {near[0]!r}, which ships?" if near else ""
        yield Fault(f"{path}.promptTemplate", f"missing. Write the question, or name a prompt as promptKey.{meant}")
    if metaprompt.trigger is None:
        return
    kind = metaprompt.trigger.type
    needed = {"turn_interval": "intervalTurns", "event_based": "eventName"}.get(kind)
    for key, value in (("intervalTurns", metaprompt.trigger.interval_turns), ("eventName", metaprompt.trigger.event)):
        if key == needed and value is None:
            yield Fault(f"{path}.trigger.{key}", f"missing. A trigger of type {kind} needs it.")
        if key != needed and value is not None:
            yield Fault(f"{path}.trigger.{key}", f"has no effect on a trigger of type {kind}. Leave it out.")


def check_thresholds(tracking: SentimentTracking, path: str) -> list[Fault]:
    """Return a fault if a score could be both frustrated and satisfied."""
    low, high = tracking.frustration_threshold, tracking.satisfaction_threshold
    if low < high:
        return []
    return [Fault(f"{path}.frustrationThreshold", f"{low:g} is not below satisfactionThreshold ({high:g}). Lower it.")]


def check_method(tracking: SentimentTracking, path: str, methods: Collection[str] = METHODS) -> list[Fault]:
    """Return a fault for an unknown sentiment method."""
    return [] if tracking.method in methods else [Fault(f"{path}.method", unknown("method", tracking.method, methods))]


def render_tracking(tracking: SentimentTracking) -> dict[str, Any]:
    """Return tracking in file format."""
    written: dict[str, Any] = msgspec.to_builtins(tracking)
    return {key: value for key, value in written.items() if key not in ("profile", "label", "description")}


# ---- warnings -------------------------------------------------------------------------------------------------------


def warnings_of(document: Mapping[str, Any], persona: Persona, tracking: SentimentTracking) -> list[Fault]:
    """Return warnings for fields without an effect or with a surprising one. `tracking` includes the profile."""
    faults = [
        Fault(key, "is a field of the original without an effect here. It may stay.")
        for key in document
        if key in UNUSED
    ]
    written = document.get("metaPrompts")
    for at, body in enumerate(written if isinstance(written, Sequence) else ()):
        metaprompt = next((each for each in persona.metaprompts if each.id == body.get("id")), None)
        if metaprompt is not None:
            faults += _warnings_of_metaprompt(body, metaprompt, f"metaPrompts[{at}]", tracking)
    if tracking.presets and not tracking.enabled:
        why = "has no effect while sentimentTracking is off. Write enabled: true."
        faults.append(Fault("sentimentTracking.presets", why))
    return faults


def _warnings_of_metaprompt(
    body: Mapping[str, Any], metaprompt: Metaprompt, path: str, tracking: SentimentTracking
) -> Iterator[Fault]:
    for key in _UNUSED_OF_METAPROMPT & body.keys():
        yield Fault(f"{path}.{key}", "is not used: the project's own model is asked, with its own schema.")
    for name in dict.fromkeys(_VARIABLE.findall(metaprompt.template)):
        if name not in VARIABLES:
            why = f"{{{{{name}}}}} is not a variable and stays as it is. Available: {', '.join(VARIABLES)}."
            yield Fault(f"{path}.promptTemplate", why)
    if body.get("trigger") is None and metaprompt.id not in SHIPPED_TRIGGERS:
        why = 'missing: it runs only by hand. Write {"type": "turn_interval", "intervalTurns": 5}, or another.'
        yield Fault(f"{path}.trigger", why)
    if metaprompt.trigger.type == "event_based" and not tracking.enabled:
        yield Fault(f"{path}.trigger", "no event fires while sentimentTracking is off. Switch it on.")


class Experience(Struct, frozen=True, kw_only=True):
    """One piece of advice: `when` is shown to the selector, `what` is added to the prompt if selected."""

    exp_id: str
    who: tuple[str, ...] = ()  # its roles; empty = all
    when: str
    what: str
