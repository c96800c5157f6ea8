"""What is left of a remembered item when one of its clauses no longer holds."""

import re
from typing import Final

import msgspec

from cuebook.memory.extract import dependent, score
from cuebook.memory.listed import without
from cuebook.memory.patterns import SUBJECTS
from cuebook.memory.sentences import sentences, trim
from cuebook.memory.slots import topic
from cuebook.memory.subject import VERB, item_id, subject_of
from cuebook.records.expression import Expression
from cuebook.records.memory import Item

#: A remainder is already known to come from a kept statement, so it needs less than a new one.
REMAINS: Final = 0.25
#: Of so many stems a remainder tells something; of one fewer, where it weighs this much.
FEWEST: Final = 3
SURE: Final = 0.5
#: Who is whose kin weighs no more than this: what is told of them beside it stands in a summary first.
KIN: Final = 0.4
_STATEMENTS: Final = Expression(
    r",\s+(?=(?:and|but|so)\s)|\s+and\s+(?=(?:i|we|my|our|i'm|i’m|we're|we’re)\b|" + VERB.pattern + ")",
    re.IGNORECASE,
)
_KIN: Final = Expression(
    r"\b(?:[Mm]y|[Oo]ur) (?:[a-z]{1,12} ){0,2}(?:step|grand)?(?:mother|mom|mum|father|dad|sister|brother|daughter|son|"
    r"niece|nephew|aunt|uncle|cousin|wife|husband|partner|"
    r"fianc[eé]e?|girlfriend|boyfriend),? (?P<name>[A-ZÀ-ÖØ-Þ][\w’'-]*[\w])(?!['’]s\b)"
)
#: What has one value at a time is worth keeping however short: the home, the job.
_SINGLE: Final = frozenset(subject for subject, _ in SUBJECTS)
_MARKS: Final = " ,;.!?…"
#: What cannot end a statement.
_LOOSE: Final = Expression(
    r"(?:\b(?:and|but|so|or|which|that|because|the|a|an|my|our|is|are|was|with|to|of|in|on|at|for|from)|[:–—-])$",
    re.IGNORECASE,
)


def remainder(item: Item, clause: str, *, parted: bool = False, over: frozenset[str] = frozenset()) -> Item | None:
    """Return what of `item` still holds when one clause of it is over, in its own words, or None.

    `parted`: what is over is that somebody was who they were to the speaker. `over` are the stems of what is over where
    that is known: one of the several things a clause may list.
    """
    if not clause:
        return None
    less = without(item.text, over) if over else ""
    if less:
        return _as(item, less, item.weight)
    return _rest(item, clause) or (None if parted else _kin(item))


def _kin(item: Item) -> Item | None:
    """Return who somebody is to the speaker: whatever else about them is over, a sister stays one."""
    match = _KIN.search(item.text)
    if match is None or match[0] == item.text:
        return None
    return msgspec.structs.replace(
        item,
        id=item_id("people", match[0]),
        category="people",
        text=match[0],
        subject=_resubject(item, match[0]),
        name=match["name"],
        weight=min(item.weight, KIN),
    )


def _rest(item: Item, clause: str) -> Item | None:
    left = [
        part
        for sentence in sentences(item.text)
        for part in (_without(sentence, clause) if clause in sentence else [sentence])
    ]
    while left and dependent(_whole(left[0])):
        left.pop(0)
    text = " ".join(left)
    judged = score(text)
    tells = len(topic(text)) >= (FEWEST if judged.weight < SURE else FEWEST - 1)
    if not left or not (_single(text) or (judged.weight >= REMAINS and tells)):
        return None
    return _as(item, text, judged.weight)


def _as(item: Item, text: str, weight: float) -> Item:
    return msgspec.structs.replace(
        item,
        id=item_id(item.category, text),
        text=text,
        subject=_resubject(item, text),
        weight=min(item.weight, weight),
    )


def _resubject(item: Item, text: str) -> str:
    speaker = item.subject[1:].partition(" ")[0] if item.subject.startswith("@") else ""
    return subject_of(text, speaker)


def _without(sentence: str, clause: str) -> list[str]:
    """Return the statements of a sentence but the one that holds `clause`; only such as can stand alone."""
    parts = [part.strip(" ,;") for part in _STATEMENTS.split(sentence)]
    place = next((place for place, part in enumerate(parts) if clause.strip(" ,;") in part), None)
    if place is None:
        return []
    after = _between(sentence, parts[place + 1 :])
    inside = sentence.partition(clause)[0].rstrip(" ,;")
    if not after and parts[place].strip(_MARKS).endswith(clause.strip(_MARKS)) and not _LOOSE.search(inside):
        before = [inside, inside.partition(": ")[2]]
    else:
        before = [_between(sentence, parts[:place]), _between(sentence, parts[1:place])]
        before.append(before[0].partition(": ")[2])
    left = [*[text for text in before if _stands(text)][:1], *([after] if _stands(after) else [])]
    return [", ".join(left)] if left else []


def _between(sentence: str, parts: list[str]) -> str:
    """Return the stretch of a sentence from the first of `parts` to the last, without a word that joined it."""
    if not any(parts):
        return ""
    start = sentence.find(parts[0])
    end = sentence.find(parts[-1], start) + len(parts[-1])
    return trim(sentence[start:end])


def _stands(text: str) -> bool:
    return bool(text) and not dependent(_whole(text)) and (score(text).weight >= REMAINS or _single(text))


def _single(text: str) -> bool:
    """Tell whether a statement is of what has one value at a time."""
    return subject_of(_whole(text)) in _SINGLE


def _whole(text: str) -> str:
    """Return a statement with the subject it shared with the one that is over: "work as a nurse" is of the speaker."""
    return f"I {text}" if VERB.match(text) else text
