"""How an answer is read while it is relayed: bytes go on as they came, a copy becomes a chat message.

On OpenAI's wire here; other wires are read beside, to the same end.
"""

from collections.abc import Collection, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Struct, field

from cuebook.records.answers import mended
from cuebook.records.turn import Usage
from cuebook.wire.chat_stream import Events, read_event, read_usage

#: Fields of a delta that come whole: providers that repeat them must not make "call_1call_1".
_WHOLE = frozenset({"role", "id", "type", "name", "index"})
#: Fields of an answer that say which it is and who gave it.
_FRAME = ("id", "created", "model", "system_fingerprint", "service_tier")


class Hearing(Protocol):
    """What an answer has said so far, on any wire."""

    @property
    def done(self) -> bool:
        """Whether the stream has said that it is done."""
        ...

    @property
    def whole(self) -> bool:
        """Whether all was said to its end."""
        ...

    @property
    def waits(self) -> bool:
        """Whether calls of it are to be answered before it goes on."""
        ...

    @property
    def usage(self) -> Usage | None:
        """What the provider counted."""
        ...

    @property
    def error(self) -> str:
        """Why it is none, as the provider says."""
        ...

    @property
    def frame(self) -> Mapping[str, Any]:
        """Which answer it is and who gave it."""
        ...

    @property
    def reasons(self) -> list[str | None]:
        """Why each choice ended, as the wire names it."""
        ...

    @property
    def choices(self) -> Collection[int]:
        """The numbers of the choices."""
        ...

    def hear(self, line: bytes) -> str:
        """Take in a line of a stream; answers with what it adds to the first choice's text."""
        ...

    def take(self, body: bytes) -> None:
        """Take in an answer in one piece."""
        ...

    def message(self, choice: int = 0) -> bytes | None:
        """Return a choice as one chat message, None where nothing of it came or nothing can be made of it."""
        ...


class GrowingText:
    """A text that grows by pieces, joined when it is asked for."""

    def __init__(self, text: str) -> None:
        self._pieces = [text]

    def add(self, text: str) -> None:
        """Add a piece."""
        self._pieces.append(text)

    def __str__(self) -> str:
        self._pieces = ["".join(self._pieces)]
        return mended(self._pieces[0])


class Heard(Struct):
    """What an answer has said so far, by choice; grown in place."""

    messages: dict[int, dict[str, Any]] = {}
    finish: dict[int, str] = {}
    frame: dict[str, Any] = {}
    usage: Usage | None = None
    error: str = ""
    events: Events = field(default_factory=Events)

    @property
    def done(self) -> bool:
        """Whether the stream has said that it is done."""
        return self.events.done

    @property
    def whole(self) -> bool:
        """Whether every choice was said to its end."""
        return bool(self.messages) and all(self.finish.get(choice) for choice in self.messages)

    @property
    def waits(self) -> bool:
        """Whether calls of it are to be answered before it goes on."""
        return self.finish.get(0) != "stop"

    @property
    def choices(self) -> list[int]:
        """The numbers of the choices."""
        return sorted(self.messages)

    @property
    def reasons(self) -> list[str | None]:
        """Why each choice ended."""
        return [self.finish.get(choice) for choice in self.choices]

    def hear(self, line: bytes) -> str:
        """Take in a line of a stream; what is no event of this wire is passed over."""
        return take(self, self.events.read(line), "delta")

    def take(self, body: bytes) -> None:
        """Take in an answer in one piece."""
        take(self, read_event(body), "message")

    def message(self, choice: int = 0) -> bytes | None:
        """Return a choice as one assistant message."""
        return message_of(self, choice)


def take(heard: Heard, event: object, said: str) -> str:
    """Take in a chunk (`delta`) or a whole answer (`message`); answers with what it adds to the first choice's text."""
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
    return "".join(_choose(heard, choice, number, said) for number, choice in found)


def _choose(heard: Heard, choice: object, number: int, said: str) -> str:
    """Take in one choice."""
    if not isinstance(choice, dict):
        return ""
    index = choice.get("index", number)
    index = index if isinstance(index, int) else number
    if isinstance(choice.get("finish_reason"), str):
        heard.finish[index] = mended(choice["finish_reason"])
    delta = choice.get(said)
    if not isinstance(delta, dict):
        return ""
    _merge(heard.messages.setdefault(index, {}), delta)
    content = delta.get("content")
    return content if index == 0 and isinstance(content, str) else ""


def _reason(error: object) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return mended(message) if isinstance(message, str) and message else "it reports an error"


def _mended(value: str | int) -> str | int:
    return mended(value) if isinstance(value, str) else value


def _merge(held: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add a delta to a message: text grows, lists merge by index, what comes whole replaces."""
    for name, value in delta.items():
        old = held.get(name)
        if isinstance(value, str) and name not in _WHOLE:
            if isinstance(old, GrowingText):
                old.add(value)
            elif value or old is None:
                held[name] = GrowingText(value)
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
    """Return a choice as one assistant message, None where nothing of it came or nothing can be made of it."""
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
    try:
        return msgspec.json.encode(message, enc_hook=str)
    except UnicodeEncodeError:  # half a surrogate pair where no text grows
        return None
