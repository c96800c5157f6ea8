"""Answer Anthropic Messages requests: forward to an Anthropic upstream, or translate to an OpenAI chat completion."""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final

import msgspec
from msgspec import Struct

from cuebook.config import Config
from cuebook.engine.core.services import Services
from cuebook.engine.proxy.chat_completions import relay
from cuebook.engine.proxy.local_answer import Head
from cuebook.engine.proxy.messages import CHATTED, KEPT, MESSAGES, PATH, NotReadError, count_messages
from cuebook.engine.proxy.request import RelayCall
from cuebook.engine.proxy.shadow_ledger import CallAccounting
from cuebook.errors import InvalidInput
from cuebook.interfaces.model import Model, RelayRequest, Upstream
from cuebook.providers.llama import LlamaModel
from cuebook.providers.openai import OpenAIModel
from cuebook.records.memory import Scope
from cuebook.records.turn import Ask
from cuebook.wire.anthropic_answers import MessagesWriter
from cuebook.wire.anthropic_requests import SETTINGS, TOOLS, left_out
from cuebook.wire.event_stream import ByteLines, Events, read_event


class _NamedModel(Struct):
    model: str = ""


def upstream_model(services: Services, config: Config, call: RelayCall) -> str | None:
    """Return the upstream's model for a request that names a persona, None for any other. Raises InvalidInput."""
    try:
        name = msgspec.json.decode(call.body, type=_NamedModel).model
    except (msgspec.DecodeError, RecursionError):
        return None
    if name not in services.settings.personas:
        return None
    model = services.settings.personas[name].model or config.settings.model.name
    if not model:
        msg = f"model: persona {name!r} has no upstream model. Set model.name, or the persona's `model`."
        raise InvalidInput(msg, where="model")
    return model


def digest_of_ask(ask: Ask, key: bytes) -> bytes:
    """Return a keyed digest of a request: it is stored, and must not allow guessing a secret in the request."""
    fields = {name: getattr(ask, name) for name in ask.__struct_fields__ if name != "idempotency_key"}
    try:
        encoded = msgspec.json.encode(fields)
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        msg = f"The request cannot be encoded as JSON ({error})."
        raise InvalidInput(msg, where="attachments") from error
    return hashlib.blake2b(encoded, digest_size=16, key=key).digest()


#: Response header that lists the request fields not passed to the model.
LEFT_OUT: Final = "x-cuebook-left-out"
_EVENTS: Final = "text/event-stream"
#: Anthropic's error types by HTTP status.
_ERRORS: Final = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error",
}  # fmt: skip
#: Prefix of model names that only Anthropic knows.
_CLAUDE: Final = "claude"


