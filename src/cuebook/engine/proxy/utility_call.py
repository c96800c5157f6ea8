"""Read what a request has of a utility call: a one-shot instruction for a title, tags, JSON or a summary.

`utility_templates.toml` has how the templates of some programs begin.
"""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Final

from msgspec import Raw

from cuebook.engine.turn.request import UtilitySign
from cuebook.errors import InvalidInput
from cuebook.wire.chat_messages import ResentMessage, value_of

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
    if [each.role for each in history] != ["user"] or any(value_of(fields, name) for name in ("tools", "functions")):
        return ""
    beginnings = (" ".join(each.content.message[:BEGINNING].casefold().split()) for each in (*front, *history))
    if any(each.startswith(_known_beginnings()) for each in beginnings):
        return "template"
    few = any(0 < limit <= FEW_TOKENS for name in _LIMITS if isinstance(limit := value_of(fields, name), int))
    return "format" if few or any(_asks_json(fields, path) for path in _FORMATS) else "shape"


def _asks_json(fields: Mapping[str, Raw], path: Sequence[str]) -> bool:
    value = value_of(fields, path[0])
    for name in (*path[1:], "type"):
        value = value.get(name) if isinstance(value, dict) else None
    return value in _JSON


@cache
def _known_beginnings() -> tuple[str, ...]:
    """Load the beginnings of known templates."""
    data = tomllib.loads(files("cuebook.engine.proxy").joinpath("utility_templates.toml").read_text("utf-8"))
    return tuple(each.casefold() for program in data.values() for each in program)
