"""Serve the Model Context Protocol over stateless HTTP at `/mcp`, so that any process can answer."""

from functools import partial
from typing import Any

from litestar import post
from litestar.types import ASGIApp

from cuebook.errors import BackendError
from cuebook.server.authorization import admit
from cuebook.server.caller import AnyRequest, header, own_cue
from cuebook.server.concurrency_limits import seat
from cuebook.server.mcp.schemas import Asker, CallContext, asker_of
from cuebook.server.mcp.speak import new_server
from cuebook.server.route_parts import UserQuery

#: The first revision that allows JSON or event-stream answers; the media type of the latter.
STREAMS, EVENTS = "2026-07-28", "text/event-stream"


@post("/mcp", role="viewer", include_in_schema=False)
async def speak(request: AnyRequest, user_id: UserQuery = None) -> ASGIApp:
    """Answer an MCP message with the permissions of the caller's API key."""
    _ = user_id  # authorization reads it
    return partial(_answer, new_server(_ASKING), own_cue(request).config.settings.server.max_body)


async def _answer(server: Any, largest: int, scope: Any, receive: Any, send: Any) -> None:
    """Answer one HTTP request of at most `largest` bytes, without a session.

    The answer is JSON; in the newest revision also an event stream, if there is progress to report.
    """
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    plain = (header(scope, b"mcp-protocol-version") or "") < STREAMS or EVENTS not in (header(scope, b"accept") or "")
    wire = StreamableHTTPSessionManager(server, json_response=plain, stateless=True, max_request_body_size=largest)
    async with wire.run():
        await wire.handle_request(scope, receive, send)


async def _later(context: Any) -> Asker:
    """Return the caller after a new check of the key.

    Raises Unproven for a revoked or expired key, BackendError when the server stops.
    """
    request = AnyRequest(context.request.scope)
    if request.app.state.running.stopping:
        msg = "The server is stopping. Subscribe again."
        raise BackendError(msg, retryable=True)
    await admit(request)
    return asker_of(request.scope)


_ASKING = CallContext(
    now=lambda context: asker_of(context.request.scope),
    later=_later,
    seat=lambda context: seat(AnyRequest(context.request.scope)),
)
ROUTES = [speak]
