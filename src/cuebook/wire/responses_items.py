"""Convert items of OpenAI's Responses API to equivalent chat messages, and stored messages back to items.

All items of an answer that follow each other are one chat message: reasoning, texts and calls. Where a chat message
cannot represent an item, the message keeps the items themselves in `response_items`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from cuebook.errors import InvalidInput
from cuebook.records.conversation import ASSISTANT, TOOL
from cuebook.wire.answer import as_dict
from cuebook.wire.anthropic_messages import ConvertedMessage

#: Field of a chat message with its items.
ITEMS: Final = "response_items"
#: Type of an item that replaces all items before it.
COMPACTION: Final = "compaction"
#: Both as they appear in the JSON of a chat message.
_ITEMS_FIELD: Final = f'"{ITEMS}":'.encode()
_COMPACTION_ITEM: Final = f'"type":"{COMPACTION}"'.encode()
#: Types of items that a chat completion expresses. Only their provider can use reasoning.
CHAT_KINDS: Final = ("message", "function_call", "function_call_output", "reasoning")
#: Types of items that a client may add to a conversation.
STORED_KINDS: Final = (*CHAT_KINDS, COMPACTION, "custom_tool_call", "custom_tool_call_output")

#: Fields of the part of a chat message for a compaction item. Anthropic's has a text too.
_OPAQUE: Final = {"type", "encrypted_content"}
#: Tuples, because values to look up come from JSON and may be lists.
_ROLES: Final = ("user", ASSISTANT, "system", "developer")
_TEXTS: Final = ("input_text", "output_text", "text")
#: Types of items with the same content as their chat message.
_PLAIN: Final = ("message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")
#: Fields that name the call of an item, by preference.
_CALL_IDS: Final = ("call_id", "approval_request_id")
#: Parts of a chat message -> their type as input.
_INPUTS: Final = {"text": "input_text", "image_url": "input_image", "file": "input_file"}

_encode = msgspec.json.Encoder().encode
_raws = msgspec.json.Decoder(list[Raw])


# ---- Reading --------------------------------------------------------------------------------------------------------


def convert_items(
    raws: Sequence[Raw], where: str = "input", *, kinds: Collection[str] | None = None
) -> tuple[ConvertedMessage, ...]:
    """Return items as chat messages with their source. Raises InvalidInput naming the item.

    With `kinds`, items of other types and content that a chat message cannot represent are refused.
    """
    items = [msgspec.json.decode(raw) for raw in raws]
    groups: list[list[int]] = []
    for number, item in enumerate(items):
        _check(item, f"{where}[{number}]", kinds)
        joins = groups and _is_answer(item) and item.get("type") != COMPACTION and _is_answer(items[number - 1])
        if joins:
            groups[-1].append(number)
        else:
            groups.append([number])
    return tuple(
        ConvertedMessage(
            _encode(_message([items[number] for number in group], f"{where}[{group[0]}]", strict=kinds is not None)),
            group[0],
            _role(items[group[0]]),
            tuple(raws[number] for number in group),
        )
        for group in groups
    )


def read_items(items: Iterable[Any], where: str) -> list[dict[str, Any]]:
    """Return items to store as equivalent chat messages. Raises InvalidInput naming the item."""
    raws = [Raw(_encode(item)) for item in items]
    return [msgspec.json.decode(each.chat) for each in convert_items(raws, where, kinds=STORED_KINDS)]


def read_answer(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the items of a provider's answer as one chat message that keeps them."""
    return _answer(items, "output", strict=False) | {ITEMS: items}


def _check(item: Any, where: str, kinds: Collection[str] | None) -> None:
    if not isinstance(item, dict):
        raise wrong(where, "an object")
    kind = item.get("type") or "message"
    known = kinds is None or kind in kinds
    if known and kind == "message":
        known = item.get("role") in _ROLES
    elif known and kind == "function_call":
        if not all(isinstance(item.get(name), str) for name in ("call_id", "name", "arguments")):
            raise wrong(where, "a function_call with call_id, name and arguments")
    elif known and kind == "function_call_output":
        known = isinstance(item.get("call_id"), str)
    if not known:
        raise cannot_express(f"{where}.type {kind!r}", where=f"{where}.type")


