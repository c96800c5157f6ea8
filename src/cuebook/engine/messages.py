"""Anthropic's `/v1/messages`: a request read as the chat completion that means the same, and as it came on its way up.

What goes up unread, or as it came, gets cache breakpoints where they are read and the client placed none.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from cuebook.assembly.cache import CacheRule, rule_for
from cuebook.assembly.messages_anchors import with_cache_marks
from cuebook.engine.desk import Desk
from cuebook.engine.messages_again import tell_message
from cuebook.engine.messages_heard import MessageHeard
from cuebook.engine.messages_window import body_of
from cuebook.engine.relay import Going, Wire
from cuebook.engine.request import Call, Request, read_request
from cuebook.errors import InvalidInput
from cuebook.ports.model import RelayRequest, Upstream
from cuebook.records.anthropic_messages import read_system, read_turned

#: Requests that make an answer; those that only count tokens are neither cached nor kept.
PATH = "/messages"
#: Fields a chat completion has too, in the same words.
_SAME = ("model", "stream", "tools")
#: Behind this Claude Code names its session in the user's id.
_SESSION = "_session_"

_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, Raw])
_raws = msgspec.json.Decoder(list[Raw])


class NotReadError(InvalidInput):
    """A request of Anthropic's wire that nobody here can read."""


class _Named(msgspec.Struct):
    model: str = ""


# ---- breakpoints ----------------------------------------------------------------------------------------------------


def breaks(desk: Desk, upstream: Upstream, model: str) -> bool:
    """Say whether markers go on the wire: by setting, or where the provider itself answers."""
    return desk.breakpoints != "off" and (desk.breakpoints == "on" or _rule(upstream, model) is not None)


def _rule(upstream: Upstream, model: str) -> CacheRule | None:
    rule = rule_for(model, upstream.base_url)
    return rule if rule is not None and rule.name.startswith("anthropic") else None


def marked(desk: Desk, upstream: Upstream, request: RelayRequest) -> RelayRequest:
    """Give a request with cache breakpoints, by setting or where the provider itself answers; else as it is.

    One that is shorter than the least a model caches, each byte a token, gets none.
    """
    if request.method != "POST" or request.path != PATH or desk.breakpoints == "off":
        return request
    try:
        model = msgspec.json.decode(request.body, type=_Named).model
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return request
    rule = _rule(upstream, model)
    if not breaks(desk, upstream, model) or (rule is not None and len(request.body) < rule.minimum):
        return request
    return msgspec.structs.replace(request, body=with_cache_marks(request.body, hour=lasts_an_hour(desk)))


def lasts_an_hour(desk: Desk) -> bool:
    """Say whether the cache is to last an hour, by setting."""
    return desk.cache_rule is not None and desk.cache_rule.name == "anthropic-1h"


# ---- what is asked --------------------------------------------------------------------------------------------------


def read_messages(desk: Desk, call: Call) -> Request:
    """Read a request as the chat completion that means the same.

    Raises NotReadError where that cannot be, and InvalidInput for what its headers say.
    """
    try:
        fields = _fields.decode(call.body)
        turned = read_turned(_raws.decode(fields["messages"]))
        system = [_system(block) for block in read_system(fields["system"])] if "system" in fields else []
    except (KeyError, InvalidInput, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f"the request is none of Anthropic's that is known here: {error}"
        raise NotReadError(msg, where="body") from None
    if not turned:
        msg = "messages: empty; send at least one"
        raise NotReadError(msg, where="messages")
    chat: dict[str, Any] = {name: fields[name] for name in _SAME if name in fields}
    chat["messages"] = [*system, *(Raw(each.chat) for each in turned)]
    chat["user"] = user_of(fields)
    request = read_request(desk, msgspec.structs.replace(call, body=_encode(chat)))
    return msgspec.structs.replace(request, turned=tuple(turned))


def _system(block: Raw) -> dict[str, Any]:
    """Give a block of the system text as a message of its own: one that changes with each request is kept alone."""
    return {"role": "system", "content": [block]}


def user_of(fields: Mapping[str, Raw]) -> str:
    """Give the user a request's metadata names, "" where it names none; Claude Code's id without its session."""
    metadata = msgspec.json.decode(fields["metadata"]) if "metadata" in fields else None
    named = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(named, str):
        return ""
    if named.startswith("{"):
        try:
            told = msgspec.json.decode(named)
        except (msgspec.DecodeError, RecursionError):
            return named
        known = [told.get(name) for name in ("account_uuid", "device_id")] if isinstance(told, dict) else []
        return next((each for each in known if isinstance(each, str) and each), named)
    return named.partition(_SESSION)[0] or named


# ---- what goes upstream ---------------------------------------------------------------------------------------------


def _window(desk: Desk, upstream: Upstream, going: Going) -> RelayRequest:
    named = going.model or going.request.model
    rule, tokens = _rule(upstream, named), going.opened.planned.window.tokens
    marks = breaks(desk, upstream, named) and not (rule is not None and tokens < rule.minimum)
    return _sent(going.call, body_of(going, marks=marks, hour=lasts_an_hour(desk)))


def _as_it_came(desk: Desk, upstream: Upstream, going: Going) -> RelayRequest:
    body, model = going.call.body, going.model
    if model is not None:
        body = _encode(_fields.decode(body) | {"model": Raw(_encode(model))})
    return marked(desk, upstream, _sent(going.call, body))


def _sent(call: Call, body: bytes) -> RelayRequest:
    return RelayRequest(method="POST", path=PATH, headers=call.headers, body=body, query=call.query)


#: The window goes up in the place of the client's messages.
MESSAGES = Wire(read=read_messages, outgoing=_window, hears=MessageHeard, breaks=breaks, tells=tell_message)
#: The client's own messages go up, and what would have gone is kept beside them.
KEPT = Wire(read=read_messages, outgoing=_as_it_came, hears=MessageHeard, breaks=breaks, tells=tell_message, says=False)
