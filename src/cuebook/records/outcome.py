"""What came of a turn: what its user said next, or what was said of it, as the word on the prompts that spoke in it."""

from typing import Literal

from msgspec import Struct

from cuebook.records.prompt import TaskOutcome

Source = Literal["next", "feedback"]


class Outcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The word on a turn. What is None nobody said: it counts as neither pleased nor displeased, as no correction."""

    by: Source
    at: float  # Unix seconds, when it was heard
    score: float = 0.0  # 0..1, as `prompts.learn` has it
    sentiment: float | None = None  # 0..1, 0.5 neither pleased nor displeased
    corrections: int | None = None
    task: TaskOutcome = "unknown"
    reasons: tuple[str, ...] = ()  # what `task` was read from
    next_turn: int = 0  # the turn whose message it was read from
    user: str = ""  # who said it
    comment: str = ""


class Taught(Struct, frozen=True, kw_only=True):
    """An observation it became: of which version, and the store's number for it."""

    slug: str
    branch: str
    number: int
    observation: int = 0
    counted: bool = True  # False: its user has had their share of what counts


class StoredOutcome(Struct, frozen=True, kw_only=True):
    """A turn's outcome as it is kept. `due`: its prompts have not been taught it yet."""

    outcome: Outcome
    due: bool = False
    revision: int = 1  # counts from 1, one more with each word that takes another's place
    taught: tuple[Taught, ...] = ()
    no: int = 0  # the conversation's: one deleted and begun again is another
