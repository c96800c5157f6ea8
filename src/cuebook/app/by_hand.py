"""Search and delete memories by hand: what an MCP client may forget."""

from collections.abc import Sequence
from contextlib import suppress

from cuebook.app.cuebook import Cuebook
from cuebook.app.memories.reading import check_item
from cuebook.errors import Denied, InvalidInput, NotFound
from cuebook.records.erasure import Receipt
from cuebook.records.memory_answers import StoredMemory

#: Maximum number of memories per forget call.
MOST = 100
#: Number of found posts whose items are considered.
READ = 20


async def matching_memories(
    cue: Cuebook, query: str, *, conversation: str | None = None, user: str | None = None, limit: int = 10
) -> list[StoredMemory]:
    """Return the memories that match a query and that the caller may delete, best first.

    These are memories of the user and items of conversations; a matching post yields the items derived from it.
    """
    hits = await cue.memory.search(query, conversation=conversation, user=user, limit=READ)
    memories: dict[str, StoredMemory] = {}
    for hit in hits:
        with suppress(NotFound):  # it was deleted meanwhile
            names = [hit.memory_id]
            if hit.kind == "post":
                items = await cue.memory.items(hit.conversation or "", user=user)
                names = [item.memory_id for item in items if set(item.sources) & set(hit.sources)]
            for name in names:
                with suppress(Denied):
                    each = await _own(cue, name, user)
                    memories.setdefault(each.id, each)
    return list(memories.values())[:limit]


async def _own(cue: Cuebook, name: str, user: str | None) -> StoredMemory:
    """Return a memory if the caller may delete it. Raises NotFound, Denied."""
    memory = await cue.memory.get(name, user=user)
    await check_item(cue.services, name, user)
    if user is not None and memory.scope == "project":
        msg = f"Cannot forget memory {memory.id!r}: it belongs to the project, not to a user. Omit the user."
        raise Denied(msg)
    return memory


async def forget(cue: Cuebook, ids: Sequence[str], *, user: str | None = None, reason: str = "") -> Receipt:
    """Delete memories by id, all or none, with everything derived from them. Return the receipt.

    Raises InvalidInput, NotFound naming the unknown id, Conflict naming a hold, and, if `user` is given, Denied for
    memories of the project or of another user.
    """
    if not 1 <= len(ids) <= MOST:
        msg = f"ids: {len(ids)} memories. Provide 1 to {MOST}."
        raise InvalidInput(msg, where="ids")
    memories = [await _own(cue, each, user) for each in ids]
    return await cue.memory.forget(memories=[each.id for each in memories], reason=reason, by=user)
