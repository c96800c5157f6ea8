"""Convert Anthropic messages to equivalent chat messages and back to content blocks.

A user's message with tool results becomes several: a tool message per result, and the rest as the user's. Content in
`<system-reminder>` and some known texts come from an agent program, and are separated from the user's words. A system
message in the middle counts as such a reminder of the message before it. Thinking goes to `thinking_blocks`, separate
from the text. Unknown blocks stay unchanged.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from cuebook.records.conversation import ASSISTANT, SYSTEM, TOOL
from cuebook.wire.answer import as_dict, read_json, refuse

#: Key of a block with a cache breakpoint.
MARK: Final = "cache_control"
#: Field of a chat message with a model's signed thinking (LiteLLM's name).
THINKING: Final = "thinking_blocks"
#: Field of a chat message with the types of an answer's blocks, if their order is not the usual one.
ORDER: Final = "block_order"
#: Block types of thinking.
THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})

_ROLES = ("user", ASSISTANT)
_REMINDER = re.compile(r"\s*<system-reminder>.*</system-reminder>\s*", re.DOTALL)
#: How other texts begin that Claude Code writes in the user's role: /compact asks, its summary, local commands.
_BY_PROGRAM: Final = (
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.",
    "This session is being continued from a previous conversation that ran out of context.",
    "Continue from where you left off.",
    "<command-name>",
    "<local-command-",
)
#: Type of a part that the user did not write.
REMINDED: Final = "system_reminder"
_DATA_URL = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
#: Most characters of a tool's name.
_LONGEST_NAME = 128

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_raws = msgspec.json.Decoder(list[Raw])


class ConvertedMessage(Struct, frozen=True):
    """A chat message and its source blocks from the client's message number `at`.

    `behind` are the system messages after it: numbers `at` + 1 and up.
    """

    chat: bytes
    at: int
    role: str
    blocks: tuple[Raw, ...]
    behind: tuple[Raw, ...] = ()


def is_marked(message: ConvertedMessage) -> bool:
    """Return whether the client set a cache breakpoint on one of a message's blocks."""
    return any(MARK.encode() in bytes(block) for block in (*message.blocks, *message.behind))


# ---------------------------------------------------------------- reading
def convert_messages(raws: Sequence[Raw]) -> list[ConvertedMessage]:
    """Parse a request's messages. Raises InvalidInput naming the field as `messages[n].…`."""
    messages = [load_json(raw, f"messages[{at}]") for at, raw in enumerate(raws)]
    starts = [at for at, message in enumerate(messages) if at == 0 or _role(message) != SYSTEM]
    return [
        each
        for at, end in pairwise([*starts, len(raws)])
        for each in _read(at, raws[at], messages[at], raws[at + 1 : end])
    ]


def read_reminders(raw: Raw) -> list[dict[str, Any]]:
    """Return a system message's texts as blocks of the previous user message. Raises InvalidInput."""
    blocks = [load_json(block, "system") for block in read_system(_fields(raw).get("content", Raw(b"null")))]
    texts = [block.get("text") for block in blocks]
    if not all(isinstance(text, str) for text in texts):
        refuse("messages", "expected text in a system message")
    return [{"type": "text", "text": f"<system-reminder>\n{text}\n</system-reminder>"} for text in texts]


def read_system(raw: Raw) -> list[Raw]:
    """Return a request's system text as blocks, without empty ones. Raises InvalidInput."""
    value = load_json(raw, "system")
    if isinstance(value, str):
        return [Raw(_encode({"type": "text", "text": value}))] if value.strip() else []
    if not isinstance(value, list) or not all(isinstance(block, dict) for block in value):
        refuse("system", "expected a string or a list of blocks")
    return [block for block, read in zip(_raws.decode(raw), value, strict=True) if read.get("text", "")]


def read_reply(content: object) -> bytes:
    """Return an answer's blocks as a chat message. Raises InvalidInput for unsupported content."""
    blocks = content if isinstance(content, list) else []
    return _written(_reply([block for block in blocks if isinstance(block, dict)]))


def _role(message: object) -> object:
    return message.get("role") if isinstance(message, dict) else None


def _read(at: int, raw: Raw, message: Any, behind: Sequence[Raw]) -> Iterator[ConvertedMessage]:
    role = _role(message)
    if role not in _ROLES:
        refuse(f"messages[{at}].role", f"expected user or assistant, got {role!r}")
    content = message.get("content")
    if isinstance(content, str):
        raws, blocks = [Raw(_encode({"type": "text", "text": content}))], [{"type": "text", "text": content}]
    elif isinstance(content, list) and all(isinstance(block, dict) for block in content):
        raws, blocks = _raws.decode(_fields(raw)["content"]), content
    else:
        refuse(f"messages[{at}].content", "expected a string or a list of blocks")
    reminders = [block for each in behind for block in read_reminders(each)]
    if role == ASSISTANT:
        yield ConvertedMessage(_written(_reply(blocks)), at, role, tuple(raws), tuple(behind))
        return
    blocks = [*blocks, *reminders]
    for first, last in _runs(blocks):
        own = blocks[first:last]
        is_result = own and _kind(own[0]) == "tool_result"
        chat = _result(own) if is_result else {"role": "user", "content": _content([_part(block) for block in own])}
        yield ConvertedMessage(
            _written(chat), at, role, tuple(raws[first:last]), tuple(behind) if last >= len(blocks) else ()
        )


