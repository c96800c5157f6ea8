"""Detect which of AgentOS's five events a message triggers.

Definitions, with the thresholds of a persona's Tracking:

- `user_frustrated`: a score below the frustration threshold at an intensity above 0.6, or so many such scores in a row
- `user_confused`: a keyword of confusion, or a neutral message of three or more words that sound bad
- `user_satisfied`: a score above the satisfaction threshold at an intensity above 0.5, or so many such scores in a row;
  never a message that corrects, whatever its words weigh
- `error_threshold_exceeded`: two or more errors among the last ten results and replies, at least one of them new
- `low_engagement`: four or more neutral messages in a row that neither ask nor order anything, of fewer than 50
  characters on average over the user's last five

After an event fired, it waits for the cool-down in turns and in time; if it still applies then, it fires again. A
message in an unsupported language triggers only errors, which do not depend on language.
"""

from typing import Final

from cuebook.records.mind import Counters, Event, Sentiment, Severity
from cuebook.records.persona import SentimentTracking

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
    """Return the events that apply now, fired lately or not. `counters` include this message."""
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


def is_confused(sentiment: Sentiment, keywords: tuple[str, ...], *, tracking: SentimentTracking) -> bool:
    """Return whether a message is confused."""
    return _confused(sentiment, keywords, tracking) is not None


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
