"""Compute a message's signals: updated counters, the events that fire now, and context signals.

Pure: the sentiment, the errors since the last message, the topic drift and the time are arguments. A message that
cannot be read (`unknown`: another language, no words) leaves the mood counters unchanged, so a run of two before it
still counts. It counts as a turn, and cool-downs continue.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from cuebook.languages import english_expression
from cuebook.records.expression import Expression, lowered
from cuebook.records.mind import Counters, Event, Sentiment, Severity, TurnSignals
from cuebook.records.persona import UNTRACKED, SentimentTracking
from cuebook.signals.context import AMONG, LASTS, signals_of
from cuebook.signals.corrections import confusion_in, corrections_in
from cuebook.signals.machine_text import spoken
from cuebook.signals.sentiment import sounds_bad
from cuebook.signals.tasks import task_in
from cuebook.signals.tone import sentences

# ---- negative words without a mood ----------------------------------------------------------------------------------


#: Maximum sentences of a message that are examined.
LOOKED_AT: Final = 6

_SENTENCE: Final = Expression(r"(?<=[.!?])\s+|\n+")
_ORDERS_ONLY: Final = english_expression("messages", "orders_only")
_ASKS_ONLY: Final = english_expression("messages", "asks_only")
_MOVED: Final = english_expression("messages", "moved")
_POINTED: Final = english_expression("messages", "pointed")
_SHOUTED: Final = Expression(r"\b[A-Z]{4,}\b[^a-z]*\b[A-Z]{2,}\b")
#: A shorter sentence is an exclamation, not a report.
REPORT: Final = 5


def _is_report(low: str) -> bool:
    """Return whether the negative words of a message refer to nobody and nothing in the conversation."""
    bad = [each for each in sentences(low) if sounds_bad(each)]
    return bool(bad) and all(len(each.split()) >= REPORT and not _POINTED.search(each) for each in bad)


def is_about_its_matter(text: str) -> bool:
    """Return whether the user's words (`spoken`) only order, ask or report something, with no sign of a mood."""
    low = lowered(text)
    if _is_report(low):
        return True
    if _MOVED.search(low) or _SHOUTED.search(text):
        return False
    parts = [each.strip() for each in _SENTENCE.split(low)[: LOOKED_AT + 1] if each.strip()]
    return 0 < len(parts) <= LOOKED_AT and all(_ORDERS_ONLY.match(each) or _ASKS_ONLY.match(each) for each in parts)


#: Number of recent messages whose lengths are stored (A).
LENGTHS: Final = 5
_NOTHING: Final = Counters()
_UNREAD: Final = Sentiment()
#: From this many words on, a message is engaged, however neutral it is.
WORDY: Final = 5
#: What people at work write, however short: a number, a version, an option, a path, a file name.
_NAMED: Final = Expression(r"\d|\w[/_=]\w|(?<!\S)--?\w|\w\.[a-z]{1,4}\b")
_ORDERS: Final = english_expression("messages", "orders")


