"""Store explicit feedback on a turn, teach it to the turn's prompts, and show the feedback recorded for a turn."""

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from cuebook.app.prompts.idempotency import run_once
from cuebook.engine.core.drafts import check_text
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.observation import spoke_in, teach
from cuebook.engine.turn.decision import iso
from cuebook.engine.turn.turn_signals import SENTIMENT
from cuebook.errors import InvalidInput, NotFound
from cuebook.interfaces.prompts import StoredKey
from cuebook.prompts.learn import score as score_of
from cuebook.records.conversation import Post
from cuebook.records.memory import Scope
from cuebook.records.outcome import Outcome, StoredOutcome
from cuebook.records.prompt import TaskOutcome
from cuebook.records.turn import Turn
from cuebook.signals.outcome import NEUTRAL

Thumb = Literal["up", "down"]
THUMBS: Final[dict[str, float]] = {"up": 1.0, "down": 0.0}
#: Maximum length of a comment, in characters.
COMMENT: Final = 2_000
#: Number of posts loaded at a time to find the reply to an answer.
PAGE: Final = 200


async def give(
    services: Services,
    conversation: str,
    n: int,
    *,
    score: float | None,
    thumb: Thumb | None,
    outcome: TaskOutcome | None,
    corrections: int | None,
    comment: str,
    user: str | None,
    idempotency_key: str | None,
) -> StoredOutcome:
    """Store feedback on a turn and teach its prompts. Raises InvalidInput, NotFound, and Conflict while it runs."""
    data = _outcome(services, score=score, thumb=thumb, outcome=outcome, corrections=corrections, comment=comment)
    scope = Scope(user=user)

    async def work(asking: StoredKey | None) -> int:
        whose = user or (await services.store.conversation(scope, conversation)).user or ""
        spoken = Outcome(by="feedback", at=services.clock.now(), user=whose, **data)
        stored_key = asking and asking.telling(lambda known: known.revision)  # deleted together with its conversation
        return (await services.store.outcomes.give(scope, conversation, n, spoken, once=stored_key)).revision

    asked = ["feedback", conversation, n, score, thumb, outcome, corrections, comment]
    await run_once(services, idempotency_key, asked, int, work, user=user or "")
    await teach(services, scope, conversation, n)
    known = await services.store.outcomes.get(scope, conversation, n)
    if known is None:
        msg = f"Feedback on turn {n} of conversation {conversation!r} was deleted meanwhile."
        raise NotFound(msg)
    return known


def _outcome(
    services: Services,
    *,
    score: float | None,
    thumb: Thumb | None,
    outcome: TaskOutcome | None,
    corrections: int | None,
    comment: str,
) -> dict[str, Any]:
    """Return the fields of the feedback. Raises InvalidInput naming the invalid field."""
    given: object = thumb
    if given is not None and given not in THUMBS:
        msg = f"thumb: unknown value {given!r}. Available: up, down."
        raise InvalidInput(msg, where="thumb")
    if score is not None and thumb is not None:
        msg = "score: not allowed with thumb. Pass one of the two."
        raise InvalidInput(msg, where="score")
    count: object = corrections
    if isinstance(count, bool) or not isinstance(count, int | None):
        msg = f"corrections: invalid count {corrections!r}. Pass the number of corrections."
        raise InvalidInput(msg, where="corrections")
    if outcome is not None and outcome not in get_args(TaskOutcome):
        msg = f"outcome: unknown value {outcome!r}. Available: {', '.join(get_args(TaskOutcome))}."
        raise InvalidInput(msg, where="outcome")
    text: object = comment
    if not isinstance(text, str) or len(text) > COMMENT:
        result = f"{len(text):,} characters" if isinstance(text, str) else type(text).__name__
        msg = f"comment: {result}. Pass a text of at most {COMMENT:,} characters."
        raise InvalidInput(msg, where="comment")
    check_text(comment, "comment")
    sentiment = THUMBS[thumb] if thumb is not None else score
    task: TaskOutcome = outcome or "unknown"
    if sentiment is None and corrections is None and task == "unknown":
        msg = "score: missing. Pass a score (1 is good, 0 is bad), an outcome or corrections."
        raise InvalidInput(msg, where="score")
    try:
        total = score_of(
            NEUTRAL if sentiment is None else sentiment, corrections or 0, task, missing=services.settings.missing
        )
    except InvalidInput as error:
        if error.where != "sentiment":
            raise
        msg = f"score: {score!r} is out of range. Use a number from 0 to 1."
        raise InvalidInput(msg, where="score") from None
    return {
        "score": total,
        "sentiment": None if sentiment is None else float(sentiment),
        "corrections": corrections,
        "task": task,
        "comment": services.writer.clean(comment),
    }


# ---- as it is shown -------------------------------------------------------------------------------------------------


async def observation(services: Services, scope: Scope, conversation: str, turn: Turn) -> dict[str, Any]:
    """Return the feedback on a turn and the prompts that learned from it, or the reason why there is none."""
    stored_outcome = await services.store.outcomes.get(scope, conversation, turn.n)
    return (
        to_wire(stored_outcome)
        if stored_outcome
        else {"by": None, "reason": await _why_none(services, scope, conversation, turn)}
    )


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
    if services.settings.observes == "off":
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
    while posts := await services.store.posts_behind(scope, conversation, after=after, limit=PAGE, path=False):
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


def to_wire(known: StoredOutcome) -> dict[str, Any]:
    """Return the feedback on a turn as a JSON object. `pending`: its prompts have not learned from it yet."""
    outcome = known.outcome
    return {
        "by": outcome.by,
        "at": iso(outcome.at),
        "score": outcome.score,
        "sentiment": outcome.sentiment,
        "corrections": outcome.corrections,
        "outcome": outcome.task,
        "reasons": list(outcome.reasons),
        "nextTurn": outcome.next_turn or None,
        "userId": outcome.user or None,
        "comment": outcome.comment,
        "pending": known.due,
        "taught": [
            {"promptId": each.slug, "branch": each.branch, "version": each.number, "counted": each.counted}
            for each in known.taught
        ],
    }
