"""Check Host, Origin and Fetch Metadata headers (DNS rebinding, CSRF), and parse the path of every request.

In a path `~` and `%2F` encode a `/` inside a name (`%7E` a real `~`). Behind this middleware such a `/` is a NUL, which
no path may contain, so that a name stays one segment; `name_in` decodes it.
"""

import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import unquote_to_bytes

from litestar.enums import ScopeType
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send
from msgspec import Struct
from msgspec.structs import replace

from cuebook.errors import InvalidInput
from cuebook.records.key import Role
from cuebook.server.error_responses import Failure, ForbiddenOrigin, failure_of, respond

#: Loopback host names, safe against DNS rebinding.
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
#: The internal route of requests that are passed through to the upstream.
PASS_THROUGH = "/v1/-"  # noqa: S105 - an address
_SLASH = "\x00"
_READS = ("GET", "HEAD")
#: Values of Sec-Fetch-Site for requests of other sites' pages (Fetch Metadata).
_FOREIGN = (b"cross-site", b"same-site")
#: A route's parameter, and the methods of routes in the order in which an answer lists them.
_PARAMETER = re.compile(r"\{[^}]*\}")
_METHODS = ("GET", "HEAD", "POST", "DELETE")
#: Headers of every answer except an upstream's.
_PRIVATE = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_REQUEST_ID = b"x-request-id"
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
#: Characters that an upstream may treat as a slash.
_PARTS = re.compile(r"[\x00\\]")


#: Addresses under `/v1` that an editor may send to the upstream. All others, and IDs of the upstream, need owner: the
#: upstream acts with the operator's key.
_EDITORS = re.compile(
    "POST /(chat/completions|responses|responses/compact|messages|messages/count_tokens|embeddings|moderations)"
    r"|(GET|HEAD) /models(/(?!.*(\.\.|%2e)).+)?",
    re.IGNORECASE,
)


class WireAddress(Struct, frozen=True, kw_only=True):
    """An address on the OpenAI wire: the names in its base URL, and the unchanged path after `/v1`.

    `methods` are those that Cuebook answers there, none for the upstream's addresses.
    """

    conversation: str | None
    user: str | None
    rest: str
    methods: tuple[str, ...]


def upstream_role(method: str, rest: str) -> Role:
    """Return the least role for a request to the upstream at the path `rest` after `/v1`."""
    return "editor" if _EDITORS.fullmatch(f"{method} {rest}") else "owner"


def name_in(segment: str) -> str:
    """Return the name that a path segment encodes."""
    return segment.replace(_SLASH, "/")


class Guard:
    """Middleware that rejects foreign hosts and origins, and sets every request's path."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        methods: Mapping[str, tuple[str, ...]],
        finished: Callable[..., None],
        traced: Callable[[HTTPScope], AbstractContextManager[None]],
        host: str | None = None,
        port: int | None = None,
        exposed: bool = False,
        shadow: bool = False,
    ) -> None:
        """`methods` are those of the OpenAI wire by path. `finished` counts a request, `traced` surrounds it.
        `host` is the bound name besides loopback names; without `port` any port is allowed.

        `exposed`: other machines can reach it under unknown names; keys identify callers. `shadow`: everything on the
        OpenAI wire is passed through.
        """
        self.inner_app = app
        self._methods = methods
        self._finished, self._traced = finished, traced
        self._shadow = shadow
        names = {*LOOPBACK, *((_bracketed(host.lower()),) if host else ())}
        self._names = frozenset(name.encode() for name in names)
        self._port = None if port is None else str(port).encode()
        self._exposed = exposed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.WEBSOCKET:
            await self.inner_app(scope, receive, send)
            return
        try:
            _check_length(scope["headers"])
            path, place = read_path(scope, self._methods)
        except InvalidInput as error:
            rest = "" if b"/v1" in scope.get("raw_path", b"") else None
            await respond(_closing(error), rest)(scope, receive, send)
            return
        scope["state"]["place"] = place
        scope["state"]["request_id"] = _request_id(scope["headers"])
        try:
            self._check(scope["headers"])
            _check_fetch(scope, place)
            _check_query(scope["query_string"], place)
        except InvalidInput as error:
            await respond(_closing(error), place.rest if place else None)(scope, receive, send)
            return
        if self._shadow and place is not None:
            path = PASS_THROUGH
        if place is None:
            send = _kept_nowhere(send)
        meant = scope.copy()
        meant["path"] = path
        if scope["method"] == "HEAD" and path != PASS_THROUGH:
            meant["method"] = "GET"  # the HTTP server leaves the body out
        await self._count(meant, receive, send)

    async def _count(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        """Answer a request, and count it. Its id is added to the answer."""
        received, status, began = 0, 499, time.perf_counter()  # 499: the client disconnected

        async def counted() -> Any:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message["body"])
            return message

        async def identified(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, headers = message["status"], list(message.get("headers", ()))
                if all(name != _REQUEST_ID for name, _ in headers):
                    headers.append((_REQUEST_ID, scope["state"]["request_id"].encode()))
                message = {**message, "headers": headers}
            await send(message)

        with self._traced(scope):
            try:
                await self.inner_app(scope, counted, identified)
            finally:
                self._finished(scope, status=status, seconds=time.perf_counter() - began, received=received)

    def _check(self, headers: Any) -> None:
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or not (self._exposed or self._knows(hosts[0].lower())):
            shown = hosts[0].decode("latin-1") if hosts else ""
            msg = f"Host not allowed: {shown!r}. Use 127.0.0.1 or localhost with this server's port."
            raise ForbiddenOrigin(msg, where="Host")
        for name, value in headers:
            if name == b"origin" and value.lower().partition(b"://")[2] != hosts[0].lower():
                msg = f"Origin not allowed: {value.decode('latin-1')!r}. Only pages of this server may call it."
                raise ForbiddenOrigin(msg, where="Origin")

    def _knows(self, host: bytes) -> bool:
        name, colon, port = host.rpartition(b":") if not host.endswith(b"]") else (host, b"", b"")
        if not colon:
            name, port = host, b"80"
        if name not in self._names:
            return False
        return port == self._port if self._port is not None else port.isdigit()


def _request_id(headers: Any) -> str:
    """Return the id that the client gave a request, else a new one."""
    for name, value in headers:
        if name == _REQUEST_ID and _ID.fullmatch(value):
            return str(value.decode())
    return secrets.token_hex(8)


def _kept_nowhere(send: Send) -> Send:
    """Add no-store and nosniff headers to an answer that does not set them."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            values = {name for name, _ in headers}
            message = {**message, "headers": headers + [each for each in _PRIVATE if each[0] not in values]}
        await send(message)

    return sent


