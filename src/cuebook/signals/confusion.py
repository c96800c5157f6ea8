"""Detect confusion in a message: does its writer not understand? Whole words; "explain" alone does not count (A)."""

from collections.abc import Mapping
from typing import Final

from cuebook.records.expression import Expression, lowered
from cuebook.records.mind import Polarity

#: Characters of a message that are searched.
LOOKED_AT: Final = 2_000
#: The writer does not understand, not somebody they write about.
_WRITER: Final = "".join(
    f"(?<!{each} )"
    for each in ("they", "users", "people", "you", "he", "she", "customers", "who", "students", "clients")
)
_NOT: Final = r"(?:don'?t|do not|didn'?t|did not|can'?t|cannot|couldn'?t|still don'?t)"
#: Words between "not" and what it negates.
_QUITE: Final = r"(?:really |quite |fully |even |yet |very |entirely |at all )?"
#: Patterns by the keyword under which they are reported.
_KEYWORDS: Final[Mapping[str, str]] = {
    "confused": r"\bconfused\b(?! (?:\w+ ){1,3}with\b)|\bconfusing\b|\bconfuses me\b",
    "don't understand": (
        rf"{_WRITER}\b{_NOT} {_QUITE}"
        r"(?:understand|get (?:it|this|that|the point|you|why|how|what)\b|follow\b|(?:see|know) what you)"
        r"|\bi'?(?: a)?m (?:really )?not (?:really |quite )?following\b(?! (?:him|her|them|any|the (?:news|game)))"
    ),
    "unclear": rf"\bunclear\b|\bnot {_QUITE}clear\b(?! (?:the|all|my|our|out|up|it))",
    "what do you mean": (
        r"\bwhat (?:do|did) you mean\b|\bwhat does that (?:even )?mean\b|\bno (?:idea|clue) what (?:you\b"
        r"|(?:any of )?(?:that|this|it) (?:all )?(?:means|meant|is about|was about)\b)"
        r"|\bwhich (?:one |of (?:them|the \w+) )?(?:do|did) you mean\b|\bwhat(?:'s| is) that supposed to mean\b"
    ),
    "clarify": r"(?<!to )(?<!let me )(?<!i'll )(?<!should )\bclarif(?:y|ication)\b",
    "huh": r"\bhuh\b(?!\s*[,.]? (?:cool|nice|interesting|great|neat))",
    "doesn't make sense": (
        rf"\b(?:doesn'?t|does not|don'?t|didn'?t|not) {_QUITE}mak(?:e|ing) (?:any |much |a lot of )?sense\b"
        r"|\bmakes (?:no|little) sense\b"
    ),
    "not sure": (
        rf"\bnot {_QUITE}sure (?:what (?:you|that|this|it|the)|how (?:that|this|it)|i (?:understand|follow|get)|why|"
        r"where you|about (?:that|this) (?:part|step|bit))"
        r"|(?:^|[,;] ?)(?:i'?m |i am |still |hm+,? )*not sure(?: at all)?\s*[.?!]*$"
    ),
    "lost": (
        r"\b(?:i'?m|i am|you(?:'ve)?|completely|totally|a bit|still|got me) "
        r"(?:a bit |a little |completely |totally |still )?lost(?: me| here| now)?"
        r"\s*(?:[.,;!?]|$| (?:here|now|me|with|at)\b)|\bover my head\b"
    ),
    "explain again": (
        r"\bexplain (?:(?:it|that|this)(?: to me)?|the \w+|me)? ?"
        r"(?:once more|again|differently|in simpler|more simply|like i'?m)\b"
    ),
}
_NAMES: Final = tuple(_KEYWORDS)
_ANY: Final = Expression("|".join(f"({pattern})" for pattern in _KEYWORDS.values()))
#: Strings of which every match contains one.
_HINTS: Final = (
    "confus", "understand", " get ", " follow", "see what you", "clear", "mean", "clarif", "huh", "sense", " sure",
    "lost", "over my head", "explain", "no idea what", "no clue what", "following", "know what you",
)  # fmt: skip
#: A negation right before the keyword: "it isn't unclear at all".
_DENIED: Final = Expression(r"\b(?:not|never|no longer|\w+n't|(?:is|are|was|were|do|does|did)nt)(?: \w+){0,2} \Z")
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
    if any(hint in low for hint in _HINTS):
        results = [
            _NAMES[match.lastindex - 1]
            for match in _ANY.finditer(low)
            if match.lastindex and not _DENIED.search(low[max(0, match.start() - REACH) : match.start()])
        ]
    if polarity == "positive" and "huh?" not in low:
        results = [each for each in results if each != "huh"]
    if polarity != "negative" and "?" in text and " you" not in low and _MARKS.search(text):
        results.append("??")
    return tuple(dict.fromkeys(results))
