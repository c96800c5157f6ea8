"""Convert long-term memories to JSON objects."""

from cuebook.app.json_shapes import Wire, iso
from cuebook.memory.knowledge import KNOWLEDGE
from cuebook.records.memory import Memory, Place


def memory(value: Memory) -> Wire:
    """Return a memory."""
    return {
        "id": value.id,
        "kind": "knowledge" if value.category in KNOWLEDGE else "item",
        **owner(value.place),
        "category": value.category,
        **({"key": value.name} if value.name else {}),
        "text": value.text,
        "trust": value.trust,
        "confidence": round(value.confidence, 6),
        "usageCount": value.uses,
        "validFrom": iso(value.valid_from),
        "validTo": iso(value.valid_to) if value.valid_to is not None else None,
        "supersedes": value.supersedes,
        "supersededBy": value.ended_by if value.valid_to is None else None,
        "sources": [{"conversationId": each.conversation or None, "postId": each.post} for each in value.sources],
        "corrected": value.written and bool(value.sources),
    }


def owner(place: Place) -> Wire:
    """Return the owner of a memory."""
    if place.kind == "persona":
        persona, _, user = place.id.partition("\x1f")
        return {"scope": "persona", "userId": user, "personaId": persona}
    name = {"user": "userId", "organization": "organizationId", "conversation": "conversationId"}.get(place.kind)
    return {"scope": place.kind, **({name: place.id} if name else {})}


def knowledge(value: Memory) -> Wire:
    """Return a knowledge entry in the shape of BrowserOS's routes."""
    return {
        "id": value.id,
        "category": value.category,
        "key": value.name,
        "value": value.text,
        "confidence": round(value.confidence, 6),
        "usageCount": value.uses,
        "lastUsedAt": iso(value.used_at),
        **owner(value.place),
    }
