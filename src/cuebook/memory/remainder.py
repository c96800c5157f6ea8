"""What is left of a remembered item when one of its clauses no longer holds."""

import re
from typing import Final

import msgspec

from cuebook.memory.extract import dependent, score
from cuebook.memory.sentences import sentences
from cuebook.memory.slots import topic
from cuebook.memory.subject import item_id, subject_of
from cuebook.records.memory import Item

#: A remainder is already known to come from a kept statement, so it needs less than a new one.
REMAINS: Final = 0.25
_STATEMENTS: Final = re.compile(r",\s+(?=(?:and|but|so)\s)|\s+and\s+(?=(?:i|we|my|our)\b)", re.IGNORECASE)


def remainder(item: Item, clause: str) -> Item | None:
    """Return what of `item` still holds when one clause of it is over, in its own words, or None."""
    if not clause:
        return None
    left = [
        part
        for sentence in sentences(item.text)
        for part in (_without(sentence, clause) if clause in sentence else [sentence])
    ]
    while left and dependent(left[0]):
        left.pop(0)
    text = " ".join(left)
    judged = score(text)
    if not left or judged.weight < REMAINS or len(topic(text)) < 3:
        return None
    return msgspec.structs.replace(
        item,
        id=item_id(item.category, text),
        text=text,
        subject=_resubject(item, text),
        weight=min(item.weight, judged.weight),
    )


def _resubject(item: Item, text: str) -> str:
    speaker = item.subject[1:].partition(" ")[0] if item.subject.startswith("@") else ""
    return subject_of(text, speaker)


def _without(sentence: str, clause: str) -> list[str]:
    """Return the statements of a sentence but the one that holds `clause`; only such as can stand alone."""
    parts = _STATEMENTS.split(sentence)
    kept = [clause not in part and not dependent(part) and score(part).weight >= REMAINS for part in parts]
    return [", ".join(part for part, keep in zip(parts, kept, strict=True) if keep)] if any(kept) else []
