"""Which of a conversation's own words are remembered, when no model reads it: scored sentences, never a new word."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from cuebook.memory import patterns
from cuebook.memory.patterns import (
    ASKS,
    ASKS_TO_KEEP,
    CATEGORY_ORDER,
    FAULTS,
    NEWS,
    NEWS_THRESHOLD,
    STANDING,
    THRESHOLD,
)
from cuebook.memory.personal import PERSONAL, filed
from cuebook.memory.plain import PLAIN, asks_plainly, spelled
from cuebook.memory.plans import PLANS, fact_of
from cuebook.memory.sentences import clauses, clean, paragraphs, quoted_share, sentences, trim
from cuebook.memory.signs import SIGNS, shown
from cuebook.memory.slots import WORD, names, stem, topic, values
from cuebook.memory.subject import item_id, subject_of
from cuebook.memory.vocabulary import FOREIGN, GENERIC, STOP
from cuebook.records.expression import lowered
from cuebook.records.memory import Category, Item, Line, Trust

#: Longest text of an item, in characters: three spoken sentences. A longer unit keeps its own sentence only.
MAX_ITEM: Final = 320
#: Least share of English function words in a text that is scored by the English tables; terse notes with many names go
#: down to 0.15 (measured on the demo conversation), and other languages have more function words of their own.
ENGLISH: Final = 0.1
#: A clause up to so many words that points at something ("I've paid it") needs the one before; a longer one says
#: enough.
SHORT: Final = 7
#: Fewer words than this say nothing about their language.
BRIEF: Final = 6
#: So many words of them are English, where others hold letters that English lacks: "My fiancé is Pieter".
OURS: Final = 2
#: A post of so many words or fewer is chat.
CHAT: Final = 30
#: So many signs of a fact need no more of them from the tables of hasty chat.
ENOUGH: Final = 2
#: A tool's result is kept only as one short line.
MAX_TOOL_LINE: Final = 160


class Found(NamedTuple):
    """A stretch of one or two posts that stands alone, with the posts it comes from."""

    text: str
    sources: tuple[str, ...]
    about: str = ""  # what was said just before: its topic, where the stretch names none


class Score(NamedTuple):
    """How fact-like a text is, in [0, 1], the signs that made it so, and whether some spoke against it."""

    weight: float
    signs: frozenset[str]
    doubt: bool = False


def extract(lines: Sequence[Line], *, before: Sequence[Line] = ()) -> list[Item]:
    """Return what the posts, oldest first, say that is worth remembering, in their order; a repeat comes once.

    `before` are the posts just before `lines`; they give no items of their own, only the question that a short answer
    at the very start belongs to.
    """
    found: dict[str, Item] = {}
    known = [*before, *lines]
    for place, line in enumerate(known[len(before) :], start=len(before)):
        for item in _of_line(known, place, line):
            found.setdefault(item.id, item)
    return list(found.values())


def score(text: str, *, chat: bool = True) -> Score:
    """Return how fact-like a clause or sentence is. Signs and faults count once each; values and names add to them.

    `chat`: judge it also by the signs of hasty chat, where a short post is mostly one statement.
    """
    plain = spelled(text)
    lower = lowered(plain)
    signs = shown((*SIGNS, *PLANS, *PERSONAL), plain, lower)
    if "bound" in signs:
        signs.pop("constraint", None)
    if chat and len(signs) < ENOUGH:
        signs |= shown(PLAIN, plain, lower)
    faults = shown(FAULTS, plain, lower)
    if "explicit" in signs or STANDING.search(lower):
        faults.pop("request", None)
    if "bound" in signs:  # an allergy is none the less one for the thanks before it
        for fault in ("small talk", "praise", "pointing", "second person"):
            faults.pop(fault, None)
    if "preference" in signs or "todo" in signs:
        faults.pop("second person", None)
    total = sum(signs.values()) + _value_weight(text) - sum(faults.values())
    if text.rstrip().endswith("?") or ("?" not in text and asks_plainly(plain)):
        total = total if ASKS_TO_KEEP.search(lowered(text)) else total - 0.8
    total -= {0: 1.0, 1: 0.6, 2: 0.1}.get(len(WORD.findall(text)), 0.0)
    return Score(max(0.0, min(1.0, round(total, 6))), frozenset(signs), doubt=bool(faults))


def category_of(signs: frozenset[str], text: str) -> Category:
    """Return the category of a text by its signs, in A's capture order; of somebody's own life `filed` has a say."""
    category: Category = next((category for sign, category in CATEGORY_ORDER if sign in signs), "facts")
    if category == "decisions":
        category = fact_of(text) or category
    return filed(category, text) if category != "facts" or "bound" in signs else category


def english(text: str) -> bool:
    """Tell whether the English tables may judge a text; of a very short one its letters decide."""
    found = [word.lower().replace("’", "'") for word in WORD.findall(text)]
    if len(found) < BRIEF:
        ascii_only = "".join(found).isascii()  # an accent is a name's, or of a word taken over, where the rest is ours
        plain = ascii_only or sum(word in STOP or stem(word) in GENERIC for word in found) >= OURS
        return bool(found) and plain and not any(word in FOREIGN for word in found)
    ours, theirs = (sum(word in known for word in found) for known in (STOP, FOREIGN))
    return ours / len(found) >= ENGLISH and ours > theirs


def _of_line(lines: Sequence[Line], place: int, line: Line) -> Iterator[Item]:
    if line.role == "user":
        yield from _of_user(lines, place, line)
    elif line.role == "assistant":
        yield from _of_assistant(lines, place, line)
    elif line.role == "tool":
        yield from _of_tool(line)


def _of_user(lines: Sequence[Line], place: int, line: Line) -> Iterator[Item]:
    text = clean(line.text)
    if not text.strip() or (patterns.AFFIRMS.match(text.strip()) and not values(text)):
        return
    ours, chat = english(text), len(WORD.findall(text)) <= CHAT
    for found in _units(text, line, _before(lines, place), plain=ours):
        judged = score(found.text, chat=chat) if ours else _foreign_score(found.text)
        news = judged.signs & NEWS or (chat and judged.signs and not judged.doubt)
        if judged.weight >= (NEWS_THRESHOLD if news else THRESHOLD):
            yield _item(found, line, judged, "user")


def _of_assistant(lines: Sequence[Line], place: int, line: Line) -> Iterator[Item]:
    """Yield what the user confirmed (trust user), else what the assistant did and the user did not deny (trust
    assistant).
    """
    text = clean(line.text)
    parts = sentences(text)
    reply = next((after for after in lines[place + 1 : place + 3] if after.role == "user"), None)
    answer = trim(reply.text.strip()) if reply else ""
    if reply and parts and patterns.AFFIRMS.match(reply.text.strip()) and patterns.ASKS_CONFIRM.search(parts[-1]):
        judged = score(parts[-1].rstrip("? ") + ".")
        if judged.weight >= THRESHOLD:
            yield _item(Found(trim(parts[-1]), (line.id, reply.id)), line, judged, "user")
        return
    if reply and patterns.DENIES.match(answer):
        return
    for part in parts[:3]:
        if (
            patterns.ASSISTANT_DID.search(part)
            and not part.endswith("?")
            and len(part) <= MAX_TOOL_LINE
            and values(part)
        ):
            yield _item(Found(trim(part), (line.id,)), line, Score(0.4, frozenset()), "assistant")
            return


def _of_tool(line: Line) -> Iterator[Item]:
    text = clean(line.text).strip()
    if line.failed or not text or "\n" in text or len(text) > MAX_TOOL_LINE or text[0] in "{[<" or "[[secret:" in text:
        return
    if values(text) and len(WORD.findall(text)) >= 4:
        yield _item(Found(" ".join(text.split()), (line.id,)), line, Score(0.3, frozenset()), "tool")


def _item(found: Found, line: Line, judged: Score, trust: Trust) -> Item:
    category = category_of(judged.signs, found.text)
    speaker = "" if line.speaker.lower() in {"", line.role, "user", "assistant"} else line.speaker
    people = names(found.text) if category in {"people", "projects"} else []
    return Item(
        id=item_id(category, found.text),
        category=category,
        text=found.text,
        sources=found.sources,
        subject=subject_of(_topical(found), speaker),
        trust=trust,
        valid_from=line.when,
        name=people[0] if people else "",
        seq=line.seq,
        weight=round(judged.weight, 3),
    )


def _topical(found: Found) -> str:
    """Return the text a stretch's subject is read from: its own, or the one before where its first clause has none."""
    first = re.split(r"[,;:.!?] ", found.text, maxsplit=1)[0]
    return found.about if found.about and not topic(first) and topic(found.about) else found.text


