"""How current items become the rolling summary: markdown for the system prompt, `memory_json` for programs, the rest
apart.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct

from cuebook.memory.extract import score
from cuebook.memory.schema import compact
from cuebook.memory.sentences import clean, sentences, trim
from cuebook.memory.slots import topic
from cuebook.records.memory import CATEGORIES, Category, Item, Line

#: A's prompt rule: "at most ~20 bullets" (notes/seed-origins.md 1.2), read per heading.
BULLETS: Final = 20
#: A's capture order: preferences, goals and projects, decisions and constraints, open loops and todo, then who and
#: what.
HEADINGS: Final[tuple[tuple[Category, str], ...]] = (
    ("preferences", "Preferences"),
    ("projects", "Projects and goals"),
    ("decisions", "Decisions and constraints"),
    ("open_loops", "Open loops"),
    ("todo", "To do"),
    ("people", "People"),
    ("facts", "Facts"),
)
_ORDER: Final = tuple(category for category, _ in HEADINGS)
#: How many of a category are taken in a turn: most of what A's order names first.
SHARES: Final[dict[Category, int]] = {
    "preferences": 4,
    "projects": 3,
    "decisions": 3,
    "open_loops": 2,
    "todo": 2,
    "people": 3,
    "facts": 4,
}
#: A bullet of so many characters must deserve its place by one whole point of weight more than an empty one.
LENGTH_COST: Final = 500
#: The same for its age in days, up to OLD: plans and tasks of half a year ago are mostly over, tastes are not.
DAYS_COST: Final = 300
OLD: Final = 0.5
_LASTING: Final = frozenset({"preferences", "people"})
#: The "short recent context" of A's order: so many lines of so many characters, for so much of the budget.
RECENT: Final = 5
RECENT_WIDTH: Final = 140
RECENT_SHARE: Final = 0.15
#: Of the budget, the part `memory_json` may use before the markdown has what it needs; each item costs both about the
#: same.
JSON_SHARE: Final = 0.45
#: What stands in the fenced block may take another quarter of the summary's budget.
TAINTED_SHARE: Final = 0.25
MAX_TAGS: Final = 8
_RECENT_HEADING: Final = "## Recent"


class Digest(Struct, frozen=True):
    """A summary's three texts. `tainted` is for the fenced block only: lines of tools, and lines of the assistant,
    marked.
    """

    markdown: str
    memory_json: dict[str, Any]
    tainted: str


def write(
    items: Sequence[Item], *, previous: str, lines: Sequence[Line], max_tokens: int, count: Callable[[str], int]
) -> Digest:
    """Return the digest of the current `items` after a pass over `lines`, within `max_tokens` for markdown and compact
    JSON.

    Only items of user trust enter it (MISSION R4); an assistant's own statements go, marked as such, to `tainted`,
    because an assistant that read a poisoned page repeats it. What was superseded is nowhere. Most weight and newest
    first; days are UTC.
    """
    newest = max((item.valid_from for item in items), default=0.0)
    current = sorted(
        (item for item in items if item.valid_to is None), key=lambda item: _rank(item, newest), reverse=True
    )
    own = _ordered(item for item in current if item.trust == "user")
    recent = _recent(items, lines, previous)
    chosen, exported, told = _fit(own, recent, max_tokens=max_tokens, count=count)
    return Digest(
        _markdown(chosen, told),
        _memory_json(exported),
        _tainted(
            [item for item in current if item.trust != "user"], budget=int(max_tokens * TAINTED_SHARE), count=count
        ),
    )


def _rank(item: Item, newest: float) -> tuple[float, int, str]:
    """Return an item's place in its category: what it deserves, less what its length and its age cost, then its seq."""
    aged = 0.0 if item.category in _LASTING else min(OLD, (newest - item.valid_from) / 86_400 / DAYS_COST)
    worth = item.weight + 0.5 * (item.confidence - 0.5) - len(item.text) / LENGTH_COST - aged
    return (round(worth, 1), item.seq, item.id)


def _ordered(items: Iterable[Item]) -> list[Item]:
    """Return items, best first in each category, dealt out in turns by SHARES, so that none crowds out the others."""
    dealt: list[tuple[float, int, Item]] = []
    places = dict.fromkeys(CATEGORIES, 0)
    for item in items:
        places[item.category] += 1
        if places[item.category] <= BULLETS:
            dealt.append((places[item.category] / SHARES[item.category], _ORDER.index(item.category), item))
    return [item for *_, item in sorted(dealt, key=lambda turn: turn[:2])]


