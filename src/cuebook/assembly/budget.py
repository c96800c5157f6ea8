"""How many tokens each part of a prompt may take."""

from msgspec import Struct

from cuebook.errors import InvalidInput


class Limits(Struct, frozen=True, kw_only=True):
    """A model's window and how it is divided. Defaults are C's (seed 002, "Configuration"); shares are of the room for posts."""

    context_tokens: int = 200_000
    system_tokens: int = 5_000
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
    posts: int  # the path, the query and the summary's tail


#: The least a query is cut to before a budget is refused.
LEAST_QUERY = 24


def prompt_budget(limits: Limits, token_budget: int | None) -> int:
    """Tokens a whole prompt may have: the model's window less its reply, or what the caller names."""
    whole = limits.context_tokens - limits.reply_tokens
    return whole if token_budget is None else min(token_budget, whole)


def allot(limits: Limits, *, front: int, token_budget: int | None = None, tools: int = 0) -> Allotment:
    """Divide a window whose front (and tools) take what they take. Raises InvalidInput if nothing is left for the query.

    C's available budget, 200,000 - 5,000 - 4,096 = 190,904, holds as the most posts may take together.
    """
    budget = prompt_budget(limits, token_budget)
    room = budget - front - tools
    if room < LEAST_QUERY:
        msg = (
            f"a window of {budget} tokens cannot hold what must stand in it: {front} tokens of system text, {tools} of tools, and the"
            f" query; allow at least {front + tools + LEAST_QUERY}"
        )
        raise InvalidInput(msg, where="tokenBudget")
    memory = min(limits.memory_tokens, int(budget * limits.memory_share), room // 3)
    available = limits.context_tokens - limits.system_tokens - limits.reply_tokens
    posts = min(room - memory, available, limits.max_short_term_tokens)
    return Allotment(budget=budget, memory=memory, posts=posts)