def _role(item: Mapping[str, Any]) -> str:
    """Return the role of an item's chat message. An item of an unknown kind counts as part of an answer."""
    kind = str(item.get("type") or "message")
    if kind == "message":
        return str(item["role"])
    is_result = kind.endswith("_output") or kind == "mcp_approval_response"
    return TOOL if is_result and _call_id(item) else ASSISTANT


def _is_answer(item: Mapping[str, Any]) -> bool:
    return _role(item) == ASSISTANT


def _call_id(item: Mapping[str, Any]) -> str:
    """Return the id of an item's call, "" if no client answers it."""
    own = item.get("id") if item.get("type") in ("mcp_approval_request", "local_shell_call_output") else None
    ids = (*(item.get(name) for name in _CALL_IDS), own)
    return next((each for each in ids if isinstance(each, str) and each), "")


def _message(items: Sequence[dict[str, Any]], where: str, *, strict: bool) -> dict[str, Any]:
    item, role = items[0], _role(items[0])
    if role == ASSISTANT:
        message = _answer(items, where, strict=strict)
        phased = any(each.get("phase") for each in items)  # how to continue after it; a chat message has no such field
        return message | ({ITEMS: items} if phased or any(_kind(each) not in _PLAIN for each in items) else {})
    if role != TOOL:
        return {"role": role, "content": _content(item.get("content"), f"{where}.content", strict=strict)}
    message = {"role": TOOL, "tool_call_id": _call_id(item)}
    if _kind(item) in _PLAIN:
        return message | {"content": _content(item.get("output"), f"{where}.output", strict=strict)}
    result = {name: value for name, value in item.items() if name not in ("type", "id", *_CALL_IDS)}
    return message | {"content": _encode(result).decode(), ITEMS: items}


def _kind(item: Mapping[str, Any]) -> str:
    return str(item.get("type") or "message")


def _answer(items: Sequence[Mapping[str, Any]], where: str, *, strict: bool) -> dict[str, Any]:
    contents: list[Any] = []
    calls: list[dict[str, Any]] = []
    answered = {_call_id(item) for item in items if _kind(item).endswith("_output")}  # by the provider itself
    for item in items:
        kind = _kind(item)
        if kind == "message":
            contents.append(_content(item.get("content"), f"{where}.content", strict=strict))
        elif kind == COMPACTION:
            contents.append([{"type": kind, "encrypted_content": item.get("encrypted_content")}])
        elif (id_ := _call_id(item)) and id_ not in answered:
            calls.append(_call(item, kind, id_))
    if all(isinstance(each, str) for each in contents):
        content: Any = "\n\n".join(contents) if contents else None if calls else ""
    else:
        texts = ([{"type": "text", "text": each}] if isinstance(each, str) else each for each in contents)
        content = [part for each in texts for part in each]
    return {"role": ASSISTANT, "content": content} | ({"tool_calls": calls} if calls else {})


def _call(item: Mapping[str, Any], kind: str, id_: str) -> dict[str, Any]:
    """Return a call. One that a chat message cannot represent becomes a function call named by its kind."""
    if kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        return {"id": id_, "type": "function", "function": function}
    if kind == "custom_tool_call":
        return {"id": id_, "type": "custom", "custom": {"name": item.get("name"), "input": item.get("input")}}
    rest = {name: value for name, value in item.items() if name not in ("type", "id", "call_id", "status")}
    return {"id": id_, "type": "function", "function": {"name": kind, "arguments": _encode(rest).decode()}}


def _content(value: Any, where: str, *, strict: bool) -> Any:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong(where, "a string or a list of parts")
    parts = [_part(part, f"{where}[{number}]", strict=strict) for number, part in enumerate(value)]
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _part(value: Any, where: str, *, strict: bool) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(where, "an object")
    kind = value.get("type")
    if kind in _TEXTS and isinstance(value.get("text"), str):
        return {"type": "text", "text": value["text"]}
    if kind == "refusal":
        return {"type": "refusal", "refusal": value.get("refusal")}
    if kind == "input_image" and isinstance(value.get("image_url"), str):
        detail = {"detail": value["detail"]} if value.get("detail") else {}
        return {"type": "image_url", "image_url": {"url": value["image_url"]} | detail}
    if kind == "input_file" and not value.get("file_url"):
        named = ("file_id", "file_data", "filename")
        return {"type": "file", "file": {name: value[name] for name in named if value.get(name)}}
    if strict:
        raise cannot_express(f"{where}.type {kind!r}", where=where)
    return value | {"type": str(kind)}


