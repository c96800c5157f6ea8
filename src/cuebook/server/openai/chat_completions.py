"""Serve the OpenAI wire: proxy and store chat completions, list models, pass everything else to the upstream."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from litestar import get, post, route
from litestar.enums import HttpMethod
from litestar.exceptions import MethodNotAllowedException
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.spec import Operation
from litestar.params import FromPath, JSONBody
from litestar.response.base import ASGIResponse
from litestar.types import AsyncAnyCallable
from msgspec import Struct

from cuebook import Cuebook
from cuebook.app.cuebook import Head, RelayCall, RelayRequest
from cuebook.errors import CuebookError, Denied, InvalidInput, NotFound, UpstreamError
from cuebook.records.answer import to_json
from cuebook.records.key import PREFIX, Caller, holds_token
from cuebook.records.memory import DEFAULT_TENANT
from cuebook.server.api import types as wire
from cuebook.server.api.chat import StreamsToo
from cuebook.server.caller import AnyRequest, caller_of, cue_of, header, idempotency_key, user_of
from cuebook.server.error_responses import Failure, OpenAIError, failure_of
from cuebook.server.guard import PASS_THROUGH, WireAddress, name_in, upstream_role
from cuebook.server.json_body import RawBody, check_body
from cuebook.server.route_parts import json_of
from cuebook.server.streaming import Headers, Start, StreamResponse, encoded

#: Timeout for the upstream's list of models, in seconds.
MODELS_WAIT_S = 5.0
#: Paths that shadow mode records.
_KEPT = ("/chat/completions", "/messages", "/responses", "/responses/compact")


class ChatCompletion(Struct, frozen=True):
    """OpenAI's request body. All fields, also those not listed here, are forwarded unchanged."""

    messages: list[dict[str, Any]]
    model: str = ""
    stream: bool | None = None


def wire_route(
    path: str, body: type[Struct], *, bad: type[Struct] = OpenAIError, streams: bool = True
) -> Callable[[AsyncAnyCallable], HTTPRouteHandler]:
    """Declare a POST route of a provider's wire, whose handler gets the body as bytes; `bad` is its error type."""
    dto: Any = RawBody
    return post(
        path,
        dto=dto[body],
        status_code=200,
        responses=wire.openai_answers(dict[str, Any], bad),
        operation_class=StreamsToo if streams else Operation,
    )


@wire_route("/v1/chat/completions", ChatCompletion)
async def chat_completions(request: AnyRequest, data: JSONBody[ChatCompletion]) -> ASGIResponse:
    """Answer a chat completion. `messages` is the whole history.

    Header X-Conversation-Id or the base URL names the conversation. With header `X-History: server` `messages` holds
    only the new ones. Header X-Cuebook-Project selects the project whose own prompts override the shared ones.
    X-Time-Zone is an IANA name that dates like "yesterday" refer to; it is stored in the conversation. Header
    X-Organization-Id, or `metadata.organization_id`, names the organization of this request. Header X-Memory-Control,
    or `metadata.memory_control`, is the `memoryControl` of /api/chat as JSON. Header `X-Cuebook-Utility: 1` marks a
    one-shot request that nothing is added to or learned from. The answer's headers X-Conversation-Id and X-Cuebook-Turn
    name the stored turn. X-Cuebook-Branch is `head` for an answer on the conversation's path, and `side` on a side
    branch: the request does not continue the conversation, or runs in parallel to another one. The same Idempotency-Key
    returns the stored answer; a turn with a key finishes even without its client.
    """
    body: Any = data
    await check_body(request, body)
    return relay(request, body, cue_of(request).relay, _error_event)


