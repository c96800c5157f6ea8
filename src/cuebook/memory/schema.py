"""Define the JSON schema of a compaction model's `memory_json`, and validate its answers strictly."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from cuebook.errors import InvalidInput
from cuebook.records.answers import check, read_object
from cuebook.records.memory import CATEGORIES

#: Maximum length of an item's text, and maximum items per category: a model's answer is untrusted input. 20 bullets is
#: AgentOS's prompt rule; five times that per category fits every real
#: answer.
MAX_TEXT: Final = 2_000
MAX_ITEMS: Final = 100
MAX_TAGS: Final = 100

_SOURCES: Final[dict[str, Any]] = {
    "type": "array",
    "items": {"type": "string", "minLength": 1},
    "minItems": 1,
    "description": "ids of the posts this comes from; all exist",
}
_TEXT: Final[dict[str, Any]] = {"type": "string", "minLength": 1, "maxLength": MAX_TEXT}


def _items(required: Sequence[str], **properties: Any) -> dict[str, Any]:
    item = {
        "type": "object",
        "properties": {**properties, "sources": _SOURCES},
        "required": [*required, "sources"],
        "additionalProperties": False,
    }
    return {"type": "array", "maxItems": MAX_ITEMS, "items": item}


_CONFIDENCE: Final[dict[str, Any]] = {"type": "number", "minimum": 0, "maximum": 1}
_NAMED: Final[dict[str, Any]] = {"name": _TEXT, "notes": {"type": "string", "maxLength": MAX_TEXT}}
_TAGS: Final[dict[str, Any]] = {
    "type": "array",
    "maxItems": MAX_TAGS,
    "items": {"type": "string", "minLength": 1, "maxLength": 100},
}
_MEMORY: Final[dict[str, Any]] = {
    "facts": _items(["text"], text=_TEXT, confidence=_CONFIDENCE),
    "preferences": _items(["text"], text=_TEXT),
    "people": _items(["name"], **_NAMED),
    "projects": _items(["name"], **_NAMED, status={"type": "string", "maxLength": MAX_TEXT}),
    "decisions": _items(["text"], text=_TEXT),
    "open_loops": _items(["text"], text=_TEXT),
    "todo": _items(["text"], text=_TEXT),
    "tags": _TAGS,
}
#: The published JSON Schema with the original's eight keys; every item but a tag has `sources`.
MEMORY_SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Rolling memory",
    "type": "object",
    "properties": {
        "summary_markdown": {"type": "string", "minLength": 1},
        "memory_json": {
            "type": "object",
            "properties": _MEMORY,
            "required": list(_MEMORY),
            "additionalProperties": False,
        },
    },
    "required": ["summary_markdown", "memory_json"],
    "additionalProperties": False,
}


def parse_answer(
    text: str, *, known: Collection[str], max_tokens: int, count: Callable[[str], int]
) -> tuple[str, dict[str, Any]]:
    """Return the summary and the `memory_json` of a checked answer. Raises InvalidInput.

    The answer is JSON, a fenced block, or the first `{` to the last `}`.

    Every item's `sources` must be in `known`. Both outputs together, as compact JSON, must fit into `max_tokens`.
    """
    answer = read_object(text)
    check(answer, MEMORY_SCHEMA, where="answer")
    memory: dict[str, Any] = answer["memory_json"]
    ids = known if isinstance(known, set | frozenset | dict) else set(known)
    for category in CATEGORIES:
        for place, item in enumerate(memory[category]):
            for source in item["sources"]:
                if source not in ids:
                    raise InvalidInput(f"unknown post {source!r}", where=f"memory_json.{category}[{place}].sources")
    used = count(answer["summary_markdown"]) + count(compact(memory))
    if used > max_tokens:
        raise InvalidInput(f"the answer has {used} tokens; at most {max_tokens} are allowed", where="answer")
    return answer["summary_markdown"], memory


def compact(memory: Mapping[str, Any]) -> str:
    """Return `memory_json` as it is counted and sent: JSON without spaces, non-ASCII characters unescaped."""
    return json.dumps(memory, ensure_ascii=False, separators=(",", ":"))
