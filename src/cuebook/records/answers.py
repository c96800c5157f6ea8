"""What a model answered that was asked for JSON: the object in its text, and a strict check against a small schema."""

import json
from collections.abc import Mapping
from typing import Any

from cuebook.errors import InvalidInput


def read_object(text: str) -> dict[str, Any]:
    """Read the JSON object in an answer, in a fence or among other words or alone. Raises InvalidInput."""
    for candidate in _candidates(text):
        try:
            value = json.loads(candidate, parse_constant=_refuse)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    raise InvalidInput("the answer holds no JSON object", where="answer")


def _candidates(text: str) -> list[str]:
    """Return what may be the JSON, in A's order: all, a fenced block, the first `{` to the last `}`."""
    found = [text.strip()]
    fenced = text.split("```")
    found += [block.removeprefix("json").strip() for block in fenced[1::2]]
    start, end = text.find("{"), text.rfind("}")
    return [*found, text[start : end + 1]] if 0 <= start < end else found


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def check(value: Any, schema: Mapping[str, Any], *, where: str) -> None:
    """Raise InvalidInput where `value` breaks `schema`: its few keywords, checked strictly.

    Known are object, array, string and number with their bounds, `enum`, and for an object `required` and
    `properties`; what is not named there is refused.
    """
    match schema["type"]:
        case "object" if isinstance(value, dict):
            _check_object(value, schema, where=where)
        case "array" if isinstance(value, list):
            if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
                raise InvalidInput(f"{len(value)} entries are too few or too many", where=where)
            for place, entry in enumerate(value):
                check(entry, schema["items"], where=f"{where}[{place}]")
        case "string" if isinstance(value, str):
            if not schema.get("minLength", 0) <= len(value.strip()) or len(value) > schema.get("maxLength", len(value)):
                raise InvalidInput(f"a text of {len(value)} characters is too short or too long", where=where)
            if value not in schema.get("enum", (value,)):
                raise InvalidInput(f"{value!r} is none of {', '.join(schema['enum'])}", where=where)
        case "number" if isinstance(value, int | float) and not isinstance(value, bool):
            if not schema["minimum"] <= value <= schema["maximum"]:
                raise InvalidInput(f"{value!r} is outside {schema['minimum']}..{schema['maximum']}", where=where)
        case kind:
            raise InvalidInput(f"{kind} expected, got {type(value).__name__}", where=where)


def _check_object(value: dict[str, Any], schema: Mapping[str, Any], *, where: str) -> None:
    missing = [key for key in schema["required"] if key not in value]
    extra = [key for key in value if key not in schema["properties"]]
    if missing or extra:
        raise InvalidInput(f"missing keys {missing!r}, unknown keys {extra!r}", where=where)
    for key, entry in value.items():
        check(entry, schema["properties"][key], where=f"{where}.{key}")
