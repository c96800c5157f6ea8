"""Write the rolling summary as dated quotes: markdown for the system prompt, `memory_json` for programs, the rest
fenced.

It contains all of a user's statements while they fit. When room is short, quotes are selected: health and rules first,
then preferences and decisions in half of the room that is left, then the rest by score per token. Lines are ordered by
date. New quotes are appended, so a provider's prompt cache stays valid. A new selection is made only when they no
longer fit.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from cuebook.memory.quotes import ASKED_WEIGHT, LISTED, category_of, signs_of, weigh, without_quotations
from cuebook.memory.schema import compact
from cuebook.memory.supersede import companions
from cuebook.memory.tokenizer import on_the_wall
from cuebook.records.memory import CATEGORIES, Item

HEADING: Final = "Quotes by day, oldest first, not complete. Where two disagree, the later one holds."
#: A new selection fills this part of the room, so that later quotes can be appended.
FILLED: Final = 0.9
#: Questions and requests are appended while the summary takes less than this part of its room.
ASKED_SHARE: Final = 0.4
#: Health and rules may take this part of the room; preferences and decisions, the second part of what they leave. The
#: others of them compete with all other statements.
FIRST_SHARE: Final = 0.95
SECOND_SHARE: Final = 0.5
#: Bonus of lasting statements, and of the newest quote over the oldest: corrections come later.
STANDING: Final = 0.7
NEWEST: Final = 1.5
#: Maximum lines that are compared with each other; a summary has about sixty.
CANDIDATES: Final = 300
#: Tokens of a date per quote, since some quotes share one.
DATE_COST: Final = 2
#: Extra tokens per quote when its value per token is compared.
OVERHEAD: Final = 4
#: The lines of others take at most this part of the room in the fenced block, or what the user's own leave of it.
TAINTED_SHARE: Final = 0.25
MAX_TAGS: Final = 8
#: Least tokens of a line of others, and most characters of a person's name.
LEAST_LINE: Final = 12
LONGEST_NAME: Final = 40
_MONTHS: Final = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_YEAR: Final = re.compile(r"^## (\d{4})$")
_QUOTE: Final = re.compile(rf"^- (?:(\d\d?) ({'|'.join(_MONTHS)}): )?(.*)$")
_LASTING: Final = ("health", "rule", "remember")

Count = Callable[[str], int]


#: A summary's markdown, its `memory_json`, and text for the fenced block only: the lines of others, marked.
Digest = tuple[str, dict[str, Any], str]


def write(items: Sequence[Item], *, previous: str, max_tokens: int, count: Count, zone: tzinfo = UTC) -> Digest:
    """Return the summary of `items` within `max_tokens`, and their `memory_json` within as many again.

    `previous` is the current summary: if the new quotes fit after it, its bytes stay unchanged. The markdown has only
    items of user trust, with their name if others speak too. Those of others go to the fenced text: a participant may
    be hostile, and the assistant may repeat a poisoned page.
    """
    current = [replace(each, valid_from=on_the_wall(each.valid_from, zone)) for each in items if each.valid_to is None]
    entries = sorted((each for each in current if each.trust == "user"), key=lambda each: (each.valid_from, each.seq))
    others = [each for each in current if each.trust != "user"]
    own = [replace(each, text=f"{_name(each)}: {each.text}") for each in entries] if _are_several(others) else entries
    markdown = _appended(own, previous, max_tokens, count) or _markdown(
        _choose([_line(each) for each in own], int(max_tokens * FILLED), count)
    )
    tainted = _tainted(others, max(int(max_tokens * TAINTED_SHARE), max_tokens - count(markdown)), count)
    return markdown, _memory_json(entries, max_tokens, count), tainted


def fit(markdown: str, max_tokens: int, *, count: Count) -> str:
    """Return a written summary cut to fewer tokens, by the same order of importance; "" if nothing fits.

    A summary by a model or a person has other lines. Its beginning is not the most important part, so it is dropped.
    """
    if count(markdown) <= max_tokens:
        return markdown
    quotes = _read(markdown)
    return _markdown(_choose(quotes, max_tokens, count)) if quotes else ""


def _appended(items: Sequence[Item], previous: str, max_tokens: int, count: Count) -> str:
    """Return the previous summary with new quotes appended, "" if they do not fit or the old lines changed."""
    known = {(each.valid_from, each.text) for each in _read(previous)}
    texts = {text for _, text in known}
    if previous and not (known and texts <= {_flat(each) for each in items}):
        return ""
    last = max((when for when, _ in known), default=0.0)
    fresh = [each for each in items if _flat(each) not in texts and _midnight(each.valid_from) >= last]
    stated = [each for each in fresh if each.weight > ASKED_WEIGHT]
    whole = _markdown([*_read(previous), *map(_line, stated)])
    with_asked = _markdown([*_read(previous), *map(_line, fresh)])
    if count(with_asked) <= ASKED_SHARE * max_tokens:
        return with_asked
    return whole if count(whole) <= max_tokens else ""


class _Line(Struct, frozen=True):
    """A quote as a summary prints it: its day at midnight, and its text on one line."""

    valid_from: float
    text: str
    item: Item


def _line(item: Item) -> _Line:
    return _Line(_midnight(item.valid_from), _flat(item), item)


def _choose(lines: Sequence[_Line], max_tokens: int, count: Count) -> list[_Line]:
    """Return the lines that fit, in order: the most important ones, and no superseded one without its newest."""
    costs = {each.item.id: count(f"- {each.text}\n") + DATE_COST for each in lines}
    marked = _newest({each.item.id: each.item.superseded_by for each in lines})
    lines = _candidates(lines, costs, marked)
    by_id = {each.item.id: each for each in lines}
    needs = companions([each.item for each in lines])
    after = {id_: marked[id_] if marked[id_] != id_ else needs.get(id_, [None])[-1] for id_ in by_id}
    newest = _newest(after)
    texts: dict[str, _Line] = {}
    left = max_tokens - count(HEADING) - 2
    ranked = sorted(lines, key=lambda each: _value(each, lines, costs), reverse=True)
    for number, share in enumerate((FIRST_SHARE, SECOND_SHARE, 1.0)):
        floor = (left if number else max_tokens) * (1 - share)
        for line in ranked:
            if line.item.id in texts or _class(line.item) != number < 2:
                continue
            group = {line.item.id, newest[line.item.id]} - texts.keys()
            price = sum(costs[id_] for id_ in group)
            if left - price >= floor:
                left -= price
                texts |= {id_: by_id[id_] for id_ in group}
    while texts and count(_markdown(ordered := [each for each in lines if each.item.id in texts])) > max_tokens:
        worst = min(ordered, key=lambda each: (_class(each.item) == 0, _value(each, lines, costs)))
        gone = {id_ for id_ in texts if worst.item.id in (id_, newest[id_])}  # a superseded one goes with its newest
        texts = {id_: each for id_, each in texts.items() if id_ not in gone}
    return [each for each in lines if each.item.id in texts]


def _candidates(lines: Sequence[_Line], costs: dict[str, int], newest: Mapping[str, str]) -> Sequence[_Line]:
    """Return the candidate lines, in order: the most important ones, with the newest version of each."""
    if len(lines) <= CANDIDATES:
        return lines
    ranked = sorted(lines, key=lambda each: (_class(each.item) > 0, -_value(each, lines, costs)))
    chosen = {each.item.id for each in ranked[:CANDIDATES]}
    chosen |= {newest[id_] for id_ in chosen}
    return [each for each in lines if each.item.id in chosen]


def _newest(after: Mapping[str, str | None]) -> dict[str, str]:
    """Return for each id the last one of its chain of successors."""
    last: dict[str, str] = {}
    for id_ in after:
        chain = {id_: None}  # in order
        end = id_
        while end not in last and (following := after.get(end)) is not None and following in after:
            if following in chain:
                break
            chain[following] = None
            end = following
        last |= dict.fromkeys(chain, last.get(end, end))
    return last


def _class(item: Item) -> int:
    """Return 0 for health and rules, 1 for preferences and decisions, 2 for the rest, questions, and earlier quotes."""
    if item.superseded_by or item.weight <= ASKED_WEIGHT:
        return 2
    signs = signs_of(item.text)
    if any(signs[name] for name in _LASTING) and item.weight >= LISTED / 2:
        return 0
    return 1 if item.category in {"preferences", "decisions"} and item.weight >= LISTED / 2 else 2


def _value(line: _Line, lines: Sequence[_Line], costs: dict[str, int]) -> float:
    """Return a line's value per token: lowest for superseded ones; for health and rules by cost, to fit many."""
    item = line.item
    cost = OVERHEAD + costs[item.id]
    if item.superseded_by:
        return item.weight / 1000
    if _class(item) == 0:
        return (1.0 + item.weight) / cost
    newest = lines[-1].valid_from
    age = (newest - line.valid_from) / (newest - lines[0].valid_from + 1.0)
    lasting = item.category in {"preferences", "people", "decisions"}
    return item.weight * (1 + STANDING * lasting) * (1 + NEWEST * (1 - age)) / cost


