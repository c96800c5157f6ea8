"""Score a post's relevance: a standing part from its words and role, and a recency part from its age (C, "Relevance
Scoring").

Scores are integers from 0 to 100 (hundredths): 0.3 as a sum of tenths in floating point is not 0.3. The standing part
is computed once, when a post is added. Recency allows only three scores per post. They are stored in order of time, so
all scores at a given time are three concatenated slices, and no post is processed again.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from cuebook.records.conversation import TOOL
from cuebook.records.expression import Expression, lowered

#: BrowserOS's code starts at a stored 1.0, so "ok" never falls below its own threshold.
BASE: Final = 50
HOUR_S: Final = 3600.0
DAY_S: Final = 86_400.0
#: Recency points: within the last hour, the last day, and older.
_RECENT: Final = (20, 10, -10)
_SHORT_CHARACTERS: Final = 20
_SHORT: Final = -20
_EMPTY: Final = -30
_ROLES: Final = {"system": 10, TOOL: 15}
#: A text gets the points once if it contains one of the words.
_SIGNALS: Final = (
    (15, ("error", "failed")),
    (10, ("http://", "https://")),
    (10, ("selector", "xpath")),
    (20, ("password", "credential")),
    (15, ("important", "critical")),
)
_NOTHING_SAID = Expression(r"\s*(?:ok|yes|no|sure|thanks|hi|hello)\b")


def standing(text: str, role: str) -> int:
    """Return a post's score without its age, in hundredths; -70 to 145."""
    low = lowered(text)
    points = BASE + _ROLES.get(role, 0)
    points += sum(given for given, words in _SIGNALS if any(word in low for word in words))
    points += _SHORT if len(text) < _SHORT_CHARACTERS else 0
    return points + (_EMPTY if _NOTHING_SAID.match(low) else 0)


def recency(age_s: float) -> int:
    """Return the points for a post's age, in hundredths; a post from the future counts as new."""
    return _RECENT[0] if age_s <= HOUR_S else _RECENT[1] if age_s <= DAY_S else _RECENT[2]


def clamped(points: int) -> int:
    """Return a score clamped to 0..100."""
    return min(100, max(0, points))


class Scores:
    """The scores of a conversation's posts, ordered by time (posts of the same time in the order of arrival)."""

    def __init__(self) -> None:
        self.numbers = array("q")  # the number of each post
        self._times = array("d")
        self._by_age = (bytearray(), bytearray(), bytearray())

    def __len__(self) -> int:
        return len(self.numbers)

    def add(self, number: int, *, when: float, points: int) -> None:
        """Add a post with its standing part. O(1) if it is the newest, as posts usually are."""
        at = len(self._times)
        if at and when < self._times[-1]:
            at = bisect_right(self._times, when)
        self.numbers.insert(at, number)
        self._times.insert(at, when)
        for scores, given in zip(self._by_age, _RECENT, strict=True):
            scores.insert(at, clamped(points + given))

    def at(self, now: float) -> bytes:
        """Return every post's score at a time, in the order of `numbers`."""
        day = bisect_left(self._times, now - DAY_S)
        hour = bisect_left(self._times, now - HOUR_S)
        new, recent, old = self._by_age
        return bytes(memoryview(old)[:day]) + memoryview(recent)[day:hour] + memoryview(new)[hour:]

    def by_number(self, now: float) -> Sequence[int]:
        """Return the scores by number, if the numbers are 0, 1, 2 and so on."""
        found = bytearray(len(self))
        for number, score in zip(self.numbers, self.at(now), strict=True):
            found[number] = score
        return found


def at_least(scores: bytes, least: int) -> int:
    """Count the scores that reach a threshold, in hundredths."""
    return sum(scores.count(score) for score in range(max(0, least), 101))
