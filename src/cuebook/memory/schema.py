"""Define the JSON schema of a compaction model's `memory_json`, and parse its answers: repaired, and item by item."""

import json
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from cuebook.errors import InvalidInput
from cuebook.memory.tokenizer import spans_of
from cuebook.records.answers import read_object
from cuebook.records.memory import CATEGORIES, Category

#: Maximum length of an item's text, and maximum items per category: a model's answer is untrusted input. 20 bullets is
#: AgentOS's prompt rule; five times that per category fits every real
#: answer.
MAX_TEXT: Final = 2_000
MAX_ITEMS: Final = 100
MAX_TAGS: Final = 100
MAX_TAG: Final = 100
#: Keys of an item whose value is not its text.
_NO_TEXT: Final = ("source", "sources", "confidence", "status", "id", "category")
#: A post's number: in an id such as `post-000012`, or in a citation such as `12`, `#12` or `turn 12`.
_NUMBERED: Final = re.compile(r"(\D{0,40}?)0*(\d{1,9})")
#: What a citation calls a post: the number after it is a post's own, or its place.
_NOUNS: Final = frozenset(
    ("", "post", "posts", "turn", "turns", "message", "msg", "source", "line", "id", "no", "number")
)
#: Characters around a citation.
_AROUND: Final = " \t\n[](){}<>\"'`#.:"
#: A citation at the end of a text: "… (u7)".
_CITED: Final = re.compile(r"\s*[(\[]([^()\[\]]{1,200})[)\]][.\s]*\Z")
#: Least characters of a part of an id that cites its post.
_PART: Final = 6
#: The last characters of sentences.
_ENDS: Final = ".!?…。！？"
#: Characters of a dropped item that its reason shows.
_SHOWN: Final = 60

_SOURCES: Final[dict[str, Any]] = {
    "type": "array",
    "items": {"type": "string", "minLength": 1},
    "minItems": 1,
    "description": "ids of the posts or quotes this comes from; all exist",
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
    "items": {"type": "string", "minLength": 1, "maxLength": MAX_TAG},
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
        "ended": _items(["id", "reason"], id=_TEXT, reason=_TEXT),
        "merged": _items(["text", "reason"], text=_TEXT, reason=_TEXT),
    },
    "required": ["summary_markdown", "memory_json"],
    "additionalProperties": False,
}


class MemoryAnswer(Struct, frozen=True, kw_only=True):
    """A model's summary, `cut` if it was too long, and `memory_json`, with the reason of each item that was dropped.

    `ended` are quotes that a later post made untrue: `id`, `sources`, `reason`. `merged` are quotes (`sources`) that
    one text replaces: `text`, `reason`.
    """

    summary: str
    memory: dict[str, Any]
    dropped: tuple[str, ...] = ()
    cut: bool = False
    ended: tuple[dict[str, Any], ...] = ()
    merged: tuple[dict[str, Any], ...] = ()


