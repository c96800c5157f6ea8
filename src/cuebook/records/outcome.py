"""Outcomes: feedback on a turn, from the user's next message or an explicit rating, for the prompts that it used."""

from typing import Literal

from msgspec import Struct, field

from cuebook.records.answer import Answer, Time, as_answer
from cuebook.records.prompt import TaskOutcome

Source = Literal["next", "feedback"]


class Outcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The feedback on a turn. A missing value (None) counts as neutral and as no correction."""

    by: Source
    at: float  # Unix seconds, when it was recorded
    score: float = 0.0  # 0..1, as in `prompts.learn`
    sentiment: float | None = None  # 0..1, 0.5 = neutral
    corrections: int | None = None
    task: TaskOutcome = "unknown"
    reasons: tuple[str, ...] = ()  # the source of `task`
    next_turn: int = 0  # the turn whose message was analyzed
    user: str = ""  # who said it
    comment: str = ""


class Taught(Struct, frozen=True, kw_only=True):
    """An observation made from the outcome: its prompt version and its number in the store."""

    slug: str
    branch: str
    number: int
    observation: int = 0
    counted: bool = True  # False: its user has reached their limit of counted feedback


class StoredOutcome(Struct, frozen=True, kw_only=True):
    """A stored outcome. `due`: it was not yet applied to its prompts."""

    outcome: Outcome
    due: bool = False
    revision: int = 1  # starts at 1, incremented with each replacement
    taught: tuple[Taught, ...] = ()
    no: int = 0  # the conversation's row; changes if the conversation is deleted and created again


class TaughtVersion(Answer, frozen=True, kw_only=True):
    """A prompt version that learned from feedback; `counted` is false if the user's share is used up."""

    prompt_id: str
    branch: str
    version: int
    counted: bool


class TurnFeedback(Answer, frozen=True, kw_only=True):
    """The feedback on a turn, explicit or from the user's next message, and the versions that learned from it.

    `pending`: they have not learned from it yet.
    """

    by: Source
    at: Time
    score: float
    sentiment: float | None
    corrections: int | None
    outcome: TaskOutcome
    reasons: tuple[str, ...]
    next_turn: int | None
    user: str | None = field(name="userId")
    comment: str
    due: bool = field(name="pending")
    taught: tuple[TaughtVersion, ...]


def turn_feedback(value: StoredOutcome) -> TurnFeedback:
    """Return the feedback on a turn as an answer."""
    outcome = value.outcome
    return as_answer(
        TurnFeedback,
        outcome,
        outcome=outcome.task,
        next_turn=outcome.next_turn or None,
        user=outcome.user or None,
        due=value.due,
        taught=tuple(as_answer(TaughtVersion, each, prompt_id=each.slug, version=each.number) for each in value.taught),
    )
