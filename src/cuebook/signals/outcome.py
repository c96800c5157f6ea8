"""Detect feedback about the previous turn from the user's next message: satisfaction, corrections, task success.

Task success is read from plain statements about the answer ("that works now", "still fails", "works, but"), or else
from the turn's tool results if the last one failed. Nothing is guessed: a message without such a statement gives
`unknown`, and an unreadable message gives nothing. Questions, conditions and quoted or printed text are no statements.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from cuebook.languages import english_expression
from cuebook.records.expression import Expression
from cuebook.records.mind import TurnSignals
from cuebook.records.prompt import Outcome, TaskOutcome
from cuebook.signals.machine_text import spoken

#: Maximum sentences that are read: a message rates the answer before it moves on.
SENTENCES: Final = 6
#: Maximum characters of a sentence that are read.
LONGEST: Final = 240
#: Maximum characters of a reason.
REASON: Final = 60
#: The sentiment if only that is unknown.
NEUTRAL: Final = 0.5

_SENTENCE: Final = Expression(r"(?<=[.!?\u2026;])\s+|\n+")
_pattern = partial(english_expression, "outcome", flags=re.IGNORECASE)
_LIKELY: Final = _pattern("likely")
_SUPPOSED: Final = _pattern("supposed")
_STATEMENTS: Final[Mapping[TaskOutcome, Expression]] = {
    "partial": _pattern("partial"),
    "failure": _pattern("failure"),
    "success": _pattern("success"),
}


def word_on(turn_signals: TurnSignals, text: str, *, results: Sequence[bool] = ()) -> Outcome | None:
    """Return a message's feedback about the previous turn, without time and score; None if it has none.

    `results` are whether each of that turn's tool results failed, oldest first. If the sentiment is unknown, as in an
    unsupported language, only corrections and statements count.
    """
    task, reasons = task_outcome(text, results=results)
    readable = turn_signals.sentiment.polarity != "unknown"
    if not (readable or turn_signals.corrections or task != "unknown"):
        return None
    sentiment = (min(max(turn_signals.sentiment.score, -1.0), 1.0) + 1.0) / 2.0 if readable else NEUTRAL
    return Outcome(
        by="next", at=0.0, sentiment=sentiment, corrections=turn_signals.corrections, task=task, reasons=reasons
    )


def task_outcome(text: str, *, results: Sequence[bool] = ()) -> tuple[TaskOutcome, tuple[str, ...]]:
    """Return the outcome of the previous turn's task, and the evidence."""
    content = spoken(text).replace("\u2019", "'")
    matches: dict[TaskOutcome, str] = {}
    for whole in [each.strip() for each in _SENTENCE.split(content) if each.strip()][:SENTENCES]:
        sentence = whole[:LONGEST]
        if whole.endswith("?") or _LIKELY.search(sentence) is None or _SUPPOSED.search(sentence):
            continue
        stated = _stated(sentence)
        if stated is not None:
            matches.setdefault(stated[0], stated[1])
    if matches:
        return next(iter(matches)) if len(matches) == 1 else "partial", tuple(matches.values())
    if results and results[-1]:
        count = sum(results)
        reason = f"{count} of {len(results)} tool results were errors, the last one too"
        return "failure" if count == len(results) else "partial", (reason,)
    return "unknown", ()


def _stated(sentence: str) -> tuple[TaskOutcome, str] | None:
    """Return the outcome that a sentence states, and the words that state it; the rest is not stored."""
    for task, expression in _STATEMENTS.items():
        if (match := expression.search(sentence)) is not None:
            return task, f'"{match[0].strip()[:REASON]}"'
    return None
