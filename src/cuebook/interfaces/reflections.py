"""Structs of the stores of reflections and tunings: due ones, inputs and results.

A reflection is requested in the transaction that opens its turn, or by hand, and is due until its result is stored. A
turn may have several reflections, counted by `n`.
"""

from msgspec import Struct

from cuebook.records.conversation import Conversation, PathPost
from cuebook.records.mind import Reflection
from cuebook.records.tuning import Snapshot, TuningState
from cuebook.records.turn import TurnOn


class MetapromptTask(Struct, frozen=True, array_like=True):
    """A task of a reflection: a metaprompt's id, and the reason: `event:NAME`, `interval:N`, `manual` or `llm`."""

    metaprompt: str
    trigger: str


class DueReflection(Struct, frozen=True, kw_only=True):
    """A due reflection."""

    tenant: str
    conversation: str
    turn: int
    n: int
    count: int = 1  # of the due reflections of its conversation


class ReflectionInput(Struct, frozen=True, kw_only=True):
    """Input of a reflection."""

    conversation: Conversation
    turn: TurnOn
    n: int
    calls: tuple[MetapromptTask, ...]
    before: Reflection | None  # the newest on the turn's path
    epoch: int  # number of erasures in the conversation


class Entries(Struct, frozen=True, kw_only=True):
    """Posts of the head's path after a seq, oldest first. `anew`: that seq is not on the path, so
    these are all posts.
    """

    conversation: Conversation
    posts: tuple[PathPost, ...]
    anew: bool = False


class LastTuning(Struct, frozen=True, kw_only=True):
    """A conversation's tuning, the position and the time (Unix seconds) of its last run."""

    tuning: TuningState
    seen_seq: int
    updated_at: float


class ChangedConversation(Struct, frozen=True):
    """A conversation that changed since its last run."""

    tenant: str
    conversation: str


class TuningRun(Struct, frozen=True, kw_only=True):
    """The result of a run, based on the tuning of `before` (0 for none). Without a snapshot it only
    moves the position.
    """

    no: int  # the conversation's number when loaded
    seen_seq: int
    before: float
    now: float
    tuning: TuningState
    snapshot: Snapshot | None = None
