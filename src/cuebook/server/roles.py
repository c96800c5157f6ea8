"""List the least role (permission) of each route. Operations declare theirs; routes that are not listed need owner."""

import re
from collections.abc import Mapping
from typing import Final

from cuebook import Cuebook
from cuebook.operations import operations_of
from cuebook.records.key import Role

#: Routes that need no key: health checks, and pages without project data.
OPEN: Final = frozenset({
    ("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/page/static/{name}"), ("GET", "/page/key"),
    ("POST", "/page/key"),
})  # fmt: skip

_CONVERSATION: Final = "/api/conversations/{conversation}"
_TALK: Final = "/v1/conversations/{conversation}"

#: The routes that each role adds to the lower ones.
ROUTES: Final[Mapping[Role, frozenset[str]]] = {
    "viewer": frozenset({
        "GET /", "GET /page/live", "GET /page/conversations", "GET /page/conversations/{conversation}",
        "GET /page/conversations/{conversation}/turns/{n}", "GET /page/conversations/{conversation}/turns/{n}/what-if",
        "GET /page/memories", "GET /page/memories/{memory}", "GET /page/receipts/{receipt}",
        "GET /page/memories/of-use", "GET /page/memories/export",
        "GET /page/conversations/{conversation}/mind", "GET /page/optimizer", "GET /page/shadow",
        "GET /page/prompts", "GET /page/prompts/{prompt}", "GET /page/prompts/{prompt}/diff",
        "GET /page/prompts/{prompt}/quality", "GET /page/prompt-clusters",
        "GET /schema", "GET /schema/{path}", "GET /schema/openapi.json",
        "GET /v1/models", "GET /v1/models/{model}", "GET /v1/responses/{response}",
        "GET /v1/responses/{response}/input_items",
        f"GET {_TALK}", f"GET {_TALK}/items", f"GET {_TALK}/items/{{item}}",
        "POST /api/assemble", "POST /mcp",
        "GET /api/memories/export",
        "GET /api/prompts/migrate",
    }),
    "editor": frozenset({
        "POST /page/conversations/{conversation}/turns/{n}/what-if", "POST /page/memories/of-use/forget",
        "POST /page/memories/{memory}/correct",
        *(
            f"{method} /page/{what}/forget"
            for method in ("GET", "POST") for what in ("memories/{memory}", "conversations/{conversation}")
        ),
        "POST /v1/chat/completions", "POST /v1/responses", "POST /v1/responses/compact",
        "POST /v1/responses/{response}/cancel",
        "DELETE /v1/responses/{response}", "POST /v1/messages",
        "POST /v1/messages/count_tokens",
        "POST /v1/conversations", f"POST {_TALK}", f"DELETE {_TALK}", f"POST {_TALK}/items",
        f"DELETE {_TALK}/items/{{item}}",
        "POST /api/chat",
        f"POST {_CONVERSATION}/posts",
    }),
    "agent": frozenset({"POST /api/settle"}),
    "admin": frozenset({
        "GET /page/audit", "GET /page/audit/{n}", "POST /page/audit/verify", "POST /page/audit/{n}/replay",
        "GET /metrics",
    }),
    # the last one unless `upstream_role` says otherwise
    "owner": frozenset({"GET /page/settings", "POST /page/shadow/profile", "* /v1/-"}),
}  # fmt: skip


#: Addresses under `/v1` that an editor may send to the upstream. All others, and IDs of the upstream, need owner: the
#: upstream acts with the operator's key.
_SERVED: Final = re.compile(
    "POST /(chat/completions|responses|responses/compact|messages|messages/count_tokens|embeddings|moderations)"
    r"|(GET|HEAD) /models(/(?!.*(\.\.|%2e)).+)?",
    re.IGNORECASE,
)

#: The declarations of the derived routes.
DECLARATIONS: Final = tuple(each.declaration for each in operations_of(Cuebook) if each.declaration.path)
_NAME: Final = re.compile(r"\{[^}]*\}")
_OPERATIONS: Final = {_NAME.sub("{}", each.route): each for each in DECLARATIONS}
#: Routes that answer 404 to callers without the role.
_HIDDEN: Final = frozenset(route for route, each in _OPERATIONS.items() if each.hidden)
#: The least role by route, with unnamed parameters.
_NEEDED: Final[Mapping[str, Role]] = {
    _NAME.sub("{}", route): role for role, routes in ROUTES.items() for route in routes
} | {route: each.role for route, each in _OPERATIONS.items()}


def declared(method: str, path: str) -> Role | None:
    """Return the least role a route needs; None if the table does not list it."""
    bare = _NAME.sub("{}", path)
    return _NEEDED.get(f"{method} {bare}") or _NEEDED.get(f"* {bare}")


def upstream_role(method: str, rest: str) -> Role:
    """Return the least role for a request to the upstream at the path `rest` after `/v1`."""
    return "editor" if _SERVED.fullmatch(f"{method} {rest}") else "owner"


def is_open(method: str, path: str) -> bool:
    """Return whether a route needs no key. OPTIONS only returns what the OpenAPI document says."""
    return (method, path) in OPEN or method == "OPTIONS"


def is_hidden(method: str, path: str) -> bool:
    """Return whether a route answers 404 instead of 403 to callers without the role."""
    return f"{method} {_NAME.sub('{}', path)}" in _HIDDEN
