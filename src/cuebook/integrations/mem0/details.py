"""Store what only mem0's memories have, their fields and their history, as documents of their user."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

from cuebook.app.cuebook import Cuebook
from cuebook.errors import NotFound
from cuebook.integrations.connection import PAGE, documents_in
from cuebook.integrations.mem0.filters import ENTITIES, Item, entities_of, fits, owner_of
from cuebook.records.document import DocumentChange
from cuebook.records.memory_answers import StoredMemory

#: The place of the documents, by the id of their memory.
_SPACE: Final = ("mem0",)
#: The fields of a memory that are not in its metadata.
_FIELDS: Final = (*ENTITIES, "actor_id", "role", "expiration_date")


async def stored_memories(cue: Cuebook, owner: str) -> list[StoredMemory]:
    """Return the memories of an owner, the oldest first."""
    found: list[StoredMemory] = []
    cursor: str | None = None
    while True:
        page = await cue.memory.list(user=owner, limit=PAGE, cursor=cursor)
        found += [each for each in page if each.user_id == owner]
        if (cursor := page.next) is None:
            return sorted(found, key=lambda each: each.valid_from)


async def existing_memory(cue: Cuebook, name: str) -> StoredMemory:
    """Return a memory. Raises ValueError, as mem0 does."""
    try:
        return await cue.memory.get(name)
    except NotFound:
        msg = f"Memory with id {name} not found. Please provide a valid 'memory_id'"
        raise ValueError(msg) from None


async def details_of(cue: Cuebook, memory: StoredMemory) -> Item:
    """Return the fields, the times and the history of a memory."""
    try:
        return (await cue.documents.get(_SPACE, memory.id, user=owner_id(memory))).value
    except NotFound:
        return new_details(memory)


def new_details(memory: StoredMemory) -> Item:
    """Return the details of a memory that did not come from this interface."""
    time = datetime.fromtimestamp(memory.valid_from, UTC).isoformat()
    return {"fields": {"user_id": memory.user_id}, "created_at": time, "updated_at": time, "history": []}


async def matching(cue: Cuebook, filters: Item | None, *, show_expired: bool) -> list[tuple[StoredMemory, Item]]:
    """Return the memories that fit filters, each with its details. Raises ValueError.

    Details whose memory another interface has erased are deleted, as their history has its earlier texts.
    """
    wanted = (filters or {}) | entities_of(filters or {})
    owner = owner_of(wanted)
    details = {each.key: each.value for each in await documents_in(cue, _SPACE, user=owner)}
    memories = await stored_memories(cue, owner)
    erased = details.keys() - {each.id for each in memories}
    await cue.documents.put([DocumentChange(space=_SPACE, key=each) for each in erased], user=owner)
    found = [(memory, details.get(memory.id) or new_details(memory)) for memory in memories]
    today = now()[:10]
    return [
        (memory, each)
        for memory, each in found
        if fits(each["fields"], wanted) and (show_expired or (each["fields"].get("expiration_date") or today) >= today)
    ]


async def erase(cue: Cuebook, memories: Sequence[StoredMemory]) -> None:
    """Erase memories of one owner with their details."""
    if memories:
        owner = owner_id(memories[0])
        await cue.memory.forget(memories=[each.id for each in memories])
        await cue.documents.put([DocumentChange(space=_SPACE, key=each.id) for each in memories], user=owner)


async def put_details(cue: Cuebook, memory: StoredMemory, details: Item) -> None:
    """Store the details of a memory."""
    await cue.documents.put([DocumentChange(space=_SPACE, key=memory.id, value=details)], user=owner_id(memory))


def now() -> str:
    """Return the time in ISO 8601."""
    return datetime.now(UTC).isoformat()  # noqa: TID251  # as mem0's clients do


def owner_id(memory: StoredMemory) -> str | None:
    """Return the user that owns a memory."""
    return memory.user_id if isinstance(memory.user_id, str) else None


def item_of(memory: StoredMemory, details: Item) -> Item:
    """Return a memory in mem0's form."""
    fields = details["fields"]
    return {
        "id": memory.id,
        "memory": memory.text,
        "hash": hashlib.md5(memory.text.encode(), usedforsecurity=False).hexdigest(),
        "metadata": {name: value for name, value in fields.items() if name not in _FIELDS} or None,
        "created_at": details["created_at"],
        "updated_at": details["updated_at"],
        **{name: value for name, value in fields.items() if name in _FIELDS},
    }


def event_of(memory: str, details: Item, before: str | None, text: str) -> Item:
    """Return an entry of a memory's history."""
    return {
        "id": str(uuid4()),
        "memory_id": memory,
        "old_memory": before,
        "new_memory": text,
        "event": "ADD" if before is None else "UPDATE",
        "created_at": details["created_at"],
        "updated_at": details["updated_at"],
        "is_deleted": False,
        "actor_id": details["fields"].get("actor_id"),
        "role": details["fields"].get("role"),
    }
