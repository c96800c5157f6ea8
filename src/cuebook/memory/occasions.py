"""What happened once, and which of several things of a kind a clause is about: two lunches, two rooms, two cousins."""

import re
from typing import Final

from cuebook.memory.slots import WORD, stem
from cuebook.records.expression import Expression, lowered

#: What somebody did, had or paid, on its own day: another day's is another.
_ONCE: Final = Expression(
    r"\b(?:i|we|he|she|they|[A-ZÀ-Þ][\w-]+)(?: (?:only|also|just|then|already|both))? (?:paid|bought|"
    r"spent|ate|had|ran|swam|"
    r"walked|cycled|drove|went|saw|met|earned|sold|got|won|lost|took|gave|wrote|read|slept|drank|cooked|visited|called|"
    r"rang|rode|flew|hiked|lifted|scored|baked|picked|planted|worked|watched|made|did)\b",
    re.IGNORECASE,
)
#: A thing with its number or mark, before anything is said of it: "room 12 costs", "my cousin Nr12 lives", "on day 12".
_LABEL: Final = Expression(
    r"^(?:(?:and|but|on|in|at|for|the|my|our|his|her|their|a|an|mr|mrs|ms|of|from|only)\.? |"
    r"[\w-]+['’]s )*(?:[\w-]+ ){0,2}?"
    r"(?P<thing>[a-z]{2,}),? (?:nr\.? ?|no\.? ?|number |#)?(?P<mark>[A-Za-z]{0,12}\d[\w-]*)\b(?! ?(?:%|[ap]\.?m\b))",
    re.IGNORECASE,
)
#: One day of something that comes again, and how it is said that it does.
_ONE_DAY: Final = Expression(
    r"\b(?:(?:this|next|last) (?:week|weekend|(?:mon|tues|wednes|thurs|fri|satur|sun)day)|today|tonight|tomorrow|"
    r"this (?:morning|afternoon|evening|time))\b"
)
_DAYS_OWN: Final = Expression(r"\bthe (mon|tues|wednes|thurs|fri|satur|sun)day [a-z]")
_OFF: Final = Expression(r"\b(?:cancel\w*|called off|off|dropped|skipped|skipping)\b")
_HABIT: Final = Expression(
    r"\b(?:every|each|weekly|daily|usually|always|(?:mon|tues|wednes|thurs|fri|satur|sun)days|(?:week|"
    r"evening|morning)s)\b|^(?:i|we) (?:take|ride|catch|play|do|use|attend|watch|go to) "
)
_NO_THING: Final = frozenset(
    "is are was were costs cost at by from to until till before after about around for in on of only and "
    "or than paid has "
    "have had will be now january february march april may june july august september october november december".split()
)


def once(clause: str) -> bool:
    """Tell whether a clause tells what somebody did on one occasion."""
    return bool(_ONCE.search(clause))


def one_of_many(new: str, old: str) -> bool:
    """Tell whether a clause calls off a single day of what an older one tells of every week: this Saturday's game."""
    lower = lowered(new)
    if not (_OFF.search(lower) and _HABIT.search(lowered(old))) or _HABIT.search(lower):
        return False
    day = _DAYS_OWN.search(lower)
    return bool(_ONE_DAY.search(lower) or (day and day[1] not in lowered(old)))


def other_label(new: str, old: str) -> bool:
    """Tell whether two clauses begin with another one of the same kind of thing each: room 12, room 14."""
    one, two = _label(new), _label(old)
    return bool(one[0] and two[0]) and one[0] == two[0] and one[1] != two[1]


def _label(clause: str) -> tuple[str, str]:
    match = _LABEL.match(clause)
    if match is None or match["thing"].lower() in _NO_THING or _measured(clause, match):
        return ("", "")
    return stem(match["thing"]), match["mark"].lower()


def _measured(clause: str, match: re.Match[str]) -> bool:
    """Tell whether the number only counts what follows: "we keep 12 hens"."""
    after = WORD.match(clause[match.end() :].lstrip())
    plain = match["mark"].isdigit()
    return (
        plain and after is not None and after[0].lower() in {"euro", "euros", "kg", "km", "people", "times", "percent"}
    )
