"""When a score is called good or bad."""

from typing import Final

from cuebook.records.mind import Polarity

#: From which score on a text is positive, and below whose negative it is negative (VADER's own).
POLAR: Final = 0.05


def polarity_of(score: float, polar: float = POLAR) -> Polarity:
    """Name the polarity of a score in -1..1 that was read."""
    if score >= polar:
        return "positive"
    return "negative" if score <= -polar else "neutral"
