"""Detect feedback about the previous turn from the user's next message: satisfaction, corrections, task success.

Task success is read from plain statements about the answer ("that works now", "still fails", "works, but"), or else
from the turn's tool results if the last one failed. Nothing is guessed: a message without such a statement gives
`unknown`, and an unreadable message gives nothing. Questions, conditions and quoted or printed text are no statements.
"""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from cuebook.records.expression import Expression
from cuebook.records.mind import TurnSignals
from cuebook.records.prompt import TaskOutcome
from cuebook.signals.user_text import spoken

#: Maximum sentences that are read: a message rates the answer before it moves on.
SENTENCES: Final = 6
#: Maximum characters of a sentence that are read.
LONGEST: Final = 240
#: Maximum characters of a reason.
REASON: Final = 60
#: The sentiment if only that is unknown.
NEUTRAL: Final = 0.5

_SENTENCE: Final = Expression(r"(?<=[.!?\u2026;])\s+|\n+")
#: Every statement contains one of these; most sentences are skipped at once.
_LIKELY: Final = Expression(
    r"work|run|ran|pass|compil|solv|fix|help|fail|crash|br(?:eak|oke)|same|luck|chang|wors|persist|trick|gone|green|nail"
    r"|did it|there|done|err|hang|throw|success|effect|back|remain",
    re.IGNORECASE,
)
_ASKS: Final = (
    r"if|whether|when|once|until|unless|suppose|imagine|make sure|ensure|check|does|do|did|will|would|could|can|should|"
    r"is|are|was|how|why|what|which|who|where|let me know|tell me|please|i'?ll|i will|let'?s|let me|i hope|hopefully|"
    r"i wish|i want|i need|i'?d like"
)
#: Questions, wishes and suppositions, which state nothing.
_SUPPOSED: Final = Expression(
    rf"^(?:\W*(?:and|but|so|ok|okay|hm+),? )*(?:{_ASKS})\b"
    r"|\b(?:should|would|could|might|must|may|will|won't|want|need|hope|expect|wish)\w* (?:\w+ )?"
    r"(?:it|that|this|be|work|run|pass|help|to)\b|\bif (?:it|this|that)\b",
    re.IGNORECASE,
)
_THING: Final = (
    r"(?:fix|solution|code|answer|suggestion|script|change|version|approach|command|patch|query|trick|advice|tip|"
    r"snippet|function|regex|formula|example|steps|one|tests?|build)"
)
_IT: Final = rf"(?:it|that|this|everything|all|(?:your|the) (?:\w+ )?{_THING})"
_OPENS: Final = (
    r"^(?:\W*(?:yes|yep|yeah|yay|ok(?:ay)?|great|perfect|thanks|thank you|cool|nice|awesome|wow|hm+|no|nope|sorry|oh|"
    r"well|and|but|now|sadly|unfortunately),?!? )*"
)
_NOW: Final = r"(?:(?:is|are|was|has|have|seems to|now|finally|just|actually|all|both|really|already|also|still) |'s )*"
_DOES: Final = (
    r"(?:works?|worked|working|runs|ran|compiles|compiled|pass|passes|passed|passing|solved|fixed|resolved|helped|"
    r"did (?:it|the trick|the job)|done the trick|does the trick|does the job)"
)
_WELL: Final = (
    r"(?: (?:now|perfectly|great|fine|well|like a charm|as expected|for me|again|beautifully|flawlessly|nicely|it|this|"
    r"that|my \w+|the \w+)|[.!,\s]*$)"
)
_SUCCEEDED: Final = Expression(
    rf"{_OPENS}{_IT} ?{_NOW}{_DOES}\b(?! (?:if|when|only|on my other|as a|for a|in a|at a|with a))"
    rf"|{_OPENS}(?:works|worked|working|runs|solved|fixed|resolved){_WELL}"
    r"|\b(?:problem|issue|bug|error) (?:is |was |has been )?(?:now )?(?:solved|fixed|resolved|gone)\b"
    r"|\ball (?:the |my |of the )?tests (?:are |now )*(?:pass|passing|green)\b"
    r"|\byou(?:'ve| have)? (?:just )?(?:fixed|solved|nailed) (?:it|that|this)\b"
    r"|\b(?:got|have) it (?:working|running|to work)\b|\bit(?:'s| is) (?:now )?(?:working|running|fixed|solved)\b",
    re.IGNORECASE,
)
_HELPS: Final = (
    r"(?:work|worked|working|help|helped|fix|fixed|solve|solved|run|running|compile|compiling|pass|passing|"
    r"change anything|do anything|do the trick)"
)
_FAILED: Final = Expression(
    rf"{_OPENS}(?:{_IT} )?(?:(?:just|simply|still|again|also|now|unfortunately|sadly) )*(?:does|do|did|has|is|was|are)"
    rf"(?: not|n't|nt) (?:(?:really|actually|even|quite|seem to|yet|either) )*{_HELPS}\b"
    rf"|{_OPENS}(?:{_IT} )?(?:still|again|just|keeps?|now) "
    r"(?:fail|crash|break|throw|gives? (?:me )?(?:an |the same )?error|error)\w*\b"
    rf"|{_OPENS}{_IT}(?:'s)? (?:(?:is|still|just|again|now|also) )*"
    r"(?:fails|failed|crashes|crashed|breaks|broke|broken|throws|errors out|hangs)\b"
    rf"|{_OPENS}(?:still |again |it'?s |i(?:'m| am)? )*(?:getting |get |got |see |seeing )?(?:still )?(?:the )?"
    r"(?:exact(?:ly)? )?same (?:error|problem|issue|result|failure|exception|crash|mistake)\b"
    rf"|{_OPENS}(?:still (?:not (?:working|fixed|solved)|broken|failing|failed|nothing|no luck|crashing)|no luck"
    r"|not (?:working|fixed|solved)|nothing changed|no (?:change|effect|success))\b"
    r"|\b(?:it|that|this|you) (?:has |have )?(?:only |just |even )?(?:made|makes) (?:it|things|everything) worse\b"
    r"|\b(?:problem|issue|bug|error) "
    r"(?:is still there|still (?:exists|persists|there|happens|remains)|persists|remains|is back)\b",
    re.IGNORECASE,
)
_IN_PART: Final = Expression(
    rf"{_OPENS}(?:{_IT} ?{_NOW})?(?:almost|partly|partially|mostly|half|kind of|sort of|nearly|somewhat) "
    r"(?:works?|worked|working|there|fixed|solved|done|right|helped|runs|passes)\b"
    r"|\b(?:works?|worked|working|fixed|solved|runs|passes|helped)\b[^.!?]{0,40}?[,;]? "
    r"(?:but|except|though|although|however|only (?:when|if|for|on|with|partly))\b"
    r"|\b(?:some|half|most|part|one|two) of (?:it|them|the \w+) "
    r"(?:works?|pass(?:es)?|is fixed|are fixed|still fails?)\b",
    re.IGNORECASE,
)


