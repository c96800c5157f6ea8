"""How a conversation's parameters follow the room it uses (C, "Adaptation Rules"): one step after each run.

The ranges are C's own code's (notes/seed-origins.md 3.1): the rules for a conversation over its target have one floor,
the emergency another below it. A step never moves a parameter against its own direction: one the settings put outside
of the range stays where it is.
"""

from typing import Final

import msgspec

from cuebook.assembly.budget import Limits
from cuebook.records.tuning import Tuning

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
    """Give the parameters before the first run: those of the settings."""
    return Tuning(compression_trigger=limits.trigger_ratio, full_message_window=limits.window_posts)


def tuned(tuning: Tuning, *, usage: float, savings: float, served: float | None = None) -> Tuning:
    """Give the parameters after a run: `usage` is the share of the room in use, `savings` what the run saved of it.

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
