"""How many tokens each part of a prompt may take."""

from msgspec import Struct

from cuebook.errors import InvalidInput


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
