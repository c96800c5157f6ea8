"""Assemble the HTTP server from its routes, bind its port, start it and shut it down gracefully."""

import asyncio
import contextlib
import errno
import gc
import ipaddress
import logging
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import uvicorn
from litestar import Litestar, Router
from litestar.datastructures import State
from litestar.exceptions import ValidationException
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, Schema, SecurityScheme
from litestar.params import ParameterKwarg
from litestar.plugins import OpenAPISchemaPlugin
from litestar.types import HTTPScope
from litestar.typing import FieldDefinition
from msgspec import Struct

from cuebook import Config, Cuebook
from cuebook.errors import BackendError, Busy, CuebookError, InvalidInput
from cuebook.server import klp, metrics
from cuebook.server.anthropic import messages
from cuebook.server.api import chat, conversations, memories
from cuebook.server.api import operations as derived
from cuebook.server.authorization import admit
from cuebook.server.caller import AnyRequest, known_caller
from cuebook.server.concurrency_limits import KeyRates, Measures
from cuebook.server.connections import CROWDED, Connection, most_connections
from cuebook.server.error_responses import answer_error
from cuebook.server.guard import Guard, methods_by_path
from cuebook.server.mcp import route as mcp
from cuebook.server.metrics import Metrics, method_of
from cuebook.server.openai import chat_completions as v1
from cuebook.server.openai import conversations as conversations_v1
from cuebook.server.openai import responses
from cuebook.server.page import audit as audit_views
from cuebook.server.page import conversations as conversation_views
from cuebook.server.page import live, login, site
from cuebook.server.page import memories as memory_views
from cuebook.server.page import mood as mind_views
from cuebook.server.page import prompts as prompt_views
from cuebook.server.page import shadow as shadow_views
from cuebook.server.page import turns as turn_views
from cuebook.server.streaming import RunningTurns

VERSION = "1"
#: Seconds that a stopping server waits for partial answers to be stored, after `server.stop_timeout_s`.
KEEP_S = 5
#: Longer than clients keep an idle connection (httpx: 5 s), so that no client sends into a closing one.
KEEP_ALIVE_S = 75
BACKLOG = 2048
#: Seconds between two ticks of uvicorn's server.
TICK_S = 0.1
#: Seconds after which a thread gives up the interpreter's lock. The event loop waits for it after each of its waits.
SWITCH_S = 0.001
_PAGES = [
    *site.ROUTES, *login.ROUTES, *live.ROUTES, *turn_views.ROUTES, *conversation_views.ROUTES, *memory_views.ROUTES,
    *prompt_views.ROUTES, *mind_views.ROUTES, *audit_views.ROUTES, *shadow_views.ROUTES,
]  # fmt: skip
_V1 = [*v1.ROUTES, *responses.ROUTES, *conversations_v1.ROUTES, *messages.ROUTES]
DESCRIPTION = """\
Conversations, prompts and memory of LLM agents. Name the user as `userId` in the body, `?userId=`, or `X-User-Id`.
If the project has API keys, send one as `Authorization: Bearer cue_…` or `X-Cuebook-Key`; 401 without one.
A user's key identifies the user; naming another user is 403.
In a path, write `~` or `%2F` for a `/` inside an id, and `%7E` for a `~`. The OpenAI wire is served at `/v1`,
`/c/{conversation}/v1` and `/u/{user}/v1`, the Model Context Protocol at `/mcp`.
Every POST that stores data honors `Idempotency-Key` for 48 hours: the same request returns the first answer, a
different request with the same key is 422. A POST that creates something returns 201, one that computes,
imports or moves something 200."""