def read_path(scope: HTTPScope, methods: Mapping[str, tuple[str, ...]]) -> tuple[str, WireAddress | None]:
    """Parse a request's path to its route and, on the OpenAI wire, its address. Raises InvalidInput."""
    raw = scope.get("raw_path") or scope["path"].encode()
    segments = raw.split(b"/")[1:]
    names = [_segment(segment) for segment in segments]
    results: dict[str, str] = {}
    at = 0
    while at + 2 < len(names) and names[at] in ("c", "u") and names[at] not in results and names[at + 1]:
        results[names[at]] = names[at + 1]
        at += 2
    if at >= len(names) or names[at] != "v1":
        return "/" + "/".join(names), None
    rest = names[at + 1 :]
    shape = "/".join("*" if at % 2 else word for at, word in enumerate(rest))
    place = WireAddress(
        conversation=name_in(results["c"]) if "c" in results else None,
        user=name_in(results["u"]) if "u" in results else None,
        rest="/" + b"/".join(segments[at + 1 :]).decode("latin-1"),
        methods=methods.get("/".join(rest)) or methods.get(shape, ()),
    )
    if any(part in (".", "..") for name in rest for part in _PARTS.split(name)):  # the next decoder must not leave /v1
        msg = f"path: {place.rest} contains '.' or '..'. Remove these segments."
        raise InvalidInput(msg, where="path")
    return "/v1/" + "/".join(rest) if scope["method"] in place.methods else PASS_THROUGH, place


def methods_by_path(routes: Iterable[HTTPRouteHandler]) -> dict[str, tuple[str, ...]]:
    """Return the methods that Cuebook answers under `/v1` by the path behind it, `*` for a name."""
    methods: dict[str, set[str]] = {}
    for route in routes:
        answered = {*route.http_methods, *(["HEAD"] if "GET" in route.http_methods else [])}
        for path in route.paths - {PASS_THROUGH}:
            methods.setdefault(_PARAMETER.sub("*", path.removeprefix("/v1/")), set()).update(answered)
    return {path: tuple(each for each in _METHODS if each in names) for path, names in methods.items()}


def _segment(raw: bytes) -> str:
    if b"%" not in raw and b"~" not in raw:
        return _utf8(raw, "path")
    text = _utf8(unquote_to_bytes(raw.replace(b"~", b"%2F")), "path")
    return text.replace("/", _SLASH)


def _check_query(query: bytes, place: WireAddress | None) -> None:
    if place is None and b"%" in query:
        _utf8(unquote_to_bytes(query), "query")


def _closing(error: InvalidInput) -> Failure:
    """Return the failure of a rejected request. Its connection is closed: its end may be unclear."""
    return replace(failure_of(error), headers=(("connection", "close"),))


def _check_length(headers: Any) -> None:
    """Reject a request with two lengths: a proxy that uses the other one would take its end for another request.

    Raises InvalidInput.
    """
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in headers}:
        msg = "The request has the headers Content-Length and Transfer-Encoding. Send one of them."
        raise InvalidInput(msg, where="Transfer-Encoding")


def _check_fetch(scope: HTTPScope, place: WireAddress | None) -> None:
    """Reject requests by other sites' pages. An image, script or frame sends no Origin, and its page could learn from
    the result or the time it takes. A followed link is allowed, but not under /v1, where an upstream answers.

    Raises Refused.
    """
    values = {name: value for name, value in scope["headers"] if name.startswith(b"sec-fetch-")}
    if values.get(b"sec-fetch-site") not in _FOREIGN:
        return
    follows = (values.get(b"sec-fetch-mode"), values.get(b"sec-fetch-dest")) == (b"navigate", b"document")
    if not (follows and place is None and scope["method"] in _READS):
        msg = "Cross-site request not allowed. Only pages of this server may send it."
        raise ForbiddenOrigin(msg, where="Sec-Fetch-Site")


def _utf8(raw: bytes, where: str) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        msg = f"{where}: not UTF-8 after percent-decoding. Encode it as UTF-8."
        raise InvalidInput(msg, where=where) from None
    if "\x00" in text:
        msg = f"{where}: contains a NUL character. Remove it."
        raise InvalidInput(msg, where=where)
    return text


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
