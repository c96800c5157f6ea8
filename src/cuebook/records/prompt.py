"""Prompt management records: versions, branches, labels, and feedback (observations, outcomes).

A Version is immutable. A branch's head is its newest Version; its active Version is the one that is used.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from msgspec import Struct, field

from cuebook.records.answer import Answer, Time, as_answer

Engine = Literal["dollar", "braces", "none"]
ParamType = Literal["string", "integer", "number", "boolean"]
TaskOutcome = Literal["success", "partial", "failure", "unknown"]
Missing = Literal["zero", "renormalise"]  # how an unknown outcome counts in a score
Strategy = Literal["epsilon_greedy", "thompson"]

EventKind = Literal["write", "branch", "label", "rollback", "clear"]
Source = Literal["next", "feedback"]  # of an outcome

#: A branch: the prompt's slug, and the branch's name.
BranchPlace = tuple[str, str]

MAIN = "main"
#: The section of a text without section markers.
BODY = "body"


class Param(Struct, frozen=True, kw_only=True):
    """A declared parameter. A default makes it optional."""

    name: str
    type: ParamType = "string"
    required: bool = True
    default: str | None = None
    description: str = ""


class Version(Struct, frozen=True, kw_only=True):
    """One immutable text of a prompt. `sections` are merged with an ancestor's; `override_sections` replace them."""

    slug: str
    branch: str = MAIN
    number: int = 0  # from 1 on its branch; 0 = not stored yet
    semver: str = "1.0.0"
    type: str = "prompt"
    sections: Mapping[str, str] = {}
    override_sections: Mapping[str, str] = {}
    params: tuple[Param, ...] = ()
    engine: Engine = "dollar"
    inherits: str | None = None  # slug, slug@branch or slug@branch:number
    metadata: Mapping[str, Any] = {}  # includes `context_weights` {signal: weight}
    tags: tuple[str, ...] = ()
    author: str = ""
    description: str = ""
    sync: bool = False
    digest: str = ""  # hex SHA-256 over the rendered fields (prompts.digest)
    created_at: float = 0.0  # Unix seconds
    supersedes: int = 0  # the previous number on its branch, 0 for none
    branched_from: str = ""  # "branch:number" from which its branch was forked, "" for the first branch

    @property
    def context_weights(self) -> Mapping[str, float]:
        """Return the author's weight for each signal."""
        weights = self.metadata.get("context_weights")
        return weights if isinstance(weights, Mapping) else {}

    @property
    def place(self) -> BranchPlace:
        """Return its branch: the slug and the branch's name."""
        return self.slug, self.branch

    @property
    def source(self) -> str:
        """Return its name in blocks and records."""
        return f"prompt:{self.slug}@{self.branch}:{self.number}"


class ResolvedVersion(Struct, frozen=True, kw_only=True):
    """A Version merged with its ancestors' sections and parameters; `version` is the original."""

    version: Version
    sections: Mapping[str, str]  # in render order
    params: tuple[Param, ...] = ()
    lineage: tuple[str, ...] = ()  # the sources of all merged versions, oldest ancestor first, itself last


class Label(Answer, frozen=True, kw_only=True):
    """A label: a name that points to a version, and who moved it there."""

    name: str
    branch: str
    number: int = field(name="version")
    moved_by: str
    moved_at: Time


class Branch(Answer, frozen=True, kw_only=True):
    """A branch: its newest version, the active version with its score, and the rolled-back versions.

    The score is the EMA of the active version's observations. Rolled-back versions are not explored until cleared.
    """

    name: str
    head: int
    active: int
    semver: str  # of the active version, like `digest`
    digest: str
    weight: float = field(name="edgeWeight")
    observations: int
    rolled_back: tuple[int, ...] = field(name="rolledBackVersions")


class PromptEvent(Answer, frozen=True, kw_only=True):
    """An event in a prompt's history; `to` is the version that became active or labeled."""

    COLUMNS: ClassVar = ("at", "kind", "branch", "number", "to", "label", "by", "reason")

    kind: EventKind
    branch: str
    number: int = field(name="version")
    to: int | None = None
    label: str | None = None
    by: str = ""
    reason: str = ""
    at: Time = field(name="timestamp")
    evidence: Mapping[str, Any] = {}


class Observation(Struct, frozen=True, kw_only=True):
    """The feedback of one round on the version that it used. `score` is computed from the stored components."""

    slug: str
    branch: str
    number: int
    score: float
    sentiment: float  # 0..1
    corrections: int = 0
    outcome: TaskOutcome | None = None  # None: not reported
    signals: Mapping[str, float] = {}
    propensity: float = 1.0
    share: float = 0.0  # probability among its branch's conversations in a random trial; 0: use `propensity`
    conversation: str = ""
    user: str = ""
    turn: int = 0  # of the conversation; 0 for none
    at: float = 0.0


# ---- outcomes: feedback on a turn, for the prompts that it used ------------------------------------------------------


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
