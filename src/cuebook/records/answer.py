"""Base of the answers that operations return, and their JSON: camelCase names, ISO 8601 times in UTC."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
from msgspec import UNSET, Struct

T = TypeVar("T")
S = TypeVar("S", bound=Struct)
#: The values of a JSON object.
Wire = dict[str, Any]


class Time(float):
    """A time: Unix seconds in Python, ISO 8601 UTC in JSON."""

    __slots__ = ()

    def __str__(self) -> str:
        return datetime.fromtimestamp(self, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    @property
    def day(self) -> str:
        """Return the day in UTC: 2026-01-31."""
        return str(self)[:10]


class Answer(Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of an operation's answer. `str()` of it is the line that the command line prints."""

    #: Fields that a table on the command line shows, in order; none = all.
    COLUMNS: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        fields = ((name, getattr(self, name)) for name in self.COLUMNS or self.__struct_fields__)
        return " · ".join(f"{name}: {in_words(value)}" for name, value in fields if value not in (None, "", ()))


class Page(Struct, Generic[T], frozen=True, kw_only=True, omit_defaults=True):
    """A page of a list; `next` is the cursor of the next page, missing on the last one."""

    items: tuple[T, ...]
    next: str | None = None

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, at: int) -> T:
        return self.items[at]


def in_words(value: object) -> str:
    """Return a value as people read it: a time to the minute, a number with two digits, a list with commas."""
    if isinstance(value, Time):
        return str(value)[:16].replace("T", " ")
    if isinstance(value, float):
        digits = 2 if abs(value) >= 0.1 or not value else 2 - math.floor(math.log10(abs(value))) - 1
        text = f"{value:,.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, list | tuple):
        return ", ".join(map(in_words, value))
    return "" if value is None or value is UNSET else str(value)


def time_of(seconds: float | None) -> Time | None:
    """Return Unix seconds as a Time; None stays None."""
    return None if seconds is None else Time(seconds)


def as_answer(kind: type[S], value: object, /, **values: Any) -> S:
    """Return a record as an answer: its fields of the same names, with Unix seconds as times; `values` come first."""
    for name, time in _fields(kind):
        if name not in values and hasattr(value, name):
            field = getattr(value, name)
            values[name] = time_of(field) if time else field
    return kind(**values)


def added(one: S, other: S, /, **values: Any) -> S:
    """Return the sum of two records: numbers and lists are added, dictionaries name by name; `values` come first."""
    sums: dict[str, Any] = {}
    for name in one.__struct_fields__:
        if name not in values:
            a, b = getattr(one, name), getattr(other, name)
            sums[name] = {key: a.get(key, 0) + b.get(key, 0) for key in a | b} if isinstance(a, dict) else a + b
    return msgspec.structs.replace(one, **sums, **values)


@cache
def _fields(kind: type[Struct]) -> tuple[tuple[str, bool], ...]:
    """Return the names of a struct's fields, and whether each is a time."""
    return tuple((field.name, field.type in (Time, Time | None)) for field in msgspec.structs.fields(kind))


def to_json(answer: object) -> bytes:
    """Return an answer as JSON."""
    return _ENCODER.encode(answer)


def to_wire(answer: object) -> Any:
    """Return an answer as the values that its JSON has: dictionaries, sequences, texts and numbers."""
    return msgspec.to_builtins(answer, enc_hook=_encode, str_keys=True)


def from_json(raw: bytes, kind: type[T]) -> T:
    """Parse an answer's JSON. Raises msgspec.ValidationError for that of another type."""
    return msgspec.json.decode(raw, type=kind, dec_hook=_decode)


def schema_of_time(kind: type) -> dict[str, Any]:
    """Return the JSON Schema of a time."""
    if kind is Time:
        return {"type": "string", "format": "date-time"}
    raise NotImplementedError


def _encode(value: object) -> str:
    if isinstance(value, Time):
        return str(value)
    msg = f"{type(value).__name__} has no JSON form"
    raise NotImplementedError(msg)


def _decode(kind: type, value: Any) -> Any:
    if kind is Time:
        return Time(datetime.fromisoformat(value).timestamp())
    msg = f"{kind.__name__} has no JSON form"
    raise NotImplementedError(msg)


_ENCODER = msgspec.json.Encoder(enc_hook=_encode)
