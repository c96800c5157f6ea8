"""How a streamed answer of the OpenAI wire is read while it is relayed: bytes go on as they came, a copy becomes a message."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.records.turn import Usage

#: Fields of a delta that come whole: providers that repeat them must not make "call_1call_1".
_WHOLE = frozenset({"role", "id", "type", "name", "index"})
#: A line longer than this is passed on before it ends: no upstream may make us keep it.
LONGEST_LINE = 4 * 1024 * 1024

_decode = msgspec.json.Decoder().decode


class Heard(Struct):
    """What a stream has said so far."""

    messages: dict[int, dict[str, Any]]
    finish: dict[int, str]
    usage: Usage | None = None
    done: bool = False

    def text(self, choice: int = 0) -> str:
        """Give the text of a choice so far."""
        content = self.messages.get(choice, {}).get("content")
        return content if isinstance(content, str) else ""


class Lines:
    """Cuts a byte stream into lines without changing a byte."""

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Give the lines that are complete, each with its end."""
        lines = (self._tail + data).splitlines(keepends=True)
        self._tail = b""
        if lines and not lines[-1].endswith(b"\n"):
            last = lines.pop()
            if len(last) > LONGEST_LINE:
                lines.append(last)
            else:
                self._tail = last
        yield from lines

    def rest(self) -> bytes:
        """Say what came behind the last line end."""
        tail, self._tail = self._tail, b""
        return tail


def hear(heard: Heard, line: bytes) -> None:
    """Take in one line of a server-sent-event stream; what is no event of this wire is passed over."""
    if not line.startswith(b"data:"):
        return
    body = line[5:].strip()
    if body == b"[DONE]":
        heard.done = True
        return
    try:
        event = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if isinstance(event, dict):
        take(heard, event, "delta")


def take(heard: Heard, event: dict[str, Any], field: str) -> None:
    """Take in a chunk (`delta`) or a whole answer (`message`)."""
    choices = event.get("choices")
    for number, choice in enumerate(choices if isinstance(choices, list) else ()):
        if not isinstance(choice, dict):
            continue
        index = choice.get("index", number)
        index = index if isinstance(index, int) else number
        said = choice.get(field)
        if isinstance(said, dict):
            heard.messages[index] = merge(heard.messages.get(index, {}), said)
        if isinstance(choice.get("finish_reason"), str):
            heard.finish[index] = choice["finish_reason"]
    if isinstance(event.get("usage"), dict):
        heard.usage = read_usage(event["usage"])


def merge(held: dict[str, Any], delta: dict[str, Any]) -> dict[str, Any]:
    """Give a message with a delta added: text grows, lists merge by index, what comes whole replaces."""
    merged = dict(held)
    for name, value in delta.items():
        old = merged.get(name)
        if isinstance(value, str) and isinstance(old, str) and name not in _WHOLE:
            merged[name] = old + value
        elif isinstance(value, dict) and isinstance(old, dict):
            merged[name] = merge(old, value)
        elif isinstance(value, list) and isinstance(old, list):
            merged[name] = _merge_lists(old, value)
        elif isinstance(value, list):
            merged[name] = _merge_lists([], value)
        elif (value is not None and value != "") or name not in merged:
            merged[name] = value
    return merged


def _merge_lists(held: list[Any], delta: list[Any]) -> list[Any]:
    merged = list(held)
    places = {item.get("index"): place for place, item in enumerate(merged) if isinstance(item, dict)}
    for item in delta:
        index = item.get("index") if isinstance(item, dict) else None
        if index is not None and index in places:
            merged[places[index]] = merge(merged[places[index]], item)
        else:
            if index is not None:
                places[index] = len(merged)
            merged.append(item)
    return merged


def message_of(heard: Heard, choice: int = 0) -> bytes | None:
    """Give a choice as one assistant message, None where nothing of it came."""
    said = heard.messages.get(choice)
    if not said:
        return None
    message = {"role": "assistant", "content": None} | {name: value for name, value in said.items() if name != "role"}
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        message["tool_calls"] = [
            {name: value for name, value in call.items() if name != "index"} if isinstance(call, dict) else call
            for call in calls
        ]
    return msgspec.json.encode(message)


def read_usage(usage: dict[str, Any]) -> Usage:
    """Give a provider's count, with what its cache read and wrote."""
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    return Usage(
        input=_count(usage.get("prompt_tokens")),
        output=_count(usage.get("completion_tokens")),
        cache_read=_count(details.get("cached_tokens")),
        cache_write=_count(details.get("cache_write_tokens")),
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
