"""How many tokens each part of a prompt may take."""

from typing import Final

import msgspec
from msgspec import Struct

from cuebook.errors import InvalidInput
from cuebook.records.tuning import Tuning


class Limits(Struct, frozen=True, kw_only=True):
    """A model's window and how it is divided (C, "Configuration"); shares are of the room for posts."""

    context_tokens: int = 200_000
    system_tokens: int = 5_000  # kept free for persona and instructions, a tenth of the window at the most
    reply_tokens: int = 4_096
    max_short_term_tokens: int = 190_000
    window_posts: int = 30  # newest posts kept in full
    trigger_ratio: float = 0.7  # of the room: the `budget` profile compacts beyond it
    full_share: float = 0.85  # posts older than the window stay full up to here
    small_share: float = 0.95  # and compressed up to here
    step_share: float = 0.1  # cut points move in steps of this much, so that the front of the prompt stays
    memory_tokens: int = 1_500  # recalled memories beside the query, at most
    memory_share: float = 0.1  # and at most this much of a window


class Allotment(Struct, frozen=True, kw_only=True):
    """What one window may hold, in tokens."""

    budget: int  # everything in it
    memory: int  # kept free for the volatile block
    posts: int  # the path with the query


def prompt_budget(limits: Limits, token_budget: int | None) -> int:
    """Tokens a whole prompt may have: the model's window less its reply, or less where the caller says so."""
    most = limits.context_tokens - limits.reply_tokens
    return most if token_budget is None else min(token_budget, most)


def most_posts(limits: Limits, token_budget: int | None) -> int:
    """Tokens that posts take at the most in a window of this budget, what must stand in it apart.

    C's available budget, 200,000 - 5,000 - 4,096 = 190,904, holds as the most posts take together. What C keeps free
    for the system text is more than all of a small model's window: there it is a tenth.
    """
    prompt = limits.context_tokens - limits.reply_tokens
    available = prompt - min(limits.system_tokens, prompt // 10)
    return min(prompt_budget(limits, token_budget), available, limits.max_short_term_tokens)


def allot(
    limits: Limits, *, front: int, tools: int = 0, least: int = 0, frozen: int = 0, token_budget: int | None = None
) -> Allotment:
    """Divide a window whose front and tools take what they take, and whose posts need at least `least`.

    `frozen` is what the volatile block takes an earlier step chose: it keeps its place, if there is one.
    Raises InvalidInput, naming the least budget, when what must stand in the window does not fit.
    """
    budget = prompt_budget(limits, token_budget)
    room = budget - front - tools - least
    if room < 0:
        msg = (
            f"a window of {budget} tokens cannot hold what must stand in it: {front} tokens of system text, {tools} of"
            f" tools, {least} of the query and open tool results; allow at least {budget - room}"
        )
        raise InvalidInput(msg, where="tokenBudget")
    memory = min(limits.memory_tokens, int(budget * limits.memory_share), (room + least) // 3, room)
    if memory < frozen <= room:
        memory = frozen
    posts = min(room + least - memory, max(least, most_posts(limits, None)))
    return Allotment(budget=budget, memory=memory, posts=posts)


# ---- adaptation of the parameters -----------------------------------------------------------------------------------


#: C's optimizer: posts below which nothing is tuned, and the size of a step.
LEAST_POSTS: Final = 10
RATE: Final = 0.05
#: Over the target by this much is over; under it by that much is under.
OVER, UNDER = 0.10, 0.15
#: Savings below which a run over its target did not help.
HELPED: Final = 0.05
#: A round of which nothing was said scores 0.55: below this its user was displeased, or corrected it.
SERVED: Final = 0.5
_TRIGGER: Final = (0.40, 0.85)
_WINDOW: Final = (10, 50)
_RELEVANCE: Final = (0.15, 0.60)
_EMERGENCY_TRIGGER: Final = 0.35
_EMERGENCY_RELEVANCE: Final = 0.70


def untuned(limits: Limits) -> Tuning:
    """Return the parameters before the first run: those of the settings."""
    return Tuning(compression_trigger=limits.trigger_ratio, full_message_window=limits.window_posts)


def tuned(tuning: Tuning, *, usage: float, savings: float, served: float | None = None) -> Tuning:
    """Return the parameters after a run: `usage` is the share of the room in use, `savings` what the run saved of it.

    `served` is how the conversation's newest rounds were, 0..1 as observations are scored, None where nobody said:
    while its user is not served well nothing more is taken from what its prompts show (N5).
    """
    trigger, window, relevance = tuning.compression_trigger, tuning.full_message_window, tuning.min_relevance
    target = tuning.target_usage_ratio
    takes = served is None or served >= SERVED
    if usage > target + OVER and takes:
        trigger = _down(trigger, RATE, _TRIGGER[0])
        window = int(_down(window, 2, _WINDOW[0]))
        relevance = _up(relevance, RATE, _RELEVANCE[1])
    elif usage < target - UNDER:
        trigger = _up(trigger, RATE / 2, _TRIGGER[1])
        window = int(_up(window, 1, _WINDOW[1]))
        relevance = _down(relevance, RATE / 2, _RELEVANCE[0])
    if savings < HELPED and usage > target and takes:
        trigger = _down(trigger, 2 * RATE, _EMERGENCY_TRIGGER)
        relevance = _up(relevance, 2 * RATE, _EMERGENCY_RELEVANCE)
    return msgspec.structs.replace(
        tuning, compression_trigger=trigger, full_message_window=window, min_relevance=relevance
    )


def _down(value: float, step: float, floor: float) -> float:
    return min(value, round(max(floor, value - step), 4))


def _up(value: float, step: float, cap: float) -> float:
    return max(value, round(min(cap, value + step), 4))
