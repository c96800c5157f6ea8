"""Proxy for Anthropic's `/v1/messages`: parse a request as a chat completion, and send it in its own format.

Requests sent unchanged or without parsing get cache breakpoints where the provider supports them and the client set
none.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw

from cuebook.engine.core.services import Services
from cuebook.engine.proxy.chat_completions import OutgoingRequest, Wire
from cuebook.engine.proxy.idempotent_replay import StoredReply, counted, told_head
from cuebook.engine.proxy.local_answer import Head
from cuebook.engine.proxy.messages_window import body_of
from cuebook.engine.proxy.request import RelayCall, Request, read_request
from cuebook.errors import InvalidInput
from cuebook.interfaces.model import RelayRequest, Upstream
from cuebook.window.anchors import with_cache_marks
from cuebook.window.cache import CacheRule, rule_for
from cuebook.window.post_forms import weigh
from cuebook.wire.anthropic_answers import MessagesReader, message_usage, write_answer, write_events
from cuebook.wire.anthropic_messages import read_system, read_turned, resent_form, write_blocks
from cuebook.wire.anthropic_requests import chat_fields, plain_chat
from cuebook.wire.chat_answers import ChatReader

# ---- Repeated requests ----------------------------------------------------------------------------------------------


def tell_message(
    services: Services, stored_reply: StoredReply, request: Request, *, estimate: bool
) -> Iterator[Head | bytes]:
    """Yield a stored answer in Anthropic's wire format."""
    about = stored_reply.turn.metadata.get("answer", {})
    about = about if about.get("step") == stored_reply.step.n else {}
    content = [block for each in stored_reply.messages[:1] for block in write_blocks(each, thoughts=True)[1]]
    stops = about.get("finishReasons") or [None]
    calls = any(block["type"] == "tool_use" for block in content)
    message = write_answer(
        about.get("id") or f"msg_{stored_reply.no}_{stored_reply.turn.n}_{stored_reply.step.n}",
        about.get("model") or request.model,
        content,
        stop=stops[0] or ("tool_use" if calls else "end_turn"),
        usage=message_usage(counted(services, stored_reply, estimate=estimate)),
    )
    yield told_head(stored_reply, request)
    if request.stream:
        yield from write_events(message)
    else:
        yield _encode(message)


# ---- Answers of other models ----------------------------------------------------------------------------------------


#: OpenAI's own models have another name for the token limit than most compatible servers.
_OPENAI = "api.openai.com"
#: Headers of Anthropic's wire, and of its clients' API key.
_THEIRS = "anthropic-"
_KEY, _BEARER = "x-api-key", "authorization"


def read_as_chat(services: Services, call: RelayCall) -> Request:
    """Parse a request that a server of another wire answers. Raises InvalidInput, also for unsupported content."""
    request = read_messages(services, call)
    chat_fields(_fields.decode(call.body))
    return msgspec.structs.replace(request, fields={**request.fields, "stream_options": Raw(b'{"include_usage":true}')})


def count_messages(services: Services, call: RelayCall) -> int:
    """Estimate the tokens of a request. Raises InvalidInput."""
    request = read_messages(services, call)
    history = sum(weigh(msgspec.json.decode(each.raw), services.count) for each in request.history)
    front = sum(each.tokens or weigh(msgspec.json.decode(each.wire), services.count) for each in request.client)
    return history + front + (services.count(request.tools) if request.tools else 0)


def _as_chat(_: Services, upstream: Upstream, going: OutgoingRequest) -> RelayRequest:
    """Return the window as a chat completion."""
    call = going.call
    fields = chat_fields(_fields.decode(call.body))
    if "max_tokens" in fields and urlsplit(upstream.base_url).hostname == _OPENAI:
        fields["max_completion_tokens"] = fields.pop("max_tokens")
    fields["messages"] = [Raw(each) for each in plain_chat(going.opened.planned.messages)]
    fields["model"] = going.request.model if going.model is None else going.model
    headers = {name: value for name, value in call.headers.items() if not name.startswith(_THEIRS) and name != _KEY}
    if _KEY in call.headers:
        headers.setdefault(_BEARER, f"Bearer {call.headers[_KEY]}")
    return RelayRequest(method="POST", path="/chat/completions", headers=headers, body=_encode(fields))


def _breaks(*_: Any) -> bool:
    return False


#: A request of Anthropic's wire, answered by a server of OpenAI's wire.
CHATTED = Wire(read=read_as_chat, outgoing=_as_chat, hears=lambda: ChatReader(resent_form), breaks=_breaks)


