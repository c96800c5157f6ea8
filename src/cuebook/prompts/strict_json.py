"""Parse and check JSON strictly, so that all readers agree: no duplicate keys, no inexact numbers, no lone surrogates.

Hashed and signed documents are parsed and written here. Python's own parser keeps the last of two equal keys and
accepts NaN, so two readers of one signed document could see different values.
"""

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from cuebook.errors import InvalidInput

#: From here on doubles cannot represent every integer (RFC 8785, 3.2.2.3).
INEXACT = 2**53
#: From here on RFC 8785 writes an exponent, which parses back to the same value.
_EXPONENT = 1e21


def parse(document: str | bytes, *, where: str = "$") -> Any:
    """Return parsed UTF-8 JSON. Raises InvalidInput naming the place below `where` of torn or ambiguous parts."""
    try:
        text = document if isinstance(document, str) else document.decode()
        value = json.loads(text, object_pairs_hook=_unique)
    except InvalidInput as error:  # a duplicate key
        raise InvalidInput(f"{where}: {error}" if where != "$" else str(error), where=error.where) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{where}: not valid JSON ({error})", where=where) from error
    check(value, where=where)
    return value


def check(value: object, *, where: str = "$") -> None:
    """Raise InvalidInput naming the place below `where` of a value that would not parse back the same."""
    try:
        _check(value, where)
    except RecursionError as error:
        raise InvalidInput(f"{where}: nested too deeply", where=where) from error


def _check(value: object, where: str) -> None:
    if isinstance(value, str):
        if not value.isascii():
            _check_text(value, where)
    elif isinstance(value, int | float):
        _check_number(value, where)
    elif isinstance(value, Mapping):
        for key, member in value.items():
            if not isinstance(key, str):
                raise InvalidInput(f"{where}: the key {key!r} is not a string", where=where)
            _check_text(key, where)
            _check(member, f"{where}.{key}")
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        for number, member in enumerate(value):
            _check(member, f"{where}[{number}]")
    elif value is not None:
        raise InvalidInput(f"{where}: {type(value).__name__} is not a JSON type", where=where)


def _check_text(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{where}: contains a lone surrogate, which is not valid text", where=where) from error


def _check_number(value: float, where: str) -> None:
    whole = isinstance(value, int)
    if not whole and not isfinite(value):
        raise InvalidInput(f"{where}: {value} is not a JSON number. Remove it.", where=where)
    if abs(value) >= INEXACT and (whole or abs(value) < _EXPONENT):
        raise InvalidInput(f"{where}: {value} is beyond 2^53 and not exact. Write it as a string.", where=where)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data:
            raise InvalidInput(f"{key}: duplicate key. Keep one.", where=key)
        data[key] = value
    return data
