"""What a decoder says of a body, said so that its sender knows which field is meant and what may stand there."""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from msgspec import inspect

from cuebook.errors import InvalidInput
from cuebook.server.problems import in_words

_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_ENUM: Final = re.compile(r"Invalid enum value (.*)", re.DOTALL)
#: Of a mapping's value a decoder does not say whose it is.
_SOME: Final = "[...]"
#: Mappings of more entries are not looked through for the one at fault.
_MANY: Final = 200
_STEP: Final = re.compile(r"\.?([^.\[]+)|\[(\d+|\.\.\.)\]")


def named(error: msgspec.ValidationError, kind: Any, document: Callable[[], Any]) -> InvalidInput:
    """Give a decoder's complaint with the field's path in front: of a `document` (JSON, parsed) read as a `kind`."""
    text, _, path = str(error).partition(" - at `$")
    path = path.removesuffix("`")
    where = (_spelled(path, kind, document(), str(error)) if _SOME in path else path).lstrip(".")
    for pattern, what in ((_UNKNOWN, "there is no such field; take it out, or see /schema"), (_MISSING, "missing")):
        if match := pattern.match(text):
            where = f"{where}.{match[1]}" if where else match[1]
            return InvalidInput(f"{where}: {what}", where=where)
    where = where or "body"
    if match := _ENUM.match(text):
        known = ", ".join(str(each) for each in _choices(kind, path))
        return InvalidInput(f"{where}: {match[1]} is none of {known}", where=where)
    return InvalidInput(f"{where}: {in_words(text)}", where=where)


def _spelled(path: str, kind: Any, document: Any, said: str) -> str:
    """Give a path with the first key of a mapping that alone brings the same complaint in the place of `[...]`."""
    before, _, behind = path.partition(_SOME)
    place = document
    for key, number in _STEP.findall(before):
        place = place[int(number)] if number else place[key]
    if not isinstance(place, dict) or len(place) > _MANY:
        return path
    for key, value in list(place.items()):
        place.clear()
        place[key] = value
        try:
            msgspec.convert(document, kind)
        except msgspec.ValidationError as error:
            if str(error) == said:
                return f"{before}.{key}{behind}"
    return path


def _choices(kind: Any, path: str) -> tuple[object, ...]:
    """Give the values that may stand at a path of what a decoder reads."""
    found = [inspect.type_info(kind)]
    for key, number in _STEP.findall(path):
        found = [below for each in found for below in _below(each, key, number)]
    return tuple(value for each in found for single in _each(each) for value in getattr(single, "values", ()))


def _each(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Give the kinds a value may have, what only describes them taken off."""
    if isinstance(kind, inspect.Metadata):
        yield from _each(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _each(each)
    else:
        yield kind


def _below(kind: inspect.Type, key: str, number: str) -> Iterator[inspect.Type]:
    for each in _each(kind):
        if key and isinstance(each, inspect.StructType):
            yield from (field.type for field in each.fields if field.encode_name == key)
        elif number and isinstance(each, inspect.ListType):
            yield each.item_type
        elif number and isinstance(each, inspect.DictType):
            yield each.value_type