class Messages:
    """The Anthropic Messages API of a project."""

    def __init__(
        self, services: Services, config: Config, upstream: Upstream | None, ledger: CallAccounting | None
    ) -> None:
        self._services, self._config, self._upstream, self._ledger = services, config, upstream, ledger

    @property
    def translates(self) -> bool:
        """Return whether requests are translated: for the project's own model, or by `upstream.messages`."""
        return self._upstream is None or self._config.settings.upstream.messages == "chat"

    def count(self, call: RelayCall) -> dict[str, int]:
        """Return an estimate of a request's tokens in the form of `/v1/messages/count_tokens`. Raises InvalidInput."""
        return {"input_tokens": count_messages(self._services, call)}

    async def answer(
        self, call: RelayCall, passes: Callable[[RelayRequest], AsyncIterator[Head | bytes]]
    ) -> AsyncGenerator[Head | bytes, None]:
        """Answer a request. Yield the response head, then the body's bytes.

        An unparsable request is forwarded with `passes`, unstored, to an Anthropic upstream. Raises InvalidInput.
        """
        services, upstream, scope = self._services, self._upstream, Scope(user=call.user)
        if self.translates:
            async for piece in self._translated(call):
                yield piece
            return
        model = upstream_model(services, self._config, call)
        wire = MESSAGES if self._config.settings.upstream.messages == "book" else KEPT
        try:
            async with aclosing(
                relay(services, upstream, scope, call, model=model, wire=wire, ledger=self._ledger)
            ) as pieces:
                async for piece in pieces:
                    yield piece
        except NotReadError:
            passed = RelayRequest(method="POST", path=PATH, headers=call.headers, body=call.body, query=call.query)
            async for piece in passes(passed):
                yield piece

    async def _translated(self, call: RelayCall) -> AsyncGenerator[Head | bytes, None]:
        services, upstream = self._services, self._upstream or _server_of(self._services.model)
        model_field = _asked(call)
        lacks = SETTINGS if upstream is None else frozenset[str]()
        if isinstance(upstream, LlamaModel) and TOOLS & model_field.fields.keys() and not await upstream.takes_tools():
            lacks = TOOLS
        lost = left_out(model_field.fields, lacks=lacks)
        model = self._model(call, model_field) if upstream is not None else None
        pieces = relay(services, upstream, Scope(user=call.user), call, model=model, wire=CHATTED)
        async with aclosing(pieces):
            first = await anext(pieces)
            head = first if isinstance(first, Head) else Head(status=502, headers={})
            if head.status >= 400:
                body = b"".join([piece async for piece in pieces if isinstance(piece, bytes)])
                yield _headed(head, _JSON, lost)
                yield _refused(head.status, body)
                return
            place = f"{head.conversation}/{head.turn}/{head.step}".encode()
            name = (
                f"msg_{services.settings.request_digest(place).hex()[:24]}"  # the same for a repeated idempotency key
            )
            writer = MessagesWriter(name, model=model_field.model, tokens=head.tokens)
            comes = head.headers.get("content-type", "").lower().startswith(_EVENTS)
            if comes and model_field.streams:
                yield _headed(head, _STREAM, lost)
                async for event in _events(writer, pieces):
                    yield event
                return
            if comes:  # a model that always streams
                data = b"".join([event async for event in _events(writer, pieces)])
            else:
                data = b"".join([piece async for piece in pieces if isinstance(piece, bytes)])
                completion = read_event(data)
                writer.take(completion if isinstance(completion, dict) else {}, "message")
            good = writer.begun and not writer.error
            data = msgspec.json.encode({"error": writer.error}) if writer.error else data
            yield _headed(head if good else msgspec.structs.replace(head, status=502), _JSON, lost)
            yield msgspec.json.encode(writer.document()) if good else _refused(502, data)

    def _model(self, call: RelayCall, model_field: "_ModelField") -> str | None:
        """Return the model to use instead of the requested one: a persona's, or the configured one."""
        name, own = upstream_model(self._services, self._config, call), self._config.settings.model.name
        return (
            own if name is None and own and (self._upstream is None or model_field.model.startswith(_CLAUDE)) else name
        )


def _server_of(model: Model) -> Upstream | None:
    """Return the project's model as an OpenAI server if it supports tools."""
    return model if isinstance(model, OpenAIModel | LlamaModel) else None


class _ModelField(Struct, frozen=True):
    model: str
    fields: dict[str, Any]

    @property
    def streams(self) -> bool:
        return bytes(self.fields.get("stream", b"")) == b"true"


def _asked(call: RelayCall) -> _ModelField:
    try:
        fields = msgspec.json.decode(call.body, type=dict[str, msgspec.Raw])
        model = msgspec.json.decode(fields["model"]) if "model" in fields else ""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _ModelField("", {})  # the parser reports the error
    return _ModelField(model if isinstance(model, str) else "", fields)


_JSON, _STREAM = "application/json", "text/event-stream; charset=utf-8"


def _headed(head: Head, kind: str, lost: tuple[str, ...]) -> Head:
    values = {LEFT_OUT: ", ".join(lost)} if lost else {}
    return msgspec.structs.replace(head, headers={**head.headers, "content-type": kind} | values)


async def _events(writer: MessagesWriter, pieces: AsyncIterator[Head | bytes]) -> AsyncGenerator[bytes, None]:
    """Yield a stream's chunks as events; the final ones only after the turn is durable."""
    lines, events = ByteLines(), Events()
    yield writer.begin()
    async for piece in pieces:
        for line in lines.feed(piece) if isinstance(piece, bytes) else ():
            chunk = events.read(line)
            if isinstance(chunk, dict) and (data := writer.take(chunk)):
                yield data
    last = events.read(lines.rest() + b"\n")
    if isinstance(last, dict):
        yield writer.take(last)
    yield writer.end()


def _refused(status: int, body: bytes) -> bytes:
    """Return an OpenAI error as an Anthropic error."""
    value = read_event(body)
    error = value.get("error") if isinstance(value, dict) else None
    reason = error.get("message") if isinstance(error, dict) else error
    message = reason if isinstance(reason, str) else body[:500].decode("utf-8", "replace") or "no answer"
    kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": message}})
