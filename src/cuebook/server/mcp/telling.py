"""Notify MCP clients of changes: on a subscription stream, or over stdio for older protocol revisions."""

import asyncio
from contextlib import aclosing, suppress
from typing import Any, Final

from cuebook.errors import CuebookError
from cuebook.records.answer import Wire
from cuebook.server.mcp.changes import PROMPTS, RESOURCES, TOOLS, Again, ChangeWatcher, news
from cuebook.server.mcp.schemas import Asker

#: Seconds until a failed poll is retried.
PAUSE_S: Final = 5.0


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
