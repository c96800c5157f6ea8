"""The answers of memory operations: memories, knowledge, items of conversations and summaries, as JSON shows them."""

from typing import Any, ClassVar

from msgspec import UNSET, Struct, UnsetType

from cuebook.records.answer import Answer, Time, as_answer
from cuebook.records.memory import ITEM, KNOWLEDGE, Item, Memory, Place, Trust

#: Separates the persona from the user in a persona's place.
_PERSONA = "\x1f"
#: The field that names the owner, by its kind.
_OWNERS = {"user": "user_id", "organization": "organization_id", "conversation": "conversation_id"}


class MemorySource(Struct, frozen=True, kw_only=True, rename="camel"):
    """The post that a memory comes from."""

    conversation_id: str | None
    post_id: str


class StoredMemory(Answer, frozen=True, kw_only=True):
    """A memory and its owner; `key` only for knowledge, people and projects.

    `validTo` is set once it is no longer valid. `supersededBy` names a newer statement of a memory that stays valid of
    its time. `corrected`: its text was changed by hand.
    """

    COLUMNS: ClassVar = ("id", "owner", "category", "since", "until", "confidence", "content")

    id: str
    kind: str
    scope: str
    user_id: str | UnsetType = UNSET
    persona_id: str | UnsetType = UNSET
    organization_id: str | UnsetType = UNSET
    conversation_id: str | UnsetType = UNSET
    category: str
    key: str | UnsetType = UNSET
    text: str
    trust: Trust
    confidence: float
    usage_count: int
    valid_from: Time
    valid_to: Time | None
    supersedes: str | None
    superseded_by: str | None
    sources: tuple[MemorySource, ...]
    corrected: bool

    @property
    def owner(self) -> str:
        """Return its scope and the IDs of its owner."""
        ids = (self.persona_id, self.user_id, self.organization_id, self.conversation_id)
        return " ".join([self.scope, *(each for each in ids if each)])

    @property
    def since(self) -> str:
        """Return the first day on which it was valid."""
        return self.valid_from.day

    @property
    def until(self) -> str:
        """Return the day on which it became invalid; "" for a valid memory."""
        return self.valid_to.day if self.valid_to is not None else ""

    @property
    def content(self) -> str:
        """Return its text, after its key if that is another one."""
        return f"{self.key}: {self.text}" if self.key and self.key != self.text else self.text

    def __str__(self) -> str:
        ended = f" · until {self.until}" if self.until else ""
        lines = [f"{self.id} · {self.category} · {self.owner} · since {self.since}{ended}", self.content]
        sources = ", ".join(f"{each.conversation_id} {each.post_id}" for each in self.sources)
        return "\n".join([*lines, *([f"from {sources}"] if sources else [])])


class KnowledgeEntry(Answer, frozen=True, kw_only=True):
    """A fact under a category and a key. A repeat raises its confidence; another value supersedes it."""

    COLUMNS: ClassVar = ("id", "category", "confidence", "usage_count", "key", "value")

    id: str
    category: str
    key: str
    value: str
    confidence: float
    usage_count: int
    last_used_at: Time
    scope: str
    user_id: str | UnsetType = UNSET

    def __str__(self) -> str:
        uses = f"{self.usage_count:,} use{'s' * (self.usage_count != 1)}"
        return f"{self.id} {self.category} {self.key}: confidence {self.confidence:.2f} after {uses}"


class DecayResult(Answer, frozen=True, kw_only=True):
    """The result of a decay: how many facts lost confidence, and how many were deleted."""

    lost: int
    gone: int

    def __str__(self) -> str:
        return f"lowered the confidence of {self.lost:,} fact{'s' * (self.lost != 1)}, deleted {self.gone:,}"


class ItemEntry(Answer, frozen=True, kw_only=True):
    """An item of a conversation's memory; `memoryId` is its id in the operations on memories."""

    COLUMNS: ClassVar = ("memory_id", "category", "since", "until", "sources", "text")

    id: str
    memory_id: str
    category: str
    text: str
    sources: tuple[str, ...]
    trust: Trust
    speaker: str
    confidence: float
    valid_from: Time
    valid_to: Time | None
    supersedes: str | None
    superseded_by: str | None

    @property
    def since(self) -> str:
        """Return the first day on which it was valid."""
        return self.valid_from.day

    @property
    def until(self) -> str:
        """Return the day on which it became invalid; "" for a valid item."""
        return self.valid_to.day if self.valid_to is not None else ""


def stored_memory(value: Memory) -> StoredMemory:
    """Return a memory as an answer."""
    return as_answer(
        StoredMemory,
        value,
        kind="knowledge" if value.category in KNOWLEDGE else "item",
        **owner_fields(value.place),
        key=value.name or UNSET,
        confidence=round(value.confidence, 6),
        usage_count=value.uses,
        superseded_by=value.ended_by if value.valid_to is None else None,
        sources=tuple(
            MemorySource(conversation_id=each.conversation or None, post_id=each.post) for each in value.sources
        ),
        corrected=value.written and bool(value.sources),
    )


def owner_fields(place: Place) -> dict[str, Any]:
    """Return the fields that name the owner of a memory."""
    if place.kind == "persona":
        persona, _, user = place.id.partition(_PERSONA)
        return {"scope": "persona", "user_id": user, "persona_id": persona}
    return {"scope": place.kind, **({_OWNERS[place.kind]: place.id} if place.kind in _OWNERS else {})}


def knowledge_entry(value: Memory) -> KnowledgeEntry:
    """Return knowledge as an answer."""
    return as_answer(
        KnowledgeEntry,
        value,
        key=value.name,
        value=value.text,
        confidence=round(value.confidence, 6),
        usage_count=value.uses,
        last_used_at=Time(value.used_at),
        **owner_fields(value.place),
    )


def item_entry(value: Item, conversation: str) -> ItemEntry:
    """Return an item of a conversation as an answer."""
    return as_answer(ItemEntry, value, memory_id=f"{ITEM}{conversation}:{value.id}")
