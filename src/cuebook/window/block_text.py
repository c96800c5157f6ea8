"""Render the text of posts without a message: their calls, images, files and notes."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

_ARGUMENTS = ("arguments", "input")
#: Keys of a content part's address or name.
_NAMES = ("url", "file_id", "filename")


def text_of(message: bytes) -> str:
    """Render a wire message as text: its message, then a line per image, file and call."""
    if not message:
        return ""
    data = msgspec.json.decode(message, type=dict[str, Any])
    calls, content = data.get("tool_calls"), data.get("content")
    lines = [content] if isinstance(content, str) else [_part(part) for part in _objects(content)]
    lines += [_call(call) for call in _objects(calls)]
    if isinstance(legacy := data.get("function_call"), dict):
        lines.append(_call(legacy))
    return "\n".join(filter(None, lines))


def _objects(values: object) -> list[dict[str, Any]]:
    return [each for each in values if isinstance(each, dict)] if isinstance(values, list) else []


def _call(call: Mapping[str, Any]) -> str:
    body = next((each for each in _bodies(call) if isinstance(each.get("name"), str)), None)
    if body is None:
        return f"[{call.get('type') or 'call'}]"
    arguments = next((body[key] for key in _ARGUMENTS if body.get(key) is not None), "")
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return f"{body['name']}({text})"


def _bodies(call: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the objects that may contain a call's name and arguments: under its type, or the call itself."""
    inner = call.get(str(call.get("type") or "function"))
    if isinstance(inner, dict):
        yield inner
    yield call


def _part(part: Mapping[str, Any]) -> str:
    kind = str(part.get("type") or "part")
    body = part.get(kind)
    if kind == "text":
        return body if isinstance(body, str) else ""
    names = [body.get(key) for key in _NAMES] if isinstance(body, dict) else [body]
    name = next((each for each in names if isinstance(each, str) and each and not each.startswith("data:")), "")
    return f"[{kind}] {name}".rstrip()
