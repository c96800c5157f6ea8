"""Admit a request: authenticate its API key, and check its role."""

from typing import Any

from litestar import Request
from litestar.types import Scope

from cuebook.errors import NotFound
from cuebook.records.key import PREFIX, Role
from cuebook.server.caller import OPEN, AnyRequest, check_named, header, own_cue
from cuebook.server.guard import PASS_THROUGH, name_in, upstream_role

#: The cookie with the API key, used by pages only.
COOKIE = "cuebook_key"


async def admit(request: AnyRequest) -> None:
    """Check a request's key and role, and store the caller. Raises Unproven, Denied, NotFound.

    A route declares its least `role`, else it needs owner. `hidden`: without the role the answer is 404, not 403.
    """
    scope, cue = request.scope, own_cue(request)
    method, declared = scope["method"], request.route_handler.opt
    role: Any = declared.get("role", "owner")
    if role == OPEN or method == "OPTIONS":  # OPTIONS only returns what the OpenAPI document says
        scope["state"]["caller"] = None
        return
    caller = await cue.keys.admit(token_of(scope), closed=request.app.state.closed)
    place: Any = scope["state"].get("place")
    passes = place is not None and scope["path_template"] == PASS_THROUGH
    needed: Role = upstream_role(method, place.rest) if passes else role
    if not caller.may(needed):
        if declared.get("hidden"):
            msg = "Not found, or not allowed for this API key. Check its role with `cuebook key list`."
            raise NotFound(msg)
        caller.need(needed, f"{method} {name_in(request.url.path)}")
    scope["state"]["caller"] = caller
    if place is None:  # on the OpenAI wire the query belongs to the upstream
        query = request.query_params
        check_named(request, user=query.get("userId"), organization=query.get("organizationId"))


def token_of(scope: Scope) -> str | None:
    """Return a request's API key: X-Cuebook-Key, the Authorization bearer, or a Cuebook key in X-Api-Key.

    Raises InvalidInput.
    """
    own = header(scope, b"x-cuebook-key")
    if own is not None:
        return own
    if is_page(scope["path"]) and (kept := Request[Any, Any, Any](scope).cookies.get(COOKIE)):
        return kept
    scheme, _, token = (header(scope, b"authorization") or "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    value = (header(scope, b"x-api-key") or "").strip()
    return value if value.startswith(PREFIX) else None


def is_page(path: str) -> bool:
    """Return whether a path is an HTML page."""
    return path == "/" or path.startswith("/page/")
