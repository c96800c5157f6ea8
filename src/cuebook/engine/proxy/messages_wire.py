"""Proxy for Anthropic's `/v1/messages`: read a request as a chat completion, and send it in either format."""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw

from cuebook.engine.core.services import Services
from cuebook.engine.proxy.messages_window import window_body
from cuebook.engine.proxy.request import RelayCall
from cuebook.engine.proxy.wire import Head, TranslatedWire, Wire
from cuebook.engine.turn.request import StoredReply, TurnRequest
from cuebook.engine.turn.step import OpenStep
from cuebook.errors import InvalidInput
from cuebook.interfaces import RelayRequest, Upstream
from cuebook.window.models import CacheRule, rule_for
from cuebook.window.post_forms import weigh
from cuebook.wire.answer import AnswerWriter, StreamReader
from cuebook.wire.anthropic_answers import (
    EDITS,
    MessagesReader,
    MessagesWriter,
    message_usage,
    write_answer,
    write_error,
    write_events,
)
from cuebook.wire.anthropic_messages import ConvertedMessage, convert_messages, read_system, resent_form, write_blocks
from cuebook.wire.anthropic_requests import chat_fields, left_out, plain_chat
from cuebook.wire.chat_answers import ChatReader

#: Requests for an answer. Requests that count tokens are neither cached nor stored.
PATH: Final = "/messages"
#: Fields that chat completions have under the same names.
_SAME = ("model", "stream", "tools")
#: Claude Code puts its session after this marker in the user's id.
_SESSION = "_session_"
#: OpenAI's own models have another name for the token limit than most compatible servers.
_OPENAI = "api.openai.com"
#: Headers of Anthropic's wire, and of its clients' API key.
_THEIRS = "anthropic-"
_KEY, _BEARER = "x-api-key", "authorization"

#: Option of a chat completion's stream that asks for its usage.
_WITH_USAGE = Raw(b'{"include_usage":true}')

_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, Raw])
_raws = msgspec.json.Decoder(list[Raw])


class NotReadError(InvalidInput):
    """A request of Anthropic's wire that cannot be parsed."""


# ---- Request --------------------------------------------------------------------------------------------------------


