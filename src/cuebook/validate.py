"""Validate documents and arguments against structs. Every fault is reported with its path.

`validate` reads JSON-like values (from JSON, YAML, TOML or a caller) as a msgspec struct. Types, ranges and names come
from the struct itself. Struct options and metadata that it follows:

- `forbid_unknown_fields`: an unknown key is a fault, and the nearest known name is suggested. Where a `Document`
  switches it off, only a key that is close to a field name is a fault: other programs' fields are allowed.
- `IGNORED`, a class variable: keys without an effect here, as in files written for other programs.
- `msgspec.Meta` of a field: ranges and lengths; a `description` that is no sentence names the expected form.

`null` counts as absent where a field has a default. Keys that begin with `$` or `_` are comments.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from math import inf, isfinite
from typing import Annotated, Any, ClassVar, Final, TypeVar

from msgspec import Meta, Struct, StructMeta, inspect

from cuebook.errors import InvalidInput

T = TypeVar("T")

#: Prefixes of comment keys: "$schema", "_comment".
_COMMENTS: Final = ("$", "_")
#: Characters of an invalid value that an error repeats.
_SHOWN: Final = 60
#: Names listed in an error for an unknown name.
_LISTED: Final = 12
#: Similarity from which a known name is suggested, in [0, 1].
_NEAR: Final = 0.75
#: Fields in which programs expect the text of a message.
_TEXT: Final = frozenset({"content", "message", "prompt", "query", "text"})
#: Marks a value that is invalid.
_WRONG: Final = object()


#: A name that people read and type: visible characters.
Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=160,
        pattern="^[^\x00-\x1f\x7f-\xa0\xad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ud800-\uf8ff\ufeff]+$",
        description="a name of visible characters",
    ),
]


class Argument(StructMeta):
    """Metaclass of the structs that callers construct: an unknown field raises a TypeError with the known ones."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: N805  # a metaclass
        try:
            return super().__call__(*args, **kwargs)
        except TypeError as error:
            fields: tuple[str, ...] = cls.__struct_fields__
            wrong = next((name for name in kwargs if name not in fields), None)
            if wrong is None:
                raise
            near = [*(_TEXT & {*fields} if wrong in _TEXT else ())] or get_close_matches(wrong, fields, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Available: {', '.join(fields)}."
            msg = f"{cls.__name__} has no field {wrong!r}. {hint}"
            raise TypeError(msg) from error


class Document(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of the structs of files: keys in camelCase; unknown keys are faults."""

    IGNORED: ClassVar[frozenset[str]] = frozenset()


class Fault(Struct, frozen=True):
    """A fault at a path of a document ("" = the whole) and its correction."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


def validate(
    document: object, kind: type[T], path: str = "", *, null_is_absent: bool = True
) -> tuple[T | None, list[Fault]]:
    """Return a document as a struct, and its faults.

    A faulty field gets its default; where a required field is faulty, the value is None. A struct instance is
    validated by the names of its attributes. `path` is the path of the document itself, "" for a whole file. For
    request bodies use `null_is_absent=False`, because there a `null` is a value of the wrong type.
    """
    reader = _Reader(null_is_absent=null_is_absent)
    value = reader.read(document, _type_info(kind), path)  # type: ignore[arg-type]
    return (None if value is _WRONG else value), reader.faults


def check(document: object, kind: type[T], path: str = "", *, null_is_absent: bool = True) -> T:
    """Return a document as a struct. Raises InvalidInput for the first fault."""
    value, faults = validate(document, kind, path, null_is_absent=null_is_absent)
    refuse(faults)
    return value  # type: ignore[return-value]  # without a fault there is a value


def refuse(faults: Sequence[Fault], *, file: str = "") -> None:
    """Raise InvalidInput for the first fault, if any, with the number of further faults."""
    if faults:
        more = "" if len(faults) == 1 else f" (and {len(faults) - 1} more fault{'s' * (len(faults) > 2)})"
        prefix = f"{file}: " if file else ""
        raise InvalidInput(f"{prefix}{faults[0]}{more}", where=faults[0].path)


def join(path: str, key: object) -> str:
    """Return the path of a member: `rules[0].presetId`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else str(key)


def unknown(what: str, name: str, known: Collection[str]) -> str:
    """Return the message for an unknown name: the nearest known name, else the available ones."""
    near = get_close_matches(name, known, n=1, cutoff=_NEAR)
    if near:
        return f"unknown {what} {name[:_SHOWN]!r}. Did you mean {near[0]!r}?"
    listed = ", ".join(list(known)[:_LISTED]) or "none"
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"unknown {what} {name[:_SHOWN]!r}. Available: {listed}{more}."


def check_known(what: str, names: Iterable[tuple[str, str]], known: Collection[str]) -> list[Fault]:
    """Return a fault for each (path, name) whose name is not known."""
    return [Fault(path, unknown(what, name, known)) for path, name in names if name not in known]


def check_unique(path: str, names: Sequence[str]) -> list[Fault]:
    """Return a fault for each item of a list whose id an earlier one has."""
    return [
        Fault(f"{path}[{at}].id", f"duplicate id {name!r}. Use a different id.")
        for at, name in enumerate(names)
        if name in names[:at]
    ]


def mode_key(by_mode: Collection[str], mode: str) -> str:
    """Return the key that applies to a mode: its exact name, else the longest key that it contains, "" for none."""
    keys = [key for key in by_mode if key in mode]
    return mode if mode in keys else max(keys, key=len, default="")  # in a tie, the file's first


def format_value(value: object) -> str:
    """Return an invalid value as the author of a file would write it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


@cache
def _type_info(kind: Any) -> inspect.Type:
    return inspect.type_info(kind)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


class _Reader:
    """Convert a document to a type and collect faults."""

    def __init__(self, *, null_is_absent: bool) -> None:
        self.faults: list[Fault] = []
        self.null_is_absent = null_is_absent

    def fault(self, path: str, reason: str) -> Any:
        """Add a fault; return the mark of an invalid value."""
        self.faults.append(Fault(path, reason))
        return _WRONG

    def read(self, value: Any, kind: inspect.Type, path: str) -> Any:
        """Return a value as its type, or the mark of an invalid value."""
        fitting = next((each for each in _alternatives(kind) if _fits(value, each)), None)
        if fitting is None:
            return self.fault(path, f"expected {_describe(kind)}, got {format_value(value)}")
        read = _READERS.get(type(fitting))
        return value if read is None else read(self, value, fitting, path, kind)

    def struct(self, value: Any, kind: inspect.StructType, path: str, _whole: Any) -> Any:
        """Return an object as a struct. The last argument of each reader is the field's whole type, for messages."""
        given, fields = _members(value, kind)
        ignored: frozenset[str] = getattr(kind.cls, "IGNORED", frozenset())
        for key in map(str, given):
            if key not in fields and key not in ignored and not key.startswith(_COMMENTS) and _refuses(kind, key):
                self.fault(join(path, key), unknown("field", key, fields))
        values: dict[str, Any] = {}
        complete = True
        for key, field in fields.items():
            null = given is value and self.null_is_absent and given.get(key, "") is None
            left_out = key not in given or (null and not _may_be_null(field.type))
            read = (
                self.absent(field, join(path, key)) if left_out else self.read(given[key], field.type, join(path, key))
            )
            if read is not _WRONG:
                values[field.name] = read
            complete = complete and not (field.required and read is _WRONG)
        return kind.cls(**values) if complete else _WRONG

    def absent(self, field: inspect.Field, path: str) -> Any:
        """Return the mark of an absent field; an absent required field is a fault."""
        return self.fault(path, f"missing. Expected {_describe(field.type)}.") if field.required else _WRONG

    def mapping(self, value: Mapping[Any, Any], kind: inspect.DictType, path: str, _whole: Any) -> Any:
        """Return an object as a dictionary."""
        data = {}
        for key, member in value.items():
            if not isinstance(key, str):
                self.fault(path, f"expected string keys, got {format_value(key)}")
                continue
            read = self.read(member, kind.value_type, join(path, key))
            if read is not _WRONG:
                data[key] = read
        return data

    def items(self, value: Any, kind: Any, path: str, _whole: Any) -> Any:
        """Return a list."""
        if kind.max_length is not None and len(value) > kind.max_length:
            return self.fault(path, f"has {len(value):,} entries. The limit is {kind.max_length:,}.")
        read = [self.read(member, kind.item_type, join(path, at)) for at, member in enumerate(value)]
        return _BUILDERS[type(kind)]([each for each in read if each is not _WRONG])

    def number(self, value: float, kind: Any, path: str, whole: Any) -> Any:
        """Return a number after checking its range."""
        try:
            number = int(value) if isinstance(kind, inspect.IntType) else float(value)
        except OverflowError:  # an integer too large for a float
            number = inf
        if not (isinstance(number, int) or isfinite(number)) or not _in_range(number, kind):
            return self.fault(path, f"expected {_describe(whole)}, got {format_value(value)}")
        return number

    def literal(self, value: Any, kind: inspect.LiteralType, path: str, _whole: Any) -> Any:
        """Return one of the allowed names."""
        if value in kind.values:
            return value
        return self.fault(path, unknown("value", str(value), [str(each) for each in kind.values]))

    def text(self, value: str, kind: inspect.StrType, path: str, whole: Any) -> Any:
        """Return a text after checking its length and pattern."""
        if kind.min_length and not value.strip():
            form = _describe(whole)
            needed = "Provide at least one character" if form == _WORDS[inspect.StrType] else f"Expected {form}"
            return self.fault(path, f"empty. {needed}.")
        if kind.max_length is not None and len(value) > kind.max_length:
            return self.fault(path, f"has {len(value):,} characters. The limit is {kind.max_length:,}.")
        if kind.pattern is not None and not _compiled(kind.pattern).search(value):
            return self.fault(path, f"expected {_describe(whole)}, got {format_value(value)}")
        return value


def _refuses(kind: inspect.StructType, key: str) -> bool:
    """Return whether a struct rejects an unknown key: it forbids all, or the key is close to a field name."""
    if kind.forbid_unknown_fields:
        return True
    names = [field.encode_name for field in kind.fields]
    return issubclass(kind.cls, Document) and bool(get_close_matches(key, names, n=1, cutoff=_NEAR))


def _members(value: Any, kind: inspect.StructType) -> tuple[Mapping[Any, Any], dict[str, inspect.Field]]:
    """Return a struct's values and fields by key: the keys of the file, or the attribute names of an instance."""
    if isinstance(value, kind.cls):
        names = {field.name: field for field in kind.fields}
        return {name: getattr(value, name) for name in names}, names
    return value, {field.encode_name: field for field in kind.fields}


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the types that a value may have, without their metadata."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if not isinstance(kind, inspect.UnionType):
        return (kind,)
    return tuple(each for inner in kind.types for each in _alternatives(inner))


def _in_range(value: float, kind: Any) -> bool:
    return (
        (kind.ge is None or value >= kind.ge)
        and (kind.gt is None or value > kind.gt)
        and (kind.le is None or value <= kind.le)
        and (kind.lt is None or value < kind.lt)
    )


def _may_be_null(kind: inspect.Type) -> bool:
    return any(_fits(None, each) for each in _alternatives(kind))


def _describe(kind: inspect.Type) -> str:
    """Return a description of the values that a field accepts."""
    if isinstance(kind, inspect.Metadata):
        form = str((kind.extra_json_schema or {}).get("description") or ".")
        return _describe(kind.type) if form.endswith(".") else form
    if isinstance(kind, inspect.UnionType):
        words = [_describe(each) for each in kind.types if not isinstance(each, inspect.NoneType)]
        return " or ".join(dict.fromkeys(words))
    return _describe_one(kind)


def _describe_one(kind: Any) -> str:
    if isinstance(kind, inspect.LiteralType):
        return f"one of {', '.join(map(str, kind.values))}"
    if not isinstance(kind, inspect.IntType | inspect.FloatType):
        return _WORDS.get(type(kind), "a list" if type(kind) in _BUILDERS else "a value")
    least, most = kind.ge if kind.ge is not None else kind.gt, kind.le if kind.le is not None else kind.lt
    bounds = "" if least is None else f" above {least:,}" if kind.gt is not None else f" from {least:,}"
    bounds += "" if most is None else f" to {most:,}" if kind.ge is not None else f" up to {most:,}"
    return _WORDS[type(kind)] + bounds


#: The sequence types of fields, and their constructors.
_BUILDERS: Final[dict[Any, Callable[[list[Any]], Any]]] = {
    inspect.ListType: list,
    inspect.VarTupleType: tuple,
    inspect.SetType: set,
    inspect.FrozenSetType: frozenset,
}
#: The readers of types that need more than a check of their form.
_READERS: Final[dict[Any, Callable[[_Reader, Any, Any, str, Any], Any]]] = {
    inspect.StructType: _Reader.struct,
    inspect.DictType: _Reader.mapping,
    inspect.IntType: _Reader.number,
    inspect.FloatType: _Reader.number,
    inspect.LiteralType: _Reader.literal,
    inspect.StrType: _Reader.text,
    **dict.fromkeys(_BUILDERS, _Reader.items),
}
_WORDS: Final[dict[Any, str]] = {
    inspect.StrType: "a string",
    inspect.BoolType: "true or false",
    inspect.BytesType: "bytes",
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.DictType: "an object",
    inspect.StructType: "an object",
}
#: The form of a type's values: Python types, or a test.
_FORMS: Final[dict[Any, Any]] = {
    inspect.StrType: str,
    inspect.BoolType: bool,
    inspect.BytesType: bytes,
    inspect.NoneType: type(None),
    inspect.DictType: Mapping,
    **dict.fromkeys(_BUILDERS, list | tuple | set | frozenset),
}


def _fits(value: Any, kind: Any) -> bool:
    """Return whether a value has the form of a type (text, number, list, object). Ranges are not checked here."""
    if isinstance(kind, inspect.StructType):
        return isinstance(value, Mapping | kind.cls)
    if isinstance(kind, inspect.IntType | inspect.FloatType):  # 5.0 is JSON's 5
        return type(value) is int or (
            type(value) is float and (kind.__class__ is inspect.FloatType or value.is_integer())
        )
    if isinstance(kind, inspect.LiteralType):
        return isinstance(value, type(kind.values[0]))
    return type(kind) not in _FORMS or isinstance(value, _FORMS[type(kind)])
