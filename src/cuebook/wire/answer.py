"""The answer of a model as it arrives: one record for all wires, and the base classes that read and write it.

A `StreamReader` parses one provider's stream or document and fills a `ModelAnswer`. An `AnswerWriter` renders a chat
completion in another provider's format, chunk by chunk.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from io import StringIO
from typing import Any, NoReturn

import msgspec
from msgspec import Struct

from cuebook.errors import InvalidInput
from cuebook.records.answers import mended
from cuebook.records.turn import Usage
from cuebook.wire.event_stream import Events, read_event, write_event

#: Error message of an answer that reports an error without one.
_NO_REASON = "The provider reported an error."


class ModelAnswer(Struct):
    """A model's answer so far, apart from its content. Mutable: a reader fills it."""

    frame: dict[str, Any] = {}  # id, model and other header fields
    finish: dict[int, str] = {}  # finish reason by choice, "" until it is known
    waits: bool = True  # whether tool calls in it wait for results
    usage: Usage | None = None
    error: str = ""  # the provider's error message
    done: bool = False  # the stream has ended

    @property
    def whole(self) -> bool:
        """Return whether the answer is complete."""
        return self.done or (bool(self.finish) and all(self.finish.values()))

    @property
    def choices(self) -> list[int]:
        """Return the numbers of the choices."""
        return sorted(self.finish)


class StreamReader(ABC):
    """Parses an answer in one wire format, line by line or as one document."""

    def __init__(self) -> None:
        self.answer = ModelAnswer()
        self.events = Events()

    def read_line(self, line: bytes) -> str:
        """Parse a line of a stream. Return the text it adds to the first choice."""
        event = self.events.read(line)
        self.answer.done = self.answer.done or self.events.done
        return self.add(event) if isinstance(event, dict) else ""

    def read_body(self, body: bytes) -> None:
        """Parse a complete answer."""
        document = read_event(body)
        if isinstance(document, dict):
            self.add_document(document)

    @abstractmethod
    def add(self, event: dict[str, Any]) -> str:
        """Add an event of a stream. Return the text it adds to the first choice."""

    @abstractmethod
    def add_document(self, document: dict[str, Any]) -> None:
        """Add a complete answer."""

    @abstractmethod
    def message(self, choice: int = 0) -> bytes | None:
        """Return a choice so far as a chat message, or None if it is empty or invalid."""


class AnswerWriter(ABC):
    """Renders a chat completion's answer in another wire format: as a stream's events, or as one document."""

    #: Whether a stream that breaks off ends with events that say so. If not, the error is raised.
    reports_faults = False

    def __init__(self) -> None:
        self.error = ""  # the provider's error message, instead of an answer
        self.finish = ""  # the chat completion's finish reason
        self.begun = False  # an answer has started
        self._calls: dict[int, int] = {}  # a call's index in the chunks -> its place in the answer
        self._events: list[bytes] = []

    @abstractmethod
    def begin(self) -> bytes:
        """Return the first events of a stream."""

    @abstractmethod
    def end(self, broken: str = "") -> bytes:
        """End the answer and return its last events. `broken` is the reason why it is incomplete."""

    def close(self, broken: str = "") -> bytes:
        """End a stream, which may be incomplete, and return its last events."""
        return self.end(broken)

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """Return the answer so far."""

    def take(self, chunk: Mapping[str, Any], text: str = "delta") -> bytes:
        """Parse a chunk (`delta`) or a complete answer (`message`), and return its events.

        Only the first choice counts.
        """
        if isinstance(model := chunk.get("model"), str) and model:
            self._set_model(model)
        if isinstance(usage := chunk.get("usage"), dict):
            self._set_usage(usage)
        if (error := chunk.get("error")) and not self.error:
            self._fail(str(error.get("message") if isinstance(error, dict) else error))
        for choice in dicts(chunk.get("choices")):
            if choice.get("index", 0) == 0:
                self.begun = True
                self._add_delta(as_dict(choice.get(text)))
                finish = choice.get("finish_reason")
                self.finish = finish if isinstance(finish, str) and finish else self.finish
        return self._flush()

    def _add_delta(self, delta: Mapping[str, Any]) -> None:
        for name in ("content", "refusal"):
            if isinstance(text := delta.get(name), str) and text:
                self._add_text(name, text)
        for number, call in enumerate(dicts(delta.get("tool_calls"))):
            index, function = call.get("index", number), as_dict(call.get("function"))
            index = index if isinstance(index, int) else number
            if index not in self._calls:
                self._end_text()
                self._calls[index] = self._begin_call(call.get("id"), function.get("name"))
            if isinstance(arguments := function.get("arguments"), str) and arguments:
                self._add_arguments(self._calls[index], arguments)

    @abstractmethod
    def _set_model(self, model: str) -> None: ...

    @abstractmethod
    def _set_usage(self, usage: Mapping[str, Any]) -> None: ...

    def _fail(self, error: str) -> None:
        self.error = error

    @abstractmethod
    def _add_text(self, name: str, text: str) -> None: ...

    @abstractmethod
    def _end_text(self) -> None: ...

    @abstractmethod
    def _begin_call(self, id_: Any, name: Any) -> int: ...

    @abstractmethod
    def _add_arguments(self, place: int, text: str) -> None: ...

    def _emit(self, kind: str, **fields: Any) -> None:
        self._events.append(write_event(kind, **fields))

    def _flush(self) -> bytes:
        events, self._events = b"".join(self._events), []
        return events


def growing_text(text: str) -> StringIO:
    """Return a text to which pieces can be appended."""
    growing = StringIO()
    growing.write(text)
    return growing


def joined(growing: StringIO) -> str:
    """Return a growing text so far."""
    return mended(growing.getvalue())


def error_message(error: object) -> str:
    """Return the message of a provider's error: an object with `message`, or a text."""
    message = error.get("message") if isinstance(error, dict) else error
    return mended(message) if isinstance(message, str) and message else _NO_REASON


def as_dict(value: object) -> dict[str, Any]:
    """Return a value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def dicts(value: object) -> list[dict[str, Any]]:
    """Return the objects in a list, none if the value is no list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def read_json(text: str | bytes) -> Any:
    """Parse JSON, or return None if it is invalid."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def refuse(where: str, problem: str) -> NoReturn:
    """Raise InvalidInput naming the field."""
    raise InvalidInput(f"{where}: {problem}", where=where)
