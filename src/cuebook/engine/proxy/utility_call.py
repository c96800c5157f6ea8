"""Read what a request has of a utility call: a one-shot instruction for a title, tags, JSON or a summary.

`utility_templates.toml` has how the templates of some programs begin.
"""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec
from msgspec import Raw

from cuebook.engine.turn.request import UtilitySign
from cuebook.errors import InvalidInput
from cuebook.wire.chat_messages import ResentMessage

#: Header by which a client declares a utility call.
HEADER: Final = "x-cuebook-utility"
#: Most requested tokens of a utility call that asks for a few words only.
FEW_TOKENS: Final = 32
#: Letters of a message that may contain the beginning of a template.
BEGINNING: Final = 400
#: Where the three wires request a format and limit the answer.
_FORMATS: Final = (("response_format",), ("text", "format"), ("output_config", "format"), ("output_format",))
_LIMITS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_JSON: Final = ("json_object", "json_schema")


def utility_sign(
    headers: Mapping[str, str],
    fields: Mapping[str, Raw],
    history: Sequence[ResentMessage],
    *,
    front: Sequence[ResentMessage],
    resends: bool,
) -> UtilitySign:
    """Return what a request has of a utility call. `fields` are as received, `front` is its system text.

    A request that leaves its history to the server (not `resends`) is none. Raises InvalidInput.
    """
    declared = headers.get(HEADER, "")
    if declared not in ("", "0", "1"):
        msg = f"X-Cuebook-Utility: unknown value {declared!r}. Available: 0, 1."
        raise InvalidInput(msg, where="X-Cuebook-Utility")
    if declared == "0" or not resends:
        return ""
    if declared:
        return "declared"
    if [each.role for each in history] != ["user"] or any(_value(fields, name) for name in ("tools", "functions")):
        return ""
    if any(_begins_a_template(each.content.message) for each in (*front, *history)):
        return "template"
    few = any(0 < limit <= FEW_TOKENS for name in _LIMITS if isinstance(limit := _value(fields, name), int))
    return "format" if few or any(_asks_json(fields, path) for path in _FORMATS) else "shape"


def _asks_json(fields: Mapping[str, Raw], path: Sequence[str]) -> bool:
    value = _value(fields, path[0])
    for name in (*path[1:], "type"):
        value = value.get(name) if isinstance(value, dict) else None
    return value in _JSON


def _value(fields: Mapping[str, Raw], name: str) -> Any:
    return msgspec.json.decode(fields[name]) if name in fields else None


def _begins_a_template(text: str | None) -> bool:
    return " ".join((text or "")[:BEGINNING].casefold().split()).startswith(_beginnings())


@cache
def _beginnings() -> tuple[str, ...]:
    """Load the beginnings of known templates."""
    data = tomllib.loads(files("cuebook.engine.proxy").joinpath("utility_templates.toml").read_text("utf-8"))
    return tuple(each.casefold() for program in data.values() for each in program)
