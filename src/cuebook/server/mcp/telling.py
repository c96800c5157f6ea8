"""How a client is told of changes: on a stream it asked for, or on a pipe, as older revisions of the protocol do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final

from cuebook.app.json_shapes import Wire
from cuebook.errors import CuebookError
from cuebook.server.mcp.changes import PROMPTS, RESOURCES, TOOLS, Again, Watched, news, readable
from cuebook.server.mcp.schemas import Asker

#: Seconds until the book is looked at again that could not be.
PAUSE_S: Final = 5.0


async def listen(asker: Asker, again: Again, context: Any, params: Any) -> Any:
    """Tell of changes on the stream of this request, until it ends or who asks may ask no more.

    What is acknowledged is what can be read.
    """
    from mcp.server.subscriptions import (
        InMemorySubscriptionBus,
        ListenHandler,
        PromptsListChanged,
        ResourcesListChanged,
        ResourceUpdated,
        ToolsListChanged,
    )

    asked = params.notifications
    uris = await readable(asker, dict.fromkeys(asked.resource_subscriptions or ()))
    flags = {
        TOOLS: asked.tools_list_changed,
        PROMPTS: asked.prompts_list_changed,
        RESOURCES: asked.resources_list_changed,
    }
    events: dict[str, Any] = {
        TOOLS: ToolsListChanged(),
        PROMPTS: PromptsListChanged(),
        RESOURCES: ResourcesListChanged(),
    }
    watched = Watched()
    await watched.add(asker, [*(name for name, wanted in flags.items() if wanted), *uris])
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

    publishing = asyncio.create_task(publish())  # begins when the stream, which listens at once, waits first
    try:
        granted = asked.model_copy(update={"resource_subscriptions": uris})
        return await stream(context, params.model_copy(update={"notifications": granted}))
    finally:
        publishing.cancel()
        with suppress(asyncio.CancelledError):
            await publishing


class Unasked:
    """What the client on a pipe is told unasked, where it speaks a revision that knows no streams of changes."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._watched = Watched()
        self._telling: asyncio.Task[None] | None = None

    async def begin(self, context: Any, _: Any) -> None:
        """Tell of lists that change, from when the client is ready."""
        await self._watched.add(self._asker, (PROMPTS, RESOURCES))
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell(context.session))

    async def subscribe(self, _: Any, params: Any) -> Wire:
        """Tell of a resource too. Raises NotFound, InvalidInput."""
        await self._watched.add(self._asker, (str(params.uri),))
        return {}

    async def unsubscribe(self, _: Any, params: Any) -> Wire:
        """Tell of it no more."""
        self._watched.drop(str(params.uri))
        return {}

    async def end(self) -> None:
        """Tell nothing more."""
        if self._telling is not None:
            self._telling.cancel()
            with suppress(asyncio.CancelledError):
                await self._telling

    async def _tell(self, session: Any) -> None:
        lists = {PROMPTS: session.send_prompt_list_changed, RESOURCES: session.send_resource_list_changed}

        async def look_up_asker() -> Asker:
            return self._asker

        while True:
            with suppress(CuebookError):  # the store is busy, say: it is looked at again
                async with aclosing(news(self._watched, look_up_asker)) as changed:
                    async for name in changed:
                        await (lists[name]() if name in lists else session.send_resource_updated(name))
            await asyncio.sleep(PAUSE_S)


@asynccontextmanager
async def ending(unasked: Unasked) -> AsyncIterator[None]:
    """Tell nothing more behind it."""
    try:
        yield
    finally:
        await unasked.end()
