"""How current items become the rolling summary: markdown for the system prompt, `memory_json` for programs, the rest
apart.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

import msgspec
from msgspec import Struct

from cuebook.memory.brief import anchors, brief
from cuebook.memory.extract import dependent, score
from cuebook.memory.schema import compact
from cuebook.memory.sentences import clean, quoted_share, sentences, trim
from cuebook.memory.slots import names, topic
from cuebook.memory.words import on_the_wall
from cuebook.records.memory import CATEGORIES, Category, Item, Line

#: A's prompt rule: "at most ~20 bullets" (notes/seed-origins.md 1.2), read per heading.
BULLETS: Final = 20
#: So many times that many items of a category are read for their line; the rest has too small a claim.
READ: Final = 2
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
    "facts": 6,
}
#: So many turns earlier comes what deserves a whole point more: worth counts, but no category is left out.
WORTH: Final = 3.0
#: A bullet of so many characters must deserve its place by one whole point of weight more than an empty one.
LENGTH_COST: Final = 150
#: What a text gains by each kind of value it gives (a date, a name, an amount), up to three, and loses without any.
ANCHOR: Final = 0.2
BARE: Final = 0.4
#: What a line loses that points at something it does not name: "they'd like it by Friday".
POINTS: Final = 0.3
#: The same for its age in days, up to OLD: plans and tasks of half a year ago are mostly over, tastes are not.
DAYS_COST: Final = 300
OLD: Final = 0.3
_LASTING: Final = frozenset({"preferences", "people"})
#: The "short recent context" of A's order: so many lines of so many characters, for so much of the budget.
RECENT: Final = 3
RECENT_DAYS: Final = 30
RECENT_WIDTH: Final = 140
RECENT_SHARE: Final = 0.1
#: Items that say the same but for numbers ("Bed 7 is done") take so many places before everything else has its own.
ALIKE: Final = 5
_NUMBER: Final = re.compile(r"\d+")
#: Least weight of a line that no item tells but that is worth telling for a while.
RECENT_WEIGHT: Final = 0.4
#: Of the budget, the part `memory_json` may use: the markdown is what stands in the prompt, the JSON what programs read
#: along; its best items are enough.
JSON_SHARE: Final = 0.3
#: What stands in the fenced block may take another quarter of the summary's budget.
TAINTED_SHARE: Final = 0.25
MAX_TAGS: Final = 8
_MONTHS: Final = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_RECENT_HEADING: Final = "## Recent"


class Digest(Struct, frozen=True):
    """A summary's three texts. `tainted` is for the fenced block only: lines of tools, and lines of the assistant,
    marked.
    """

    markdown: str
    memory_json: dict[str, Any]
    tainted: str


def write(
    items: Sequence[Item],
    *,
    previous: str,
    lines: Sequence[Line],
    max_tokens: int,
    count: Callable[[str], int],
    zone: tzinfo = UTC,
) -> Digest:
    """Return the digest of the current `items` after a pass over `lines`, within `max_tokens` for markdown and compact
    JSON.

    Only items of user trust enter it (MISSION R4); an assistant's own statements go, marked as such, to `tainted`,
    because an assistant that read a poisoned page repeats it. What was superseded is nowhere. Most weight and newest
    first; days are those of `zone`.
    """
    if zone is not UTC:
        items = [msgspec.structs.replace(each, valid_from=on_the_wall(each.valid_from, zone)) for each in items]
        lines = [msgspec.structs.replace(each, when=on_the_wall(each.when, zone)) for each in lines]
    newest = max((item.valid_from for item in items), default=0.0)
    current = sorted(
        (item for item in items if item.valid_to is None), key=lambda item: _claims(item, newest), reverse=True
    )
    own = _ordered(_shortlist(current), newest)
    recent = _recent(items, lines, previous)
    chosen, exported, told = _fit(own, recent, max_tokens=max_tokens, count=count)
    return Digest(
        _markdown(chosen, told),
        _memory_json(exported),
        _tainted(
            [item for item in current if item.trust != "user"], budget=int(max_tokens * TAINTED_SHARE), count=count
        ),
    )


def _claims(item: Item, newest: float) -> tuple[float, int, str]:
    """Return an item's first claim to a place, before its line is read: weight, confidence, and less what its age
    costs.
    """
    aged = 0.0 if item.category in _LASTING else min(OLD, (newest - item.valid_from) / 86_400 / DAYS_COST)
    return (round(item.weight + 0.5 * (item.confidence - 0.5) - aged, 2), item.seq, item.id)


def _shortlist(items: Sequence[Item]) -> list[Item]:
    """Return the user's items that may come in question, so many of a category, each with its one line for text."""
    places = dict.fromkeys(CATEGORIES, 0)
    found: list[Item] = []
    for item, _ in _repeats_last(items):
        places[item.category] += item.trust == "user"
        if item.trust == "user" and places[item.category] <= READ * BULLETS:
            found.append(msgspec.structs.replace(item, text=brief(item.text)))
    return found


def _ordered(items: Iterable[Item], newest: float) -> list[Item]:
    """Return items dealt out in turns by SHARES, so that no category crowds out the others; what deserves more comes
    turns earlier, by WORTH. Of those that differ by numbers alone the first few take their turns, the rest come last.
    """
    ranked = sorted(items, key=lambda item: _rank(item, newest), reverse=True)
    dealt: list[tuple[bool, float, int, Item]] = []
    places = dict.fromkeys(CATEGORIES, 0)
    for item, repeats in _repeats_last(ranked):
        places[item.category] += 1
        if places[item.category] <= BULLETS:
            turn = places[item.category] / SHARES[item.category] - WORTH * _rank(item, newest)[0]
            dealt.append((repeats, turn, _ORDER.index(item.category), item))
    return [item for *_, item in sorted(dealt, key=lambda turn: turn[:3])]


