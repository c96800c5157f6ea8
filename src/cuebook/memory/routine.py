"""What of one's own days and things has one value at a time: the shift, when one starts, the number of a line or a
locker; and what one of a thing costs.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from cuebook.memory.slots import WORD, Value, stem, topic, values
from cuebook.records.expression import Expression


class Own(NamedTuple):
    """One thing of the speaker's, what it is, of which kind ("bus" of a bus line), and where it is said."""

    slot: str
    value: frozenset[str]
    text: str
    kind: frozenset[str]


class Price(NamedTuple):
    """What one of a thing costs: the stems of the thing, and the amount."""

    thing: frozenset[str]
    amount: Value


_TIME: Final = r"\d{1,2}(?:[:.]\d\d)?(?: ?[ap]\.?m\b\.?)?"
#: When one does what one does every day. On one day of the week it may be otherwise.
_START: Final = Expression(
    rf"(?:^|[,;:.] |\b(?:i|i'm|i’m)(?: \w+){{0,2}}? )(?P<what>start|finish|get up|wake up|clock in|clock off|"
    rf"leave home|"
    rf"go to bed)(?:ing|s)?(?: work)? at (?P<time>{_TIME})(?! on (?:mon|tue|wed|thu|fri|sat|sun))",
    re.IGNORECASE,
)
_SHIFT: Final = Expression(
    r"\b(?:i'm|i’m|i am|i work|i do|i've got|we're|we’re|we work)(?: now| back)? (?:on )?(?:the |"
    r"a )?(?:(?P<shift>early|"
    r"late|night|day|morning|evening|middle) shifts?|(?<=on )(?P<these>nights|days|earlies|lates|mornings|evenings))\b"
    r"|\bmy shift(?:'s|’s| is)(?: now)? (?:the |an? )?(?P<which>early|late|night|day|morning|evening|middle)\b",
    re.IGNORECASE,
)
_MARK: Final = (
    r"(?:the |a |an )?(?:number |no\.? |nr\.? |room |#)?(?P<{}>(?=[\w.]*\d)[\w.]*\w)(?! ?(?:%|[ap]\.?m\b|[a-z]))"
)
#: "My bus line is the 53", "New line for me from Monday: the 81".
_MINE: Final = Expression(
    rf"\b(?:my|our) (?P<thing>(?:[a-z-]+ ){{0,2}}[a-z-]+)(?:'s|’s| is| was)(?: now)? {_MARK.format('value')}"
    rf"|(?:^|[.!?] )(?:an? |the )?new (?P<new>(?:[a-z-]+ ){{0,2}}?[a-z-]+) (?:for (?:me|us)|of mine|of ours)\b"
    rf"[^:.!?]{{0,40}}: {_MARK.format('value2')}",
    re.IGNORECASE,
)
#: What one works with: "I draw everything in Vectorworks".
_TOOL: Final = Expression(
    r"\b(?i:i|we)(?: (?:now|always|mostly|only|usually))? (?P<verb>deploy|host|build|test|log|track|store|write|design|"
    r"edit|ship|code|draw|record|chat|plan|invoice|bill|monitor|shop|bank|train|read)(?: (?:everything|it all|"
    r"all (?:our|"
    r"my) [\w-]+|our [\w-]+|my [\w-]+))?(?: now)? (?:with|on|in|using|via|through|at) "
    r"(?P<tool>[A-ZÀ-Þ][\w.+-]*(?: [A-ZÀ-Þ][\w.+-]*)*)"
)
_UNIT: Final = r"(?:each|apiece|a piece|per [a-z]+|an? (?!month\b|week\b|year\b|day\b|night\b|hour\b)[a-z]+)"
_AMOUNT: Final = (
    r"(?:[$€£]\s?\d[\d.,]*\d|[$€£]\s?\d|\d[\d.,]*(?:\s?[€£$]|"
    r"\s(?:euros?|dollars?|pounds?|francs?|crowns?|eur|usd|gbp|chf)\b))"
)
#: What one of a thing costs now: "a jar of honey costs 8.25 euros".
_COSTS: Final = Expression(
    rf"\b(?:an?|the|one|each) (?P<thing>(?:[a-z-]+ ){{0,3}}?[a-z-]+)(?: now)? (?:costs?|is|are|goes for|go for|"
    rf"sells? for|"
    rf"comes? to)(?: now| only)? (?P<amount>{_AMOUNT})",
    re.IGNORECASE,
)
_EACH: Final = Expression(rf"\b(?:costs?|price|charge)\b|{_AMOUNT} {_UNIT}\b", re.IGNORECASE)


def owned(text: str) -> Iterator[Own]:
    """Give what a text says of the speaker's own routine and things."""
    digits = any(map(str.isdigit, text))
    for match in _START.finditer(text) if digits else ():
        what = stem(match["what"].split()[0])
        yield Own(
            f"own {what}", frozenset({match["time"].lower().replace(".", ":")}), match[0].strip(" ,;:"), frozenset()
        )
    for match in _SHIFT.finditer(text):
        which = match["shift"] or match["these"] or match["which"]
        yield Own("own shift", frozenset({_SHIFTS.get(which.lower(), which.lower())}), match[0], frozenset())
    for match in _TOOL.finditer(text):
        yield Own(f"own {stem(match['verb'])}", frozenset({match["tool"].lower()}), match[0], frozenset())
    for match in _MINE.finditer(text) if digits else ():
        *kind, thing = WORD.findall(match["thing"] or match["new"])
        value = (match["value"] or match["value2"]).lower()
        yield Own(f"own {stem(thing)}", frozenset({value}), match[0], topic(" ".join(kind)) - {"new"})


_SHIFTS: Final = {
    "nights": "night",
    "days": "day",
    "earlies": "early",
    "lates": "late",
    "mornings": "morning",
    "evenings": "evening",
}


def clues_of(what: str) -> frozenset[str]:
    """Give the words one of which stands in every text that says `own {what}`."""
    return frozenset({"shift", *_SHIFTS, *_SHIFTS.values()}) if what == "shift" else frozenset({what})


def prices(text: str) -> Iterator[Price]:
    """Give what a text says one of a thing costs."""
    for match in _COSTS.finditer(text) if any(map(str.isdigit, text)) else ():
        amounts = [value for value in values(match["amount"]) if value[0] == "money"]
        thing = topic(match["thing"])
        if thing and amounts:
            yield Price(thing, amounts[0])


def per_unit(text: str) -> bool:
    """Tell whether a text gives the price of one of a thing, not what was paid once."""
    return bool(_EACH.search(text))
