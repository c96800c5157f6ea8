"""Show the feedback recorded for a turn, or why there is none."""

from collections.abc import Mapping
from typing import Any, Final

from cuebook.engine.core.services import Services
from cuebook.engine.jobs.observation import spoke_in
from cuebook.engine.turn.turn_signals import SENTIMENT
from cuebook.records.answer import to_wire
from cuebook.records.conversation import Post
from cuebook.records.memory import Scope
from cuebook.records.prompt import turn_feedback
from cuebook.records.turn import Turn

#: Number of posts loaded at a time to find the reply to an answer.
PAGE: Final = 200


async def observation_of(services: Services, scope: Scope, conversation: str, turn: Turn) -> dict[str, Any]:
    """Return the feedback on a turn as JSON values, or the reason why there is none."""
    known = await services.store.outcomes.get(scope, conversation, turn.n)
    if known is not None:
        result: dict[str, Any] = to_wire(turn_feedback(known))
        return result
    return {"by": None, "reason": await _why_none(services, scope, conversation, turn)}


async def _why_none(services: Services, scope: Scope, conversation: str, turn: Turn) -> str:
    """Return why a turn has no feedback."""
    if turn.state == "running":
        return "the turn is being answered"
    if not turn.reply_seq:
        return "the turn has no answer"
    if turn.state != "finished":
        return f"its answer was {turn.state}; only finished answers get feedback"
    if not spoke_in(turn):
        return "this turn used no managed prompt"
    if services.config.learning.observe == "off":
        return "learning.observe is off"
    return await _why_unread(services, scope, conversation, turn)


async def _why_unread(services: Services, scope: Scope, conversation: str, turn: Turn) -> str:
    """Return why the posts after a turn's answer gave no feedback on it."""
    after = await _next_post(services, scope, conversation, turn.reply_seq)
    if after is None:
        return "no message follows it yet"
    following = await _turn_asking(services, scope, conversation, turn.n, after.seq)
    if following is None or after.role != "user":
        return "the next message did not go through Cuebook"
    heard = following.metadata.get(SENTIMENT)
    if not isinstance(heard, Mapping):
        return f"turn {following.n} was not analyzed: its persona has sentiment off, and no prompt was learning"
    if heard.get("polarity") == "unknown":
        return f"the next message (turn {following.n}) implies no feedback"
    return f"learning.observe was off when turn {following.n} was asked"


async def _next_post(services: Services, scope: Scope, conversation: str, seq: int) -> Post | None:
    """Return the first post that follows a post, on any branch."""
    after = seq
    while posts := await services.store.posts(scope, conversation, after=after, limit=PAGE, path=False):
        for post in posts:
            if post.parent == seq:
                return post
        after = posts[-1].seq
    return None


async def _turn_asking(services: Services, scope: Scope, conversation: str, n: int, seq: int) -> Turn | None:
    """Return the first turn after turn `n` that answers a post or one sent with it, None if there is none."""
    newest = (await services.store.conversation(scope, conversation)).turns
    for number in range(n + 1, newest + 1):
        turn = await services.store.turn(scope, conversation, number)
        if turn.query_seq >= seq:
            return turn
    return None
