"""Parse the JSON in a model's answer, repair broken JSON, and validate it against a schema."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Self, SupportsIndex, TypeVar

import msgspec

from cuebook.errors import InvalidInput

T = TypeVar("T", bound=msgspec.Struct)

#: Characters of an answer that `repair_json` reads.
LONGEST: Final = 20_000
#: Most opening brackets in such an answer (40 records in a list have 41), and most characters of broken JSON that are
#: repaired. They limit the nesting.
MAX_BRACKETS: Final = 48
MAX_BROKEN: Final = 2_000
#: The same for the object of a background job, such as a summary with sixty items.
MAX_OBJECT_BRACKETS: Final = 200
MAX_OBJECT: Final = 16_000
#: How often a repair may read from the text, for each of its characters and at all. Damaged answers of models need 2
#: per character. Measured with json-repair 0.64.6 on hostile texts of these sizes: at most 0.5 s, 26 s without it.
MAX_READS: Final = 12
LEAST_READS: Final = 1_000

#: Characters of a part that count as one read.
_AT_ONCE: Final = 16

_REASONING: Final = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCE: Final = re.compile(r"```\w*")
_BRACKET: Final = re.compile(r"[{\[]")


def read_object(text: str, *, keys: Collection[str] = ()) -> dict[str, Any]:
    """Return the JSON object in an answer, repaired if broken: alone, in a code fence or amid other text.

    If it has none of the expected `keys`, the only object inside it is the answer: `{"result": {…}}`. Lone surrogates
    become U+FFFD. Raises InvalidInput.
    """
    text = mended(text)
    value = _object(without_reasoning(text))
    inner = [each for each in value.values() if isinstance(each, dict)]
    if keys and len(inner) == 1 and value.keys().isdisjoint(keys):
        value = inner[0]
    return json.loads(mended(json.dumps(value, ensure_ascii=False))) if "\\u" in text else value


def _object(text: str) -> dict[str, Any]:
    for value in _valid(text):
        if isinstance(value, dict):
            return value
    repaired = _repaired(text[max(0, text.find("{")) :], brackets=MAX_OBJECT_BRACKETS, most=MAX_OBJECT)
    for value in repaired if isinstance(repaired, list) else [repaired]:
        if isinstance(value, dict):
            return value
    raise InvalidInput("the answer contains no JSON object", where="answer")


def read_as(text: str, kind: type[T]) -> T:
    """Return the JSON object in an answer as a struct. Unknown keys are ignored, and null means omitted.

    Raises InvalidInput naming the path.
    """
    answer = read_object(text, keys=kind.__struct_encode_fields__)
    fields = {key: value for key, value in answer.items() if value is not None}
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error), where="answer") from None


def without_reasoning(text: str) -> str:
    """Return an answer without the reasoning that some models write before it."""
    return _REASONING.sub(" ", text)


def repair_json(text: str) -> dict[str, Any] | list[Any] | None:
    """Return the JSON object or list in an answer, repaired if broken; None if there is none.

    Several broken values in one answer are returned as a list.
    """
    text = text[:LONGEST]
    if sum(map(text.count, "{[")) > MAX_BRACKETS:
        return None
    for value in _valid(text):
        if isinstance(value, dict | list):
            return value
    return _repaired(text, brackets=MAX_BRACKETS, most=MAX_BROKEN)


def _repaired(text: str, *, brackets: int, most: int) -> dict[str, Any] | list[Any] | None:
    start = _BRACKET.search(text)
    broken = _FENCE.sub(" ", text[start.start() :]) if start else ""
    if not broken or len(broken) > most or sum(map(broken.count, "{[")) > brackets:
        return None
    import json_repair  # takes 15 ms, and most answers are valid

    try:
        repaired = json_repair.loads(
            _MeteredText(broken, [LEAST_READS + MAX_READS * len(broken)]), skip_json_loads=True
        )
    except ValueError:  # too much work, or nested too deeply for the remaining stack
        return None
    return json.loads(json.dumps(repaired)) if isinstance(repaired, dict | list) else None


class _MeteredText(str):
    """A text that counts how often a parser reads from it and from its parts. Raises ValueError beyond a limit."""

    __slots__ = ("_left",)
    _left: list[int]

    def __new__(cls, text: str, left: list[int]) -> Self:
        """`left` has the number of reads that are left."""
        made = super().__new__(cls, text)
        made._left = left
        return made

    def __getitem__(self, at: SupportsIndex | slice) -> str:
        piece = super().__getitem__(at)
        self._left[0] -= 1 + len(piece) // _AT_ONCE
        if self._left[0] < 0:
            msg = "the text takes too long to repair"
            raise ValueError(msg)
        return _MeteredText(piece, self._left) if isinstance(at, slice) else piece

    def __add__(self, other: str) -> str:
        return _MeteredText(str(self) + other, self._left)

    def __radd__(self, other: str) -> str:
        return _MeteredText(other + str(self), self._left)


def _valid(text: str) -> Iterator[Any]:
    """Yield the valid JSON values in an answer: the whole text, its fenced blocks, then first to last bracket."""
    blocks = [block.removeprefix("json") for block in text.split("```")[1::2]]
    spans = [text[text.find(left) : text.rfind(right) + 1] for left, right in ("{}", "[]") if left in text]
    for candidate in (text, *blocks, *spans):
        try:
            yield json.loads(candidate.strip(), parse_constant=_refuse)
        except (ValueError, RecursionError):
            continue


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def matches(text: str, schema: Mapping[str, Any] | None) -> bool:
    """Return whether an answer is valid JSON alone, and matches the schema if there is one."""
    try:
        value = json.loads(text, parse_constant=_refuse)
        if schema is not None:
            check(value, schema, where="answer")
    except (ValueError, RecursionError, InvalidInput):
        return False
    return True


def check(value: Any, schema: Mapping[str, Any], *, where: str) -> None:
    """Raise InvalidInput if `value` violates `schema`.

    Supported are object, array, boolean, string and number with their bounds, `enum`, and for an object `required` and
    `properties`; other keys of an object are refused.
    """
    match schema["type"]:
        case "object" if isinstance(value, dict):
            _check_object(value, schema, where=where)
        case "array" if isinstance(value, list):
            if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
                raise InvalidInput(f"{len(value)} entries is too few or too many", where=where)
            for place, entry in enumerate(value):
                check(entry, schema["items"], where=f"{where}[{place}]")
        case "string" if isinstance(value, str):
            _check_text(value, schema, where=where)
        case "number" if isinstance(value, int | float) and not isinstance(value, bool):
            if not schema["minimum"] <= value <= schema["maximum"]:
                raise InvalidInput(f"{value!r} is outside {schema['minimum']}..{schema['maximum']}", where=where)
        case "boolean" if isinstance(value, bool):
            pass
        case kind:
            raise InvalidInput(f"expected {kind}, got {type(value).__name__}", where=where)


def _check_text(value: str, schema: Mapping[str, Any], *, where: str) -> None:
    if not schema.get("minLength", 0) <= len(value.strip()) or len(value) > schema.get("maxLength", len(value)):
        raise InvalidInput(f"a text of {len(value)} characters is too short or too long", where=where)
    if value not in schema.get("enum", (value,)):
        raise InvalidInput(f"{value!r} is not one of {', '.join(schema['enum'])}", where=where)


def _check_object(value: dict[str, Any], schema: Mapping[str, Any], *, where: str) -> None:
    missing = [key for key in schema["required"] if key not in value]
    extra = [key for key in value if key not in schema["properties"]]
    if missing or extra:
        raise InvalidInput(f"missing keys {missing!r}, unknown keys {extra!r}", where=where)
    for key, entry in value.items():
        check(entry, schema["properties"][key], where=f"{where}.{key}")


_HALVES = re.compile("[\ud800-\udfff]")


def mended(text: str) -> str:
    """Return a text with its surrogate pairs joined, and U+FFFD for each lone surrogate."""
    if text.isascii() or not _HALVES.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
