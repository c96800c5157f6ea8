"""Outcomes: feedback on a turn, from the user's next message or an explicit rating, for the prompts that it used."""

from typing import Literal

from msgspec import Struct

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
