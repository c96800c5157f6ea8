"""Notify MCP clients of changes of lists and resources, found by polling digests of what a client may read.

Notifications go on a subscription stream, or over stdio for older protocol revisions.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from hashlib import blake2b
from typing import Any, Final

import msgspec

from cuebook.errors import CuebookError, Denied, InvalidInput, NotFound
from cuebook.records.answer import Wire, to_wire
from cuebook.records.memory import Scope
from cuebook.server.mcp.resources import CONVERSATIONS, conversations, memories, named_in, read_resource
from cuebook.server.mcp.schemas import Asker
from cuebook.server.mcp.tools import list_tools

TOOLS, PROMPTS, RESOURCES = "tools", "prompts", "resources"
#: Maximum number of subscriptions per client.
MOST: Final = 100
#: Maximum number of memories checked for changes of the resource list.
WATCHED: Final = 10_000

#: Seconds until a failed poll is retried.
PAUSE_S: Final = 5.0

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


# ---- notifications --------------------------------------------------------------------------------------------------


async def listen(asker: Asker, again: Again, context: Any, params: Any) -> Any:
    """Send changes on this request's stream until it ends or the caller's key is invalid.

    The acknowledgment lists the readable resources.
    """
    from mcp.server.subscriptions import (
        InMemorySubscriptionBus,
        ListenHandler,
        PromptsListChanged,
        ResourcesListChanged,
        ResourceUpdated,
        ToolsListChanged,
    )

    value = params.notifications
    flags = {
        TOOLS: value.tools_list_changed,
        PROMPTS: value.prompts_list_changed,
        RESOURCES: value.resources_list_changed,
    }
    events: dict[str, Any] = {
        TOOLS: ToolsListChanged(),
        PROMPTS: PromptsListChanged(),
        RESOURCES: ResourcesListChanged(),
    }
    watched = ChangeWatcher()
    await watched.add(asker, [name for name, wanted in flags.items() if wanted])
    uris = await watched.add_readable(asker, dict.fromkeys(value.resource_subscriptions or ()))
    bus = InMemorySubscriptionBus()
    stream = ListenHandler(bus)

    async def publish() -> None:
        try:
            with suppress(CuebookError):
                async with aclosing(news(watched, again)) as changed:
                    async for name in changed:
                        await bus.publish(events.get(name) or ResourceUpdated(uri=name))
        finally:
            stream.close()

    publishing = asyncio.create_task(publish())  # starts when the stream, which subscribes at once, first awaits
    try:
        granted = value.model_copy(update={"resource_subscriptions": uris})
        return await stream(context, params.model_copy(update={"notifications": granted}))
    finally:
        publishing.cancel()
        with suppress(asyncio.CancelledError):
            await publishing


class StdioNotifier:
    """Sends notifications over stdio to clients of protocol revisions without subscription streams."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._watched = ChangeWatcher()
        self._telling: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()

    async def begin(self, context: Any, _: Any) -> None:
        """Start to notify of changed lists, once the client is initialized."""
        async with self._starting:
            await self._watched.add(self._asker, (PROMPTS, RESOURCES))
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell(context.session))

    async def started(self) -> None:
        """Wait until the lists are watched: a change before that would not be noticed."""
        async with self._starting:
            pass

    async def subscribe(self, _: Any, params: Any) -> Wire:
        """Notify of a resource too. Raises NotFound, InvalidInput."""
        await self._watched.add(self._asker, (str(params.uri),))
        return {}

    async def unsubscribe(self, _: Any, params: Any) -> Wire:
        """Stop notifying of a resource."""
        self._watched.drop(str(params.uri))
        return {}

    async def aclose(self) -> None:
        """Stop all notifications."""
        if self._telling is not None:
            self._telling.cancel()
            with suppress(asyncio.CancelledError):
                await self._telling

    async def _tell(self, session: Any) -> None:
        lists = {PROMPTS: session.send_prompt_list_changed, RESOURCES: session.send_resource_list_changed}

        async def look_up_asker() -> Asker:
            return self._asker

        while True:
            with suppress(CuebookError):  # for example a busy store: retried below
                async with aclosing(news(self._watched, look_up_asker)) as changed:
                    async for name in changed:
                        await (lists[name]() if name in lists else session.send_resource_updated(name))
            await asyncio.sleep(PAUSE_S)