def hear(
    text: str,
    *,
    before: Counters = _NOTHING,
    sentiment: Sentiment = _UNREAD,
    tracking: SentimentTracking = UNTRACKED,
    trace: Sequence[bool] = (),
    now: float = 0.0,
    drift: float | None = None,
    kind: str = "",
    fires: bool = True,
) -> TurnSignals:
    """Return the signals of a user's message.

    `before` are the counters before it on the path. `trace` has whether each result and reply since the message before
    failed, oldest first. `drift` is its topic's distance from earlier messages, 0..1. `kind` is the semantically
    nearest task, used if no rule finds one. `now` is Unix time. Nothing fires if the persona does not track, or with
    `fires` off. O(message), about 0.2 ms.
    """
    content = spoken(text).replace("\u2019", "'").strip()
    read = sentiment if content else _UNREAD  # an image or code alone is not silence
    if read.score < tracking.frustration_threshold and is_about_its_matter(content):
        read = replace(read, score=0.0, intensity=0.0, polarity="neutral", negatives=0)
    keywords = confusion_in(content, polarity=read.polarity) if read.polarity != "unknown" else ()
    corrections = corrections_in(content)
    counters = _counted(text, content, read, before, tracking, keywords=keywords, corrections=corrections)
    counters = replace(counters, trace=(*before.trace, *trace)[-TRACE:], news=min(len(trace), TRACE), at=now)
    counters = _of_task(task_in(text) or kind, counters, before)
    found = events_in(read, counters, keywords, tracking=tracking, new_error=any(trace))
    firing = tracking.enabled and fires
    events = tuple(each for each in found if firing and past_cooldown(each.name, counters, tracking=tracking, now=now))
    fired = {**before.fired, **{each.name: (counters.turns, now) for each in events}}
    return TurnSignals(
        sentiment=sentiment,
        counters=replace(counters, fired=fired),
        events=events,
        keywords=keywords,
        corrections=corrections,
        signals=signals_of(content, read, counters, before=before, drift=drift),
        task=counters.task if counters.task_age == 0 else "",
    )


def _counted(
    text: str,
    content: str,
    sentiment: Sentiment,
    before: Counters,
    tracking: SentimentTracking,
    *,
    keywords: tuple[str, ...],
    corrections: int,
) -> Counters:
    counters = replace(
        before,
        turns=before.turns + 1,
        lengths=(*before.lengths, len(text.strip()))[-LENGTHS:],
        corrected=(*before.corrected, corrections)[-AMONG:],
    )
    if sentiment.polarity == "unknown":
        return counters
    negative = sentiment.score < tracking.frustration_threshold
    positive = sentiment.score > tracking.satisfaction_threshold and not corrections
    neutral = not (negative or positive)
    idle = neutral and not _asks(content)
    return replace(
        counters,
        frustration=before.frustration + 1 if negative else 0,
        satisfaction=before.satisfaction + 1 if positive else 0,
        neutral=before.neutral + 1 if neutral else 0,
        idle=before.idle + 1 if idle else 0,
        confusion=before.confusion + 1 if _confused(sentiment, keywords, tracking) else 0,
        scores=(*before.scores, sentiment.score)[-max(tracking.history_window, 1) :],
    )


def _asks(text: str) -> bool:
    """Return whether a message asks or orders something, contains a sign or number, or has more than a few words."""
    if "?" in text or len(text.split(maxsplit=WORDY)) >= WORDY or _NAMED.search(text):
        return True
    return _ORDERS.match(lowered(text)) is not None


def _of_task(task: str, counters: Counters, before: Counters) -> Counters:
    """Return the counters with a message's task; a message without one keeps the last task for a while."""
    if task:
        return replace(counters, task=task, task_age=0)
    age = before.task_age + 1
    goes_on = before.task not in ("", "casual", "crisis") and age <= LASTS
    return replace(counters, task=before.task if goes_on else "", task_age=age if goes_on else 0)


# ---- events ---------------------------------------------------------------------------------------------------------

#: Intensity above which a single message is enough (A).
FRUSTRATED: Final = 0.6
SATISFIED: Final = 0.5
#: Number of negative words from which a neutral message is confused: "> 2" (A).
NEGATIVES: Final = 3
ERRORS: Final = 2
#: Window in which errors are counted (A).
TRACE: Final = 10
IDLE: Final = 4
SHORT: Final = 50


