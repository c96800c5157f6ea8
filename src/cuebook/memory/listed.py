"""What is left of a statement about several things of a kind when one of them is over: "I like tea and coffee"."""

import re
from typing import Final

from cuebook.memory.slots import WORD, topic
from cuebook.records.expression import Expression

#: A thing on a list is said in so many words or fewer.
LONGEST: Final = 4
#: So many words at least lead to a list: "I speak".
_LEAD: Final = 2
_SEPARATOR: Final = Expression(r",? and |, ")
#: What makes a part a statement of its own, or says more than what the thing is.
_OWN: Final = Expression(
    r"\b(?:i|we|he|she|they|it|you|is|are|was|were|has|have|had|will|can|for|with|in|at|on|to|from|which|who|that|one)\b",
    re.IGNORECASE,
)
#: What is said of all things of a list behind the last: "on Fridays".
_TAIL: Final = Expression(r"(?: (?:on|in|at|for|with|every|from) (?:(?! and )[^,;:])*)?[ .!]*$")
_ARTICLE: Final = Expression(r"(?:an?|the|my|our|two|three|some)$", re.IGNORECASE)


def without(text: str, over: frozenset[str]) -> str:
    """Return a statement without the one thing of its list that is over (stems), in its own words; "" where it lists
    none, or more or fewer than one of them is over.
    """
    tail = _TAIL.search(text)
    bare = text[: tail.start()] if tail else text
    parts = _SEPARATOR.split(bare)
    if len(parts) < 2 or " and " not in bare or any(_says_more(part) for part in parts[1:]):
        return ""
    opening = _opening(parts[0], over)
    things = [opening[1], *parts[1:]] if opening else parts[1:]
    gone = [place for place, thing in enumerate(things) if topic(thing) and topic(thing) <= over]
    if len(gone) != 1:
        return ""
    things.pop(gone[0])
    left = f"{opening[0]} {_joined(things)}" if opening else _joined([parts[0], *things])
    return left + text[len(bare) :]


def _says_more(part: str) -> bool:
    return len(WORD.findall(part)) > LONGEST or bool(_OWN.search(part)) or not topic(part)


def _opening(part: str, over: frozenset[str]) -> tuple[str, str] | None:
    """Cut the first thing that is over from what leads to the list: "I have", "a dog"; None where it is not the one."""
    words = part.split(" ")
    first = len(words)
    while first > _LEAD and topic(words[first - 1]) and topic(words[first - 1]) <= over:
        first -= 1
    if first == len(words):
        return None
    if _ARTICLE.match(words[first - 1]):
        first -= 1
    return " ".join(words[:first]), " ".join(words[first:])


def _joined(things: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(things[:-1]), things[-1]]))
