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
    fields = Fields(document, "", faults, FIELDS)
    name = fields.name("id", what="give the persona an id")
    fields.text("model", most=200)
    fields.text("description")
    persona = Persona(
        id=name,
        name=fields.text("name", name),
        version=fields.text("version", "1.0.0"),
        base_system_prompt=fields.text("baseSystemPrompt"),
        role=fields.text("role", "assistant"),
        chain=_chain(fields),
        tracking=read_tracking(fields, "sentimentTracking", profiles=True),
        metaprompts=read_metaprompts(fields),
        other={key: document[key] for key in sorted(_OTHER) if key in document},
    )
    return persona, faults


def _chain(fields: Fields) -> Mapping[str, str]:
    links = fields.object("prompts", CHAIN, what=f"an object of {', '.join(CHAIN)}")
    if links is None:
        return {}
    return {link: slug for link in links.body if link in CHAIN and (slug := links.name(link, what="name a prompt"))}
