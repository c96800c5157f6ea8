"""Parse and render OpenAI chat messages, and compute their digests.

The parser leaves validation to the upstream: an unknown content part or call becomes an `opaque` part. It only rejects
messages that are no object, have no known role, or have content of the wrong shape.

A `MessageContent` stores each text once. One text alone or first is in `message` and not in `parts`. Several texts, or
one after an image, are `text` parts in order, and `message` joins them with line breaks.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import msgspec
from msgspec import Struct

from cuebook.errors import InvalidInput
from cuebook.records.conversation import ASSISTANT, CALL, ERROR, RESULT, SYSTEM, TOOL, Part, Post, Role, digest_of
from cuebook.wire.answer import as_dict, read_json, refuse

#: Wire roles and ours. `developer` is OpenAI's newer name of `system`, `function` the legacy one of `tool`.
ROLES: dict[str, Role] = {
    "system": "system", "developer": "system", "user": "user",
    "assistant": "assistant", "tool": "tool", "function": "tool",
}  # fmt: skip
#: Suffix of an interrupted reply's text.
INTERRUPTED = "[interrupted]"

_LEGACY_CALL = "function:"  # a legacy call has no id; its name matches it to its result
_UNSPOKEN = frozenset({"reasoning", "shared_memory_entry"})  # parts that are never rendered as text
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # names that OpenAI accepts as `name`
#: Content part → keys of its body with the content, by preference.
_MEDIA = {"image_url": ("url",), "input_audio": ("data",), "file": ("file_id", "file_data")}
_ARGUMENTS = {"function": "arguments", "custom": "input"}  # kind of call → the key of its arguments
#: Cache markers of a content part.
_CACHE_MARKS = ("cache_control", "prompt_cache_breakpoint")
#: Fields of a reply that a request may contain (OpenAI's reference, read 2026-11), and a provider's own state.
_REQUEST_FIELDS = frozenset({
    "role", "content", "name", "refusal", "audio", "tool_calls", "function_call", "thinking_blocks", "block_order",
    "response_items",
})  # fmt: skip
_DECODE: Any = msgspec.json.Decoder(dict[str, Any]).decode
_ENCODER = msgspec.json.Encoder()
_SORTED = msgspec.json.Encoder(order="sorted")


class MessageContent(Struct, frozen=True):
    """Content of one chat message. `name` is the wire's, or None."""

    role: Role
    name: str | None
    message: str
    parts: tuple[Part, ...] = ()


class ToolCall(Struct, frozen=True):
    """A tool call. `arguments` is the original string, JSON or not."""

    id: str
    name: str
    arguments: str
    kind: str = "function"
    legacy: bool = False


class _Message(Struct, omit_defaults=True):
    """A message on the wire, keys in this order."""

    role: str
    content: Any
    name: str | None = None
    tool_calls: list[Any] | None = None
    function_call: Any = None
    tool_call_id: str | None = None
    refusal: str | None = None
    audio: Any = None


# ---------------------------------------------------------------- reading
class ResentMessage(Struct, frozen=True):
    """A message of a client's request: its bytes, role, digest of its stored form, and whether it contains secrets."""

    raw: bytes
    role: str
    digest: bytes
    secret: bool
    read: MessageContent | None = None  # if parsed for this request, without secrets

    @property
    def content(self) -> MessageContent:
        """Return the parsed content."""
        return self.read or read_message(self.raw)


def read_message(raw: bytes | Mapping[str, Any], *, index: int = 0) -> MessageContent:
    """Parse one chat message. Raises InvalidInput naming the field as `messages[index].…`."""
    where = f"messages[{index}]"
    data = _object(raw, where)
    role, name = _role(data, where), data.get("name")
    if name is not None and not isinstance(name, str):
        _wrong(f"{where}.name", "a string", name)
    pieces = _pieces(data, where)
    texts = [piece.content for piece in pieces if piece.type == "text"]
    heard = (piece.content for piece in pieces if piece.type == "refusal" or _audio_id(piece))
    message = "\n".join(texts) or next(heard, "")
    if len(texts) == 1 and pieces[0].type == "text":
        del pieces[0]
    return MessageContent(role, name, message, (*_reasoning(data), *_result(data, role), *pieces, *_calls(data, where)))


def read_call(part: Part) -> ToolCall:
    """Parse a `function` part: content `{"name", "arguments"}`, or only the arguments, with the name in `extra`."""
    extra, body = as_dict(part.extra), read_json(part.content)
    if not (isinstance(body, dict) and isinstance(body.get("name"), str) and "arguments" in body):
        body = {"name": _str(extra.get("name")), "arguments": part.content}
    kind = _str(extra.get("kind")) or "function"
    return ToolCall(_str(extra.get("callId")), body["name"], _as_text(body["arguments"]), kind, "legacy" in extra)


