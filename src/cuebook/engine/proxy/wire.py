"""One request of a provider's client, in its wire format: read it, send it on, read its answer.

Each wire reads its requests as equivalent chat completions, so that alignment, turns and memory work the same for all.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import ClassVar, Final

import msgspec
from msgspec import Raw, Struct

from cuebook.engine.core.context_limits import ModelTarget, target_of
from cuebook.engine.core.services import Services
from cuebook.engine.proxy.request import RelayCall, model_in, read_fields, turn_request
from cuebook.engine.turn.request import StoredReply, TurnRequest
from cuebook.engine.turn.step import OpenStep
from cuebook.errors import CuebookError, UpstreamError
from cuebook.interfaces import RelayAnswer, RelayRequest, Upstream
from cuebook.records.memory import NO_MODEL
from cuebook.window.models import rule_for
from cuebook.window.window import with_breakpoints
from cuebook.wire.answer import AnswerWriter, StreamReader, as_dict
from cuebook.wire.anthropic_messages import ORDER, REMINDED, THINKING, ConvertedMessage
from cuebook.wire.chat_answers import ChatReader, usage_fields, write_completion, write_stream
from cuebook.wire.chat_messages import value_of
from cuebook.wire.event_stream import ByteLines, Events, read_event
from cuebook.wire.responses_items import without_items

#: Response header that lists the request fields not passed to the model.
LEFT_OUT: Final = "x-cuebook-left-out"
#: A part added by a client program, stored from Anthropic's wire. On this wire it is a text.
_REMINDED, _TEXT = f'"type":"{REMINDED}"'.encode(), b'"type":"text"'
#: Request fields with the most tokens of the answer: of chat completions, messages and responses.
REPLY_TOKENS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Raw]).decode


class Head(Struct, frozen=True, kw_only=True):
    """Status and headers of an answer, sent before its body, and where it is stored."""

    status: int
    headers: Mapping[str, str]
    conversation: str = ""
    turn: int = 0
    step: int = 1
    is_side_branch: bool = False  # the answer is not on the conversation's path
    tokens: int = 0  # of the prompt, by our count

    @property
    def is_stream(self) -> bool:
        """Return whether the body is a stream of events."""
        return self.headers.get("content-type", "").lower().startswith("text/event-stream")


def local_head(*, stream: bool) -> Head:
    """Return the head of a local answer."""
    return Head(
        status=200, headers={"content-type": "text/event-stream; charset=utf-8" if stream else "application/json"}
    )


async def send_upstream(services: Services, upstream: Upstream, request: RelayRequest) -> RelayAnswer:
    """Send a request and wait for the head of its answer. Keep a failure for the live page. Raises UpstreamError."""
    try:
        answer = await upstream.send(request)
    except UpstreamError as error:
        services.caches.failures["upstream"] = services.writer.clean(str(error))
        raise
    services.caches.failures.pop("upstream", None)
    return answer


class Wire(ABC):
    """A request in one provider's format."""

    #: The path of its requests below the upstream's base URL.
    path: ClassVar[str]

    def __init__(self, services: Services, upstream: Upstream | None, call: RelayCall) -> None:
        self.services, self.upstream, self.call = services, upstream, call
        self.base_url = upstream.base_url if upstream else ""
        self.model = model_in(call.body)  # as the client names it
        self.own_fields: Mapping[str, Raw] = {}  # as received
        self.fields: Mapping[str, Raw] = {}  # of the equivalent chat completion
        self.converted: tuple[ConvertedMessage, ...] = ()  # source of each message of the history, if in another format

    @property
    def stream(self) -> bool:
        """Return whether the client asked for a stream."""
        return value_of(self.fields, "stream") is True

    @property
    def wants_usage(self) -> bool:
        """Return whether a stream ends with its usage."""
        options = value_of(self.fields, "stream_options")
        return isinstance(options, dict) and options.get("include_usage") is True

    async def load(self) -> TurnRequest:
        """Load what the request refers to, and parse it. Raises InvalidInput, NotFound, Conflict."""
        return await self.services.offload.run(len(self.call.body), self.read)

    @abstractmethod
    def read(self) -> TurnRequest:
        """Parse the request. Raises InvalidInput naming the field."""

    def turn_request(self, fields: Mapping[str, Raw], *, own_fields: Mapping[str, Raw]) -> TurnRequest:
        """Return the request of the turn from the fields of the equivalent chat completion. Raises InvalidInput."""
        self.own_fields, self.fields = own_fields, fields
        quotes = self.upstream is None and self.services.model.name == NO_MODEL
        request = turn_request(self.services, self.call, fields, keyed=own_fields, quotes=quotes)
        return msgspec.structs.replace(request, target=self.target(self.model))

    def target(self, model: str) -> ModelTarget:
        """Return a model of the upstream with the most tokens that the request asks for."""
        values = (value_of(self.own_fields, name) for name in REPLY_TOKENS)
        reply = next((value for value in values if isinstance(value, int) and value > 0), None)
        configured: object = self.services.model  # answers Anthropic's clients as an upstream
        base_url = "" if self.upstream is configured else self.base_url
        return target_of(self.services, model, base_url, reply=reply)

    @abstractmethod
    def outgoing(self, step: OpenStep, *, model: str | None) -> RelayRequest:
        """Return the request to send. `model` replaces the request's model."""

    @abstractmethod
    def sends_marks(self, model: str) -> bool:
        """Return whether to send cache breakpoints to a model."""

    def turns_to_chat(self, status: int, error: bytes) -> bool:  # noqa: ARG002  # only a wire with a second form does
        """Return whether an upstream's answer asks for the same request as a chat completion."""
        return False

    @abstractmethod
    def reader(self) -> StreamReader:
        """Return a reader of the upstream's answer."""

    @abstractmethod
    def replay(self, reply: StoredReply) -> Iterator[bytes]:
        """Yield the body of a stored answer."""

    def write(self, pieces: AsyncGenerator[Head | bytes, None]) -> AsyncGenerator[Head | bytes, None]:
        """Return an answer in the client's format: the upstream's own bytes."""
        return pieces

    def request_to(self, body: bytes) -> RelayRequest:
        """Return a request with the client's headers and query."""
        return RelayRequest(method="POST", path=self.path, headers=self.call.headers, body=body, query=self.call.query)


