"""How somebody wants to be answered, where only one thing can hold at a time: the language, the length, the tone, the
units.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from cuebook.memory.cues import CLAUSES
from cuebook.memory.vocabulary import CURRENCIES, LANGUAGES
from cuebook.records.expression import Expression, lowered


class Wish(NamedTuple):
    """One thing asked of every answer: what of it, how it shall be, and where it is said."""

    slot: str
    value: str
    text: str


#: It is asked of the assistant, for good.
_ASKED: Final = Expression(
    r"^(?:(?:no|ok|okay|sorry|never ?mind|actually|and|but|from now on|please|pls|always|only|just|also|now),? )*"
    r"(?:answer|reply|respond|write|speak|talk|use|keep|give|be|make|address|explain|describe|show|quote|list)\b|"
    r"\b(?:answer|reply|respond|write|speak|talk) (?:to )?me\b|\byour (?:answers?|replies|responses?|tone)\b|"
    r"\byou (?:can|may|should|could)\b|\bi(?:['’]d)? (?:prefer|want|like) (?:\w+ )?(?:answers?|replies|responses?)\b"
)
_NOT: Final = Expression(r"\b(?:not|never(?! ?mind)|no longer|stop|without)\b|n['’]t\b")
#: It is asked of one answer only.
_FOR_ONCE: Final = Expression(
    r"\b(?:for once|this (?:time|one|once)|just (?:once|now)|(?:a|an|one|the) (?:\w+ )?(?:e?mail|letter|"
    r"text|poem|essay|story|summary|report|version|list|explanation|description|message)|exception)\b"
)
_SLOTS: Final[tuple[tuple[str, Expression], ...]] = (
    (
        "wish language",
        Expression(
            r"\b(?:answer|reply|respond|write|speak|talk|answers|replies)(?: (?:to )?me)?(?: only| always)? in "
            rf"(?P<value>{LANGUAGES})\b"
        ),
    ),
    ("wish currency", Expression(rf"\b(?:prices?|costs?|amounts?|money|it)\b.{{0,30}}? in (?P<value>{CURRENCIES})\b")),
    ("wish units", Expression(r"\b(?P<value>metric|imperial)(?: units?| system| measures?)?\b")),
    (
        "wish length",
        Expression(
            r"\b(?P<short>short|shorter|brief|briefer|concise|terse)\b|\b(?P<long>long|longer|detailed|in detail|"
            r"elaborate|"
            r"thorough)\b"
        ),
    ),
    ("wish tone", Expression(r"\b(?P<formal>formal|formally)\b|\b(?P<casual>informal|informally|casual|casually)\b")),
)


def wishes(text: str) -> Iterator[Wish]:
    """Give what a text asks of every answer from now on; what it forbids is none."""
    if not _ASKED.search(lowered(text)) or _FOR_ONCE.search(lowered(text)):
        return
    for clause in CLAUSES.split(text):
        lower = lowered(clause or "")
        for slot, pattern in _SLOTS if not _NOT.search(lower) else ():
            for match in pattern.finditer(lower):
                found = match.groupdict()
                value = found.get("value") or next((name for name, said in found.items() if said), "")
                yield Wish(slot, value, clause)


def wish_clues(slot: str) -> frozenset[str]:
    """Give words one of which stands in every text that fills a wish's slot."""
    words = {
        "wish language": "answer reply respond write speak talk answers replies",
        "wish currency": CURRENCIES.replace("?", "").replace("|", " "),
        "wish units": "metric imperial",
        "wish length": "short brief concise terse long longer detailed elaborate thorough",
        "wish tone": "formal formally informal casual",
    }
    return frozenset(words[slot].split())