def _object(raw: bytes | Mapping[str, Any], where: str) -> Mapping[str, Any]:
    if isinstance(raw, bytes):
        try:
            raw = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            refuse(where, f"invalid JSON: {error}")
    if not isinstance(raw, Mapping):
        _wrong(where, "an object", raw)
    return raw


def _role(data: Mapping[str, Any], where: str) -> Role:
    role = data.get("role")
    if not isinstance(role, str) or role not in ROLES:
        refuse(f"{where}.role", f"expected one of {', '.join(ROLES)}, got {role!r}")
    return ROLES[role]


def _pieces(data: Mapping[str, Any], where: str) -> list[Part]:
    """Parse content, refusal and audio. Drop empty texts."""
    content = data.get("content")
    pieces: list[Part] = []
    if isinstance(content, str):
        pieces = [Part("text", content)] if content else []
    elif isinstance(content, list | tuple):
        parts = [_piece(item, f"{where}.content[{n}]") for n, item in enumerate(content)]
        pieces = [piece for piece in parts if piece.type != "text" or piece.content]
    elif content is not None:
        _wrong(f"{where}.content", "a string or a list of parts", content)
    if isinstance(refusal := data.get("refusal"), str) and refusal:
        pieces.append(Part("refusal", refusal))
    if isinstance(audio := data.get("audio"), Mapping) and isinstance(audio.get("id"), str):
        pieces.append(Part("audio", _str(audio.get("transcript")), {"audioId": audio["id"]}))
    return pieces


def _piece(item: object, where: str) -> Part:
    if not isinstance(item, Mapping):
        _wrong(where, "an object", item)
    kind = _str(item.get("type"))
    body: Any = item.get(kind)
    if kind in ("text", "refusal", "image_url") and isinstance(body, str):
        return Part(kind, body)
    for key in _MEDIA.get(kind, ()) if isinstance(body, Mapping) else ():
        if isinstance(value := body.get(key), str):
            rest = {name: other for name, other in body.items() if name != key}
            return Part(kind.removeprefix("input_"), value, rest | ({"source": key} if kind == "file" else {}) or None)
    return Part("opaque", _json(item), {"originalType": kind, "in": "content"})


def _reasoning(data: Mapping[str, Any]) -> Iterator[Part]:
    fields = ("reasoning_content", "reasoning", "thinking_blocks")  # names of DeepSeek, OpenRouter and LiteLLM
    if field := next((field for field in fields if data.get(field)), None):
        yield Part("reasoning", _as_text(data[field]), {"field": field})


def _result(data: Mapping[str, Any], role: Role) -> Iterator[Part]:
    """Return a part with the answered call's id. The result's text is in the message, so the part's
    content is empty.
    """
    if role != TOOL:
        return
    call, name = data.get("tool_call_id"), data.get("name")
    if data["role"] == "function" and isinstance(name, str):
        yield Part(RESULT, "", {"callId": _LEGACY_CALL + name, "legacy": True})
    else:
        yield Part(RESULT, "", {"callId": call} if isinstance(call, str) and call else None)


def _calls(data: Mapping[str, Any], where: str) -> Iterator[Part]:
    calls = data.get("tool_calls")
    if calls is not None and not isinstance(calls, list | tuple):
        _wrong(f"{where}.tool_calls", "a list", calls)
    yield from (_call(call, f"{where}.tool_calls[{n}]") for n, call in enumerate(calls or ()))
    legacy = data.get("function_call")
    if isinstance(legacy, Mapping) and isinstance(name := legacy.get("name"), str):
        yield _call_part(name, legacy.get("arguments"), callId=_LEGACY_CALL + name, name=name, legacy=True)


def _call(call: object, where: str) -> Part:
    if not isinstance(call, Mapping):
        _wrong(where, "an object", call)
    kind = _str(call.get("type")) or "function"
    body = call.get(kind) if kind in _ARGUMENTS else None
    if not isinstance(body, Mapping) or not isinstance(name := body.get("name"), str):
        return Part("opaque", _json(call), {"originalType": kind, "in": "tool_calls"})
    rest = {} if kind == "function" else {"kind": kind}
    return _call_part(name, body.get(_ARGUMENTS[kind]), callId=_str(call.get("id")), name=name, **rest)


def _call_part(called: str, arguments: object, **extra: Any) -> Part:
    return Part(CALL, _json({"name": called, "arguments": _as_text(arguments)}, ordered=False), extra)


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else _json(value)


