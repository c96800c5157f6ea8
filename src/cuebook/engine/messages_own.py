"""Anthropic's `/v1/messages` answered by a model of another wire, or again: asked as a chat completion, told back.

What goes up is the window as chat messages, with the request's fields as a chat completion has them.
"""

from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw

from cuebook.assembly.forms import weigh
from cuebook.engine.desk import Desk
from cuebook.engine.messages import read_messages
from cuebook.engine.relay import Going, Wire
from cuebook.engine.request import Call, Request
from cuebook.engine.wire import Heard, message_of
from cuebook.ports.model import RelayRequest, Upstream
from cuebook.records.anthropic_messages import read_reply, write_blocks
from cuebook.records.messages_chat import chat_fields, plain_chat

#: OpenAI's own models take the most tokens of an answer under another name than most servers of its wire.
_OPENAI = "api.openai.com"
#: Headers of Anthropic's wire, and where its clients put their key.
_THEIRS = "anthropic-"
_KEY, _BEARER = "x-api-key", "authorization"

_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, Raw])


def read_as_chat(desk: Desk, call: Call) -> Request:
    """Read a request whose answer comes of another wire. Raises InvalidInput, also for what that cannot carry."""
    request = read_messages(desk, call)
    chat_fields(_fields.decode(call.body))
    return msgspec.structs.replace(request, fields={**request.fields, "stream_options": Raw(b'{"include_usage":true}')})


def count_messages(desk: Desk, call: Call) -> int:
    """Estimate the tokens of a request as it stands. Raises InvalidInput."""
    request = read_messages(desk, call)
    history = sum(weigh(msgspec.json.decode(each.raw), desk.count) for each in request.history)
    front = sum(each.tokens or weigh(msgspec.json.decode(each.wire), desk.count) for each in request.client)
    return history + front + (desk.count(request.tools) if request.tools else 0)


def _as_chat(_: Desk, upstream: Upstream, going: Going) -> RelayRequest:
    """Give the window as a chat completion."""
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


class ChatHeard(Heard):
    """What an answer has said that is told on Anthropic's wire: as its client will send it again."""

    @property
    def waits(self) -> bool:
        """Whether calls of it are to be answered before it goes on, whatever reason the model gave."""
        return True

    def message(self, choice: int = 0) -> bytes | None:
        """Give what came as the chat message that its blocks, sent again, are read as."""
        said = message_of(self, choice)
        return said if said is None else read_reply(write_blocks(said, thoughts=True)[1])


def _breaks(*_: Any) -> bool:
    return False


#: A request of Anthropic's wire, answered on OpenAI's.
CHATTED = Wire(read=read_as_chat, outgoing=_as_chat, hears=ChatHeard, breaks=_breaks)