def _before(lines: Sequence[Line], place: int) -> Found | None:
    """Return what the other side asked just before a post: the question a short answer belongs to."""
    if not place or lines[place - 1].role != "assistant":
        return None
    line = lines[place - 1]
    asked = [part for part in sentences(clean(line.text)) if part.endswith("?") and len(part) <= MAX_ITEM // 2]
    return Found(trim(asked[-1]), (line.id,)) if asked and topic(asked[-1]) else None


def _units(text: str, line: Line, before: Found | None, *, plain: bool) -> Iterator[Found]:
    """Yield the stretches of a post that stand alone: clauses, joined with what they need to be understood."""
    for paragraph in paragraphs(text):
        pending: Found | None = None
        said = before.text if before else ""
        for sentence in paragraph:
            if "[[secret:" in sentence or quoted_share(sentence) > 0.4:
                continue
            for part in _parts(sentence) if plain else [sentence]:
                last = pending or before
                joins = not part.endswith("?") or (pending and pending.text.endswith("?"))
                if plain and last and joins and dependent(part) and len(last.text) + len(part) < MAX_ITEM:
                    pending = Found(f"{last.text} {part}", tuple(dict.fromkeys((*last.sources, line.id))), last.about)
                else:
                    if pending:
                        yield pending
                    pending = Found(part, (line.id,), said)
                said, before = part, None
        if pending:
            yield pending


def _parts(sentence: str) -> list[str]:
    """Return the clauses of a sentence that are facts of their own; clauses that are none stay with their neighbour."""
    whole = trim(sentence)
    pieces = clauses(whole)
    if len(pieces) < 2:
        return [whole]
    asks = whole.endswith("?")
    grouped: list[tuple[str, bool]] = []
    for piece in pieces:
        lower = lowered(piece)
        strong = not _points(piece) and not dependent(piece) and score(piece, chat=False).weight >= THRESHOLD
        if asks and (ASKS.search(lowered(trim(piece))) or piece.endswith("?")) and not ASKS_TO_KEEP.search(lower):
            strong = False
            grouped.append((piece, False))
        elif grouped and not (strong and grouped[-1][1]) and not asks:
            grouped[-1] = (_between(whole, grouped[-1][0], piece), grouped[-1][1] or strong)
        else:
            grouped.append((piece, strong))
    return [trim(piece) for piece, _ in grouped]


def _between(whole: str, first: str, second: str) -> str:
    start = whole.find(first)
    end = whole.find(second, start + len(first)) + len(second)
    return whole[start:end] + (whole[end:] if not WORD.search(whole[end:]) else "")


_POINTERS: Final = frozenset(
    "it it's its he he's she she's they they're they've that that's this those these him them his her their there both "
    "same neither he'll she'll it'll they'll he'd she'd hers theirs one".split()
)
_VERBS: Final = frozenset(
    "am is are was were be been have has had do does did will would can could should must need want like love got get "
    "went go live work i'm i've i'll i'd we're we've we'll he's she's it's that's there's isn't aren't don't doesn't "
    "can't won't prefer please use".split()
)


def dependent(part: str) -> bool:
    """Tell whether a clause needs the one before it: a pronoun before any noun, or no verb and hardly a word."""
    opener, colon, rest = part.partition(": ")
    if colon and rest and not topic(opener) - {"decid", "set"}:
        part = rest
    found = [word.lower().replace("’", "'") for word in WORD.findall(part)]
    about = topic(part)
    if not about:
        return True
    for place, word in enumerate(found[:4]):
        if word in _POINTERS and (place < 2 or len(found) <= SHORT):
            return not any(stem(other) in about for other in found[:place])
        if stem(word) in about:
            break
    return len(found) <= 4 and not any(word in _VERBS or word.endswith("ed") for word in found)


def _points(part: str) -> bool:
    """Tell whether a clause points anywhere at something said before: it stays with what it points at."""
    return any(word.lower() in {"it", "them", "him", "they", "there", "it's", "they're"} for word in WORD.findall(part))


def _value_weight(text: str) -> float:
    """Return what values add: dates, money and names make a statement checkable."""
    kinds = {kind.split()[0] for kind, _ in values(text)}
    weights = {
        "date": 0.2,
        "money": 0.25,
        "time": 0.15,
        "weekday": 0.1,
        "code": 0.2,
        "number": 0.15,
        "name": 0.15,
        "place": 0.15,
    }
    return min(0.4, sum(weight for kind, weight in weights.items() if kind in kinds))


def _foreign_score(text: str) -> Score:
    """Score a text of a language without tables: what carries numbers, dates or names in mid-sentence is kept."""
    if text.rstrip().endswith(("?", "？")):
        return Score(0.0, frozenset())
    found = values(text)
    numbers = any(char.isdigit() for char in text)
    kinds = {kind.split()[0] for kind, _ in found}
    return Score(
        min(1.0, THRESHOLD * numbers + 0.2 * bool(kinds & {"date", "money", "time"}) + 0.25 * ("name" in kinds)),
        frozenset(),
    )
