"""Divide the token budget of a prompt among its parts, and tune the shares."""

from typing import Final

import msgspec
from msgspec import Struct

from cuebook.config import BudgetConfig
from cuebook.errors import InvalidInput
from cuebook.records.tuning import TuningState

#: The largest share of a window for recalled memories.
MEMORY_SHARE: Final = 0.1


class Allotment(Struct, frozen=True, kw_only=True):
    """Token budget of one window."""

    budget: int  # everything in it
    memory: int  # reserved for the volatile block
    posts: int  # the path with the query


def prompt_budget(limits: BudgetConfig, token_budget: int | None) -> int:
    """Return the tokens of a whole prompt: the model's window minus its reply, or the caller's lower limit."""
    most = limits.context - limits.reply
    return most if token_budget is None else min(token_budget, most)


def most_posts(limits: BudgetConfig, token_budget: int | None) -> int:
    """Return the most tokens of posts in a window of this budget, apart from required parts.

    BrowserOS's available budget, 200,000 - 5,000 - 4,096 = 190,904, is the most that posts take together. Its reserve
    for the system text exceeds a small model's window: there it is a tenth.
    """
    prompt = limits.context - limits.reply
    available = prompt - min(limits.system, prompt // 10)
    return min(prompt_budget(limits, token_budget), available, limits.max_short_term)


def allot(
    limits: BudgetConfig,
    *,
    front: int,
    tools: int = 0,
    least: int = 0,
    path: int = 0,
    listed: bool = False,
    frozen: int = 0,
    token_budget: int | None = None,
) -> Allotment:
    """Divide a window by the tokens of its front and tools, with at least `least` for posts.

    A path that fits takes its tokens before the volatile block. A client's own list of messages may fill the window;
    else posts have a limit. `frozen` are the tokens of an earlier step's volatile block, which keeps its room if
    possible. Raises InvalidInput, with the least sufficient budget, if the required parts do not fit.
    """
    budget = prompt_budget(limits, token_budget)
    room = budget - front - tools - least
    if room < 0:
        msg = (
            f"Window too small: {budget} tokens. Required are {front} tokens of system text, {tools} of"
            f" tools, {least} of the query and open tool results. Allow at least {budget - room}"
        )
        raise InvalidInput(msg, where="tokenBudget")
    left = room + least
    most = left if listed else max(least, most_posts(limits, None))
    memory = min(limits.memory, int(budget * MEMORY_SHARE), left // 3, room)
    if memory < frozen <= room:
        memory = frozen
    if path <= min(left, most):
        memory = min(memory, left - path)
    posts = min(left - memory, most)
    return Allotment(budget=budget, memory=memory, posts=posts)


# ---- Tuning of parameters -------------------------------------------------------------------------------------------


#: BrowserOS's optimizer: fewest posts for tuning, and the size of a step.
LEAST_POSTS: Final = 10
RATE: Final = 0.05
#: Margins above and below the target within which nothing changes.
OVER, UNDER = 0.10, 0.15
#: Savings below which a run above its target did not help.
HELPED: Final = 0.05
#: A turn without feedback scores 0.55. Below this the user was dissatisfied, or corrected the answer.
SERVED: Final = 0.5
_TRIGGER: Final = (0.40, 0.85)
_WINDOW: Final = (10, 50)
_RELEVANCE: Final = (0.15, 0.60)
_EMERGENCY_TRIGGER: Final = 0.35
_EMERGENCY_RELEVANCE: Final = 0.70


def untuned(limits: BudgetConfig) -> TuningState:
    """Return the parameters before the first run, from the settings."""
    return TuningState(compression_trigger=limits.trigger, full_message_window=limits.window_posts)


def tuned(tuning: TuningState, *, usage: float, savings: float, served: float | None = None) -> TuningState:
    """Return the parameters after a run. `usage` is the used share of the room, `savings` the share that the run saved.

    `served` is the mean score of the newest turns, 0..1, None without feedback. While the user is dissatisfied, the
    prompts are not reduced further (N5).
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
