"""How a chat-completions request is read, and where its messages continue what is stored."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from cuebook.assembly.window import ClientSystem
from cuebook.engine.align import Continuation, continue_at, digest_list, same_conversation
from cuebook.engine.desk import Desk
from cuebook.errors import InvalidInput
from cuebook.records import openai_messages
from cuebook.records.conversation import ASSISTANT, SYSTEM, TOOL
from cuebook.records.memory import Scope
from cuebook.records.openai_messages import Said, read_message

#: Answers looked for when a history comes without a conversation id, from the newest on.
ANCHORS = 32

_fields = msgspec.json.Decoder(dict[str, Raw])
_raws = msgspec.json.Decoder(list[Raw])


class Call(Struct, frozen=True, kw_only=True):
    """A chat-completions request as it came."""

    body: bytes
    headers: Mapping[str, str]
    conversation: str | None = None  # from the base URL or a header
    user: str | None = None
    server_history: bool = False  # X-History: server: `messages` are new ones only
    query: str = ""


class Spoken(Struct, frozen=True):
    """A message of a request: as it came, as we read it, and the digest of what of it would be stored."""

    raw: bytes
    said: Said
    digest: bytes
    secret: bool


class Request(Struct, frozen=True, kw_only=True):
    """A request read: its fields' own bytes, its system messages, and the rest of its history."""

    fields: dict[str, Raw]
    client: tuple[ClientSystem, ...]
    live_client: tuple[ClientSystem, ...]
    history: tuple[Spoken, ...]
    model: str
    conversation: str | None
    user: str | None
    stream: bool
    tools: str


def read_request(desk: Desk, call: Call) -> Request:
    """Read a request. Raises InvalidInput naming the field; whatever is not ours to judge is left to the upstream."""
    try:
        fields = _fields.decode(call.body)
        raws = _raws.decode(fields["messages"])
    except KeyError:
        msg = "messages: missing; a chat completion needs a list of messages"
        raise InvalidInput(msg, where="messages") from None
    except msgspec.DecodeError as error:
        msg = f"the request body is no JSON object with a list of messages ({error})"
        raise InvalidInput(msg, where="body") from None
    spoken = [_spoken(desk, bytes(raw), number) for number, raw in enumerate(raws)]
    if not spoken:
        msg = "messages: empty; send at least one message"
        raise InvalidInput(msg, where="messages")
    lead = next((n for n, each in enumerate(spoken) if each.said.role != SYSTEM), len(spoken))
    front = spoken[:lead]
    clean = tuple(_system(each, desk.writer.clean_json(each.raw)) for each in front)
    metadata = _value(fields, "metadata")
    named = metadata.get("conversation_id") if isinstance(metadata, dict) else None
    return Request(
        fields=fields,
        client=clean,
        live_client=tuple(_system(each, each.raw) for each in front) if any(each.secret for each in front) else (),
        history=tuple(spoken[lead:]),
        model=_text(_value(fields, "model")),
        conversation=call.conversation or (named if isinstance(named, str) and named else None),
        user=call.user or _text(_value(fields, "user")) or _text(_value(fields, "safety_identifier")) or None,
        stream=_value(fields, "stream") is True,
        tools=bytes(fields["tools"]).decode() if "tools" in fields and _value(fields, "tools") else "",
    )


def _spoken(desk: Desk, raw: bytes, number: int) -> Spoken:
    clean = desk.writer.clean_json(raw)
    said = read_message(clean, index=number)
    return Spoken(raw, said, openai_messages.digest(said), clean is not raw)


def _system(spoken: Spoken, raw: bytes) -> ClientSystem:
    said = read_message(raw)
    role = _text(msgspec.json.decode(raw).get("role")) or SYSTEM
    text = said.message or "\n".join(part.content for part in said.parts)
    return ClientSystem(role=role, text=text, wire=raw)


def _value(fields: Mapping[str, Raw], name: str) -> Any:
    return msgspec.json.decode(fields[name]) if name in fields else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def sender_of(said: Said, user: str | None) -> str:
    """Who sends a message of the wire."""
    if said.role == "user":
        return said.name or user or "user"
    return {TOOL: TOOL, SYSTEM: SYSTEM}.get(said.role, ASSISTANT)


# ---- where a request continues --------------------------------------------------------------------------------------


class Place(Struct, frozen=True, kw_only=True):
    """Where a request's new messages go."""

    conversation: str
    parent: int | None  # None: the head of a conversation, or its beginning
    first_new: int
    seqs: dict[int, int]
    side: bool = False  # continues no path: stored apart, teaches nothing


async def place_of(desk: Desk, scope: Scope, request: Request, *, server_history: bool) -> Place:
    """Find the stored path a resent history continues."""
    history = request.history
    if server_history:
        return Place(conversation=request.conversation or desk.dice.new_id("conv"), parent=None, first_new=0, seqs={})
    digests = [each.digest for each in history]
    if request.conversation is not None:
        found = await desk.store.align(scope, digests, conversation=request.conversation)
        if not found or not found[0].conversation.last_seq:
            return Place(conversation=request.conversation, parent=None, first_new=0, seqs={})
        return _place(request.conversation, continue_at(found[0]))
    anchors = digest_list(digests, [each.said.role for each in history], most=ANCHORS)
    answers = [n for n, each in enumerate(history) if each.said.role == ASSISTANT]
    found = await desk.store.align(scope, digests, conversation=None, anchors=anchors) if anchors else []
    continuation = same_conversation(found, new_from=answers[0] + 1 if answers else 0)
    if continuation is None:
        return Place(conversation=desk.dice.new_id("conv"), parent=None, first_new=0, seqs={})
    return _place(continuation.alignment.conversation.id, continuation)


def _place(conversation: str, continuation: Continuation | None) -> Place:
    if continuation is None:
        return Place(conversation=conversation, parent=0, first_new=0, seqs={}, side=True)
    return Place(
        conversation=conversation, parent=continuation.parent, first_new=continuation.first_new, seqs=continuation.seqs
    )