def _markdown(lines: Iterable[_Line]) -> str:
    parts: list[str] = []
    year, day = 0, -1.0
    for line in lines:
        when = datetime.fromtimestamp(line.valid_from, UTC)
        if when.year != year:
            year = when.year
            parts.append(f"## {year}")
        same = line.valid_from == day  # only the first quote of a day has its date
        day = line.valid_from
        parts.append(f"- {line.text}" if same else f"- {when.day} {_MONTHS[when.month - 1]}: {line.text}")
    return "\n".join((HEADING, *parts)) if parts else ""


def _read(markdown: str) -> list[_Line]:
    """Return the lines of a summary that was written from quotes; none for other summaries."""
    if not markdown.startswith(HEADING):
        return []
    lines: list[_Line] = []
    year, when = 1970, 0.0
    for number, line in enumerate(markdown.split("\n")[1:]):
        if match := _YEAR.match(line):
            year = int(match[1])
        elif match := _QUOTE.match(line):
            if match[2]:
                when = datetime(year, _MONTHS.index(match[2]) + 1, int(match[1]), tzinfo=UTC).timestamp()
            lines.append(_Line(when, match[3], _item_of(match[3], when, number)))
    return lines


def _item_of(text: str, when: float, number: int) -> Item:
    """Return a printed quote as an item, with its weight computed from its words."""
    category = category_of(signs_of(text))
    return Item(
        id=str(number), category=category, text=text, sources=(), valid_from=when, seq=number, weight=weigh(text)
    )


