"""Convert a request of Anthropic's wire to a chat completion: its fields and its messages.

Unsupported content that would change the answer (a provider's own tools) raises an error. Fields that only tune it
(thinking, `top_k`) are dropped.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

import msgspec
from msgspec import Raw

from cuebook.errors import InvalidInput
from cuebook.records.conversation import ASSISTANT, TOOL
from cuebook.wire.anthropic_messages import REMINDED, THINKING

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
_SIGNS: Final = (THINKING.encode(), b'"is_error"', b'"type"')

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def chat_fields(fields: Mapping[str, Raw]) -> dict[str, Any]:
    """Return a request's fields as a chat completion's, without messages. Raises InvalidInput naming the field."""
    given = {name: _load(raw, name) for name, raw in fields.items() if name in _KNOWN and name != "messages"}
    told: dict[str, Any] = {new: given[name] for name, new in _NAMES.items() if given.get(name) is not None}
    if isinstance(given.get("max_tokens"), int):
        told["max_tokens"] = given["max_tokens"]
    if tools := given.get("tools"):
        if not isinstance(tools, list):
            _refuse("tools", "Expected a list of tools.")
        told["tools"] = [_tool(tool, number) for number, tool in enumerate(tools)]
    choice = given.get("tool_choice")
    if isinstance(choice, dict) and "tools" in told:
        told |= _choice(choice)
    if told.get("stream") is True:
        told["stream_options"] = {"include_usage": True}
    return told


def left_out(fields: Iterable[str], *, lacks: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of fields that the model does not get, including those that it `lacks`."""
    return tuple(sorted(name for name in fields if name not in _KNOWN or name in lacks))


def plain_chat(raws: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return chat messages in the form that servers of OpenAI's wire support.

    Reminders become texts, thinking is dropped, and images of tool results follow the last result.
    """
    told: list[bytes] = []
    images: list[dict[str, Any]] = []
    for raw in raws:
        message = _decode(raw) if any(sign in raw for sign in _SIGNS) else None
        if message is not None and message.get("role") == TOOL:
            told.append(_encode(_result(message, images)))
            continue
        if images and b'"tool_call_id"' not in raw:
            told.append(_encode({"role": "user", "content": images}))
            images = []
        told.append(raw if message is None else _encode(_plain(message)))
    return (*told, _encode({"role": "user", "content": images})) if images else tuple(told)


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    message.pop(THINKING, None)
    content = message.get("content")
    if isinstance(content, list):
        parts = [_part(part) for part in content if isinstance(part, dict)]
        alone = message.get("role") == ASSISTANT and all(part["type"] == "text" for part in parts)
        message["content"] = ("\n\n".join(part["text"] for part in parts) if alone else parts) or None
    return message


def _result(message: dict[str, Any], images: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a tool's result as text. Add its other parts to `images`."""
    said = _FAILED if message.pop("is_error", None) is True else ""
    content = message.get("content")
    if isinstance(content, list):
        parts = [_part(part) for part in content if isinstance(part, dict)]
        images += [part for part in parts if part["type"] != "text"]
        content = "\n\n".join(part["text"] for part in parts if part["type"] == "text")
    return message | {"content": f"{said}{content or ''}"}


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if kind == REMINDED:
        return {"type": "text", "text": str(part.get("text", ""))}
    if isinstance(kind, str) and kind in _PARTS:
        return dict(part)
    return {"type": "text", "text": f"[{kind}]"}


def _tool(tool: Any, number: int) -> dict[str, Any]:
    where = f"tools[{number}]"
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        _refuse(where, "Expected a tool with a name.")
    kind = tool.get("type") or ""
    if kind not in _OWN:
        _refuse(where, f"Unsupported tool {kind!r}: only Anthropic runs it, and another model answers here. Remove it.")
    function = {"name": tool["name"], "parameters": tool.get("input_schema") or {"type": "object"}}
    about = {"description": tool["description"]} if isinstance(tool.get("description"), str) else {}
    return {"type": "function", "function": function | about}


def _choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    kind = choice.get("type")
    named = {"type": "function", "function": {"name": choice.get("name")}}
    told: dict[str, Any] = {"auto": "auto", "any": "required", "none": "none", "tool": named}
    if kind not in told:
        _refuse("tool_choice.type", f"Unknown value {kind!r}. Use auto, any, tool or none.")
    alone = {"parallel_tool_calls": False} if choice.get("disable_parallel_tool_use") is True else {}
    return {"tool_choice": told[kind]} | alone


def _load(raw: Raw, where: str) -> Any:
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _refuse(where, f"Invalid JSON: {error}")


def _refuse(where: str, problem: str) -> NoReturn:
    raise InvalidInput(f"{where}: {problem}", where=where)