def create_app(cue: Cuebook, *, host: str | None = None, port: int | None = None) -> Litestar:
    """Create the app for a project and open it if needed. `host` and `port` are the bound address, if known."""
    settings = cue.config.settings.server
    app = Litestar(
        route_handlers=[
            *derived.routes(),
            *chat.ROUTES,
            *conversations.ROUTES,
            *memories.ROUTES,
            *mcp.ROUTES,
            *klp.ROUTES,
            *metrics.ROUTES,
            Router("/", route_handlers=_PAGES, include_in_schema=False, opt={"role": "viewer"}),
            Router("/", route_handlers=_V1, request_max_body_size=settings.max_v1_body, opt={"role": "editor"}),
        ],
        before_request=_enter,
        exception_handlers={Exception: answer_error},
        lifespan=[_opened],
        logging_config=None,
        plugins=[UnknownFieldsSchema(), derived.TimeSchema()],
        openapi_config=OpenAPIConfig(
            title="Cuebook",
            version=VERSION,
            description=DESCRIPTION,
            components=Components(security_schemes={"key": SecurityScheme(type="http", scheme="bearer")}),
            security=[{"key": []}, {}],
            render_plugins=[site.ReferencePage()],
            openapi_router=site.documents(),
        ),
        request_max_body_size=settings.max_body,
    )
    return hand_over(app, cue, host=host, port=port)


def hand_over(app: Litestar, cue: Cuebook, *, host: str | None = None, port: int | None = None) -> Litestar:
    """Connect an app to a project."""
    oidc = cue.config.settings.oidc
    exposed = (host is not None and not is_local(host)) or bool(oidc.issuer and oidc.server_url)
    app.state = State(
        {
            "cue": cue,
            "running": RunningTurns(),
            "known_query": {},
            "closed": exposed or bool(oidc.issuer),
            "error_page": site.error_page,
        }
        | {"watching": Counter(), "measures": Measures()}  # live connections by key, and expensive requests
        | {"rates": KeyRates(cue.config.settings.server), "is_crowded": lambda: False, "login": None}
    )
    shadow = cue.config.settings.upstream.shadow
    app.state.metrics = measured = Metrics(logs=cue.config.settings.server.log == "requests")
    measured.gauge("cuebook_turns", "Running and waiting turns", lambda: cue.services.queue.waiting)
    measured.gauge("cuebook_lease_conflicts", "Turns that others overtook", lambda: cue.services.caches.lease_conflicts)
    measured.gauge("cuebook_live_views", "Live views and listening clients", app.state.watching.total)

    def finished(scope: HTTPScope, *, received: int, **values: Any) -> None:
        caller: Any = scope["state"].get("caller")
        if caller is not None:
            app.state.rates.charge(caller.key, received)
        measured.finish(scope, received=received, **values)
        if (span := scope["state"].get("span")) is not None:
            route, status = scope.get("path_template"), values["status"]
            span.set(http__response__status_code=status, http__route=route)
            if status >= 500:
                span.fail(str(status))

    app.asgi_handler = Guard(
        app.asgi_handler,
        methods=methods_by_path(_V1),
        finished=finished,
        traced=partial(_traced, cue),
        host=host,
        port=port,
        exposed=exposed,
        shadow=shadow,
    )
    return app


@contextmanager
def _traced(cue: Cuebook, scope: HTTPScope) -> Iterator[None]:
    """Trace a request, below the caller's span if its headers name one."""
    tracing = cue.services.tracing
    if not tracing.is_on:
        yield
        return
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    carrier = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
    method = method_of(scope)
    with tracing.span(method, kind="SERVER", carrier=carrier, http__request__method=method) as span:
        scope["state"]["span"] = span
        try:
            yield
        finally:
            span.rename(f"{method} {scope.get('path_template') or ''}".strip())


class UnknownFieldsSchema(OpenAPISchemaPlugin):
    """Documents that requests allow no unknown fields."""

    @staticmethod
    def is_plugin_supported_field(field_definition: FieldDefinition) -> bool:
        """Return whether it is a request type."""
        kind = field_definition.annotation
        return isinstance(kind, type) and issubclass(kind, Struct) and kind.__struct_config__.forbid_unknown_fields

    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: Any) -> Schema:
        """Return Litestar's schema without additional properties."""
        plugins = (each for each in schema_creator.plugins if isinstance(each, OpenAPISchemaPlugin))
        others = (each for each in plugins if each is not self)  # those of attrs and pydantic use other checks
        made = next(each for each in others if each.is_plugin_supported_field(field_definition))
        schema: Schema = made.to_openapi_schema(field_definition, schema_creator)
        schema.additional_properties = False
        return schema


