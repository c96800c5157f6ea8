"""Map rows to records and records to columns, and encode the JSON in columns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from itertools import starmap
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
#: Whether the types of columns are checked: in reads of a SQLite file, which can have a value of any type in any
#: column. Writes do not check them, so that an erasure also erases damaged rows.
CHECKS_TYPES: Final = ContextVar("checks_types", default=False)
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
    if CHECKS_TYPES.get():
        _check_types(plain, ((name, type(value)) for name, value in fields.items()))
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
    checked: set[tuple[type, ...]] = set()

    def make(row: Sequence[Any]) -> S:
        values = pick(row)
        if CHECKS_TYPES.get() and (types := tuple(map(type, values))) not in checked:
            _check_types(plain, zip(own, types, strict=False))
            checked.add(types)
        fields = dict(zip(own, values, strict=False))
        for name, at, decode in rest:
            if (raw := row[at]) is not None:
                fields[name] = decode(raw)
        return kind(**fields)

    return make


def plain_records(kind: type[S], rows: Sequence[Sequence[Any]]) -> list[S]:
    """Return records of rows with the columns of all their fields, in order. All fields are plain."""
    if CHECKS_TYPES.get():
        plain = _fields(kind)[0]
        for name, values in zip(plain, zip(*rows, strict=True), strict=False):
            _check_types(plain, ((name, each) for each in set(map(type, values))))
    return list(starmap(kind, rows))


def _check_types(plain: Mapping[str, tuple[type, ...]], types: Iterable[tuple[str, type]]) -> None:
    """Check the types of plain fields' values. Raises TypeError."""
    for name, kind in types:
        if not issubclass(kind, plain[name]):
            msg = f"column {name!r} has a value of type {kind.__name__}"
            raise TypeError(msg)


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
def _fields(kind: type[Struct]) -> tuple[dict[str, tuple[type, ...]], tuple[tuple[str, Decode], ...]]:
    """Return plain fields with the types of their columns, and the others with the functions that decode theirs."""
    plain: dict[str, tuple[type, ...]] = {}
    decoded: list[tuple[str, Decode]] = []
    for field in msgspec.structs.fields(kind):
        union = get_origin(field.type) in (Union, UnionType)
        kinds = set(get_args(field.type)) if union else {field.type}
        if all(each in _PLAIN or get_origin(each) is Literal for each in kinds):
            types = {str if get_origin(each) is Literal else each for each in kinds}
            plain[field.name] = (NoneType, *(types | {int, float} if types & {int, float} else types))
        else:
            whole = kinds - {NoneType}
            number = bool if whole == {bool} else Time if whole == {Time} else None
            decoded.append((field.name, number or _decoder(field.type)))
    return plain, tuple(decoded)


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