#: Requests for an answer. Requests that count tokens are neither cached nor stored.
PATH = "/messages"
#: Fields that chat completions have under the same names.
_SAME = ("model", "stream", "tools")
#: Claude Code puts its session after this marker in the user's id.
_SESSION = "_session_"

_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, Raw])
_raws = msgspec.json.Decoder(list[Raw])


class NotReadError(InvalidInput):
    """A request of Anthropic's wire that cannot be parsed."""


class _MessagesModel(msgspec.Struct):
    model: str = ""


# ---- Breakpoints ----------------------------------------------------------------------------------------------------


def breaks(services: Services, upstream: Upstream, model: str) -> bool:
    """Return whether to send cache breakpoints: by setting, or if the provider itself answers."""
    return services.settings.breakpoints != "off" and (
        services.settings.breakpoints == "on" or _rule(upstream, model) is not None
    )


def _rule(upstream: Upstream, model: str) -> CacheRule | None:
    rule = rule_for(model, upstream.base_url)
    return rule if rule is not None and rule.name.startswith("anthropic") else None


def marked(services: Services, upstream: Upstream, request: RelayRequest) -> RelayRequest:
    """Return a request with cache breakpoints, by setting or if the provider itself answers, else unchanged.

    A request with fewer bytes than a model's minimum of cached tokens gets none.
    """
    if request.method != "POST" or request.path != PATH or services.settings.breakpoints == "off":
        return request
    try:
        model = msgspec.json.decode(request.body, type=_MessagesModel).model
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return request
    rule = _rule(upstream, model)
    if not breaks(services, upstream, model) or (rule is not None and len(request.body) < rule.minimum):
        return request
    return msgspec.structs.replace(request, body=with_cache_marks(request.body, hour=lasts_an_hour(services)))


def lasts_an_hour(services: Services) -> bool:
    """Return whether the cache lasts an hour, by setting."""
    return services.settings.cache_rule is not None and services.settings.cache_rule.name == "anthropic-1h"


# ---- Request --------------------------------------------------------------------------------------------------------


def read_messages(services: Services, call: RelayCall) -> Request:
    """Parse a request as an equivalent chat completion.

    Raises NotReadError for unsupported content, and InvalidInput for invalid headers.
    """
    try:
        fields = _fields.decode(call.body)
        turned = read_turned(_raws.decode(fields["messages"]))
        system = [_system(block) for block in read_system(fields["system"])] if "system" in fields else []
    except (KeyError, InvalidInput, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f"Unsupported Anthropic request: {error}"
        raise NotReadError(msg, where="body") from None
    if not turned:
        msg = "messages: empty. Send at least one message."
        raise NotReadError(msg, where="messages")
    chat: dict[str, Any] = {name: fields[name] for name in _SAME if name in fields}
    chat["messages"] = [*system, *(Raw(each.chat) for each in turned)]
    chat["user"] = user_of(fields)
    request = read_request(services, msgspec.structs.replace(call, body=_encode(chat)))
    return msgspec.structs.replace(request, turned=tuple(turned))


def _system(block: Raw) -> dict[str, Any]:
    """Return a block of the system text as its own message, because one that changes each time is stored alone."""
    return {"role": "system", "content": [block]}


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


# ---- Outgoing request -----------------------------------------------------------------------------------------------


def _window(services: Services, upstream: Upstream, going: OutgoingRequest) -> RelayRequest:
    name = going.model or going.request.model
    rule, tokens = _rule(upstream, name), going.opened.planned.window.tokens
    marks = breaks(services, upstream, name) and not (rule is not None and tokens < rule.minimum)
    return _sent(going.call, body_of(going, marks=marks, hour=lasts_an_hour(services)))


def _as_it_came(services: Services, upstream: Upstream, going: OutgoingRequest) -> RelayRequest:
    body, model = going.call.body, going.model
    if model is not None:
        body = _encode(_fields.decode(body) | {"model": Raw(_encode(model))})
    return marked(services, upstream, _sent(going.call, body))


def _sent(call: RelayCall, body: bytes) -> RelayRequest:
    return RelayRequest(method="POST", path=PATH, headers=call.headers, body=body, query=call.query)


#: Sends the window instead of the client's messages.
MESSAGES = Wire(read=read_messages, outgoing=_window, hears=MessagesReader, breaks=breaks, tells=tell_message)
#: Sends the client's own messages and stores the window.
KEPT = Wire(
    read=read_messages, outgoing=_as_it_came, hears=MessagesReader, breaks=breaks, tells=tell_message, says=False
)
