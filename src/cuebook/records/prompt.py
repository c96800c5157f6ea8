"""The nouns of the prompt book: versions, branches, labels, what was chosen, what was learnt.

A Version is immutable; a branch's head is its newest Version, its active one is what is used.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

Engine = Literal["dollar", "braces", "none"]
ParamType = Literal["string", "integer", "number", "boolean"]
TaskOutcome = Literal["success", "partial", "failure", "unknown"]
Strategy = Literal["epsilon_greedy", "thompson"]

MAIN = "main"
#: The section of a text without section markers.
BODY = "body"


class Param(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A declared parameter. A default makes it optional."""

    name: str
    type: ParamType = "string"
    required: bool = True
    default: str | None = None
    description: str = ""


class Version(Struct, frozen=True, kw_only=True):
    """One immutable text of a prompt. `sections` are merged with an ancestor's, `override_sections` replace them."""

    slug: str
    branch: str = MAIN
    number: int = 0  # counts from 1 on its branch; 0 = not stored yet
    semver: str = "1.0.0"
    type: str = "prompt"
    sections: Mapping[str, str] = {}
    override_sections: Mapping[str, str] = {}
    params: tuple[Param, ...] = ()
    engine: Engine = "dollar"
    inherits: str | None = None  # slug, slug@branch or slug@branch:number
    metadata: Mapping[str, Any] = {}  # `context_weights` {signal: weight} among it
    tags: tuple[str, ...] = ()
    author: str = ""
    description: str = ""
    sync: bool = False
    digest: str = ""  # hex SHA-256 over what renders (prompts.digest)
    created_at: float = 0.0  # Unix seconds
    supersedes: int = 0  # the number before it on its branch, 0 for none
    branched_from: str = ""  # "branch:number" where its branch begins, "" for the first

    @property
    def context_weights(self) -> Mapping[str, float]:
        """How well it fits which signals, by its author."""
        weights = self.metadata.get("context_weights")
        return weights if isinstance(weights, Mapping) else {}

    @property
    def source(self) -> str:
        """How blocks and records name it."""
        return f"prompt:{self.slug}@{self.branch}:{self.number}"


class Resolved(Struct, frozen=True, kw_only=True):
    """A Version with its ancestors' sections and parameters merged in; `version` is what it was resolved from."""

    version: Version
    sections: Mapping[str, str]  # in the order they are read
    params: tuple[Param, ...] = ()
    lineage: tuple[str, ...] = ()  # the sources of all it was made of, oldest ancestor first, itself last
    digests: tuple[str, ...] = ()  # theirs, in the same order

    @property
    def engine(self) -> Engine:
        """Which placeholders its text has."""
        return self.version.engine

    @property
    def source(self) -> str:
        """How blocks and records name it."""
        return self.version.source


class Label(Struct, frozen=True, kw_only=True):
    """A name that points at a Version, and who moved it there."""

    name: str
    branch: str
    number: int
    moved_by: str = ""
    moved_at: float = 0.0


class Branch(Struct, frozen=True, kw_only=True):
    """A branch as it stands. `weight` is the EMA of its active version's observations."""

    name: str
    head: int
    active: int
    weight: float = 0.5
    observations: int = 0
    rolled_back: tuple[int, ...] = ()  # versions that were rolled back and not cleared: not explored


class Observation(Struct, frozen=True, kw_only=True):
    """What one round says about the version that spoke. Components are kept; `score` is made of them."""

    slug: str
    branch: str
    number: int
    score: float
    sentiment: float  # 0..1
    corrections: int = 0
    outcome: TaskOutcome | None = None  # None: nobody reported one
    signals: Mapping[str, float] = {}
    propensity: float = 1.0
    share: float = 0.0  # of its branch's conversations, drawn by lot beside another version; 0: `propensity` is it
    conversation: str = ""
    user: str = ""
    turn: int = 0  # of the conversation; 0 where it was not read from one
    at: float = 0.0