@asynccontextmanager
async def _opened(app: Litestar) -> AsyncIterator[None]:
    cue: Cuebook = app.state.cue
    try:
        _ = cue.services
    except CuebookError:
        async with cue, _warmed(cue):
            yield
    else:
        async with _warmed(cue):
            yield


@asynccontextmanager
async def _warmed(cue: Cuebook) -> AsyncIterator[None]:
    """Announce the profile, and load the embedder and caches in the background before the first query."""
    await cue.shadow.announce()
    loading = asyncio.create_task(cue.warm_up())
    try:
        yield
    finally:
        loading.cancel()
        await asyncio.wait((loading,))


async def _enter(request: AnyRequest) -> None:
    await admit(request)
    caller, state = known_caller(request), request.app.state
    if caller is not None:
        if state.is_crowded() and not caller.may("owner"):
            raise Busy("Too many open connections. Try again later, or raise server.connections.", retry_after=5.0)
        state.rates.admit(caller.key)
    await refuse_unknown_query(request)


async def refuse_unknown_query(request: AnyRequest) -> None:
    """Check that a route declares all query parameters. Raises ValidationException."""
    handler = request.route_handler
    if not request.scope["query_string"] or request.scope["state"].get("place") is not None:
        return
    if handler.opt.get("any_query"):  # a provider adds its own
        return
    known: dict[str, frozenset[str]] = request.app.state.known_query
    if handler.handler_id not in known:
        known[handler.handler_id] = _query_names(handler)
    unknown = sorted(set(request.query_params) - known[handler.handler_id])
    if unknown:
        allowed = ", ".join(sorted(known[handler.handler_id])) or "none"
        problems = [{"key": name, "message": f"unknown query parameter. Available: {allowed}."} for name in unknown]
        raise ValidationException(extra=problems)


def _query_names(handler: HTTPRouteHandler) -> frozenset[str]:
    names = set()
    for name, field in handler.parsed_fn_signature.parameters.items():
        definition = field.kwarg_definition
        if isinstance(definition, ParameterKwarg) and definition.name:
            names.add(definition.name)
        elif name not in ("request", "data", "conversation", "prompt", "n", "rest", "space", "project", "file"):
            names.add(name)
    return frozenset(names)


# ---- starting and stopping ------------------------------------------------------------------------------------------


