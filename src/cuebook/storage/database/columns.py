"""Map rows to records and records to columns, and encode the JSON in columns."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from cuebook.errors import BackendError
from cuebook.records.answer import Time

T = TypeVar("T")
S = TypeVar("S", bound=Struct)
#: Errors of a stored JSON value that somebody damaged.
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError)
#: The largest integer that a column holds.
LARGEST: Final = (1 << 63) - 1
#: A row by column names.
Row = dict[str, Any]
Decode = Callable[[Any], Any]

#: Types that a column holds as they are. `bool` is stored as an integer, Time as a number, everything else as JSON.
_PLAIN = (str, int, float, bytes, NoneType)


def record(kind: type[S], row: Mapping[str, Any], /, **values: Any) -> S:
    """Return a record from a row's columns of the same names; `values` replace columns or add fields.

    A field without a column, or with NULL instead of JSON, has its default.
    """
    plain, decoded = _fields(kind)
    fields = {name: row[name] for name in plain if name in row}
    for name, decode in decoded:
        if name not in values and (raw := row.get(name)) is not None:
            fields[name] = decode(raw)
    return kind(**(fields | values) if values else fields)


def record_maker(kind: type[S], names: tuple[str, ...]) -> Callable[[Sequence[Any]], S]:
    """Return the function that makes a record of a row with these columns: `record` for many rows, twice as fast."""
    plain, decoded = _fields(kind)
    own = [name for name in plain if name in names]
    pick = itemgetter(*map(names.index, own), 0, 0)  # at least two, so that it returns a tuple
    rest = [(name, names.index(name), decode) for name, decode in decoded if name in names]

    def make(row: Sequence[Any]) -> S:
        fields = dict(zip(own, pick(row), strict=False))
        for name, at, decode in rest:
            if (raw := row[at]) is not None:
                fields[name] = decode(raw)
        return kind(**fields)

    return make


def columns(value: Struct) -> dict[str, Any]:
    """Return a record's fields as the columns that `record` reads."""
    plain, decoded = _fields(type(value))
    values = {name: getattr(value, name) for name in plain}
    for name, decode in decoded:
        field = getattr(value, name)
        if field is not None:
            number = int if decode is bool else float if decode is Time else None
            field = number(field) if number else encode_json(field)
        values[name] = field
    return values


@cache
def _fields(kind: type[Struct]) -> tuple[tuple[str, ...], tuple[tuple[str, Decode], ...]]:
    """Return the names of plain fields, and the other ones with the functions that decode their columns."""
    plain: list[str] = []
    decoded: list[tuple[str, Decode]] = []
    for field in msgspec.structs.fields(kind):
        union = get_origin(field.type) in (Union, UnionType)
        kinds = set(get_args(field.type)) if union else {field.type}
        if all(each in _PLAIN or get_origin(each) is Literal for each in kinds):
            plain.append(field.name)
        else:
            whole = kinds - {NoneType}
            number = bool if whole == {bool} else Time if whole == {Time} else None
            decoded.append((field.name, number or _decoder(field.type)))
    return tuple(plain), tuple(decoded)


# ---- JSON -----------------------------------------------------------------------------------------------------------


def decode(kind: type[T], body: bytes | str) -> T:
    """Parse a value from a column's JSON."""
    hashable: Any = kind
    value: T = _decoder(hashable)(body)
    return value


@cache
def _decoder(kind: Any) -> Decode:
    return msgspec.json.Decoder(kind, dec_hook=lambda of, value: of(value)).decode  # a Time


def unreadable_value() -> BackendError:
    """Return the error for a damaged value, without its content."""
    return BackendError("The database is damaged: a stored value is not valid JSON. Restore a backup.")


def encode(value: object) -> bytes:
    """Return a value as JSON."""
    return _ENCODER.encode(value)


def encode_json(value: object) -> str:
    """Return a value as JSON text."""
    return encode(value).decode()


_ENCODER = msgspec.json.Encoder(enc_hook=float)  # a Time