def relay(
    request: AnyRequest,
    body: bytes,
    run: Callable[[RelayCall], AsyncIterator[Head | bytes]],
    error_event: Callable[[Failure], bytes],
) -> StreamResponse:
    """Return the answer of `run` to a request; `error_event` encodes an error within its stream.

    Raises Denied, InvalidInput.
    """
    call = call_of(request, body, server_history=_sends_new(request), key=idempotency_key(request.scope))
    return StreamResponse(
        request.app.state.running,
        _answer_of(run(call), error_event),
        _begin,
        to_the_end=call.idempotency_key is not None,
    )


def _sends_new(request: AnyRequest) -> bool:
    """Return whether a request contains only new messages. Raises InvalidInput."""
    history = (header(request.scope, b"x-history") or "client").lower()
    if history not in ("client", "server"):
        msg = f"X-History: unknown value {history!r}. Available: client, server."
        raise InvalidInput(msg, where="X-History")
    return history == "server"


def call_of(request: AnyRequest, body: bytes, *, server_history: bool, key: str | None) -> RelayCall:
    """Return a chat completion with its unchanged body, its caller and its headers. Raises Denied, InvalidInput."""
    scope = request.scope
    place: WireAddress = scope["state"]["place"]
    caller = caller_of(request)
    return RelayCall(
        body=body,
        headers=_headers(scope["headers"]),
        conversation=place.conversation or header(scope, b"x-conversation-id"),
        user=user_of(request, place.user),
        authenticated=bool(caller.key),
        organization=header(scope, b"x-organization-id"),
        memory_control=header(scope, b"x-memory-control"),
        organizations=None if caller.may("owner") else frozenset(caller.organizations),
        may_publish=caller.may("admin"),
        key=caller.key,
        server_history=server_history,
        query=scope["query_string"].decode("latin-1"),
        idempotency_key=key,
        project=header(scope, b"x-cuebook-project"),
        time_zone=header(scope, b"x-time-zone"),
    )


async def _answer_of(
    pieces: AsyncIterator[Head | bytes], error_event: Callable[[Failure], bytes]
) -> AsyncGenerator[Head | bytes, None]:
    """Yield an answer; an internal error within a stream ends it with an error event.

    A stream that the upstream aborts is aborted too.
    """
    begun = False
    async with aclosing(pieces):  # type: ignore[type-var]
        try:
            async for piece in pieces:
                begun = begun or (isinstance(piece, Head) and piece.is_stream)
                yield piece
        except CuebookError as error:
            if not begun or isinstance(error, UpstreamError):
                raise
            yield b"\n\n" + error_event(failure_of(error)) + b"\n\n"  # the previous line may be incomplete


def _error_event(fault: Failure) -> bytes:
    """Return an error as an event of OpenAI's stream, without [DONE]."""
    return b"data: " + to_json(fault.openai())


def _begin(head: Head) -> Start:
    """Return an upstream's head with headers for the stored turn and its branch."""
    branch = "side" if head.is_side_branch else "head"
    place = {"x-conversation-id": head.conversation, "x-cuebook-turn": str(head.turn), "x-cuebook-branch": branch}
    ours = place if head.turn else {}
    return Start(head.status, encoded((dict(head.headers) | ours).items()), whole=not head.is_stream)


@get("/v1/models", role="viewer", responses=wire.openai_answers(dict[str, Any]))
async def models(request: AnyRequest) -> ASGIResponse:
    """List the personas, and the upstream's models if it is reachable."""
    cue = cue_of(request)
    await cue.services.catch_up()
    listed: list[Any] = [_model(persona) for persona in cue.personas]
    if cue.upstream_url:
        listed += await _upstream_models(cue, _headers(request.scope["headers"]), known=cue.personas)
    return json_of({"object": "list", "data": listed})


@get("/v1/models/{model:str}", role="viewer", responses=wire.openai_answers(dict[str, Any]))
async def model_(request: AnyRequest, model: FromPath[str]) -> ASGIResponse:
    """Return a persona, or the upstream's model."""
    await cue_of(request).services.catch_up()
    if name_in(model) in cue_of(request).personas:
        return json_of(_model(name_in(model)))
    return await pass_through(request)