def serve(
    where: Config | Cuebook,
    *,
    host: str | None = None,
    port: int | None = None,
    started: Callable[[str], None] | None = None,
    beside: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM. `started` is called with the address when ready; port 0 selects a free one.

    `beside` then runs at the same time.

    Raises InvalidInput for an address reachable from other machines without API keys, BackendError for a port in use.
    """
    cue = where if isinstance(where, Cuebook) else Cuebook.open(where)
    settings = cue.config.settings.server
    host = host or settings.host
    keyed = not is_local(host) and (bool(cue.config.settings.oidc.issuer) or asyncio.run(_has_keys(cue)))
    sockets = listen(host, settings.port if port is None else port, keyed=keyed)
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        asyncio.run(_serve(cue, host, sockets, started=started, beside=beside))
    finally:
        sys.setswitchinterval(before)
        for each in sockets:
            each.close()


async def _has_keys(cue: Cuebook) -> bool:
    async with cue:
        return await cue.keys.configured()


async def _serve(
    cue: Cuebook,
    host: str,
    sockets: list[socket.socket],
    *,
    started: Callable[[str], None] | None,
    beside: Callable[[], Awaitable[None]] | None,
) -> None:
    port = sockets[0].getsockname()[1]
    async with cue:
        await cue.services.store.database.reserve()
        app = create_app(cue, host=host, port=port)
        server = Server(app)
        address = f"[{host}]" if ":" in host else host
        tasks = []

        def ready() -> None:
            if started is not None:
                started(f"http://{address}:{port}")
            if beside is not None:
                tasks.append(asyncio.ensure_future(beside()))

        server.when_started = ready
        gc.freeze()  # exclude startup objects from garbage collection, which would pause streams for 0.1 s
        async with cue.services.offload.child_process():
            await server.serve(sockets=sockets)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def is_local(host: str) -> bool:
    """Return whether an address is a loopback address. Raises InvalidInput."""
    return all(address.is_loopback for address in _addresses(host))


def listen(host: str, port: int, *, keyed: bool = False) -> list[socket.socket]:
    """Bind the sockets; without `keyed` only to loopback addresses. Raises InvalidInput, BackendError."""
    addresses = _addresses(host)
    if not keyed and not is_local(host):
        reason = "other machines can reach it and there are no API keys"
        msg = f"Host {host!r} not allowed: {reason}. Use 127.0.0.1, or create a key with `cuebook key new`."
        raise InvalidInput(msg, where="server.host")
    sockets: list[socket.socket] = []
    for address in addresses:
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        wanted = sockets[0].getsockname()[1] if sockets else port
        try:
            opened = socket.create_server((str(address), wanted), family=family, backlog=BACKLOG)
        except OSError as error:
            if sockets:
                continue  # a name with IPv4 and IPv6, one of which this machine lacks
            reason = "is already in use" if error.errno == errno.EADDRINUSE else f"cannot be opened ({error.strerror})"
            msg = f"Port {port} {reason}. Stop the other server, or choose another port with --port."
            raise BackendError(msg) from error
        # Connections inherit TCP_NODELAY. asyncio sets it only for sockets that name their protocol, unlike this one.
        # Without it the second piece of each answer waits 40 ms for the client's ACK of the first.
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets.append(opened)
    return sockets


def _addresses(host: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    try:
        return [ipaddress.ip_address(host.strip("[]"))]
    except ValueError:
        pass
    try:
        results = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        msg = f"Cannot resolve host {host!r} ({error}). Use 127.0.0.1."
        raise InvalidInput(msg, where="server.host") from None
    return [
        ipaddress.ip_address(name)
        for name in dict.fromkeys(str(address[0]).partition("%")[0] for *_, address in results)
    ]


class Server(uvicorn.Server):
    """Uvicorn with graceful shutdown: running turns get `server.stop_timeout_s`, then are interrupted and stored."""

    def __init__(self, app: Litestar, *, stop_timeout_s: float | None = None) -> None:
        """`stop_timeout_s` overrides the setting."""
        settings = app.state.cue.config.settings.server
        most = most_connections(settings.connections)
        self._timeout_s = settings.stop_timeout_s if stop_timeout_s is None else stop_timeout_s
        config = uvicorn.Config(
            app,
            http=partial(Connection, most=most),  # type: ignore[arg-type]  # called like a class
            access_log=False,
            lifespan="on",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=int(self._timeout_s) + KEEP_S,
            ws="none",
        )
        super().__init__(config)
        # `error_responses` answers and logs failed requests; a client that disconnects is not an error.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        for name in ("relay", "requests"):  # logged once per conversation, and once per request by setting
            logging.getLogger(f"cuebook.{name}").setLevel(logging.INFO)
        self.when_started: Callable[[], None] = lambda: None
        self._metrics: Metrics = app.state.metrics
        self._ticked = 0.0
        self._metrics.gauge("cuebook_connections", "Open connections", lambda: len(self.server_state.connections))
        app.state.is_crowded = lambda: len(self.server_state.connections) > CROWDED * most
        self._running: RunningTurns = app.state.running

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then call `when_started`."""
        await super().startup(sockets)
        self.when_started()

    async def on_tick(self, counter: int) -> bool:
        """Note the lag of the event loop, and close connections on which requests arrive too slowly, once a second."""
        now = asyncio.get_running_loop().time()
        if self._ticked:
            self._metrics.lag(max(0.0, now - self._ticked - TICK_S))
        self._ticked = now
        if counter % 10 == 0:
            for each in list(self.server_state.connections):
                each.drop_if_slow(now)  # type: ignore[union-attr]
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting requests and end live views. Cancel the turns that still run after `server.stop_timeout_s`."""
        self._running.end_views()
        ending = asyncio.get_running_loop().call_later(self._timeout_s, self._running.stop)
        try:
            await super().shutdown(sockets)  # returns at once on a second signal
        finally:
            ending.cancel()
            await self._running.end(within_s=KEEP_S)
            await asyncio.sleep(0)
            for connection in list(self.server_state.connections):  # accepted while closing
                connection.transport.abort()
            await asyncio.sleep(0)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM as a graceful shutdown, without raising them again."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may handle signals
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
