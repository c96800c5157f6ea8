"""Compute the ten context signals that select prompt variants, each 0..1 (B, "Context Signals"; docs/design/013).

`user_pleased` and `sentiment_high` are two names of the sentiment, 0.5 if neutral; `user_frustrated` is its inverse. A
signal that cannot be computed is missing: 0 would mean no.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import mul
from typing import Final

from cuebook.languages import english_expression, english_words
from cuebook.records.expression import Expression
from cuebook.records.mind import Counters, Sentiment
from cuebook.signals.tasks import TASKS

#: The weight of a message's score relative to the next newer one.
FADES: Final = 0.5
#: Number of corrections that counts as many, and how many of the newest messages are examined.
MANY: Final = 2
AMONG: Final = 4
#: Messages after which an unnamed task has ended, and its value until then.
LASTS: Final = 3
FOLLOWS: Final = 0.5
#: Cosines, as parts of an embedder's `akin`, between a message and the mean of the previous ones: from the first its
#: topic is the same, below the second another. Measured: docs/design/013.
NEAR, FAR = 0.5, 0.1
#: The weight of a topic change in a message that continues with words like "and" or "it",
DOUBTED: Final = 0.6
#: and of a topic change seen by words alone, without an embedder.
WORDS_ALONE: Final = 0.4
#: Minimum content words of a message for either.
LEAST, CONTENT = 2, 3
#: Seconds between two messages of a quick user, and of one who is not slow.
QUICK, BRISK = 15.0, 60.0

_SHIFTS: Final = english_expression("messages", "shifts", re.IGNORECASE)
_GOES_ON: Final = english_expression("messages", "goes_on", re.IGNORECASE)
#: Characters of a message whose words are compared: its topic comes before pasted text.
READ: Final = 10_000
_WORD: Final = Expression(r"[^\W\d_]{3,}|\d{2,}")
_SHOUT: Final = Expression(r"\b[A-Z]{3,}\b")
_LONG_DRAWN: Final = Expression(r"([a-z])\1{2,}", re.IGNORECASE)


def signals_of(
    text: str,
    sentiment: Sentiment,
    counters: Counters,
    *,
    before: Counters,
    drift: float | None,
) -> Mapping[str, float]:
    """Return a message's signals; `counters` include it, `before` does not. `drift` is 0..1, None if unknown."""
    results: dict[str, float] = {}
    if counters.scores:
        weights = [FADES**age for age in range(len(counters.scores) - 1, -1, -1)]
        mean = sum(map(mul, weights, counters.scores)) / sum(weights)
        pleased = min(max((mean + 1.0) / 2.0, 0.0), 1.0)
        results |= {"user_pleased": pleased, "sentiment_high": pleased, "user_frustrated": 1.0 - pleased}
    results["correction_rate_high"] = min(sum(map(bool, counters.corrected)) / MANY, 1.0)
    results["topic_shift_high"] = 1.0 if _SHIFTS.search(text) else drift or 0.0
    results["energy_high"] = _energy(text, sentiment, counters, before)
    weight = 1.0 if counters.task_age == 0 else FOLLOWS
    results |= {f"task_{task}": weight if task == counters.task else 0.0 for task in TASKS}
    return {name: round(value, 3) + 0.0 for name, value in results.items()}


def goes_on(text: str) -> bool:
    """Return whether a message continues the previous one, with words like "and" or "it" or hardly any words."""
    return len(set(stems(text))) < CONTENT or _GOES_ON.search(text[:READ]) is not None


def drift_by_meaning(text: str, cosine: float, *, akin: float) -> float:
    """Return how far a message's topic is from that of the previous ones, 0..1, by the cosine with their mean."""
    if len(set(stems(text))) < LEAST:
        return 0.0
    far = min(max((NEAR * akin - cosine) / ((NEAR - FAR) * akin), 0.0), 1.0)
    return round(far * (DOUBTED if goes_on(text) else 1.0), 3)


def drift_by_words(content: str, earlier: Sequence[str]) -> float:
    """Return how far a message's words are from those of earlier ones, 0..`WORDS_ALONE`.

    0 for the first message, for short messages, and for those that continue with words like "and" or "it".
    """
    own = set(stems(content))
    if not earlier or goes_on(content):
        return 0.0
    known = {stem for text in earlier for stem in stems(text)}
    if not known:
        return 0.0
    return round(WORDS_ALONE * (1.0 - min(2.0 * len(own & known) / len(own), 1.0)), 3)


def stems(text: str) -> Iterable[str]:
    """Return the first letters of a text's content words: "deploy" and "deployment" are equal. O(1): READ at most."""
    little = english_words("messages", "little_words")
    return (word[:5] for word in map(str.lower, _WORD.findall(text[:READ])) if word not in little)


def _energy(text: str, sentiment: Sentiment, counters: Counters, before: Counters) -> float:
    """Return the energy: two fifths punctuation, a fifth each of capitals and drawn-out words, intensity, and pace and
    length.
    """
    marks = min(text.count("!") / 3 + min(text.count("??"), 1) / 2, 1.0)
    loud = min(len(_SHOUT.findall(text)) / max(len(text.split()), 1) * 2 + 0.5 * bool(_LONG_DRAWN.search(text)), 1.0)
    gap = counters.at - before.at if before.at else BRISK
    pace = 1.0 if gap < QUICK else 0.5 if gap < BRISK else 0.0
    usual = sum(before.lengths) / len(before.lengths) if before.lengths else 0.0
    longer = 1.0 if usual and len(text) > 2 * usual and len(text) > 80 else 0.0
    return 0.4 * marks + 0.2 * loud + 0.2 * sentiment.intensity + 0.1 * pace + 0.1 * longer