def _fit(
    items: list[Item], recent: list[str], *, max_tokens: int, count: Callable[[str], int]
) -> tuple[list[Item], list[Item], list[str]]:
    """Return the items of the markdown, those of the JSON, and the recent lines that together fit the budget."""
    empty = count(compact(_memory_json([])))
    shown = _take(items, int(max_tokens * (1 - JSON_SHARE)), lambda item: count(_bullet(item)) + 1)
    exported = _take(items, int(max_tokens * JSON_SHARE) - empty, lambda item: count(compact(_entry(item))) + 1)
    told = list(recent)
    while count(_markdown(shown, told)) + count(compact(_memory_json(exported))) > max_tokens:
        if told and count("\n".join(told)) > RECENT_SHARE * max_tokens:
            told.pop(0)
        elif exported and len(exported) >= len(shown):
            exported.pop()
        elif shown:
            shown.pop()
        elif told:
            told.pop(0)
        else:
            break
    return shown, exported, told


def _take(items: list[Item], budget: int, cost: Callable[[Item], int]) -> list[Item]:
    taken: list[Item] = []
    for item in items:
        price = cost(item)
        if price <= budget:
            budget -= price
            taken.append(item)
    return taken


def _markdown(items: Sequence[Item], recent: Sequence[str]) -> str:
    parts: list[str] = []
    for category, heading in HEADINGS:
        bullets = [_bullet(item) for item in items if item.category == category]
        if bullets:
            parts.append("\n".join((f"## {heading}", *bullets)))
    if recent:
        parts.append("\n".join((_RECENT_HEADING, *recent)))
    return "\n\n".join(parts)


def _bullet(item: Item) -> str:
    return f"- {_flat(item.text)} ({_day(item.valid_from)})"


def _memory_json(items: Sequence[Item]) -> dict[str, Any]:
    memory: dict[str, Any] = {
        category: [_entry(item) for item in items if item.category == category] for category in CATEGORIES
    }
    memory["tags"] = _tags(items)
    return memory


def _entry(item: Item) -> dict[str, Any]:
    """Return an item as `memory_json` holds it, with its newest source and its first."""
    sources = list(dict.fromkeys((item.sources[0], item.sources[-1])))
    if item.category in {"people", "projects"}:
        entry = {
            "name": item.name or item.subject.removeprefix("@") or item.text[:40],
            "notes": item.text,
            "sources": sources,
        }
        return entry | ({"status": item.status} if item.category == "projects" and item.status else {})
    if item.category == "facts":
        return {"text": item.text, "confidence": round(item.confidence, 2), "sources": sources}
    return {"text": item.text, "sources": sources}


def _tags(items: Sequence[Item]) -> list[str]:
    subjects = (item.subject for item in items if item.subject and not item.subject.startswith("@"))
    return [subject[:100] for subject in list(dict.fromkeys(subjects))[:MAX_TAGS]]


def _recent(items: Sequence[Item], lines: Sequence[Line], previous: str) -> list[str]:
    """Return dated lines of the newest user posts that no item tells, oldest first, after the last summary's."""
    told = {source for item in items for source in item.sources}
    found: list[str] = []
    for line in lines:
        if line.role != "user" or line.id in told:
            continue
        parts = [part for part in sentences(clean(line.text)) if _tells(part)]
        if parts:
            found.append(f"- {_day(line.when)}: {_cut(trim(max(parts, key=lambda part: len(topic(part)))))}")
    _, _, old = previous.partition(_RECENT_HEADING + "\n")
    ended = [topic(item.text) for item in items if item.valid_to is not None]
    kept = [line for line in old.split("\n") if line.startswith("- ") and not any(_about(line, past) for past in ended)]
    fresh = [line for line in found if not any(_about(line, past) for past in ended)]
    return list(dict.fromkeys((*kept, *fresh)))[-RECENT:]


def _tells(sentence: str) -> bool:
    """Tell whether a sentence states something that happened, as opposed to asking or chatting."""
    return len(topic(sentence)) >= 2 and "[[secret:" not in sentence and score(sentence).weight > 0


def _about(line: str, past: frozenset[str]) -> bool:
    """Tell whether a recent line is about something superseded: it shares a third of its topic."""
    return bool(past) and len(topic(line) & past) >= max(1, len(past) // 3)


def _tainted(items: Sequence[Item], *, budget: int, count: Callable[[str], int]) -> str:
    marked = [f"- {item.trust}: {_flat(item.text)} ({_day(item.valid_from)})" for item in items]
    kept: list[str] = []
    for line in marked[: 2 * BULLETS]:
        if count("\n".join((*kept, line))) > budget:
            break
        kept.append(line)
    return "\n".join(kept)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _cut(text: str) -> str:
    text = _flat(text)
    return text if len(text) <= RECENT_WIDTH else text[: RECENT_WIDTH - 1].rsplit(" ", 1)[0] + "…"


def _day(when: float) -> str:
    """Return the UTC day of a time; days only, so that the summary's bytes stay stable for a prompt cache."""
    return datetime.fromtimestamp(when, UTC).date().isoformat()