def _memory_json(items: Sequence[Item], max_tokens: int, count: Count) -> dict[str, Any]:
    """Return the most important listed quotes that fit, under AgentOS's eight keys."""
    listed = [each for each in items if each.weight >= LISTED]
    costs = {each.id: count(compact(_entry(each))) + 1 for each in listed}
    ranked = sorted(listed, key=lambda each: (_class(each), -each.weight / (OVERHEAD + costs[each.id])))
    left, chosen = max_tokens - count(compact(_entries([]))), list[str]()
    for item in ranked:
        if costs[item.id] <= left:
            left -= costs[item.id]
            chosen.append(item.id)
    while count(compact(memory := _entries([each for each in listed if each.id in chosen]))) > max_tokens and chosen:
        chosen.pop()  # tags need room too
    return memory


def _entries(items: Sequence[Item]) -> dict[str, Any]:
    memory: dict[str, Any] = {name: [_entry(each) for each in items if each.category == name] for name in CATEGORIES}
    tags = dict.fromkeys(each.subject[:100] for each in items if each.subject)
    return memory | {"tags": list(tags)[:MAX_TAGS] if items else []}


def _entry(item: Item) -> dict[str, Any]:
    sources = list(dict.fromkeys((item.sources[0], item.sources[-1])))
    if item.category in {"people", "projects"}:
        entry = {"name": item.name or item.subject[:40] or item.text[:40], "notes": item.text, "sources": sources}
        return entry | ({"status": item.status} if item.category == "projects" and item.status else {})
    if item.category == "facts":
        return {"text": item.text, "confidence": round(item.confidence, 2), "sources": sources}
    return {"text": item.text, "sources": sources}


def _tainted(items: Sequence[Item], budget: int, count: Count) -> str:
    """Return the lines of others that fit: participants first, and of each first health and rules."""
    lines: list[str] = []
    for item in sorted(items, key=lambda each: (each.trust != "participant", _class(each), -each.weight)):
        who = f"participant {_name(item)}" if item.trust == "participant" else item.trust
        line = f"- {who}: {_flat(item)} ({_said(item.valid_from)})"
        cost = count(f"{line}\n")
        if cost <= budget:
            lines.append(line)
            budget -= cost
        elif budget < LEAST_LINE:
            break
    return "\n".join(lines)


def _are_several(others: Sequence[Item]) -> bool:
    return any(each.trust == "participant" for each in others)


def _name(item: Item) -> str:
    return " ".join(item.speaker.split())[:LONGEST_NAME] or "user"


def _flat(item: Item) -> str:
    """Return an item's text on one line, without what it quotes of others."""
    return " ".join(without_quotations(item.text).split())


def _midnight(when: float) -> float:
    return when - when % 86_400


def _said(when: float) -> str:
    day, month, year = datetime.fromtimestamp(when, UTC).strftime("%d %m %Y").split()
    return f"{int(day)} {_MONTHS[int(month) - 1]} {year}"
