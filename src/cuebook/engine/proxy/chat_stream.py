"""Parse a copy of a relayed answer into a chat message, without changing its bytes.

This is OpenAI's wire. Other modules implement the same protocol for other wires.
"""

from collections.abc import Collection, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Struct, field

from cuebook.records.answers import mended
from cuebook.records.turn import Usage
from cuebook.wire.chat_stream import Events, read_event, read_usage

#: Fields of a delta that are never split: providers that repeat them must not cause "call_1call_1".
_WHOLE = frozenset({"role", "id", "type", "name", "index"})
#: Fields with the id and the model of an answer.
_FRAME = ("id", "created", "model", "system_fingerprint", "service_tier")


class Hearing(Protocol):
    """Protocol of a stream parser for any wire: the answer so far."""

    @property
    def done(self) -> bool:
        """Return whether the stream has ended."""
        ...

    @property
    def whole(self) -> bool:
        """Return whether the answer is complete."""
        ...

    @property
    def waits(self) -> bool:
        """Return whether the answer waits for tool results."""
        ...

    @property
    def usage(self) -> Usage | None:
        """Return the provider's token counts."""
        ...

    @property
    def error(self) -> str:
        """Return the provider's error message."""
        ...

    @property
    def frame(self) -> Mapping[str, Any]:
        """Return the answer's id, model and other header fields."""
        ...

    @property
    def reasons(self) -> list[str | None]:
        """Return each choice's finish reason."""
        ...

    @property
    def choices(self) -> Collection[int]:
        """Return the numbers of the choices."""
        ...

    def hear(self, line: bytes) -> str:
        """Parse a line of a stream. Return the text it adds to the first choice."""
        ...

    def take(self, body: bytes) -> None:
        """Parse a complete answer."""
        ...

    def message(self, choice: int = 0) -> bytes | None:
        """Return a choice as a chat message, or None if it is empty or invalid."""
        ...


class GrowingText:
    """A text that grows by pieces, joined on demand."""

    def __init__(self, text: str) -> None:
        self._pieces = [text]

    def add(self, text: str) -> None:
        """Add a piece."""
        self._pieces.append(text)

    def __str__(self) -> str:
        self._pieces = ["".join(self._pieces)]
        return mended(self._pieces[0])


class Heard(Struct):
    """Stream parser of OpenAI's wire: the answer so far, by choice. Mutable."""

    messages: dict[int, dict[str, Any]] = {}
    finish: dict[int, str] = {}
    frame: dict[str, Any] = {}
    usage: Usage | None = None
    error: str = ""
    events: Events = field(default_factory=Events)

    @property
    def done(self) -> bool:
        """Return whether the stream has ended."""
        return self.events.done

    @property
    def whole(self) -> bool:
        """Return whether all choices are complete."""
        return bool(self.messages) and all(self.finish.get(choice) for choice in self.messages)

    @property
    def waits(self) -> bool:
        """Return whether the answer waits for tool results."""
        return self.finish.get(0) != "stop"

    @property
    def choices(self) -> list[int]:
        """Return the numbers of the choices."""
        return sorted(self.messages)

    @property
    def reasons(self) -> list[str | None]:
        """Return each choice's finish reason."""
        return [self.finish.get(choice) for choice in self.choices]

    def hear(self, line: bytes) -> str:
        """Parse a line of a stream. Lines without an event of this wire are ignored."""
        return take(self, self.events.read(line), "delta")

    def take(self, body: bytes) -> None:
        """Parse a complete answer."""
        take(self, read_event(body), "message")

    def message(self, choice: int = 0) -> bytes | None:
        """Return a choice as an assistant message."""
        return message_of(self, choice)


def take(heard: Heard, event: object, text: str) -> str:
    """Parse a chunk (`delta`) or a complete answer (`message`). Return the text it adds to the first choice."""
    if not isinstance(event, dict):
        return ""
    if event.get("error"):
        heard.error = _reason(event["error"])
    if not heard.frame.get("id"):
        heard.frame = {name: _mended(event[name]) for name in _FRAME if isinstance(event.get(name), str | int)}
    if isinstance(event.get("usage"), dict):
        heard.usage = read_usage(event["usage"])
    choices = event.get("choices")
    found = enumerate(choices if isinstance(choices, list) else ())
    return "".join(_choose(heard, choice, number, text) for number, choice in found)


def _choose(heard: Heard, choice: object, number: int, text: str) -> str:
    """Parse one choice."""
    if not isinstance(choice, dict):
        return ""
    index = choice.get("index", number)
    index = index if isinstance(index, int) else number
    if isinstance(choice.get("finish_reason"), str):
        heard.finish[index] = mended(choice["finish_reason"])
    delta = choice.get(text)
    if not isinstance(delta, dict):
        return ""
    _merge(heard.messages.setdefault(index, {}), delta)
    content = delta.get("content")
    return content if index == 0 and isinstance(content, str) else ""


def _reason(error: object) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return mended(message) if isinstance(message, str) and message else "The provider reported an error."


def _mended(value: str | int) -> str | int:
    return mended(value) if isinstance(value, str) else value


def _merge(contents: dict[str, Any], delta: dict[str, Any]) -> None:
    """Merge a delta into a message: append texts, merge lists by index, replace other fields."""
    for name, value in delta.items():
        old = contents.get(name)
        if isinstance(value, str) and name not in _WHOLE:
            if isinstance(old, GrowingText):
                old.add(value)
            elif value or old is None:
                contents[name] = GrowingText(value)
        elif isinstance(value, dict):
            if not isinstance(old, dict):
                contents[name] = old = {}
            _merge(old, value)
        elif isinstance(value, list):
            if not isinstance(old, list):
                contents[name] = old = []
            _merge_list(old, value)
        elif (value is not None and value != "") or name not in contents:
            contents[name] = value


def _merge_list(contents: list[Any], delta: list[Any]) -> None:
    places = {item["index"]: item for item in contents if isinstance(item, dict) and isinstance(item.get("index"), int)}
    for item in delta:
        if not isinstance(item, dict):
            contents.append(item)
            continue
        index = item.get("index")
        place = places.get(index) if isinstance(index, int) else None
        if place is None:
            place = {}
            contents.append(place)
            if isinstance(index, int):
                places[index] = place
        _merge(place, item)


def message_of(heard: Heard, choice: int = 0) -> bytes | None:
    """Return a choice as an assistant message, or None if it is empty or invalid."""
    data = heard.messages.get(choice)
    if not data:
        return None
    message = {"role": "assistant", "content": None} | {name: value for name, value in data.items() if name != "role"}
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        message["tool_calls"] = [
            {name: value for name, value in call.items() if name != "index"} if isinstance(call, dict) else call
            for call in calls
        ]
    try:
        return msgspec.json.encode(message, enc_hook=str)
    except UnicodeEncodeError:  # lone surrogate in a field that is not merged
        return None
