"""Detect changes of lists and resources for an MCP client by polling digests of what it may read."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from hashlib import blake2b
from typing import Any, Final

import msgspec

from cuebook.errors import Denied, InvalidInput, NotFound
from cuebook.records.answer import to_wire
from cuebook.records.memory import Scope
from cuebook.server.mcp.resources import CONVERSATIONS, conversations, memories, named_in, read_resource
from cuebook.server.mcp.schemas import Asker
from cuebook.server.mcp.tools import list_tools

TOOLS, PROMPTS, RESOURCES = "tools", "prompts", "resources"
#: Maximum number of subscriptions per client.
MOST: Final = 100
#: Maximum number of memories checked for changes of the resource list.
WATCHED: Final = 10_000

_encode = msgspec.json.Encoder().encode

#: Returns the caller after a new check. Raises Unproven for a revoked or expired key.
Again = Callable[[], Awaitable[Asker]]


class ChangeWatcher:
    """Digests of the watched lists and resources at the last poll."""

    def __init__(self) -> None:
        self._seen: dict[str, bytes] = {}

    async def add(self, asker: Asker, names: Iterable[str]) -> None:
        """Watch lists or resources. Raises NotFound for an unreadable resource, InvalidInput at the limit."""
        for name in names:
            if len(self._seen) >= MOST and name not in self._seen:
                msg = f"uri: too many subscriptions: {MOST}. Unsubscribe from one first."
                raise InvalidInput(msg, where="uri")
            self._seen[name] = await _sign(asker, name)

    async def add_readable(self, asker: Asker, uris: Iterable[str]) -> list[str]:
        """Watch the resources that can be read, and return their URIs. Raises InvalidInput at the limit."""
        results = []
        for uri in uris:
            with suppress(NotFound, Denied):
                await self.add(asker, (uri,))
                results.append(uri)
        return results

    def drop(self, name: str) -> None:
        """Stop watching a list or resource."""
        self._seen.pop(name, None)

    async def changed(self, asker: Asker) -> list[str]:
        """Return the names that changed since the last poll. One that became unreadable is returned once."""
        results = []
        for name, before in list(self._seen.items()):
            try:
                now = await _sign(asker, name)
            except (NotFound, Denied):
                now = b""
            if now != before and name in self._seen:
                self._seen[name] = now
                results.append(name)
        return results


async def news(watched: ChangeWatcher, again: Again) -> AsyncGenerator[str, None]:
    """Yield each list and URI when it changes. Raises Unproven when the caller's key becomes invalid."""
    asker = await again()
    async with aclosing(asker.cue.live.writes()) as looks:
        async for written in looks:
            asker = await again()
            if written:
                for name in await watched.changed(asker):
                    yield name


async def _sign(asker: Asker, name: str) -> bytes:
    """Return a digest of a list or a resource. Raises NotFound, Denied."""
    lists = {TOOLS: _tools, PROMPTS: _prompts, RESOURCES: _resources}
    result = await lists[name](asker) if name in lists else await _resource(asker, name)
    return blake2b(_encode(result), digest_size=16).digest()


async def _tools(asker: Asker) -> Any:
    return [each["name"] for each in list_tools(asker, None)["tools"]]


async def _prompts(asker: Asker) -> Any:
    """Return each prompt with the digest of its version and its labels."""
    return [
        (
            each.slug,
            active.digest if (active := each.version()) else "",
            sorted((label.name, label.branch, label.number) for label in each.labels),
        )
        for each in (await asker.cue.services.prompts.every(Scope())).values()
    ]


async def _resources(asker: Asker) -> Any:
    """Return the IDs of the newest conversations and of up to WATCHED memories."""
    lists = conversations(asker), memories(asker, most=WATCHED)
    return [sorted([each async for each in ids]) for ids in lists]


async def _resource(asker: Asker, uri: str) -> Any:
    if uri.startswith(CONVERSATIONS):
        return to_wire(await asker.cue.conversations.get(named_in(uri, CONVERSATIONS), user=asker.user()))
    return await read_resource(asker, uri)
