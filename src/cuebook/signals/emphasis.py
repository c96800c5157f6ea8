"""Compute the polarity and the intensity of a text."""

import re
from typing import Final

from cuebook.records.expression import Expression
from cuebook.records.mind import Polarity

# ---- polarity -------------------------------------------------------------------------------------------------------


#: The score from which a text is positive; below its negative, a text is negative (VADER's own value).
POLAR: Final = 0.05


def polarity_of(score: float, polar: float = POLAR) -> Polarity:
    """Return the polarity of a score in -1..1."""
    if score >= polar:
        return "positive"
    return "negative" if score <= -polar else "neutral"


_WORD: Final = Expression(r"[A-Za-z][A-Za-z']*")
_STRETCHED: Final = Expression(r"([a-z])\1{2,}", re.IGNORECASE)
_SWORN: Final = Expression(
    r"\b(?:wtf|wth|ffs|omfg|stfu|f+u+c+k\w*|fck\w*|sh[i1]+t\w*|bullsh\w*|(?:god)?damn\w*|hell|crap\w*|bloody|arse\w*|"
    r"ass|asshole\w*|bitch\w*|bastard\w*|screw (?:this|it|you)|a+r+g+h+|g+r{2,})\b",
    re.IGNORECASE,
)


def intensity_of(text: str, weight: float, *, emphasized: bool = False) -> float:
    """Return the intensity of a text, 0..1: its weight plus its emphasis.

    Emphasis adds: `!` 0.08 (three at most), `??` 0.15, a swear word 0.25, capitals 0.2, a stretched word 0.1. Capitals
    are half the words or more, or the words that carry weight (`emphasized`).
    """
    words = _WORD.findall(text)
    loud = sum(len(word) > 2 and word.isupper() for word in words)
    shouted = emphasized or (loud >= 2 and 2 * loud >= len(words))
    found = weight + 0.08 * min(3, text.count("!")) + 0.15 * ("??" in text or "?!" in text or "!?" in text)
    found += 0.25 * (_SWORN.search(text) is not None) + 0.2 * shouted + 0.1 * (_STRETCHED.search(text) is not None)
    return round(min(1.0, found), 4)