def canonical(message_content: MessageContent) -> bytes:
    """Return equal bytes for messages with equal content: role, speaker, texts, images, files, calls, answered call.

    It ignores what clients add or drop when they resend: key order, white space of the message, around its text and in
    call arguments, null and missing fields, annotations, reasoning, an image's detail, and the name of an assistant or
    a tool (clients label replies without a name; a call id identifies the tool).
    """
    spoken: list[Any] = []
    calls: list[Any] = []
    results: list[str] = []
    for part in message_content.parts:
        if part.type == CALL and part.call_id is not None:
            call = read_call(part)
            calls.append([call.id, call.name, _canonical_arguments(call)])
        elif part.type in (RESULT, ERROR) and (message_content.role == TOOL or part.call_id is not None):
            results.append(part.call_id or "")
            if part.content not in ("", message_content.message):
                spoken.append(["text", part.content])
        elif part.type != "reasoning":
            spoken.append([part.type, _audio_id(part) or part.content])
    if _leads(message_content):
        spoken.insert(0, ["text", message_content.message.strip()])  # clients trim displayed text and resend it
    name = (
        None
        if message_content.role in (ASSISTANT, TOOL) or (message_content.name or "").lower() == "user"
        else message_content.name
    )
    return _json([message_content.role, name or None, spoken, calls, results], ordered=False).encode()


def digest(message_content: MessageContent) -> bytes:
    """Return a digest of 16 bytes, equal for messages with equal content."""
    return digest_of(canonical(message_content))


def _leads(said: MessageContent | Post) -> bool:
    """Return whether `message` is a text before all parts, not the joined view of texts or of one other part."""
    view = "\n".join(part.content for part in said.parts if part.type == "text")
    others = (part.content for part in said.parts if part.type == "refusal" or _audio_id(part))
    echoed = said.message in others or (view and said.message.strip() == view.strip())
    return bool(said.message and not echoed)


def _canonical_arguments(call: ToolCall) -> str:
    """Return call arguments as sorted JSON if they are JSON, because clients re-encode them. None becomes `{}`."""
    value = read_json(call.arguments.strip() or "{}") if call.kind == "function" else None
    return call.arguments if value is None else _json(value)


# ---------------------------------------------------------------- writing
def write_message(post: Post, *, user: str | None = None) -> bytes:
    """Render a post as a compact wire message. Ignore its own `wire`.

    A user post from another sender gets the sender as `name`, or before the text if the wire does not accept the name.
    Attachments follow the text as `[type] content`, and so do parts that a role cannot send (an assistant's image). A
    tool result of an unknown call becomes a user's message named "tool". An interrupted reply ends with INTERRUPTED.
    """
    role: str = SYSTEM if post.role == "summary" else post.role
    call = post.result_of if role != ASSISTANT else None
    if call and any("legacy" in as_dict(part.extra) for part in post.parts if part.type in (RESULT, ERROR)):
        return _encode(_Message("function", _content(_items(post)), call.removeprefix(_LEGACY_CALL)))
    if call:
        return _encode(_Message(TOOL, _content(_items(post)), tool_call_id=call))
    if role == ASSISTANT and (post.parts or post.state != "complete"):
        return _write_reply(post)
    name, prefix = _speaker(post, user)
    content = _content(_items(post, media=role == "user", prefix=prefix)) if post.parts else prefix + post.message
    return _encode(_Message("user" if role == TOOL else role, content, name))


def request_form(message: bytes) -> bytes:
    """Return a stored message with the fields that a request may contain: without cache markers and, for a reply,
    without fields that only an answer has. Signed thinking stays, because a wire that supports it needs it.
    """
    data: dict[str, Any] = _DECODE(message)
    fields = data
    if data.get("role") == ASSISTANT:
        fields = {name: value for name, value in data.items() if name in _REQUEST_FIELDS and value is not None}
        if isinstance(audio := fields.get("audio"), dict):
            fields["audio"] = {"id": audio.get("id")}
        fields.setdefault("content", None)
    if isinstance(content := fields.get("content"), list) and has_cache_marks(message):
        fields = fields | {"content": [_without_marks(part) if isinstance(part, dict) else part for part in content]}
    return message if fields == data else _encode(fields)


def has_cache_marks(message: bytes) -> bool:
    """Return whether a message has a cache marker."""
    return any(f'"{mark}"'.encode() in message for mark in _CACHE_MARKS)


def _without_marks(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name not in _CACHE_MARKS}


def _speaker(post: Post, user: str | None) -> tuple[str | None, str]:
    """Return the wire's `name`, and the prefix of the text instead of it."""
    if post.role == TOOL:
        return TOOL, ""
    if post.role != "user" or not post.sender or post.sender == user or post.sender.lower() == "user":
        return None, ""
    if _NAME.fullmatch(post.sender):
        return post.sender, ""
    return None, " ".join(post.sender.split()) + ": "


