"""Serve the Model Context Protocol over stateless HTTP at `/mcp`, so that any process can answer."""

from functools import partial
from typing import Any

from litestar import post
from litestar.types import ASGIApp

from cuebook.errors import BackendError
from cuebook.server.authorization import admit
from cuebook.server.caller import AnyRequest, own_cue
from cuebook.server.concurrency_limits import seat
from cuebook.server.mcp.schemas import Asker, CallContext, asker_of
from cuebook.server.mcp.speak import new_server, speak_on_request
from cuebook.server.route_parts import UserQuery


@post("/mcp", role="viewer", include_in_schema=False)
async def speak(request: AnyRequest, user_id: UserQuery = None) -> ASGIApp:
    """Answer an MCP message with the permissions of the caller's API key."""
    _ = user_id  # authorization reads it
    return partial(speak_on_request, new_server(_ASKING), own_cue(request).config.settings.server.max_body)


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
