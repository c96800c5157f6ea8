"""What is said of a turn: feedback as it is given, and the word on a turn as it is shown."""

from typing import Any, Final, Literal, get_args

from cuebook.app.prompt_once import once
from cuebook.engine.desk import Desk
from cuebook.engine.drafts import check_text
from cuebook.engine.metadata import iso
from cuebook.engine.observe import spoke_in, teach
from cuebook.errors import InvalidInput, NotFound
from cuebook.ports.prompts import Once
from cuebook.prompts.learn import score as score_of
from cuebook.records.memory import Scope
from cuebook.records.outcome import Known, Outcome
from cuebook.records.prompt import TaskOutcome
from cuebook.records.turn import Turn
from cuebook.signals.outcome import NEUTRAL

Thumb = Literal["up", "down"]
THUMBS: Final[dict[str, float]] = {"up": 1.0, "down": 0.0}
#: Characters of a comment.
COMMENT: Final = 2_000


async def give(
    desk: Desk,
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
) -> Known:
    """Keep what somebody says of a turn, and teach it. Raises InvalidInput, NotFound, and Conflict while it runs."""
    said = _outcome(desk, score=score, thumb=thumb, outcome=outcome, corrections=corrections, comment=comment)
    scope = Scope(user=user)

    async def work(asking: Once | None) -> int:
        whose = user or (await desk.store.conversation(scope, conversation)).user or ""
        spoken = Outcome(by="feedback", at=desk.clock.now(), user=whose, **said)
        told = asking and asking.telling(lambda known: known.revision)  # no word of it outlives its conversation
        return (await desk.store.outcomes.give(scope, conversation, n, spoken, once=told)).revision

    asked = ["feedback", conversation, n, score, thumb, outcome, corrections, comment]
    await once(desk, idempotency_key, asked, int, work, user=user or "")
    await teach(desk, scope, conversation, n)
    known = await desk.store.outcomes.get(scope, conversation, n)
    if known is None:
        msg = f"what was said of turn {n} of conversation {conversation!r} was forgotten meanwhile"
        raise NotFound(msg)
    return known


def _outcome(
    desk: Desk,
    *,
    score: float | None,
    thumb: Thumb | None,
    outcome: TaskOutcome | None,
    corrections: int | None,
    comment: str,
) -> dict[str, Any]:
    """Read what is said. Raises InvalidInput naming what cannot be."""
    given: object = thumb
    if given is not None and given not in THUMBS:
        msg = f"thumb: {given!r} is none; give up or down"
        raise InvalidInput(msg, where="thumb")
    if score is not None and thumb is not None:
        msg = "score: thumb says the same; give one of the two"
        raise InvalidInput(msg, where="score")
    count: object = corrections
    if isinstance(count, bool) or not isinstance(count, int | None):
        msg = f"corrections: {corrections!r} is no count; give how often the answer had to be corrected"
        raise InvalidInput(msg, where="corrections")
    if outcome is not None and outcome not in get_args(TaskOutcome):
        msg = f"outcome: {outcome!r} is none; give one of {', '.join(get_args(TaskOutcome))}"
        raise InvalidInput(msg, where="outcome")
    text: object = comment
    if not isinstance(text, str) or len(text) > COMMENT:
        found = f"{len(text):,} characters" if isinstance(text, str) else type(text).__name__
        msg = f"comment: {found}; give a text of {COMMENT:,} characters at most"
        raise InvalidInput(msg, where="comment")
    check_text(comment, "comment")
    sentiment = THUMBS[thumb] if thumb is not None else score
    task: TaskOutcome = outcome or "unknown"
    if sentiment is None and corrections is None and task == "unknown":
        msg = "score: nothing is said of the turn; give a score (1 is good, 0 is bad), an outcome or corrections"
        raise InvalidInput(msg, where="score")
    try:
        total = score_of(NEUTRAL if sentiment is None else sentiment, corrections or 0, task)
    except InvalidInput as error:
        if error.where != "sentiment":
            raise
        msg = f"score: {score!r} is out of range; give a number from 0 to 1"
        raise InvalidInput(msg, where="score") from None
    return {
        "score": total,
        "sentiment": None if sentiment is None else float(sentiment),
        "corrections": corrections,
        "task": task,
        "comment": desk.writer.clean(comment),
    }


# ---- as it is shown -------------------------------------------------------------------------------------------------


async def observation(desk: Desk, scope: Scope, conversation: str, turn: Turn) -> dict[str, Any]:
    """Give the word on a turn: what was said, and whom it taught; else why there is none."""
    known = await desk.store.outcomes.get(scope, conversation, turn.n)
    if known is not None:
        return to_wire(known)
    if turn.state == "running":
        reason = "the turn is being answered"
    elif not turn.reply_seq:
        reason = "nothing was answered"
    elif not spoke_in(turn):
        reason = "no prompt of the book spoke in it"
    elif desk.observes == "off":
        reason = "learning.observe is off"
    else:
        newest = (await desk.store.conversation(scope, conversation)).turns
        went = "what was said next goes on from another answer, or nothing can be read from it"
        reason = "nobody has gone on from it yet" if turn.n == newest else went
    return {"by": None, "reason": reason}


def to_wire(known: Known) -> dict[str, Any]:
    """Give the word on a turn with names as on the wire. `pending`: its prompts have not learnt it yet."""
    said = known.outcome
    return {
        "by": said.by,
        "at": iso(said.at),
        "score": said.score,
        "sentiment": said.sentiment,
        "corrections": said.corrections,
        "outcome": said.task,
        "reasons": list(said.reasons),
        "nextTurn": said.next_turn or None,
        "userId": said.user or None,
        "comment": said.comment,
        "pending": known.due,
        "taught": [
            {"promptId": each.slug, "branch": each.branch, "version": each.number, "counted": each.counted}
            for each in known.taught
        ],
    }
