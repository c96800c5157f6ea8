"""The protocol itself, by its official SDK, which is an extra and is imported when it speaks: a server, and HTTP."""

from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any, Final, Literal, get_args

from cuebook.app.shapes import Wire
from cuebook.errors import CuebookError, InvalidInput
from cuebook.server.mcp.asker import Asker
from cuebook.server.mcp.completions import complete
from cuebook.server.mcp.prompts import get_prompt, list_prompts
from cuebook.server.mcp.resources import TEMPLATES, list_resources, read_resource
from cuebook.server.mcp.tools import call_tool, list_tools

INSTRUCTIONS = """\
Cuebook keeps what was said and what is known across conversations. Recall before you answer what depends on earlier \
talk; remember what will matter later; forget only what the user confirms. `why` explains what a prompt held."""

#: JSON-RPC's code for a request that names what is not there, or may not be asked.
INVALID_PARAMS: Final = -32602
_Listed = Literal["tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"]
#: What is answered for one caller alone, and may be other a moment later.
_LISTS: tuple[_Listed, ...] = get_args(_Listed)

#: Says of a message who asks.
Asking = Callable[[Any], Asker]


def new_server(asking: Asking) -> Any:
    """Make a server of the protocol whose every message is answered for who sent it. Raises InvalidInput."""
    try:
        from mcp import MCPError
        from mcp.server.caching import CacheHint
        from mcp.server.lowlevel import Server
    except ImportError:
        msg = "the Model Context Protocol needs a package; install cuebook[mcp]"
        raise InvalidInput(msg) from None

    def answered(work: Callable[[Asker, Any], Awaitable[Wire]]) -> Any:
        async def answer(context: Any, params: Any) -> Wire:
            try:
                return {"resultType": "complete", **await work(asking(context), params)}
            except CuebookError as error:
                raise MCPError(INVALID_PARAMS, str(error)) from error

        return answer

    async def tools(asker: Asker, params: Any) -> Wire:
        return list_tools(asker, params and params.cursor)

    async def templates(_: Asker, __: Any) -> Wire:
        return {"resourceTemplates": TEMPLATES}

    return Server(
        "cuebook",
        title="Cuebook",
        version=version("cuebook"),
        instructions=INSTRUCTIONS,
        cache_hints=dict.fromkeys(_LISTS, CacheHint(ttl_ms=0, scope="private")),
        on_list_tools=answered(tools),
        on_call_tool=answered(lambda asker, params: call_tool(asker, params.name, params.arguments)),
        on_list_resources=answered(lambda asker, params: list_resources(asker, params and params.cursor)),
        on_list_resource_templates=answered(templates),
        on_read_resource=answered(lambda asker, params: read_resource(asker, str(params.uri))),
        on_list_prompts=answered(lambda asker, params: list_prompts(asker, params and params.cursor)),
        on_get_prompt=answered(lambda asker, params: get_prompt(asker, params.name, params.arguments)),
        on_completion=answered(lambda asker, params: complete(asker, params.ref, params.argument)),
    )


async def speak_on_request(server: Any, scope: Any, receive: Any, send: Any, *, largest: int) -> None:
    """Answer one HTTP request, of at most `largest` bytes, with JSON. No session is kept: each says who asks."""
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    wire = StreamableHTTPSessionManager(server, json_response=True, stateless=True, max_request_body_size=largest)
    async with wire.run():
        await wire.handle_request(scope, receive, send)