def _fields(raw: Raw) -> dict[str, Raw]:
    return msgspec.json.decode(raw, type=dict[str, Raw])


def _runs(blocks: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Split a user's blocks: one message per tool result with its reminders, and one for the others."""
    runs: list[tuple[int, int]] = []
    for n, block in enumerate(blocks):
        before = _kind(blocks[runs[-1][0]]) if runs else None
        theirs = before == "tool_result" and not all(map(_is_reminder, _rest(blocks[n:])))
        if _kind(block) == "tool_result" or not runs or theirs:
            runs.append((n, n + 1))
        else:
            runs[-1] = (runs[-1][0], n + 1)
    return runs or [(0, 0)]


def _rest(blocks: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for block in blocks:
        if _kind(block) == "tool_result":
            return
        yield block


def _kind(block: Mapping[str, Any]) -> str:
    kind = block.get("type")
    return kind if isinstance(kind, str) else ""


def _is_reminder(block: Mapping[str, Any]) -> bool:
    text = block.get("text")
    return _kind(block) == "text" and isinstance(text, str) and _REMINDER.fullmatch(text) is not None


def _result(blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    result, reminders = blocks[0], blocks[1:]
    content = result.get("content")
    values = [{"type": "text", "text": content}] if isinstance(content, str) else content
    fields = values if isinstance(values, list) else []
    parts = [_part(part, reminds=False) for part in fields if isinstance(part, dict)]
    parts += [{"type": "text", "text": block.get("text", "")} for block in reminders]
    data: dict[str, Any] = {"role": TOOL, "tool_call_id": result.get("tool_use_id"), "content": _joined(parts)}
    return data | ({"is_error": True} if result.get("is_error") is True else {})


def _joined(parts: list[dict[str, Any]]) -> Any:
    """Join texts into one: a long result is shortened as one text."""
    if all(part.get("type") == "text" and isinstance(part.get("text"), str) for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _reply(blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    calls = [_call(block) for block in blocks if _kind(block) == "tool_use"]
    thoughts = [_bare(block) for block in blocks if _kind(block) in THOUGHTS]
    others = [block for block in blocks if _kind(block) not in {"tool_use", *THOUGHTS}]
    parts = [part for block in others if (part := _part(block, reminds=False)).get("text") != ""]
    data: dict[str, Any] = {"role": ASSISTANT, "content": _content(parts) or (None if calls else "")}
    data |= ({THINKING: thoughts} if thoughts else {}) | ({"tool_calls": calls} if calls else {})
    order = [_kind(block) for block in blocks if block.get("text") != ""]
    usual = sorted(order, key=_rank)
    return data if order == usual else data | {ORDER: order}


def _rank(kind: str) -> int:
    """Return the usual place of a block in an answer: thinking, then texts and others, then calls."""
    return 0 if kind in THOUGHTS else 2 if kind == "tool_use" else 1


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    value = block.get("input")
    arguments = value if isinstance(value, str) else _written({} if value is None else value).decode()
    return {
        "id": block.get("id"), "type": "function",
        "function": {"name": str(block.get("name", "")), "arguments": arguments},
    }  # fmt: skip


def _part(block: Mapping[str, Any], *, reminds: bool = True) -> dict[str, Any]:
    """Return a block as a part of a chat message. An unsupported block stays unchanged."""
    kind, source = _kind(block), block.get("source")
    if kind == "text" and isinstance(text := block.get("text"), str):
        by_program = reminds and (_is_reminder(block) or text.startswith(_BY_PROGRAM))
        return {"type": REMINDED if by_program else "text", "text": text}
    url = _url(source) if isinstance(source, dict) else ""
    if kind == "image" and url:
        return {"type": "image_url", "image_url": {"url": url}}
    if kind == "document" and url.startswith("data:") and not {"context", "citations"} & {*_bare(block)}:
        title = block.get("title")
        return {"type": "file", "file": {"file_data": url} | ({"filename": title} if isinstance(title, str) else {})}
    return _bare(block)


def _url(source: Mapping[str, Any]) -> str:
    data, kind = source.get("data"), source.get("media_type")
    if source.get("type") == "base64" and isinstance(data, str) and isinstance(kind, str):
        return f"data:{kind};base64,{data}"
    url = source.get("url")
    return url if source.get("type") == "url" and isinstance(url, str) else ""


def _bare(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a block without cache markers and without null fields added by a client's library."""
    return {name: value for name, value in block.items() if name != MARK and value is not None}


def _content(parts: list[dict[str, Any]]) -> Any:
    text = parts[0].get("text") if len(parts) == 1 and parts[0].get("type") == "text" else None
    return text if isinstance(text, str) else parts or ""


# ---------------------------------------------------------------- writing
def write_blocks(chat: bytes) -> tuple[str, list[dict[str, Any]]]:
    """Return a chat message's role and blocks, none if it is empty."""
    message = _decode(chat)
    role, blocks = message.get("role"), _blocks(message.get("content"))
    if role in (TOOL, "function"):
        return "user", [_tool_result(message, blocks)]
    if role != ASSISTANT:
        name = message.get("name")
        return "user", ([{"type": "text", "text": f"{name}:"}] if isinstance(name, str) and blocks else []) + blocks
    signed = [each for each in message.get(THINKING) or () if isinstance(each, dict)]
    refusal = message.get("refusal")
    items = _blocks(refusal) if isinstance(refusal, str) else []
    calls = [_tool_use(call) for call in message.get("tool_calls") or () if isinstance(call, dict)]
    usual = signed + blocks + items + calls
    return ASSISTANT, _ordered(usual, message[ORDER]) if ORDER in message else usual


def _ordered(blocks: Sequence[dict[str, Any]], order: Sequence[str]) -> list[dict[str, Any]]:
    """Return an answer's blocks in its own order. The usual order stays if thinking was left out."""
    kinds: list[Iterator[dict[str, Any]]] = [
        iter([block for block in blocks if _rank(_kind(block)) == rank]) for rank in range(3)
    ]
    ordered = [block for kind in order if (block := next(kinds[_rank(kind)], None)) is not None]
    return ordered if len(ordered) == len(blocks) else list(blocks)


def resent_form(chat: bytes) -> bytes:
    """Return an answer's chat message as a client parses and resends it: through its blocks."""
    return read_reply(write_blocks(chat)[1])


def _blocks(content: object) -> list[dict[str, Any]]:
    """Return a content's blocks without empty texts, which the API rejects."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    items = [_block(part) for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return [block for block in items if _kind(block) != "text" or str(block.get("text", "")).strip()]


def _block(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = _kind(part)
    body = part.get(kind)
    if kind == REMINDED:
        return {"type": "text", "text": part.get("text", "")}
    if kind == "image_url" and isinstance(body, dict):
        return {"type": "image", "source": _source(str(body.get("url", "")))}
    if kind == "file" and isinstance(body, dict) and "file_data" in body:
        title = {"title": body["filename"]} if "filename" in body else {}
        return {"type": "document", "source": _source(str(body["file_data"])), **title}
    if kind in ("input_audio", "file"):
        return {"type": "text", "text": f"[{kind}]"}
    return dict(part)


def _source(url: str) -> dict[str, Any]:
    data = _DATA_URL.fullmatch(url)
    return {"type": "base64", "media_type": data[1], "data": data[2]} if data else {"type": "url", "url": url}


def _tool_result(message: Mapping[str, Any], blocks: list[dict[str, Any]]) -> dict[str, Any]:
    call = message.get("tool_call_id") or f"function_{message.get('name', '')}"
    content: Any = blocks[0]["text"] if len(blocks) == 1 and _kind(blocks[0]) == "text" else blocks
    failed = {"is_error": True} if message.get("is_error") is True else {}
    return {"type": "tool_result", "tool_use_id": call, "content": content, **failed}


def _tool_use(call: Mapping[str, Any]) -> dict[str, Any]:
    kind = str(call.get("type", "function"))
    body = as_dict(call.get(kind))
    name = _NO_NAME.sub("_", str(body.get("name", "")))[:_LONGEST_NAME] or "tool"
    value = call_input(body.get("arguments", body.get("input", "")))
    return {"type": "tool_use", "id": call.get("id") or "tool", "name": name, "input": value}


def call_input(arguments: Any) -> dict[str, Any]:
    """Return a call's arguments as an object; others than a JSON object are its `input`."""
    value = read_json(arguments or "{}") if isinstance(arguments, str) else arguments
    return value if isinstance(value, dict) else {"input": arguments}


def load_json(raw: Raw, where: str) -> Any:
    """Decode a field. Raises InvalidInput naming it."""
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        refuse(where, f"invalid JSON: {error}")


def _written(value: object) -> bytes:
    try:
        return _encode(value)
    except (UnicodeEncodeError, RecursionError, TypeError) as error:
        refuse("content", f"cannot encode as JSON: {error}")
