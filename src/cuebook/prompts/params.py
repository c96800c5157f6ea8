"""Parse a prompt's parameters in all supported forms, and convert arguments to text.

Three forms are parsed: a list of names and objects (kAI's `["$user_name", {"name": …}]`), picoschema (`name?: string,
text`), and JSON Schema's properties. The choices of an enum go into the description; other constraints of a schema are
dropped. A list or an object is rejected, because it has no text form.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, get_args

from cuebook.errors import InvalidInput
from cuebook.records.prompt import Param, ParamType

#: A name that both engines accept.
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Maximum characters of a name.
MAX_NAME: Final = 64
#: Maximum parameters of a prompt.
MAX_PARAMS: Final = 200

_FIELDS: Final = frozenset({"name", "type", "required", "default", "description", "enum", "kind"})
_INTEGER = re.compile(r"[+-]?[0-9]{1,100}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,100}(?:\.[0-9]{0,100})?|\.[0-9]{1,100})(?:[eE][+-]?[0-9]{1,3})?")
_PICO_KEY = re.compile(r"([^?(]*)(\?)?(?:\(([^,)]*)(?:,(.*))?\))?", re.DOTALL)


def read_params(written: object, *, where: str = "params") -> tuple[Param, ...]:
    """Return the parameters in any of the three forms, in order. Raises InvalidInput naming the faulty one."""
    if written is None:
        return ()
    if isinstance(written, Mapping):
        params = list(_from_mapping(written, where))
    elif isinstance(written, Sequence) and not isinstance(written, str | bytes):
        params = [_from_item(item, f"{where}[{place}]") for place, item in enumerate(written)]
    else:
        raise InvalidInput(f"{where}: expected a list of names, or an object of names and types", where=where)
    if len(params) > MAX_PARAMS:
        raise InvalidInput(f"{where}: {len(params)} parameters; at most {MAX_PARAMS} are allowed", where=where)
    seen: set[str] = set()
    for param in params:
        if param.name in seen:
            raise InvalidInput(f"{where}: {param.name!r} is declared twice", where=f"{where}.{param.name}")
        seen.add(param.name)
    return tuple(params)


def coerce(params: Sequence[Param], values: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of every declared parameter, in order; "" for an optional one that was omitted.

    Names may begin with `$`; null counts as omitted. A text that is a number or an integer stays as written; other
    values are encoded as JSON. Raises InvalidInput, `where` the name: first all unknown names, then all missing ones,
    then the first with a wrong type.
    """
    data = _given(values)
    known = {param.name for param in params}
    unknown = [name for name in data if name not in known]
    if unknown:
        declared = ", ".join(sorted(known)) or "none"
        raise InvalidInput(f"Unknown parameter: {_listed(unknown)}. Declared: {declared}", where=unknown[0])
    data = {name: value for name, value in data.items() if value is not None}
    missing = [param.name for param in params if param.required and param.default is None and param.name not in data]
    if missing:
        raise InvalidInput(f"Missing parameter: {_listed(missing)}. Give it a value.", where=missing[0])
    return {
        param.name: _text(data[param.name], param.type, param.name)
        if param.name in data
        else (param.default if param.default is not None else "")
        for param in params
    }


def bare(name: str) -> str:
    """Return a name without an optional leading `$`."""
    return name.removeprefix("$")


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for written, value in values.items():
        name = bare(written)
        if name in data:
            raise InvalidInput(f"{name!r} occurs twice, with and without '$'", where=name)
        data[name] = value
    return data


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name[:MAX_NAME]) for name in names[:10])


def _from_mapping(written: Mapping[Any, Any], where: str) -> Iterator[Param]:
    properties = written.get("properties")
    if isinstance(properties, Mapping):
        yield from _from_schema(properties, written.get("required", ()), f"{where}.properties")
        return
    if written.get("type") == "object" and set(written) <= {"type", "properties", "required", "additionalProperties"}:
        return
    for key, value in written.items():
        if isinstance(value, Mapping):
            yield _from_item({**value, "name": key}, f"{where}.{key}")
        else:
            yield _from_pico(key, value, where)


def _from_item(item: object, where: str) -> Param:
    if isinstance(item, Param):
        return item
    if isinstance(item, str):
        return _param({"name": item}, where)
    if not isinstance(item, Mapping):
        raise InvalidInput(f"{where}: expected a name or an object with a name", where=where)
    unknown = [str(key) for key in item if key not in _FIELDS]
    if unknown:
        raise InvalidInput(
            f"{where}: unknown field {unknown[0][:MAX_NAME]!r} of a parameter. Available: {', '.join(sorted(_FIELDS))}",
            where=where,
        )
    return _param(item, where)


