"""What may stand in a prompt's argument or an address, suggested while somebody types it."""

from collections.abc import AsyncIterator
from typing import Any, Final

from cuebook.app.shapes import Wire
from cuebook.errors import NotFound
from cuebook.server.mcp.asker import Asker
from cuebook.server.mcp.resources import CONVERSATIONS, MEMORIES, PAGE, TEMPLATES

#: Values of one answer; the protocol allows no more.
MOST: Final = 100
#: Conversations, or memories, that are looked at.
LOOKED_AT: Final = 1_000
#: Memories read at once.
AT_ONCE: Final = 500
_BOOLEANS: Final = ("true", "false")


async def complete(asker: Asker, ref: Any, argument: Any) -> Wire:
    """Give the values that begin with what was typed, of who asks. Raises NotFound for what takes no such argument."""
    name, begun = argument.name, argument.value.lower()
    values = _of_prompt(asker, ref.name, name) if ref.type == "ref/prompt" else _of_address(asker, ref.uri, name)
    found: list[str] = []
    async for each in values:
        if each.lower().startswith(begun):
            if len(found) == MOST:
                return {"completion": {"values": found, "hasMore": True}}
            found.append(each)
    return {"completion": {"values": found, "hasMore": False}}


async def _of_prompt(asker: Asker, slug: str, name: str) -> AsyncIterator[str]:
    resolved = await asker.book.prompts.resolve(slug)
    for param in resolved.params:
        if param.name == name:
            choices = _BOOLEANS if param.type == "boolean" else ()
            for each in dict.fromkeys(filter(None, (param.default, *choices))):
                yield each
            return
    msg = f"prompt {slug!r} has no argument {name!r}"
    raise NotFound(msg)


async def _of_address(asker: Asker, uri: str, name: str) -> AsyncIterator[str]:
    if name != "id" or uri not in [each["uriTemplate"] for each in TEMPLATES]:
        known = " and ".join(each["uriTemplate"] for each in TEMPLATES)
        msg = f"{uri!r} has no argument {name!r}; there are {known}"
        raise NotFound(msg)
    ids = {CONVERSATIONS: conversations, MEMORIES: memories}[uri.removesuffix("{id}")]
    async for each in ids(asker):
        yield each


async def conversations(asker: Asker) -> AsyncIterator[str]:
    """Give the ids of the newest conversations of who asks, LOOKED_AT at most."""
    user, cursor = asker.user(), None
    for _ in range(LOOKED_AT // PAGE):
        page = await asker.book.conversations.list(user=user, limit=PAGE, cursor=cursor)
        for each in page.items:
            yield each.id
        if (cursor := page.cursor) is None:
            return


async def memories(asker: Asker, *, most: int = LOOKED_AT) -> AsyncIterator[str]:
    """Give the ids of the oldest memories of who asks, of `most` that are looked at."""
    user, cursor, at_once = asker.user(), None, min(most, AT_ONCE)
    for _ in range(most // at_once):
        page = await asker.book.memories.page(user=user, limit=at_once, cursor=cursor)
        for each in page.items:
            if asker.may_know(each):
                yield each.id
        if (cursor := page.cursor) is None:
            return
