"""Create the MCP server with the official SDK, an optional extra that is imported lazily."""

from collections.abc import Awaitable, Callable
from functools import partial
from importlib.metadata import version
from typing import Any, Final, Literal, get_args

from cuebook.errors import CuebookError, InvalidInput
from cuebook.records.answer import Wire
from cuebook.server.mcp.changes import StdioNotifier, listen
from cuebook.server.mcp.resources import (
    TEMPLATES,
    complete,
    get_prompt,
    list_prompts,
    list_resources,
    read_resource,
)
from cuebook.server.mcp.schemas import Asker, CallContext
from cuebook.server.mcp.tools import call_tool, list_tools

INSTRUCTIONS = """\
Cuebook stores messages and memories across conversations. Call recall before answers that depend on earlier \
conversations, remember for facts that matter later, and forget only what the user confirms. `why` explains a prompt."""

#: JSON-RPC's error code for unknown names and forbidden requests.
INVALID_PARAMS: Final = -32602
_Listed = Literal["tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"]
#: Methods whose answers are private and must not be cached.
_LISTS: tuple[_Listed, ...] = get_args(_Listed)

#: Handles a message, given its context and its parameters.
Answering = Callable[[Any, Any], Awaitable[Wire]]


def new_server(asking: CallContext, unasked: StdioNotifier | None = None) -> Any:
    """Create an MCP server that handles each message for its sender. Raises InvalidInput.

    Over stdio, `unasked` sends the notifications of older protocol revisions.
    """
    try:
        from mcp import MCPError
        from mcp.server.caching import CacheHint
        from mcp.server.lowlevel import Server
        from mcp.types import NotificationParams
    except ImportError:
        msg = "MCP support is not installed. Install cuebook[mcp]."
        raise InvalidInput(msg) from None

    def refusing(work: Answering) -> Answering:
        async def answer(context: Any, params: Any) -> Wire:
            try:
                return {"resultType": "complete", **await work(context, params)}
            except CuebookError as error:
                raise MCPError(INVALID_PARAMS, str(error)) from error

        return answer

    async def listens(context: Any, params: Any) -> Any:
        try:
            with asking.seat(context):
                return await listen(asking.now(context), partial(asking.later, context), context, params)
        except CuebookError as error:
            raise MCPError(INVALID_PARAMS, str(error)) from error

    handlers: dict[str, Any] = {name: refusing(work) for name, work in _answers(asking, unasked).items()}
    server: Any = Server(
        "cuebook",
        title="Cuebook",
        version=version("cuebook"),
        instructions=INSTRUCTIONS,
        cache_hints=dict.fromkeys(_LISTS, CacheHint(ttl_ms=0, scope="private")),
        on_subscriptions_listen=listens,
        **handlers,
    )
    if unasked is not None:
        server.add_notification_handler("notifications/initialized", NotificationParams, unasked.begin)
    return server


def _answers(asking: CallContext, unasked: StdioNotifier | None) -> dict[str, Answering]:
    """Return the message handlers by the SDK's argument names."""

    async def call(context: Any, params: Any) -> Wire:
        async def tell(progress: float, message: str) -> None:
            await context.session.report_progress(progress, message=message)

        if unasked is not None:
            await unasked.started()
        return await call_tool(asking.now(context), params.name, params.arguments, tell)

    async def tools(asker: Asker, params: Any) -> Wire:
        return list_tools(asker, params and params.cursor)

    async def templates(_: Asker, __: Any) -> Wire:
        return {"resourceTemplates": TEMPLATES}

    def answering(work: Callable[[Asker, Any], Awaitable[Wire]]) -> Answering:
        return lambda context, params: work(asking.now(context), params)

    older = {"subscribe": unasked.subscribe, "unsubscribe": unasked.unsubscribe} if unasked else {}
    return {f"on_{name}_resource": work for name, work in older.items()} | {
        "on_list_tools": answering(tools),
        "on_call_tool": call,
        "on_list_resources": answering(lambda asker, params: list_resources(asker, params and params.cursor)),
        "on_list_resource_templates": answering(templates),
        "on_read_resource": answering(lambda asker, params: read_resource(asker, str(params.uri))),
        "on_list_prompts": answering(lambda asker, params: list_prompts(asker, params and params.cursor)),
        "on_get_prompt": answering(lambda asker, params: get_prompt(asker, params.name, params.arguments)),
        "on_completion": answering(lambda asker, params: complete(asker, params.ref, params.argument)),
    }