def events_in(
    sentiment: Sentiment, counters: Counters, keywords: tuple[str, ...], *, tracking: SentimentTracking, new_error: bool
) -> tuple[Event, ...]:
    """Return those of AgentOS's five events that apply now, fired lately or not. `counters` include this message.

    - `user_frustrated`: a score below the frustration threshold at an intensity above 0.6, or many such scores in a row
    - `user_confused`: a keyword of confusion, or a neutral message of three or more words that sound bad
    - `user_satisfied`: a score above the satisfaction threshold at an intensity above 0.5, or many such in a row; never
      a message that corrects
    - `error_threshold_exceeded`: two or more errors among the last ten results and replies, at least one of them new
    - `low_engagement`: four or more neutral messages in a row that neither ask nor order anything, of fewer than 50
      characters on average over the user's last five

    A message in an unsupported language triggers only errors, which do not depend on language.
    """
    events = [_errors(counters)] if new_error else []
    if sentiment.polarity != "unknown":
        events = [
            _frustrated(sentiment, counters, tracking),
            _confused(sentiment, keywords, tracking),
            _satisfied(sentiment, counters, tracking),
            *events,
            _idle(counters),
        ]
    return tuple(each for each in events if each is not None)


def past_cooldown(name: str, counters: Counters, *, tracking: SentimentTracking, now: float) -> bool:
    """Return whether an event may fire: it never fired, or both its turns and its milliseconds have passed.

    If the clock went back, the elapsed time is unknown and only the turns count.
    """
    if name not in counters.fired:
        return True
    turn, at = counters.fired[name]
    over = now < at or (now - at) * 1000 >= tracking.cooldown_ms
    return counters.turns - turn > tracking.cooldown_turns and over


def _frustrated(sentiment: Sentiment, counters: Counters, tracking: SentimentTracking) -> Event | None:
    row, score, limit = counters.frustration, sentiment.score, tracking.frustration_threshold
    strong = score < limit and sentiment.intensity > FRUSTRATED
    many = row >= tracking.consecutive_turns
    if not (strong or many):
        return None
    severity: Severity = "high" if row >= max(2, tracking.consecutive_turns) else "medium"
    return Event(name="user_frustrated", severity=severity, reason=_why(sentiment, row, f"below {limit:g}", many=many))


def _satisfied(sentiment: Sentiment, counters: Counters, tracking: SentimentTracking) -> Event | None:
    row, score, limit = counters.satisfaction, sentiment.score, tracking.satisfaction_threshold
    if counters.corrected and counters.corrected[-1]:
        return None
    strong = score > limit and sentiment.intensity > SATISFIED
    many = row >= tracking.consecutive_turns
    if not (strong or many):
        return None
    return Event(name="user_satisfied", severity="low", reason=_why(sentiment, row, f"above {limit:g}", many=many))


def _why(sentiment: Sentiment, row: int, beyond: str, *, many: bool) -> str:
    if many and row > 1:
        return f"{row} messages in a row scored {beyond}, this one {sentiment.score:.2f}"
    return f"score {sentiment.score:.2f} at intensity {sentiment.intensity:.2f}"


def _confused(sentiment: Sentiment, keywords: tuple[str, ...], tracking: SentimentTracking) -> Event | None:
    if keywords:
        text = ", ".join(f'"{each}"' for each in keywords)
        return Event(name="user_confused", reason=f"the message contains {text}")
    neutral = tracking.frustration_threshold <= sentiment.score <= tracking.satisfaction_threshold
    if neutral and sentiment.negatives >= NEGATIVES:
        reason = f"neutral with {sentiment.negatives} negative words"
        return Event(name="user_confused", severity="low", reason=reason)
    return None


def _errors(counters: Counters) -> Event | None:
    count = sum(counters.trace)
    if count < ERRORS:
        return None
    reason = f"{count} of the last {len(counters.trace)} results and replies failed"
    return Event(name="error_threshold_exceeded", severity="high" if 2 * count > TRACE else "medium", reason=reason)


def _idle(counters: Counters) -> Event | None:
    mean = sum(counters.lengths) / len(counters.lengths) if counters.lengths else SHORT
    if counters.idle < IDLE or mean >= SHORT:
        return None
    reason = f"{counters.idle} neutral messages in a row that ask nothing, {mean:.0f} characters on average"
    return Event(name="low_engagement", severity="low", reason=reason)