class Word(Struct, frozen=True, kw_only=True):
    """A message's feedback about the previous turn. `sentiment` is 0..1."""

    sentiment: float
    corrections: int
    task: TaskOutcome
    reasons: tuple[str, ...] = ()


def word_on(turn_signals: TurnSignals, text: str, *, results: Sequence[bool] = ()) -> Word | None:
    """Return a message's feedback about the previous turn; None if it has none.

    `results` are whether each of that turn's tool results failed, oldest first. If the sentiment is unknown, as in an
    unsupported language, only corrections and statements count.
    """
    task, reasons = task_outcome(text, results=results)
    readable = turn_signals.sentiment.polarity != "unknown"
    if not (readable or turn_signals.corrections or task != "unknown"):
        return None
    sentiment = (min(max(turn_signals.sentiment.score, -1.0), 1.0) + 1.0) / 2.0 if readable else NEUTRAL
    return Word(sentiment=sentiment, corrections=turn_signals.corrections, task=task, reasons=reasons)


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
    rules: tuple[tuple[TaskOutcome, Expression], ...] = (
        ("partial", _IN_PART),
        ("failure", _FAILED),
        ("success", _SUCCEEDED),
    )
    for task, expression in rules:
        if (match := expression.search(sentence)) is not None:
            return task, f'"{match[0].strip()[:REASON]}"'
    return None
