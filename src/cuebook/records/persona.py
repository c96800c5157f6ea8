"""Who speaks: A's persona definition (seed 000, section 4), and E's chain of prompts."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from cuebook.records.fields import Fault, Fields, shown
from cuebook.records.persona_tracking import read_metaprompts, read_tracking
from cuebook.records.tracking import UNTRACKED, Metaprompt, Tracking

#: The fields a definition may have, in the order they are written in.
FIELDS = (
    "id", "name", "version", "description", "role", "model", "baseSystemPrompt", "prompts", "sentimentTracking",
    "metaPrompts",
)  # fmt: skip
#: Fields of the original's definitions that mean nothing here: a file written for it is read, and told of them.
UNUSED = (
    "defaultModelCompletionOptions", "modelTargetPreferences", "costSavingStrategy", "promptEngineConfigOverrides",
    "defaultModelId", "defaultProviderId", "toolIds", "allowedCapabilities", "embeddedTools", "allowedInputModalities",
    "allowedOutputModalities", "voiceConfig", "avatarConfig", "personalityTraits", "moodAdaptation", "defaultLanguage",
    "uiInteractionStyle", "memoryConfig", "conversationContextConfig", "isCreatorPersona", "isPublic",
    "activationKeywords", "strengths", "minSubscriptionTier", "initialMemoryImprints", "customFields",
)  # fmt: skip
#: Those kept as they are, for the parts of Cuebook that read them.
_OTHER = ("prompts", "sentimentTracking", "metaPrompts", "description", "model")


#: The links of a persona's chain of prompts (E), in the order they stand in; `fallback` stands for one that cannot.
CHAIN = ("init", "persona", "summary", "fallback")


class Persona(Struct, frozen=True, kw_only=True):
    """A persona: its id, the text every prompt of it begins with, and what it asks of the mind."""

    id: str
    name: str = ""
    version: str = "1.0.0"
    base_system_prompt: str = ""
    role: str = "assistant"
    chain: Mapping[str, str] = {}  # prompt ids by link
    tracking: Tracking = UNTRACKED  # as its own definition says; with the profile: `signals.profiles.tracking_of`
    metaprompts: tuple[Metaprompt, ...] = ()
    other: Mapping[str, Any] = {}


def look_at_persona(document: object) -> tuple[Persona | None, list[Fault]]:
    """Read a persona definition as far as it can be, and give all that is wrong in it."""
    faults: list[Fault] = []
    if not isinstance(document, Mapping):
        why = f"expected an object with id, name, version and baseSystemPrompt, got {shown(document)}"
        return None, [Fault("$", why)]
    fields = Fields({key: value for key, value in document.items() if key not in UNUSED}, "", faults, FIELDS)
    name = fields.name("id", what="give the persona an id")
    fields.text("model", most=200)
    fields.text("description")
    persona = Persona(
        id=name,
        name=fields.text("name", name),
        version=fields.text("version", "1.0.0"),
        base_system_prompt=_base(fields),
        role=fields.text("role", "assistant"),
        chain=_chain(fields),
        tracking=read_tracking(fields, "sentimentTracking", profiles=True),
        metaprompts=read_metaprompts(fields),
        other={key: document[key] for key in sorted(_OTHER) if key in document},
    )
    return persona, faults


def _base(fields: Fields) -> str:
    """Read a persona's own text; the original's `{template, variables}` and `[{content, priority}]` too."""
    key = "baseSystemPrompt"
    given = fields.body.get(key)
    if isinstance(given, Mapping):
        whole = fields.object(key, ("template", "variables"), what="a text")
        return whole.text("template") if whole else ""
    if not isinstance(given, list):
        return fields.text(key)
    parts: list[tuple[float, str]] = []
    for number, body in enumerate(given):
        place = f"{key}[{number}]"
        if not isinstance(body, Mapping):
            fields.fault(place, f"expected an object with content and priority, got {shown(body)}")
            continue
        part = Fields(body, place, fields.faults, ("content", "priority"))
        parts.append((part.number("priority", 0, least=-1e9, most=1e9), part.text("content")))
    return "\n\n".join(text for _, text in sorted(parts, key=lambda part: part[0]) if text)


def odd_fields(document: Mapping[str, Any]) -> list[Fault]:
    """Say which fields of a definition mean nothing here."""
    return [Fault(key, "is of the original and means nothing here; it may stay") for key in document if key in UNUSED]


def _chain(fields: Fields) -> Mapping[str, str]:
    links = fields.object("prompts", CHAIN, what=f"an object of {', '.join(CHAIN)}")
    if links is None:
        return {}
    return {link: slug for link in links.body if link in CHAIN and (slug := links.name(link, what="name a prompt"))}
