"""Define the JSON schema of a compaction model's `memory_json`, and validate its answers strictly."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from cuebook.errors import InvalidInput
from cuebook.memory.quotes import quotes_others
from cuebook.memory.scopes import filed
from cuebook.memory.tokenizer import item_id, subject_of
from cuebook.records.answers import check, read_object
from cuebook.records.memory import CATEGORIES, Category, Item, Line, Trust

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
_TRUSTS: Final[tuple[Trust, ...]] = ("tool", "assistant", "participant", "user")


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


def items_of(
    memory: Mapping[str, Any], *, when: float, lines: Sequence[Line] = (), held: Sequence[Item] = ()
) -> list[Item]:
    """Return the items of a `memory_json`, valid from `when` (Unix seconds).

    An item's trust is the lowest of its sources: a `held` item's own trust; of a post in `lines`, that of its role, and
    tool for a user's post that contains pasted or quoted text; else tool.
    """
    trusts: dict[str, Trust] = {source: item.trust for item in held for source in item.sources}
    trusts |= {line.id: _trust(line) for line in lines}
    seqs = {source: item.seq for item in held for source in item.sources} | {line.id: line.seq for line in lines}
    return [
        _item(category, raw, when=when, trusts=trusts, seqs=seqs) for category in CATEGORIES for raw in memory[category]
    ]


def _trust(line: Line) -> Trust:
    if line.role == "user":
        if quotes_others(line.text):
            return "tool"
        return "user" if line.own else "participant"
    return "assistant" if line.role == "assistant" else "tool"


def _item(
    category: Category, raw: Mapping[str, Any], *, when: float, trusts: Mapping[str, Trust], seqs: Mapping[str, int]
) -> Item:
    named = category in {"people", "projects"}
    text = ": ".join(filter(None, (raw["name"], raw.get("notes", "")))) if named else raw["text"]
    sources = tuple(dict.fromkeys(raw["sources"]))
    category = filed(category, text) if category in {"decisions", "projects"} else category
    return Item(
        id=item_id(category, text),
        category=category,
        text=text,
        sources=sources,
        subject=subject_of(text),
        trust=min((trusts.get(source, "tool") for source in sources), key=_TRUSTS.index),
        confidence=float(raw.get("confidence", 0.5)),
        valid_from=when,
        name=raw.get("name", "") if category in {"people", "projects"} else "",
        status=raw.get("status", ""),
        seq=max((seqs.get(source, 0) for source in sources), default=0),
        weight=0.5,
    )
