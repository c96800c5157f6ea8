"""Convert a request of Anthropic's wire to a chat completion: its fields and its messages.

Unsupported content that would change the answer (a provider's own tools) raises an error. Fields that only tune it
(thinking, `top_k`) are dropped.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from cuebook.records.conversation import ASSISTANT, TOOL
from cuebook.wire.answer import refuse
from cuebook.wire.anthropic_messages import ORDER, REMINDED, THINKING, load_json
from cuebook.wire.responses_items import without_items

#: Fields with another name on OpenAI's wire.
_NAMES: Final = {"temperature": "temperature", "top_p": "top_p", "stop_sequences": "stop", "stream": "stream"}
#: Fields handled here or elsewhere. Others are dropped from requests on OpenAI's wire.
_KNOWN: Final = frozenset({*_NAMES, "model", "messages", "system", "max_tokens", "tools", "tool_choice", "metadata"})
#: Fields about tools.
TOOLS: Final = frozenset({"tools", "tool_choice"})
#: Fields dropped for a model that gets messages only.
SETTINGS: Final = frozenset({*TOOLS, "temperature", "top_p", "stop_sequences"})
#: Types of client tools: `custom` or none.
_OWN: Final = frozenset({"custom", ""})
#: Parts that servers of OpenAI's wire support.
_PARTS: Final = frozenset({"text", "image_url", "input_audio", "file", "refusal"})
#: Prefix of a failed tool result, because OpenAI's wire has no error flag.
_FAILED: Final = "Error: "
#: Substrings of messages that need parsing.
_SIGNS: Final = (THINKING.encode(), ORDER.encode(), b'"is_error"', b'"type"')

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def chat_fields(fields: Mapping[str, Raw]) -> dict[str, Any]:
    """Return a request's fields as a chat completion's, without messages. Raises InvalidInput naming the field."""
    data = {name: load_json(raw, name) for name, raw in fields.items() if name in _KNOWN and name != "messages"}
    values: dict[str, Any] = {new: data[name] for name, new in _NAMES.items() if data.get(name) is not None}
    if isinstance(data.get("max_tokens"), int):
        values["max_tokens"] = data["max_tokens"]
    if tools := data.get("tools"):
        if not isinstance(tools, list):
            refuse("tools", "expected a list of tools. Send a list.")
        values["tools"] = [_tool(tool, number) for number, tool in enumerate(tools)]
    choice = data.get("tool_choice")
    if isinstance(choice, dict) and "tools" in values:
        values |= _choice(choice)
    if values.get("stream") is True:
        values["stream_options"] = {"include_usage": True}
    return values


def left_out(fields: Iterable[str], *, lacks: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of fields that the model does not get, including those that it `lacks`."""
    return tuple(sorted(name for name in fields if name not in _KNOWN or name in lacks))


def plain_chat(raws: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return chat messages in the form that servers of OpenAI's wire support.

    Reminders become texts, a provider's state such as thinking is dropped, and images of tool results follow the last
    result.
    """
    values: list[bytes] = []
    images: list[dict[str, Any]] = []
    for raw in filter(None, map(without_items, raws)):
        message = _decode(raw) if any(sign in raw for sign in _SIGNS) else None
        if message is not None and message.get("role") == TOOL:
            values.append(_encode(_result(message, images)))
            continue
        if images and b'"tool_call_id"' not in raw:
            values.append(_encode({"role": "user", "content": images}))
            images = []
        values.append(raw if message is None else _encode(_plain(message)))
    return (*values, _encode({"role": "user", "content": images})) if images else tuple(values)


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    message.pop(THINKING, None)
    message.pop(ORDER, None)
    content = message.get("content")
    if isinstance(content, list):
        parts = [_part(part) for part in content if isinstance(part, dict)]
        alone = message.get("role") == ASSISTANT and all(part["type"] == "text" for part in parts)
        message["content"] = ("\n\n".join(part["text"] for part in parts) if alone else parts) or None
    return message


def _result(message: dict[str, Any], images: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a tool's result as text. Add its other parts to `images`."""
    text = _FAILED if message.pop("is_error", None) is True else ""
    content = message.get("content")
    if isinstance(content, list):
        parts = [_part(part) for part in content if isinstance(part, dict)]
        images += [part for part in parts if part["type"] != "text"]
        content = "\n\n".join(part["text"] for part in parts if part["type"] == "text")
    return message | {"content": f"{text}{content or ''}"}


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if kind == REMINDED:
        return {"type": "text", "text": str(part.get("text", ""))}
    if isinstance(kind, str) and kind in _PARTS:
        return {name: part[name] for name in ("type", kind) if name in part}  # without cache markers and citations
    return {"type": "text", "text": f"[{kind}]"}


def _tool(tool: Any, number: int) -> dict[str, Any]:
    where = f"tools[{number}]"
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        refuse(where, "expected a tool with a name")
    kind = tool.get("type") or ""
    if kind not in _OWN:
        refuse(where, f"unsupported tool {kind!r}: only Anthropic runs it, and another model answers here. Remove it.")
    function = {"name": tool["name"], "parameters": tool.get("input_schema") or {"type": "object"}}
    about = {"description": tool["description"]} if isinstance(tool.get("description"), str) else {}
    return {"type": "function", "function": function | about}


def _choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    kind = choice.get("type")
    named = {"type": "function", "function": {"name": choice.get("name")}}
    data: dict[str, Any] = {"auto": "auto", "any": "required", "none": "none", "tool": named}
    if kind not in data:
        refuse("tool_choice.type", f"unknown value {kind!r}. Available: any, auto, none, tool.")
    alone = {"parallel_tool_calls": False} if choice.get("disable_parallel_tool_use") is True else {}
    return {"tool_choice": data[kind]} | alone
