"""Classify a message's task by rules: coding, planning, casual, crisis or reflection (B, "Context Signals").

Each sign of a task adds weight; the heaviest task wins if it reaches `ENOUGH`. A crisis takes precedence. If no rule
matches, the task with the nearest example embeddings wins: the mean of its example vectors stands for a task. Only
rules report a crisis, because "the market is down" is close to an outage.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final

from cuebook.languages import english, english_expression, english_words
from cuebook.records.expression import Expression, lowered

TASKS: Final = ("coding", "planning", "casual", "crisis", "reflection")
ENOUGH: Final = 1.0
#: Characters of a message that are searched.
LOOKED_AT: Final = 2_000
#: Maximum counted signs of a kind.
MOST: Final = 4
#: A casual message is a short one.
_SHORT: Final = 120
#: Parts of an embedder's `akin`: the minimum cosine with a task, and the minimum lead over every other task.
LEAST: Final = 0.6
AHEAD: Final = 0.2
#: Tasks that embeddings may report.
TOLD: Final = ("coding", "planning", "casual", "reflection")

_WORD: Final = Expression(r"[^\W_](?:[^\W_]|[+#'-])*")
_pattern = partial(english_expression, "tasks")
_CRISIS: Final = _pattern("crisis")
_URGENT: Final = _pattern("urgent")
_FICTION: Final = _pattern("fiction")
_CODE: Final = _pattern("code")
_CASUAL: Final = _pattern("casual")
_PHRASES: Final = {name: _pattern(name) for name in ("coding", "planning", "reflection")}


def is_crisis(text: str, low: str, words: AbstractSet[str]) -> bool:
    """Return whether a message is about an emergency; `low` is its lower-case text, `words` the words of that."""
    urgent = not words.isdisjoint(_words("trouble_words")) and _URGENT.search(text) is not None
    if not urgent and (words.isdisjoint(_words("crisis_words")) or not _CRISIS.search(low)):
        return False
    return not _FICTION.search(low)


def task_in(text: str) -> str:
    """Return the task of a message, "" if none stands out. `text` is the whole message with its code."""
    text = text[:LOOKED_AT].replace("\u2019", "'").strip()
    low = lowered(text)
    words = {word.rstrip("'-") for word in _WORD.findall(low)}
    if is_crisis(text, low, words):
        return "crisis"
    weights = {
        "coding": (_CODE.search(text) is not None)
        + len(words & _words("coding_words"))
        + _count("coding", low, words)
        + 0.5 * min(len(words & _words("coding_slight")), MOST),
        "reflection": 1.5 * _count("reflection", low, words),
        "planning": 1.25 * _count("planning", low, words) + 0.4 * min(len(words & _words("planning_slight")), 2),
        "casual": (1.0 if len(text) <= _SHORT else 0.5) * (len(text) <= 2 * _SHORT and _CASUAL.search(low) is not None),
    }
    best = max(weights, key=lambda task: weights[task])
    return best if weights[best] >= ENOUGH else ""


def _count(task: str, low: str, words: AbstractSet[str]) -> int:
    """Return the number of different phrases of a task. Each contains a hint: without any, the search is skipped."""
    if words.isdisjoint(_words(f"{task}_hints")):
        return 0
    return min(len({match[0] for match in _PHRASES[task].finditer(low)}), MOST)


def _words(name: str) -> frozenset[str]:
    return english_words("tasks", name)


def examples() -> Mapping[str, Sequence[str]]:
    """Return the example messages of each task; of "" those of no task."""
    return dict(english("tasks")["examples"])


def nearest(cosines: Mapping[str, float], *, akin: float) -> str:
    """Return the task nearest to a message, by its cosines with the examples of each; "" if none stands out."""
    first, second = sorted(cosines, key=lambda task: cosines[task], reverse=True)[:2]
    clear = cosines[first] >= LEAST * akin and cosines[first] - cosines[second] >= AHEAD * akin
    return first if clear and first in TOLD else ""