def parse_answer(
    text: str, *, posts: Sequence[str], known: Collection[str], max_tokens: int, count: Callable[[str], int]
) -> MemoryAnswer:
    """Return a model's answer, repaired. Raises InvalidInput if no part of it is usable.

    `posts` are the ids of the posts that the model saw, in order, and `known` those of earlier ones and of quotes. An
    item may cite a post by its id, its number or its place among `posts`, from 1. Only items that cite no post are
    dropped. Missing keys and null are empty, and unknown keys are ignored. The summary is cut at the end of a sentence
    to what the items leave of `max_tokens`, at least half of it.
    """
    answer = read_object(text)
    raw = answer.get("memory_json", answer)
    if raw is answer and not {*CATEGORIES} & {*answer}:  # under another key
        raw = next((each for each in answer.values() if isinstance(each, dict)), answer)
    raw = read_object(raw) if isinstance(raw, str) else raw if isinstance(raw, dict) else answer
    memory: dict[str, Any] = {category: [] for category in CATEGORIES}
    cited, dropped = _Citations(posts, known), list[str]()
    for category in CATEGORIES:
        for place, value in enumerate(_listed(raw.get(category))[:MAX_ITEMS]):
            item = _read_item(category, value, cited)
            if item["sources"]:
                memory[category].append(item)
            else:
                text = str(item.get("text") or item.get("name") or "")[:_SHOWN]
                why = f"cites no post of the conversation: {text!r}" if text else "has no text"
                dropped.append(f"memory_json.{category}[{place}] {why}")
    tags = [_text(tag)[:MAX_TAG] for tag in _listed(raw.get("tags"))]
    memory["tags"] = list(dict.fromkeys(filter(None, tags)))[:MAX_TAGS]
    summary = "\n".join(filter(None, map(_text, _listed(answer.get("summary_markdown", answer.get("summary"))))))
    ended, merged = (_read_actions(answer.get(name), cited) for name in ("ended", "merged"))
    if not any((*(memory[category] for category in CATEGORIES), ended, merged)) and (dropped or not summary):
        raise InvalidInput("; ".join(dropped) or "no summary_markdown and no items", where="answer")
    room = max(max_tokens - count(compact(memory)), max_tokens // 2)
    short = _cut(summary, room, count)
    return MemoryAnswer(
        summary=short, memory=memory, dropped=tuple(dropped), cut=short != summary, ended=ended, merged=merged
    )


def _listed(value: Any) -> list[Any]:
    """Return the entries of a section, which may be missing or a single entry."""
    return [each for each in (value if isinstance(value, list) else [value]) if each is not None]


def _text(value: Any) -> str:
    text = str(value) if isinstance(value, str | int | float) else ""
    return text.replace("\0", "").strip()  # a database's text holds no NUL


def _read_item(category: Category, value: Any, cited: "_Citations") -> dict[str, Any]:
    """Return an item of an answer with its sources as ids; without any, it is to be dropped."""
    raw = value if isinstance(value, dict) else {"text": value}
    named = category in {"people", "projects"}
    key = "name" if named else "text"
    others = (each for name, each in raw.items() if name not in _NO_TEXT and isinstance(each, str))
    text = _text(raw.get(key)) or next(filter(None, map(_text, others)), "")
    values = {name: _text(raw.get(name)) for name in (("notes", "status") if category == "projects" else ("notes",))}
    item = {key: text} | ({name: each for name, each in values.items() if each and each != text} if named else {})
    result: dict[str, Any] = {name: each[:MAX_TEXT] for name, each in item.items()}
    if category == "facts" and (confidence := _share(raw.get("confidence"))) is not None:
        result["confidence"] = confidence
    sources = cited.resolve(each for name in ("sources", "source") for each in _listed(raw.get(name)))
    if not sources:  # another key, or the text itself, may cite posts by their ids
        others = (each for name, value in raw.items() if name != key for each in _listed(value))
        sources = cited.resolve(others, exact=True)
    if not sources and (match := _CITED.search(text)):
        sources = cited.resolve([match[1]], exact=True)
        result |= {key: text[: match.start()][:MAX_TEXT]} if sources else {}
    return result | {"sources": sources if result[key] else []}


def _read_actions(value: Any, cited: "_Citations") -> tuple[dict[str, Any], ...]:
    """Return the quotes that a model ends or merges, with their ids and sources resolved."""
    return tuple(
        {
            "id": next(iter(cited.resolve([raw.get("id")])), ""),
            "sources": cited.resolve(_listed(raw.get("sources"))),
            "text": _text(raw.get("text"))[:MAX_TEXT],
            "reason": _text(raw.get("reason"))[:MAX_TEXT],
        }
        for raw in _listed(value)[:MAX_ITEMS]
        if isinstance(raw, dict)
    )


def _share(value: Any) -> float | None:
    """Return a confidence in 0..1, None for anything else."""
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if 0 <= number <= 1 else None


class _Citations:
    """The posts that an item may cite, by id, by number, by place and by a part that only one id has."""

    def __init__(self, posts: Sequence[str], known: Collection[str]) -> None:
        self._posts = posts
        self._ids = {each.casefold(): each for each in (*known, *posts)}
        self._prefixes: set[str] = set()
        self._numbers: dict[tuple[str, int], str] = {}
        several = set[int]()
        for each in posts:
            if match := _NUMBERED.fullmatch(each.casefold()):
                number = int(match[2])
                several |= {number} if ("", number) in self._numbers else set()
                self._numbers |= {("", number): each, (match[1], number): each}
        for each in (*known, *posts):
            if match := _NUMBERED.fullmatch(each.casefold()):
                self._prefixes.add(match[1])
        for number in several:  # "3" is not the number of one post if there are u3 and a3
            del self._numbers["", number]

    def resolve(self, sources: Iterable[Any], *, exact: bool = False) -> list[str]:
        """Return the ids of cited posts, each once, in order; with `exact`, only those cited by their ids."""
        found = (self._named(part) if exact else self._post(part) for part in self._parts(sources))
        return list(dict.fromkeys(filter(None, found)))

    def _parts(self, sources: Iterable[Any]) -> Iterator[str]:
        for source in sources:
            value = source.get("id") if isinstance(source, dict) else source
            text = f"{value:g}" if isinstance(value, float) else _text(value)
            yield from [text] if text.casefold() in self._ids else re.split("[,;]", text)

    def _named(self, text: str) -> str | None:
        """Return the post whose id a citation is, or contains as a word."""
        words = (text, *text.split()) if len(text) <= MAX_TEXT else (text,)
        found = {post for word in words if (post := self._ids.get(word.strip(_AROUND).casefold())) is not None}
        return found.pop() if len(found) == 1 else None

    def _post(self, text: str) -> str | None:
        if (post := self._named(text)) is not None:
            return post
        text = text.strip(_AROUND).casefold()
        if match := _NUMBERED.fullmatch(text):
            prefix, number = match[1], int(match[2])
            if prefix and prefix in self._prefixes:  # "u7" is the post u7 or none
                return self._numbers.get((prefix, number))
            if prefix.strip(" -_.:#") not in _NOUNS:
                return None
            place = self._posts[number - 1] if 0 < number <= len(self._posts) else None
            return self._numbers.get(("", number), place)
        found = [each for each in self._posts if len(text) >= _PART and text in each.casefold()]
        return found[0] if len(found) == 1 else None


def _cut(text: str, most: int, count: Callable[[str], int]) -> str:
    """Return the first sentences or lines of a text that fit; if none does, the beginning of the first one."""
    if count(text) <= most:
        return text
    pieces = [last for _, last in spans_of(text)]
    sentences = [last for last in pieces if text[:last].rstrip()[-1] in _ENDS or "\n" in text[last - 1 : last + 1]]
    for ends in (sentences, pieces):
        if fitting := bisect_right(ends, most, key=lambda end: count(text[:end].rstrip())):
            return text[: ends[fitting - 1]].rstrip()
    return ""


def compact(memory: Mapping[str, Any]) -> str:
    """Return `memory_json` as it is counted and sent: JSON without spaces, non-ASCII characters unescaped."""
    return json.dumps(memory, ensure_ascii=False, separators=(",", ":"))
