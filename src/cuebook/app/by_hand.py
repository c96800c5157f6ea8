"""Store, search and delete memories by hand: the functions behind the remember, recall and forget commands."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct

from cuebook.app.memories.reading import check_item
from cuebook.app.parts import Parts
from cuebook.engine.core.conversation_items import named
from cuebook.engine.core.drafts import Posted, check_text
from cuebook.errors import Denied, InvalidInput, NotFound
from cuebook.memory.knowledge import KNOWLEDGE
from cuebook.memory.recall import read_query
from cuebook.records.erasure import Receipt
from cuebook.records.memory import Hit, Memory

#: BrowserOS's categories of memories written by hand.
CATEGORIES = KNOWLEDGE
#: Default category: a memory of a user is about that user, one without a user is about the subject matter.
OF_A_USER, OF_NOBODY = "user_preference", "domain"
#: Longest text, in characters, that is its own key; the key of a longer text is its beginning and a digest.
LONGEST_KEY = 200
_BEGINNING = 160
#: Maximum number of memories per forget call.
MOST = 100
#: Number of found posts whose items are considered.
READ = 20


class StoredAt(Struct, frozen=True, kw_only=True):
    """Location of a stored text: a memory, or as a post of a conversation."""

    memory: Memory | None = None
    conversation: str = ""
    seq: int = 0


async def remember(
    cue: Parts,
    text: str,
    *,
    category: str | None = None,
    key: str | None = None,
    conversation: str | None = None,
    user: str | None = None,
) -> StoredAt:
    """Store a text as a memory of a user or of the whole project, or as a post of `conversation` if given.

    A text with the same `key` replaces the earlier one. Without `key` the text is its own key, and storing it again
    only raises its confidence. Raises InvalidInput, Conflict, and NotFound for another user's conversation.
    """
    check_text(text, "text")
    if not text.strip():
        msg = "text: empty. Provide the text to remember."
        raise InvalidInput(msg, where="text")
    if conversation is None:
        kind = category or (OF_A_USER if user else OF_NOBODY)
        return StoredAt(memory=await cue.memories.put(kind, key or _own_key(text), text, user=user))
    if category is not None or key is not None:
        msg = "category, key: not allowed with conversation. Omit them, or omit conversation."
        raise InvalidInput(msg, where="category")
    posted = Posted(sender=user or "user", message=text)
    appended = await cue.conversations.append(conversation, [posted], user=user)
    return StoredAt(conversation=conversation, seq=appended.last_seq)


async def recall(
    cue: Parts,
    query: str,
    *,
    conversation: str | None = None,
    user: str | None = None,
    organization: str | None = None,
    limit: int = 10,
) -> list[Hit]:
    """Return search hits, best first, as `memory.search` does; without `user` also the project's shared memories.

    Raises InvalidInput.
    """
    check_text(query, "query")
    hits = await cue.memory.search(query, conversation=conversation, user=user, organization=organization, limit=limit)
    if user is not None or organization is not None or conversation is not None:
        return hits
    zone = await cue.memory.zone()
    read = read_query(query, now=cue.services.clock.now(), zone=zone)
    known = await cue.memories.search(read, limit=limit)
    return sorted([*known, *hits], key=lambda each: -each.score)[:limit]


async def matching_memories(
    cue: Parts, query: str, *, conversation: str | None = None, user: str | None = None, limit: int = 10
) -> list[Memory]:
    """Return the memories that match a query and that the caller may delete, best first.

    These are memories of the user and items of conversations; a matching post yields the items derived from it.
    """
    hits = await recall(cue, query, conversation=conversation, user=user, limit=READ)
    memories: dict[str, Memory] = {}
    for hit in hits:
        with suppress(NotFound):  # it was deleted meanwhile
            for name in await _behind(cue, hit, user):
                with suppress(Denied):
                    each = await _own(cue, name, user)
                    memories.setdefault(each.id, each)
    return list(memories.values())[:limit]


async def _behind(cue: Parts, hit: Hit, user: str | None) -> list[str]:
    """Return the ids of the memories that a hit came from. Raises NotFound."""
    if hit.kind != "post":
        return [hit.memory_id]
    items = await cue.memory.items(hit.conversation, user=user)
    return [named(hit.conversation, item) for item in items if set(item.sources) & set(hit.sources)]


async def _own(cue: Parts, name: str, user: str | None) -> Memory:
    """Return a memory if the caller may delete it. Raises NotFound, Denied."""
    memory = await cue.memories.get(name, user=user)
    await check_item(cue.services, name, user)
    if user is not None and memory.place.kind == "book":
        msg = f"Cannot forget memory {memory.id!r}: it belongs to the project, not to a user. Omit the user."
        raise Denied(msg)
    return memory


async def forget(cue: Parts, ids: Sequence[str], *, user: str | None = None, reason: str = "") -> Receipt:
    """Delete memories by id, all or none, with everything derived from them. Return the receipt.

    Raises InvalidInput, NotFound naming the unknown id, Conflict naming a hold, and, if `user` is given, Denied for
    memories of the project or of another user.
    """
    if not 1 <= len(ids) <= MOST:
        msg = f"ids: {len(ids)} memories. Provide 1 to {MOST}."
        raise InvalidInput(msg, where="ids")
    memories = [await _own(cue, each, user) for each in ids]
    return await cue.memory.forget(memories=[each.id for each in memories], reason=reason, by=user)


def _own_key(text: str) -> str:
    content = " ".join(text.split())
    if len(content) <= LONGEST_KEY:
        return content
    return f"{content[:_BEGINNING]}… {hashlib.blake2b(content.encode(), digest_size=8).hexdigest()}"