def _from_schema(properties: Mapping[Any, Any], required: object, where: str) -> Iterator[Param]:
    if not isinstance(required, Sequence) or isinstance(required, str):
        raise InvalidInput(f"{where}: `required` must be a list of names", where=where)
    absent = [str(name) for name in required if name not in properties]
    if absent:
        raise InvalidInput(f"{where}: required, but not in `properties`: {_listed(absent)}", where=where)
    for name, schema in properties.items():
        place = f"{where}.{name}"
        if not isinstance(schema, Mapping):
            raise InvalidInput(f"{place}: expected an object", where=place)
        kind = schema.get("type", "string")
        nullable = isinstance(kind, list) and "null" in kind
        if isinstance(kind, list):
            others = [each for each in kind if each != "null"]
            kind = others[0] if len(others) == 1 else kind
        spec = {field: schema[field] for field in ("default", "description", "enum") if field in schema}
        yield _param({**spec, "name": name, "type": kind, "required": name in required and not nullable}, place)


def _from_pico(key: object, value: object, where: str) -> Param:
    """Parse a line of picoschema: `name?: type, description`, also `name(enum, description): [a, b]`."""
    match = _PICO_KEY.fullmatch(key) if isinstance(key, str) else None
    if match is None:
        raise InvalidInput(f"{where}: {_shown(key)} is not a valid parameter name", where=where)
    name, optional, kind, note = match.groups()
    place = f"{where}.{name}"
    spec: dict[str, Any] = {"name": name.strip(), "required": not optional, "description": (note or "").strip()}
    if kind is not None and kind.strip() == "enum":
        return _param({**spec, "enum": value}, place)
    if kind is not None:
        raise InvalidInput(f"{place}: {kind.strip()!r} has no text form. Use `string`.", where=place)
    if not isinstance(value, str):
        raise InvalidInput(f"{place}: expected `type, description`", where=place)
    word, _, note = value.partition(",")
    word = word.strip()
    return _param({**spec, "type": "string" if word == "any" else word, "description": note.strip()}, place)


def _param(spec: Mapping[Any, Any], where: str) -> Param:
    """Return a parameter from an object's fields, each checked."""
    name = _name(spec.get("name"), where)
    kind = spec.get("type", spec.get("kind", "string"))
    if kind not in get_args(ParamType):
        known = ", ".join(get_args(ParamType))
        raise InvalidInput(f"{where}: {_shown(kind)} is not a type. Available: {known}", where=where)
    description = spec.get("description") or ""
    if not isinstance(description, str):
        raise InvalidInput(f"{where}: expected a string as its description", where=where)
    default = spec.get("default")
    return Param(
        name=name,
        type=kind,
        required=default is None and _truth(spec.get("required", True), where),
        default=None if default is None else _text(default, kind, name),
        description=_with_choices(description, spec.get("enum"), where),
    )


def _name(written: object, where: str) -> str:
    if not isinstance(written, str):
        raise InvalidInput(f"{where}: a parameter needs a name", where=where)
    name = bare(written)
    if not NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise InvalidInput(
            f"{where}: {name[:MAX_NAME]!r} is not a valid parameter name: up to {MAX_NAME} of A-Z, a-z, 0-9 and '_', "
            "not beginning with a digit",
            where=where,
        )
    return name


def _truth(written: object, where: str) -> bool:
    """Return a boolean, also from front matter's text."""
    if isinstance(written, bool):
        return written
    if isinstance(written, str) and written.lower() in ("true", "false"):
        return written.lower() == "true"
    raise InvalidInput(f"{where}: `required` must be true or false, not {_shown(written)}", where=where)


def _with_choices(description: str, choices: object, where: str) -> str:
    if choices is None:
        return description
    if not isinstance(choices, Sequence) or isinstance(choices, str):
        raise InvalidInput(f"{where}: an enum must be a list", where=where)
    texts = [text for choice in choices if (text := _written(choice)) is not None]
    content = f"one of {', '.join(texts)}"
    return f"{description} ({content})" if description else content


def _text(value: object, kind: str, name: str) -> str:
    """Return a value's text if it has the parameter's type."""
    text = _written(value)
    fits = {
        "string": text is not None,
        "integer": not isinstance(value, bool) and text is not None and _INTEGER.fullmatch(text),
        "number": not isinstance(value, bool) and text is not None and _NUMBER.fullmatch(text),
        "boolean": isinstance(value, bool | str) and text is not None and text.lower() in ("true", "false"),
    }
    if text is None or not fits[kind]:
        content = _shown(value if text is None else text)
        raise InvalidInput(f"{name!r} must be {kind}, got {content}", where=name)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{name!r} contains a lone surrogate", where=name) from error
    return text.lower() if kind == "boolean" else text


def _written(value: object) -> str | None:
    """Return a value as JSON, a text unchanged; None for one without a text form."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) < 10**100 else None
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() and abs(value) < 10**15 else repr(value)
    return None


def _shown(value: object) -> str:
    """Return a short form of any value for a message."""
    return repr(value[:80]) if isinstance(value, str) else f"a value of type {type(value).__name__}"