def wrong(where: str, expected: str) -> InvalidInput:
    """Return the error for a field of another type."""
    return InvalidInput(f"{where}: expected {expected}", where=where)


def cannot_express(what: str, *, where: str = "") -> InvalidInput:
    """Return the error for a field or an item that a chat completion lacks."""
    msg = f"{what}: not supported by the chat completion that answers this request. Remove it."
    return InvalidInput(msg, where=where or what)


# ---- Writing --------------------------------------------------------------------------------------------------------


def write_items(chat: bytes, *, custom: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return a chat message's items: those that it keeps, or equivalent ones.

    `custom` are the ids of calls of custom tools, whose results have a type of their own.
    """
    message = msgspec.json.decode(chat)
    if ITEMS in message:
        kept: list[dict[str, Any]] = message[ITEMS]
        return kept
    role, content = message["role"], message.get("content")
    if role in (TOOL, "function"):
        id_ = message.get("tool_call_id") or message.get("name") or ""
        output = write_content(content)
        alone = len(output) == 1 and output[0]["type"] == "input_text"
        kind = "custom_tool_call_output" if id_ in custom else "function_call_output"
        return [{"type": kind, "call_id": id_, "output": output[0]["text"] if alone else output or ""}]
    if role != ASSISTANT:
        return [
            {
                "type": "message",
                "role": role,
                "content": content if isinstance(content, str) else write_content(content),
            }
        ]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    parts = [*parts, *([{"type": "refusal", "refusal": message["refusal"]}] if message.get("refusal") else [])]
    written = [
        {"type": "output_text", "text": part["text"]} if part.get("type") == "text" else dict(part)
        for part in parts
        if part.get("text") != ""
    ]
    items = [part for part in written if part["type"] == COMPACTION]
    if texts := [part for part in written if part["type"] != COMPACTION]:
        items.append({"type": "message", "role": ASSISTANT, "content": texts})
    return items + [_written_call(call) for call in message.get("tool_calls") or ()]


def _written_call(call: Mapping[str, Any]) -> dict[str, Any]:
    kind = str(call.get("type", "function"))
    body = as_dict(call.get(kind))
    named = {"type": f"{kind}_tool_call" if kind == "custom" else "function_call", "call_id": call.get("id") or ""}
    key = "input" if kind == "custom" else "arguments"
    return named | {"name": body.get("name") or "", key: body.get(key) or ""}


def write_content(content: Any) -> list[dict[str, Any]]:
    """Return a chat message's content as parts of an input item."""
    if isinstance(content, str):
        return [{"type": "input_text", "text": content}]
    return [_input(part) for part in content or () if isinstance(part, dict)]


def _input(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = str(part.get("type"))
    body = part.get(kind)
    if kind == "image_url":
        image = body if isinstance(body, dict) else {"url": body}
        return {"type": "input_image", "image_url": image.get("url"), "detail": image.get("detail") or "auto"}
    if kind == "file" and isinstance(body, dict):
        return {"type": "input_file"} | body
    return dict(part) | {"type": _INPUTS.get(kind, kind)}


def with_text(item: Raw, text: str) -> Raw:
    """Return a message's item with a text after its own."""
    fields = msgspec.json.decode(item, type=dict[str, Raw])
    content = msgspec.json.decode(fields["content"])
    if isinstance(content, str):
        fields["content"] = Raw(_encode(f"{content}\n\n{text}" if content else text))
    else:
        part = Raw(_encode({"type": "input_text", "text": text}))
        fields["content"] = Raw(_encode([*_raws.decode(fields["content"]), part]))
    return Raw(_encode(fields))


def is_compaction(chat: bytes) -> bool:
    """Return whether a chat message has a compaction item."""
    return _COMPACTION_ITEM in chat


def has_items(chat: bytes) -> bool:
    """Return whether a chat message keeps its items."""
    return _ITEMS_FIELD in chat


def without_items(chat: bytes) -> bytes:
    """Return a chat message without its items and state that only their provider can use, b"" if nothing is left."""
    if _ITEMS_FIELD not in chat and _COMPACTION_ITEM not in chat:
        return chat
    message = msgspec.json.decode(chat)
    message.pop(ITEMS, None)
    if isinstance(content := message.get("content"), list):
        message["content"] = [part for part in content if part.keys() != _OPAQUE]
    return _encode(message) if message.get("content") or message.get("tool_calls") else b""