class ChatWire(Wire):
    """A chat completion: the upstream gets the window as its messages, and all other bytes stay the same."""

    path = "/chat/completions"

    def read(self) -> TurnRequest:
        """Parse the request. Raises InvalidInput naming the field."""
        fields = read_fields(self.call.body)
        return self.turn_request(fields, own_fields=fields)

    def outgoing(self, step: OpenStep, *, model: str | None) -> RelayRequest:
        """Return the request with the window as its messages."""
        fields = dict(self.fields)
        messages = tuple(map(_chat_form, step.plan.messages))  # b"" for another wire's state
        if self.sends_marks(model or self.model):
            messages = with_breakpoints(messages, step.plan.window.anchors, step.plan.sheet)
            fields.setdefault("prompt_cache_key", Raw(_encode(step.lease.conversation)))
            fields.setdefault("prompt_cache_options", Raw(b'{"mode":"explicit"}'))
        fields["messages"] = Raw(b"[" + b",".join(filter(None, messages)) + b"]")
        if model is not None:
            fields["model"] = Raw(_encode(model))
        return self.request_to(_encode(fields))

    def sends_marks(self, model: str) -> bool:
        """Return whether to send cache breakpoints: by setting, or if the provider is known to support them."""
        setting = self.services.config.upstream.breakpoints
        if setting != "auto":
            return setting == "on"
        rule = rule_for(model, self.base_url)
        return rule is not None and rule.name == "openai-breakpoints"

    def reader(self) -> StreamReader:
        """Return a reader of the upstream's answer."""
        return ChatReader()

    def replay(self, reply: StoredReply) -> Iterator[bytes]:
        """Yield the body of a stored answer. Without an upstream, count missing usage."""
        frame = {
            "id": f"chatcmpl-{reply.no}.{reply.turn.n}.{reply.step.n}",  # unique in this database
            "created": int(reply.turn.closed_at or reply.turn.created_at),
            "model": self.model,
            **{name: value for name, value in reply.about.items() if name not in ("step", "finishReasons")},
        }
        usage = usage_fields(reply.usage(None if self.upstream else self.services.count))
        if self.stream:
            yield from write_stream(frame, reply.messages, reply.reasons, usage if self.wants_usage else None)
        else:
            yield write_completion(frame, reply.messages, reply.reasons, usage)


