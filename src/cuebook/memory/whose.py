"""Whom a clause speaks of and where, as stems: what is of others, or of another place, is another fact."""

import re
from typing import Final

from cuebook.memory.signs import RELATION
from cuebook.memory.slots import WORD, stem
from cuebook.memory.vocabulary import STOP
from cuebook.records.expression import Expression

_LEAD: Final = (
    r"(?:(?:and|but|so|then|well|sadly|unfortunately|yesterday|today|actually|btw|also|it turns out|turns out|"
    r"please|that|last \w+|this \w+|on \w+day),? )*"
)
_KIN: Final = Expression(
    rf"^{_LEAD}(?P<owner>my|our|his|her|their|the|"
    rf"[\w-]+['’]s) (?P<kin>(?:[\w-]+ )?{RELATION})(?:['’]s (?P<of>[\w-]+))?\b"
    rf"(?P<name>(?:,? (?-i:[A-ZÀ-Þ])[\w-]+)?)(?! and (?:i|me)\b)",
    re.IGNORECASE,
)
_NAMED: Final = Expression(
    rf"^(?i:{_LEAD})(?P<name>[A-ZÀ-Þ][\w-]+(?: [A-ZÀ-Þ][\w-]+)?)(?:['’]s (?i:(?P<kin>(?:\w+ )?{RELATION})))?"
    r"(?: and [A-ZÀ-Þ][\w-]+)? "
    r"(?i:(?:(?:is|was|has|doesn['’]t|does|isn['’]t|can['’]t|cannot|won['’]t|no longer|quit|left|stopped|lives?|works?|"
    r"plays?|likes?|loves?|hates?|sold|moved|gave|lost|got|broke|split|eats?|drinks?|takes?|uses?|studies|are|were)\b))"
)
_HE: Final = Expression(rf"^(?:{_LEAD})(?:he|she|they|it|his|her|their)\b", re.IGNORECASE)
_NOBODY: Final = frozenset("I You We It The This That There What Please Always Never My Our".split())
_WHERE: Final = Expression(r"\b(?:to|in|at|from|of|near) (?:the )?([A-ZÀ-Þ][\w’'-]+)")
_SELF: Final = Expression(rf"^{_LEAD}(?:i|we)\b", re.IGNORECASE)
_CALLED: Final = Expression(rf"\b((?i:{RELATION})),? ([A-ZÀ-Þ][\w-]+)")
_SOLD: Final = Expression(r"\bsold (?P<what>(?!(?:my|our|the)\b)[^,.;:!?]*?) (?:from|at|in|out of) ", re.IGNORECASE)
_OWNERS: Final = frozenset("my our his her their the hi".split())


def whose(clause: str) -> frozenset[str]:
    """Give whom a clause speaks of, as stems: empty for the speaker, and for what is nobody."""
    match = _KIN.match(clause)
    if match:
        return frozenset(stem(word) for part in match.groups() if part for word in WORD.findall(part)) - _OWNERS
    match = _NAMED.match(clause)
    if match and match["name"].split()[0] not in _NOBODY and match["name"].split()[0].lower() not in STOP:
        return frozenset(stem(word) for part in match.groups() if part for word in WORD.findall(part))
    return frozenset({"?"}) if _HE.match(clause) else frozenset()


def apart(new: str, old: str) -> bool:
    """Tell whether two clauses speak of different people: one of somebody whom the other does not name."""
    one, two = whose(new), whose(old)
    if "?" in one or "?" in two or one == two:
        return False
    if two and not one and not _SELF.match(new):
        return False
    return not one & _stems(old) and not two & _stems(new)


def elsewhere(new: str, old: str) -> bool:
    """Tell whether two clauses of one thing are of two places or names: a trip to Rome, a trip to Paris."""
    one, two = ({name.lower() for name in _WHERE.findall(text)} for text in (new, old))
    return bool(one and two) and not one & two


def places(clause: str) -> frozenset[str]:
    """Give the stems of the names that only say where or whither: of "the meeting in Assen" the town."""
    return frozenset(map(stem, _WHERE.findall(clause)))


def beyond(clause: str, common: frozenset[str]) -> bool:
    """Tell whether what two clauses share is only what the thing sold was sold from: waffles from a truck."""
    match = _SOLD.search(clause)
    return match is not None and not common & _stems(match["what"])


def other_people(new: str, old: str) -> bool:
    """Tell whether two clauses name two of one kind of kin: my cousin Piet, my cousin Klaas."""
    one, two = whose(new), whose(old)
    if one & two and one - two and two - one:
        return True
    mine, theirs = ({match[1].lower(): match[2] for match in _CALLED.finditer(text)} for text in (new, old))
    return any(mine[kin] != theirs[kin] for kin in mine.keys() & theirs.keys())


def _stems(text: str) -> frozenset[str]:
    return frozenset(map(stem, WORD.findall(text)))