def _repeats_last(items: Sequence[Item]) -> list[tuple[Item, bool]]:
    """Return items in their order, but behind all others those whose words ALIKE before them had, numbers aside."""
    forms = Counter[str]()
    found: list[tuple[Item, bool]] = []
    for item in items:
        form = _NUMBER.sub("#", item.text)
        found.append((item, forms[form] >= ALIKE))
        forms[form] += 1
    return sorted(found, key=lambda pair: pair[1])


def _rank(item: Item, newest: float) -> tuple[float, int, str]:
    """Return an item's place in its category: its claim, with what its line tells, less what its length costs."""
    told = anchors(item.text)
    value = ANCHOR * min(3, told) if told else -BARE * (0.5 if item.category in _LASTING else 1.0)
    value -= POINTS * dependent(item.text) + len(item.text) / LENGTH_COST
    return (round(_claims(item, newest)[0] + value, 2), item.seq, item.id)


def _fit(
    items: list[Item], recent: list[str], *, max_tokens: int, count: Callable[[str], int]
) -> tuple[list[Item], list[Item], list[str]]:
    """Return the items of the markdown, those of the JSON, and the recent lines that together fit the budget."""
    year = _day(max((item.valid_from for item in items), default=0.0))[:4]
    empty = count(compact(_memory_json([])))
    shown = _take(items, int(max_tokens * (1 - JSON_SHARE)), lambda item: count(_bullet(item, year)) + 1)
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
    year = _day(max((item.valid_from for item in items), default=0.0))[:4]
    for category, heading in HEADINGS:
        bullets = [_bullet(item, year) for item in _grouped([item for item in items if item.category == category])]
        if bullets:
            parts.append("\n".join((f"## {heading}", *bullets)))
    if recent:
        parts.append("\n".join((_RECENT_HEADING, *recent)))
    return "\n\n".join(parts)


def _grouped(items: Sequence[Item]) -> list[Item]:
    """Return one category's items with those of one name together, oldest first in each group and among groups."""
    named = {item.id: [name.lower() for name in names(item.text)] for item in items}
    uses = Counter(name for found in named.values() for name in set(found))
    group = {key: max(found, key=lambda name: (uses[name], name), default="") for key, found in named.items()}
    first: dict[str, int] = {}
    for item in sorted(items, key=lambda item: (item.seq, item.id)):
        first.setdefault(group[item.id] or item.id, item.seq)
    return sorted(items, key=lambda item: (first[group[item.id] or item.id], group[item.id], item.seq, item.id))


def _bullet(item: Item, year: str) -> str:
    """Return an item's line; what lasts needs no day, and a day of the newest item's `year` no year."""
    day = "" if item.category in _LASTING else f" ({_said(item.valid_from, year)})"
    return f"- {_flat(item.text)}{day}"


def _memory_json(items: Sequence[Item]) -> dict[str, Any]:
    memory: dict[str, Any] = {
        category: [_entry(item) for item in items if item.category == category] for category in CATEGORIES
    }
    memory["tags"] = _tags(items)
    return memory


def _entry(item: Item) -> dict[str, Any]:
    """Return an item as `memory_json` holds it, with its newest source and its first."""
    sources, text = list(dict.fromkeys((item.sources[0], item.sources[-1]))), item.text
    if item.category in {"people", "projects"}:
        entry = {
            "name": item.name or item.subject.removeprefix("@") or text[:40],
            "notes": text,
            "sources": sources,
        }
        return entry | ({"status": item.status} if item.category == "projects" and item.status else {})
    if item.category == "facts":
        return {"text": text, "confidence": round(item.confidence, 2), "sources": sources}
    return {"text": text, "sources": sources}


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
    posts = {line.id for line in lines}
    oldest = f"- {_day(max((line.when for line in lines), default=0.0) - RECENT_DAYS * 86_400)}"
    newer = [topic(item.text) for item in items if posts & set(item.sources)]
    kept = [
        line
        for line in old.split("\n")
        if line.startswith("- ")
        and line >= oldest
        and not any(_about(line, past) for past in ended)
        and not _retold(line, newer)
    ]
    fresh = [line for line in found if not any(_about(line, past) for past in ended)]
    return list(dict.fromkeys((*kept, *fresh)))[-RECENT:]


def _tells(sentence: str) -> bool:
    """Tell whether a sentence states something that happened, as opposed to asking or chatting."""
    return (
        len(topic(sentence)) >= 2
        and quoted_share(sentence) < 0.4
        and "[[secret:" not in sentence
        and score(sentence).weight >= RECENT_WEIGHT
    )


def _about(line: str, past: frozenset[str]) -> bool:
    """Tell whether a recent line is about something superseded: it shares a third of its topic."""
    return bool(past) and len(topic(line) & past) >= max(1, len(past) // 3)


def _retold(line: str, newer: Sequence[frozenset[str]]) -> bool:
    """Tell whether an item of this pass says more of what a recent line is about: half of its topic."""
    about = topic(line)
    return any(2 * len(about & told) >= len(about) > 0 for told in newer)


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


def _said(when: float, year: str) -> str:
    day, month, its_year = datetime.fromtimestamp(when, UTC).strftime("%d %m %Y").split()
    return f"{int(day)} {_MONTHS[int(month) - 1]}{'' if its_year == year else ' ' + its_year}"


def _day(when: float) -> str:
    """Return the day of a time; days only, so that the summary's bytes stay stable for a prompt cache."""
    return datetime.fromtimestamp(when, UTC).date().isoformat()