def _write_reply(post: Post) -> bytes:
    """Render an assistant's message. Calls of an interrupted reply were never answered: render them as text."""
    message = _Message(ASSISTANT, None)
    items = _items(post)
    calls = [read_call(part) for part in post.parts if part.type == CALL and part.call_id is not None]
    if post.state == "interrupted":
        for call in calls:
            _note(items, f"[calling {call.name}]")
        _note(items, INTERRUPTED)
    else:
        legacy = ({"name": call.name, "arguments": call.arguments} for call in calls if call.legacy)
        message.function_call = next(legacy, None)
        placed = [item for part in post.parts if (item := _kept(part, "tool_calls"))]
        message.tool_calls = [_wire_call(call) for call in calls if not call.legacy] + placed or None
    message.refusal = next((part.content for part in post.parts if part.type == "refusal"), None)
    message.audio = next(({"id": audio} for part in post.parts if (audio := _audio_id(part))), None)
    silent = message.tool_calls or message.function_call or message.refusal or message.audio
    message.content = _content(items) or (None if silent else "")
    return _encode(message)


def _wire_call(call: ToolCall) -> dict[str, Any]:
    body = {"name": call.name, _ARGUMENTS.get(call.kind, "arguments"): call.arguments}
    return {"id": call.id, "type": call.kind, call.kind: body}


def _items(post: Post, *, media: bool = False, prefix: str = "") -> list[Any]:
    """Return the content in order: texts, and wire parts of other kinds. `media`: the role may send them."""
    lead = prefix + post.message if _leads(post) else prefix.rstrip()
    items: list[Any] = [lead] if lead else []
    for part in post.parts:
        if not part.content or part.type in _UNSPOKEN or (post.role == ASSISTANT and _elsewhere(part)):
            continue
        if part.type == "text":
            items.append(part.content)
        elif part.type in (RESULT, ERROR) and (post.role == TOOL or part.call_id is not None):
            if part.content != post.message:
                items.append(part.content)
        elif item := _kept(part, "content") or (_media(part) if media else None):
            items.append(item)
        else:
            kind = _str(as_dict(part.extra).get("originalType")) or part.type
            _note(items, f"[{kind}]" if part.content.startswith("data:") else f"[{kind}] {part.content}")
    return items


def _elsewhere(part: Part) -> bool:
    """Return whether an assistant's part belongs outside the content."""
    if part.type == CALL:
        return part.call_id is not None
    return part.type == "refusal" or _audio_id(part) is not None or as_dict(part.extra).get("in") == "tool_calls"


def _kept(part: Part, place: str) -> dict[str, Any] | None:
    """Return an opaque part's original JSON, if it came from this position of a message."""
    item = read_json(part.content) if part.type == "opaque" and as_dict(part.extra).get("in") == place else None
    return item if isinstance(item, dict) else None


def _media(part: Part) -> dict[str, Any] | None:
    """Return the content part of an image, sound or file that the wire supports."""
    extra = as_dict(part.extra)
    body = {key: extra[key] for key in ("detail", "filename", "format") if key in extra}
    if part.type == "image_url" and part.content.startswith(("data:", "https://", "http://")):
        return {"type": "image_url", "image_url": {"url": part.content, **body}}
    if part.type == "audio" and "format" in body:
        return {"type": "input_audio", "input_audio": {"data": part.content, **body}}
    if part.type == "file" and (source := extra.get("source")) in _MEDIA["file"]:
        return {"type": "file", "file": {source: part.content, **body}}
    return None


def _note(items: list[Any], note: str) -> None:
    """Append a note after the last text, or as its own text."""
    if items and isinstance(items[-1], str):
        items[-1] = f"{items[-1]}\n\n{note}"
    else:
        items.append(note)


def _content(items: list[Any]) -> Any:
    """Return a plain string for one text alone, else the list of parts."""
    if len(items) == 1 and isinstance(items[0], str):
        return items[0]
    return [{"type": "text", "text": item} if isinstance(item, str) else item for item in items] or ""


def _audio_id(part: Part) -> str | None:
    return as_dict(part.extra).get("audioId") if part.type == "audio" else None


def _str(value: object) -> str:
    return value if isinstance(value, str) else ""


def _json(value: object, *, ordered: bool = True) -> str:
    return _encode(value, _SORTED if ordered else _ENCODER).decode()


def _encode(value: object, encoder: msgspec.json.Encoder = _ENCODER) -> bytes:
    try:
        return encoder.encode(value)
    except (UnicodeEncodeError, RecursionError) as error:
        raise InvalidInput(f"Cannot encode a message as JSON: {error}", where="message") from error


def _wrong(where: str, expected: str, got: object) -> NoReturn:
    refuse(where, f"expected {expected}, got {type(got).__name__}")


def value_of(fields: Mapping[str, msgspec.Raw], name: str) -> Any:
    """Return the value of a request's field, None if it is missing."""
    return msgspec.json.decode(fields[name]) if name in fields else None
