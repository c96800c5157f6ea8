"""Detect corrections and confusion: does a message retract or correct an earlier answer, or does its writer not
understand one? B counts corrections against a prompt. Confusion needs whole words; "explain" alone does not count (A).
"""

from typing import Final

from cuebook.languages import english, english_expression, english_pattern
from cuebook.records.expression import Expression, lowered
from cuebook.records.mind import Polarity

#: Characters that are searched, of a message and of a sentence.
LOOKED_AT: Final = 2_000
LONGEST: Final = 300

# ---- corrections ----------------------------------------------------------------------------------------------------

#: The end of one sentence and the start of the next.
SENTENCE: Final = Expression(r"(?<=[.!?\u2026])(?<!\b[dm]r\.)(?<!\bms\.)(?<!\bmrs\.)\s+|\n+")
#: Maximum corrections counted in one message.
MOST: Final = 5
_BEGINS: Final = english_expression("corrections", "begins")
_HOLDS: Final = english_expression("corrections", "holds")
#: Strings of which every match of `_HOLDS` contains one.
_HINTS: Final = ("what i ", " i said", "i told", "i already", "i mentioned", "i wrote", "you", "not that ", "not this ")
_SPARED: Final = english_expression("corrections", "spared")
_NAMED: Final = english_expression("corrections", "named")
_DENIED: Final = Expression(r"(?:nope|hm+,? no)[.!]*")
#: A chat-style corrected word: "*their".
_STARRED: Final = Expression(r"\s*\*(?!\*)[^\W\d_][\w']*(?:,? not \w+)?[.!]?\s*\Z")


def corrections_in(text: str) -> int:
    """Return the number of correcting sentences in the user's own words (`spoken`), at most `MOST`."""
    text = text[:LOOKED_AT]
    sentences = [each.strip(" \t-*\"'()") for each in SENTENCE.split(lowered(text))]
    if len(sentences) > 1 and _DENIED.fullmatch(sentences[0]):  # "Hmm, no. It takes a list."
        sentences[:2] = [f"{sentences[0].rstrip('.!')}, {sentences[1]}"]
    named = _STARRED.match(text) is not None or _NAMED.search(text) is not None
    return min(max(sum(map(_corrects, sentences)), named), MOST)


def _corrects(sentence: str) -> bool:
    sentence = sentence[:LONGEST]
    if _SPARED.match(sentence):
        return False
    return _BEGINS.match(sentence) is not None or (
        any(hint in sentence for hint in _HINTS) and _HOLDS.search(sentence) is not None
    )


# ---- confusion ------------------------------------------------------------------------------------------------------


def _keywords() -> list[str]:
    return list(english("confusion")["keywords"])


_KEYWORD: Final = Expression(lambda: "|".join(f"({english_pattern('confusion', each)})" for each in _keywords()))
#: Strings of which every match contains one.
_SIGNS: Final = (
    "confus", "understand", " get ", " follow", "see what you", "clear", "mean", "clarif", "huh", "sense", " sure",
    "lost", "over my head", "explain", "no idea what", "no clue what", "following", "know what you",
)  # fmt: skip
#: A negation right before the keyword: "it isn't unclear at all".
_NEGATED: Final = Expression(r"\b(?:not|never|no longer|\w+n't|(?:is|are|was|were|do|does|did)nt)(?: \w+){0,2} \Z")
#: Characters before a keyword in which a negation counts.
REACH: Final = 30
#: Repeated question marks after a word or alone; between two operands they are an operator.
_MARKS: Final = Expression(r"(?:(?<=[\w)\"'])|^\s*)\?\s?\?[?!]*(?=\s*$|\s+[A-Z\"'(])")


def confusion_in(content: str, *, polarity: Polarity = "neutral") -> tuple[str, ...]:
    """Return the keywords of confusion in the user's own words (`spoken`), each once, in order.

    Repeated question marks are anger, not confusion, if the message is negative or asks somebody. "huh" is surprise
    if the message is positive and the word is no question.
    """
    text = content[:LOOKED_AT].replace("\u2019", "'")
    low, results = lowered(text), list[str]()
    if any(hint in low for hint in _SIGNS):
        results = [
            _keywords()[match.lastindex - 1]
            for match in _KEYWORD.finditer(low)
            if match.lastindex and not _NEGATED.search(low[max(0, match.start() - REACH) : match.start()])
        ]
    if polarity == "positive" and "huh?" not in low:
        results = [each for each in results if each != "huh"]
    if polarity != "negative" and "?" in text and " you" not in low and _MARKS.search(text):
        results.append("??")
    return tuple(dict.fromkeys(results))
