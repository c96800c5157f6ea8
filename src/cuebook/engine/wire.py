"""How an answer of the OpenAI wire is read while it is relayed: bytes go on as they came, a copy becomes a message."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.records.turn import Usage

#: Fields of a delta that come whole: providers that repeat them must not make "call_1call_1".
_WHOLE = frozenset({"role", "id", "type", "name", "index"})
#: Fields of an answer that say which it is and who gave it.
_FRAME = ("id", "created", "model", "system_fingerprint", "service_tier")
#: A line longer than this is passed on before it ends: no upstream may make us keep it.
LONGEST_LINE = 4 * 1024 * 1024

_decode = msgspec.json.Decoder().decode


class Lines:
    """Cuts a byte stream into lines without changing a byte."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Give the lines that are complete, each with its end."""
        if self._pieces and self._pieces[-1].endswith(b"\r"):
            data = self.rest() + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1  # a "\r" at the end may be half a line end
        if end:
            yield from (b"".join(self._pieces) + data[:end]).splitlines(keepends=True)
            self._pieces, self._size, data = [], 0, data[end:]
        if data:
            self._pieces.append(data)
            self._size += len(data)
        if self._size > LONGEST_LINE:
            yield self.rest()

    def rest(self) -> bytes:
        """Give what came behind the last line end."""
        rest = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return rest


class Text:
    """A text that grows by pieces, joined when it is asked for."""

    def __init__(self, text: str) -> None:
        self._pieces = [text]

    def add(self, text: str) -> None:
        """Add a piece."""
        self._pieces.append(text)

    def __str__(self) -> str:
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]


class Heard(Struct):
    """What an answer has said so far, by choice; grown in place."""

    messages: dict[int, dict[str, Any]] = {}
    finish: dict[int, str] = {}
    frame: dict[str, Any] = {}
    usage: Usage | None = None
    error: str = ""
    done: bool = False

    @property
    def whole(self) -> bool:
        """Whether every choice was said to its end."""
        return bool(self.messages) and all(self.finish.get(choice) for choice in self.messages)


def hear(heard: Heard, line: bytes) -> str:
    """Take in a line of a server-sent-event stream; answers with what it adds to the first choice's text.

    What is no event of this wire is passed over.
    """
    if not line.startswith(b"data:"):
        return ""
    body = line[5:].strip()
    if body == b"[DONE]":
        heard.done = True
        return ""
    try:
        event = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return take(heard, event, "delta")


def take(heard: Heard, event: object, field: str) -> str:
    """Take in a chunk (`delta`) or a whole answer (`message`); answers with what it adds to the first choice's text."""
    if not isinstance(event, dict):
        return ""
    if event.get("error"):
        heard.error = _reason(event["error"])
    if not heard.frame.get("id"):
        heard.frame = {name: event[name] for name in _FRAME if isinstance(event.get(name), str | int)}
    if isinstance(event.get("usage"), dict):
        heard.usage = read_usage(event["usage"])
    added = ""
    choices = event.get("choices")
    for number, choice in enumerate(choices if isinstance(choices, list) else ()):
        if not isinstance(choice, dict):
            continue
        index = choice.get("index", number)
        index = index if isinstance(index, int) else number
        said = choice.get(field)
        if isinstance(said, dict):
            _merge(heard.messages.setdefault(index, {}), said)
            content = said.get("content")
            added += content if index == 0 and isinstance(content, str) else ""
        if isinstance(choice.get("finish_reason"), str):
            heard.finish[index] = choice["finish_reason"]
    return added


def _reason(error: object) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) and message else "it reports an error"


def _merge(held: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add a delta to a message: text grows, lists merge by index, what comes whole replaces."""
    for name, value in delta.items():
        old = held.get(name)
        if isinstance(value, str) and name not in _WHOLE:
            if isinstance(old, Text):
                old.add(value)
            elif value or old is None:
                held[name] = Text(value)
        elif isinstance(value, dict):
            if not isinstance(old, dict):
                held[name] = old = {}
            _merge(old, value)
        elif isinstance(value, list):
            if not isinstance(old, list):
                held[name] = old = []
            _merge_list(old, value)
        elif (value is not None and value != "") or name not in held:
            held[name] = value


def _merge_list(held: list[Any], delta: list[Any]) -> None:
    places = {item["index"]: item for item in held if isinstance(item, dict) and isinstance(item.get("index"), int)}
    for item in delta:
        if not isinstance(item, dict):
            held.append(item)
            continue
        index = item.get("index")
        place = places.get(index) if isinstance(index, int) else None
        if place is None:
            place = {}
            held.append(place)
            if isinstance(index, int):
                places[index] = place
        _merge(place, item)


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
    return msgspec.json.encode(message, enc_hook=str)


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