def read_fields(body: bytes) -> tuple[dict[str, Raw], dict[str, Raw], tuple[ConvertedMessage, ...]]:
    """Return a request's fields, those of the equivalent chat completion, and its messages.

    Raises NotReadError for unsupported content.
    """
    try:
        fields = _fields.decode(body)
        converted = tuple(convert_messages(_raws.decode(fields["messages"])))
        system = read_system(fields["system"]) if "system" in fields else []
    except (KeyError, InvalidInput, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f"Unsupported Anthropic request: {error}"
        raise NotReadError(msg, where="body") from None
    if not converted:
        msg = "messages: empty. Send at least one message."
        raise NotReadError(msg, where="messages")
    chat = {name: fields[name] for name in _SAME if name in fields}
    # each block of the system text is its own message, because one that changes each time is stored alone
    front = [_encode({"role": "system", "content": [block]}) for block in system]
    chat["messages"] = Raw(b"[" + b",".join([*front, *(each.chat for each in converted)]) + b"]")
    chat["user"] = Raw(_encode(user_of(fields)))
    return fields, chat, converted


def user_of(fields: Mapping[str, Raw]) -> str:
    """Return the user in a request's metadata, "" without one. Claude Code's session is removed from the id."""
    metadata = msgspec.json.decode(fields["metadata"]) if "metadata" in fields else None
    named = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(named, str):
        return ""
    if named.startswith("{"):
        try:
            value = msgspec.json.decode(named)
        except (msgspec.DecodeError, RecursionError):
            return named
        known = [value.get(name) for name in ("account_uuid", "device_id")] if isinstance(value, dict) else []
        return next((each for each in known if isinstance(each, str) and each), named)
    return named.partition(_SESSION)[0] or named


def count_messages(services: Services, call: RelayCall) -> int:
    """Estimate the tokens of a request. Raises InvalidInput."""
    request = MessagesWire(services, None, call).read()
    history = sum(weigh(msgspec.json.decode(each.raw), services.count) for each in request.history)
    front = sum(each.tokens or weigh(msgspec.json.decode(each.message), services.count) for each in request.client)
    return history + front + (services.count(request.tools) if request.tools else 0)


# ---- Answered by a server of this wire ------------------------------------------------------------------------------


class MessagesWire(Wire):
    """A messages request that goes upstream in its own format."""

    path = PATH

    def read(self) -> TurnRequest:
        """Parse the request. Raises NotReadError for unsupported content, InvalidInput for invalid headers."""
        fields, chat, self.converted = read_fields(self.call.body)
        return self.turn_request(chat, own_fields=fields)

    def outgoing(self, step: OpenStep, *, model: str | None) -> RelayRequest:
        """Return the request with the window as its messages."""
        name = model or self.model
        rule, tokens = _rule(self.base_url, name), step.plan.window.tokens
        marks = self.sends_marks(name) and not (rule is not None and tokens < rule.minimum)
        cache_rule = self.services.settings.cache_rule
        hour = cache_rule is not None and cache_rule.name == "anthropic-1h"
        return self.request_to(window_body(self, step, model=model, marks=marks, hour=hour))

    def sends_marks(self, model: str) -> bool:
        """Return whether to send cache breakpoints: by setting, or if the provider itself answers."""
        setting = self.services.config.upstream.breakpoints
        return setting != "off" and (setting == "on" or _rule(self.base_url, model) is not None)

    def reader(self) -> StreamReader:
        """Return a reader of the upstream's answer."""
        return MessagesReader()

    def replay(self, reply: StoredReply) -> Iterator[bytes]:
        """Yield the body of a stored answer."""
        about = reply.about
        content = [block for each in reply.messages[:1] for block in write_blocks(each)[1]]
        stops = about.get("finishReasons") or [None]
        calls = any(block["type"] == "tool_use" for block in content)
        message = write_answer(
            about.get("id") or f"msg_{reply.no}_{reply.turn.n}_{reply.step.n}",
            about.get("model") or self.model,
            content,
            stop=stops[0] or ("tool_use" if calls else "end_turn"),
            usage=message_usage(reply.usage(None)),
        ) | ({EDITS: about[EDITS]} if EDITS in about else {})
        if self.stream:
            yield from write_events(message)
        else:
            yield _encode(message)


def _rule(base_url: str, model: str) -> CacheRule | None:
    rule = rule_for(model, base_url)
    return rule if rule is not None and rule.name.startswith("anthropic") else None


# ---- Answered by a server of OpenAI's wire --------------------------------------------------------------------------


class MessagesAsChat(TranslatedWire):
    """A messages request that a chat completion answers."""

    def __init__(
        self, services: Services, upstream: Upstream | None, call: RelayCall, *, lacks: frozenset[str] = frozenset()
    ) -> None:
        """`lacks`: fields that the model does not support."""
        super().__init__(services, upstream, call)
        self._lacks = lacks

    def read(self) -> TurnRequest:
        """Parse the request. Raises InvalidInput, also for content that a chat completion cannot represent."""
        fields, chat, self.converted = read_fields(self.call.body)
        request = self.turn_request(chat | {"stream_options": _WITH_USAGE}, own_fields=fields)
        chat_fields(fields)
        return request

    def outgoing(self, step: OpenStep, *, model: str | None) -> RelayRequest:
        """Return the window as a chat completion."""
        fields = chat_fields(self.own_fields)
        if "max_tokens" in fields and urlsplit(self.base_url).hostname == _OPENAI:
            fields["max_completion_tokens"] = fields.pop("max_tokens")
        fields["messages"] = [Raw(each) for each in plain_chat(step.plan.messages)]
        fields["model"] = self.model if model is None else model
        own = self.call.headers
        headers = {name: value for name, value in own.items() if not name.startswith(_THEIRS) and name != _KEY}
        if _KEY in own:
            headers.setdefault(_BEARER, f"Bearer {own[_KEY]}")
        return RelayRequest(method="POST", path=self.path, headers=headers, body=_encode(fields))

    def sends_marks(self, model: str) -> bool:  # noqa: ARG002  servers of OpenAI's wire need none
        """Return False: a chat completion made from a message has no cache breakpoints."""
        return False

    def reader(self) -> StreamReader:
        """Return a reader that stores the answer in the form in which the client resends it."""
        return ChatReader(resent_form)

    def writer(self, head: Head) -> AnswerWriter:
        """Return a writer of the answer. Its id is the same for a repeated Idempotency-Key."""
        place = f"{head.conversation}/{head.turn}/{head.step}".encode()
        name = f"msg_{self.services.settings.request_digest(place).hex()[:24]}"
        return MessagesWriter(name, model=self.model, tokens=head.tokens)

    def left_out(self) -> tuple[str, ...]:
        """Return the names of the fields that the model did not get."""
        return left_out(self.own_fields, lacks=self._lacks)

    def write_error(self, head: Head, body: bytes) -> tuple[Head, bytes]:
        """Return an error of a chat completion as an error of this wire."""
        return self.headed(head), write_error(head.status, body)

    def write_document(self, writer: AnswerWriter, head: Head, body: bytes) -> tuple[Head, bytes]:
        """Return the complete answer, or an error if the upstream's `body` contains none."""
        if writer.begun and not writer.error:
            return self.headed(head), _encode(writer.document())
        body = _encode({"error": writer.error}) if writer.error else body
        return self.write_error(msgspec.structs.replace(head, status=502), body)
