"""The parsed form of an imported transcript, and parsers of its fields whose errors name file and position."""

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

from msgspec import Struct

from cuebook.engine.core.drafts import Posted, check_text
from cuebook.errors import InvalidInput
from cuebook.memory.evidence import Question

C = TypeVar("C", bound=str)


class Transcript(Struct, frozen=True, kw_only=True):
    """A conversation from elsewhere. Each post has an id; parsing the same file again yields the same ids."""

    conversation: str
    posts: tuple[Posted | Mapping[str, Any], ...]
    source: str  # the format it was parsed from
    user: str | None = None
    persona: str | None = None
    title: str = ""
    time_zone: str | None = None  # of its calendar days
    questions: tuple[Question, ...] = ()
    parents: Mapping[str, str | None] = {}  # if it has branches: id -> the parent's id
    head: str | None = None


class FilePlace:
    """A position in a file, included in errors."""

    def __init__(self, file: str, path: str = "") -> None:
        self.file = file
        self.path = path

    def at(self, key: str | int) -> "FilePlace":
        """Return the position of a field, or of a list's element."""
        if isinstance(key, int):
            return FilePlace(self.file, f"{self.path}[{key}]")
        return FilePlace(self.file, f"{self.path}.{key}" if self.path else key)

    def refuse(self, problem: str) -> NoReturn:
        """Raise InvalidInput naming file and position."""
        msg = f"{self.file}: {self.path}: {problem}" if self.path else f"{self.file}: {problem}"
        raise InvalidInput(msg, where=self.path or self.file)

    def mapping(self, value: object) -> Mapping[str, Any]:
        """Return the value if it is an object."""
        if not isinstance(value, Mapping):
            self.refuse(f"expected an object, got {kind_of(value)}")
        return value

    def sequence(self, value: object) -> list[Any]:
        """Return the value if it is a list."""
        if not isinstance(value, list):
            self.refuse(f"expected a list, got {kind_of(value)}")
        return value

    def text(self, value: object, default: str | None = None) -> str:
        """Return the value if it is a storable string; null becomes `default` if given."""
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            self.refuse(f"expected a string, got {kind_of(value)}")
        self.check(value)
        return value

    def choice(self, value: object, choices: Sequence[C], default: C | None) -> C | None:
        """Return the value if it is one of the choices; the default for null or an empty string."""
        text = self.text(value, "")
        if text and text not in choices:
            self.refuse(f"expected one of {', '.join(choices)}, got {text!r}")
        return next((each for each in choices if each == text), default)

    def name(self, value: object) -> str | None:
        """Return an id or a name: a string or an integer, None if empty."""
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        return self.text(value, "") or None

    def check(self, text: str) -> None:
        """Check for NUL and lone surrogates. Raises InvalidInput."""
        try:
            check_text(text, self.path)
        except InvalidInput as error:
            self.refuse(str(error).removeprefix(f"{self.path}: "))

    def time(self, value: object) -> float | None:
        """Parse a time as Unix seconds: a number, or ISO 8601 (UTC without a zone)."""
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
            return float(value)
        try:
            read = datetime.fromisoformat(value) if isinstance(value, str) else None
        except ValueError:
            read = None
        if read is None:
            self.refuse(f"expected a time like 2026-03-01T09:30:00Z or Unix seconds, got {value!r}")
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def kind_of(value: object) -> str:
    """Return the name of a JSON value's type."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)