def _model(persona: str) -> dict[str, Any]:
    return {"id": persona, "object": "model", "created": 0, "owned_by": "cuebook"}


async def _upstream_models(cue: Cuebook, headers: Mapping[str, str], *, known: Sequence[str]) -> list[dict[str, Any]]:
    """Return the upstream's list of models; empty on errors."""
    request = RelayRequest(method="GET", path="/models", headers=headers, body=b"")
    try:
        async with asyncio.timeout(MODELS_WAIT_S):
            answer = [piece async for piece in cue.pass_through(request)]
        body = b"".join(piece for piece in answer if isinstance(piece, bytes))
        results = msgspec.json.decode(body, type=_Models).data
        return [each for each in results if each.get("id", "") not in known]
    except (CuebookError, TimeoutError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


class _Models(Struct):
    data: list[dict[str, Any]] = []


@route(PASS_THROUGH, http_method=list(HttpMethod), include_in_schema=False, status_code=200)
async def other(request: AnyRequest) -> ASGIResponse:
    """Pass any other request to the upstream. Except embeddings and moderations, it needs the role owner."""
    return await pass_through(request)


async def pass_through(request: AnyRequest) -> ASGIResponse:
    """Pass a request to the upstream unchanged. Raises NotFound without an upstream, Denied for the upstream's IDs."""
    cue, scope = cue_of(request), request.scope
    place: WireAddress = scope["state"]["place"]
    _check_upstream_access(caller_of(request), scope["method"], place.rest)
    if not cue.upstream_url:
        if place.methods and scope["method"] not in place.methods:
            raise MethodNotAllowedException(headers={"allow": ", ".join(place.methods)})
        msg = f"/v1{place.rest}: needs an upstream, and none is set. Set one with `cuebook serve --upstream URL`."
        raise NotFound(msg)
    passed = RelayRequest(
        method=scope["method"],
        path=place.rest,
        headers=_headers(scope["headers"]),
        body=await request.body(),
        query=scope["query_string"].decode("latin-1"),
        verbatim=cue.shadows,
    )
    key = caller_of(request).key
    if not cue.shadows:
        return StreamResponse(request.app.state.running, _passed(cue.pass_through(passed, key=key), encoded))
    call = None
    if place.rest in _KEPT and scope["method"] == "POST":
        new = (header(scope, b"x-history") or "").lower() == "server"
        call = call_of(request, passed.body, server_history=new, key=None)
    return StreamResponse(request.app.state.running, _passed(cue.pass_through(passed, call, key=key), _as_they_came))


def _check_upstream_access(caller: Caller, method: str, rest: str) -> None:
    """Raise Denied if a caller may not use an upstream's address. The upstream may act with the operator's key."""
    needed = upstream_role(method, rest)
    caller.need(needed, f"{method} /v1{rest}")
    if needed == "owner" and caller.tenant != DEFAULT_TENANT:
        msg = f"{method} /v1{rest} requires an owner's key of tenant {DEFAULT_TENANT!r}: the upstream is shared by all."
        raise Denied(msg)


async def _passed(
    pieces: AsyncIterator[Head | bytes], as_bytes: Callable[[Iterable[tuple[str, str]]], Headers]
) -> AsyncGenerator[Start | bytes, None]:
    async with aclosing(pieces):  # type: ignore[type-var]
        async for piece in pieces:
            yield piece if isinstance(piece, bytes) else Start(piece.status, as_bytes(piece.headers.items()))


def _as_they_came(headers: Iterable[tuple[str, str]]) -> Headers:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def _headers(raw: Any) -> dict[str, str]:
    """Return a request's headers without Cuebook keys, which are never forwarded."""
    headers: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        is_ours = key in ("authorization", "x-api-key") and text.rpartition(" ")[2].startswith(PREFIX)
        if is_ours or holds_token(text):
            continue
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


ROUTES = [chat_completions, models, model_, other]
