"""Who speaks: A's persona definition (seed 000, section 4), without its sentiment part."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from cuebook.errors import InvalidInput
from cuebook.records.tracking import UNTRACKED, Metaprompt, Tracking

_TEXTS = ("id", "name", "version", "baseSystemPrompt", "role")
#: Keys a definition may have beside those read here; they are kept for the parts of Cuebook that read them.
_OTHER = frozenset({"prompts", "sentimentTracking", "metaPrompts", "description", "model"})


#: The links of a persona's chain of prompts (E), in the order they stand in; `fallback` stands for one that cannot.
CHAIN = ("init", "persona", "summary", "fallback")


class Persona(Struct, frozen=True, kw_only=True):
    """A persona: its id, and the text every prompt of it begins with."""

    id: str
    name: str = ""
    version: str = "1.0.0"
    base_system_prompt: str = ""
    role: str = "assistant"
    chain: Mapping[str, str] = {}  # prompt ids by link
    tracking: Tracking = UNTRACKED
    metaprompts: tuple[Metaprompt, ...] = ()
    other: Mapping[str, Any] = {}


def read_persona(document: object, *, file: str) -> Persona:
    """Read a persona definition. Raises InvalidInput naming the path inside the file."""
    if not isinstance(document, Mapping):
        msg = f"{file}: expected an object with id, name, version and baseSystemPrompt"
        raise InvalidInput(msg, where="$")
    for key, value in document.items():
        if key in _TEXTS and not isinstance(value, str):
            msg = f"{file}: {key}: expected a string, got {type(value).__name__}"
            raise InvalidInput(msg, where=key)
        if key not in _TEXTS and key not in _OTHER:
            known = ", ".join(sorted({*_TEXTS, *_OTHER}))
            msg = f"{file}: {key}: no such field; known are {known}"
            raise InvalidInput(msg, where=key)
    if not document.get("id"):
        msg = f"{file}: id: missing; give the persona an id"
        raise InvalidInput(msg, where="id")
    if not document["id"].isprintable():
        msg = f"{file}: id: {document['id']!r} holds characters nobody sees; use letters, digits, '-', '_'"
        raise InvalidInput(msg, where="id")
    return Persona(
        chain=_chain(document.get("prompts"), file),
        id=document["id"],
        name=document.get("name", document["id"]),
        version=document.get("version", "1.0.0"),
        base_system_prompt=document.get("baseSystemPrompt", ""),
        role=document.get("role", "assistant"),
        other={key: document[key] for key in sorted(_OTHER & set(document))},
    )


def _chain(given: object, file: str) -> Mapping[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        msg = f"{file}: prompts: expected an object of {', '.join(CHAIN)}"
        raise InvalidInput(msg, where="prompts")
    for key, slug in given.items():
        if key not in CHAIN:
            msg = f"{file}: prompts.{key}: no such link; known are {', '.join(CHAIN)}"
            raise InvalidInput(msg, where=f"prompts.{key}")
        if not isinstance(slug, str) or not slug:
            msg = f"{file}: prompts.{key}: expected the id of a prompt"
            raise InvalidInput(msg, where=f"prompts.{key}")
    return dict(given)