def _chat_form(message: bytes) -> bytes:
    """Return a message without the fields that only other wires have."""
    message = without_items(message)
    if ORDER.encode() in message and ORDER in (fields := _decode(message)):
        message = _encode({name: value for name, value in fields.items() if name not in (ORDER, THINKING)})
    return message.replace(_REMINDED, _TEXT)


class TranslatedWire(ChatWire):
    """A request that a chat completion answers, although its client uses another format."""

    @abstractmethod
    def writer(self, head: Head) -> AnswerWriter:
        """Return a writer of the answer."""

    @abstractmethod
    def left_out(self) -> Sequence[str]:
        """Return the names of the fields that the model did not get."""

    def headed(self, head: Head, kind: str = "application/json") -> Head:
        """Return the head of an answer with the names of the fields left out. `kind` is its content type."""
        names = self.left_out()
        values = {LEFT_OUT: ", ".join(names)} if names else {}
        return msgspec.structs.replace(head, headers={**head.headers, "content-type": kind} | values)

    @abstractmethod
    def write_error(self, head: Head, body: bytes) -> tuple[Head, bytes]:
        """Return an error answer in the client's format."""

    @abstractmethod
    def write_document(self, writer: AnswerWriter, head: Head, body: bytes) -> tuple[Head, bytes]:
        """Return the complete answer, or an error if the upstream's `body` contains none."""

    async def write(self, pieces: AsyncGenerator[Head | bytes, None]) -> AsyncGenerator[Head | bytes, None]:
        """Yield an answer in the client's format. The end of a stream follows once the turn is durable."""
        async with aclosing(pieces):
            first = await anext(pieces)
            head = first if isinstance(first, Head) else Head(status=502, headers={})
            if head.status >= 400:
                for piece in self.write_error(head, await _joined(pieces)):
                    yield piece
                return
            writer, body = self.writer(head), b""
            if head.is_stream and self.stream:
                yield self.headed(head, "text/event-stream; charset=utf-8")
                async for events in _events(writer, pieces):
                    yield events
                return
            if head.is_stream:  # a model that always streams
                body = b"".join([events async for events in _events(writer, pieces)])
            else:
                body = await _joined(pieces)
                writer.take(as_dict(read_event(body)), "message")
            for piece in self.write_document(writer, head, body):
                yield piece


async def _joined(pieces: AsyncIterator[Head | bytes]) -> bytes:
    return b"".join([piece async for piece in pieces if isinstance(piece, bytes)])


async def _events(writer: AnswerWriter, pieces: AsyncIterator[Head | bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the chunks of a stream as the writer's events."""
    lines, events, broken = ByteLines(), Events(), ""
    yield writer.begin()
    try:
        async for piece in pieces:
            for line in lines.feed(piece) if isinstance(piece, bytes) else ():
                chunk = events.read(line)
                if isinstance(chunk, dict) and (data := writer.take(chunk)):
                    yield data
    except CuebookError as error:
        if not writer.reports_faults:
            raise
        broken = str(error)
    if data := writer.take(as_dict(events.read(lines.rest() + b"\n"))):
        yield data
    yield writer.close(broken)
