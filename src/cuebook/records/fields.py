"""How the fields of a definition are read: each by its type and range, and every fault told with its path."""

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from math import isfinite
from typing import Any

from msgspec import Struct

from cuebook.errors import InvalidInput

#: How fields begin that are for editors and readers: "$schema", "_comment".
_ASIDE = ("$", "_")
#: Characters of a wrong value that an error repeats.
_SHOWN = 60


class Fault(Struct, frozen=True):
    """What is wrong at a place of a definition, and what to write there."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


class Fields:
    """An object of a definition. What is wrong in it goes to `faults`, and its reader gets the default."""

    def __init__(self, body: Mapping[Any, Any], path: str, faults: list[Fault], known: Collection[str]) -> None:
        """`path` is the object's own, "" for the whole definition; `known` are the fields it may have."""
        self.body = body
        self.path = path
        self.faults = faults
        for key in body:
            if key not in known and not str(key).startswith(_ASIDE):
                self.fault(str(key), unknown("field", str(key), known))

    def at(self, key: str) -> str:
        """Give the path of a field."""
        return f"{self.path}.{key}" if self.path else key

    def fault(self, key: str, why: str) -> None:
        """Say what is wrong about a field."""
        self.faults.append(Fault(self.at(key), why))

    def __contains__(self, key: str) -> bool:
        return self.body.get(key) is not None

    def text(self, key: str, default: str = "", *, most: int | None = None) -> str:
        """Give a text."""
        value = self.body.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self.fault(key, f"expected a text, got {shown(value)}")
            return default
        if most is not None and len(value) > most:
            self.fault(key, f"has {len(value):,} characters; at most {most:,} are read")
            return default
        return value

    def name(self, key: str, *, what: str, most: int = 160) -> str:
        """Give a text that must be there, in letters one can see; "" where it is not."""
        if key not in self:
            self.fault(key, f"missing; {what}")
            return ""
        value = self.text(key, most=most)
        if isinstance(self.body[key], str) and not value.strip():
            self.fault(key, f"is empty; {what}")
            return ""
        if not value.isprintable():
            self.fault(key, f"{value!r} holds characters nobody sees; use letters, digits, '-', '_'")
            return ""
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """Give true or false."""
        value = self.body.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fault(key, f"expected true or false, got {shown(value)}")
            return default
        return value

    def whole(self, key: str, default: int, *, least: int, most: int) -> int:
        """Give a whole number."""
        value = self.body.get(key)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # 5.0 is JSON's 5
        if type(value) is not int or not least <= value <= most:
            self.fault(key, f"expected a whole number from {least:,} to {most:,}, got {shown(value)}")
            return default
        return value

    def number(self, key: str, default: float, *, least: float, most: float) -> float:
        """Give a number."""
        value = self.body.get(key)
        if value is None:
            return default
        if type(value) not in (int, float) or not isfinite(value) or not least <= value <= most:
            self.fault(key, f"expected a number from {least:g} to {most:g}, got {shown(value)}")
            return default
        return float(value)

    def choice(self, key: str, default: str, *, of: Collection[str], what: str) -> str:
        """Give one of some names."""
        value = self.text(key, default)
        if isinstance(self.body.get(key), str) and value not in of:
            self.fault(key, unknown(what, value, of))
            return default
        return value

    def names(self, key: str, *, of: Collection[str], what: str) -> tuple[str, ...]:
        """Give a list of names, each once."""
        found = []
        for number, value in enumerate(self.items(key)):
            place = f"{key}[{number}]"
            if not isinstance(value, str):
                self.fault(place, f"expected the name of a {what}, got {shown(value)}")
            elif value not in of:
                self.fault(place, unknown(what, value, of))
            else:
                found.append(value)
        return tuple(dict.fromkeys(found))

    def items(self, key: str) -> Sequence[Any]:
        """Give a list."""
        value = self.body.get(key)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            self.fault(key, f"expected a list, got {shown(value)}")
            return ()
        return value

    def object(self, key: str, known: Collection[str], *, what: str) -> "Fields | None":
        """Give an object of this one, None where there is none."""
        value = self.body.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            self.fault(key, f"expected {what}, got {shown(value)}")
            return None
        return Fields(value, self.at(key), self.faults, known)


def unknown(what: str, name: str, known: Collection[str]) -> str:
    """Say that there is no such thing, what was probably meant, and what there is."""
    near = get_close_matches(name, known, n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return f"no {what} {name[:_SHOWN]!r}; {meant}known are {', '.join(known)}"


def shown(value: object) -> str:
    """Name a wrong value as who wrote the file knows it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def refuse(faults: Sequence[Fault], *, file: str) -> None:
    """Raise InvalidInput for the first fault, if there is one, and say how many more there are."""
    if not faults:
        return
    more = len(faults) - 1
    rest = f" (and {more} more)" if more else ""
    raise InvalidInput(f"{file}: {faults[0]}{rest}", where=faults[0].path)
