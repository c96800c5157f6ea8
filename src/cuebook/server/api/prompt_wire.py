"""What goes out under `/api/prompts`, as types: for the document at /schema."""

from typing import Any, Literal

from msgspec import Struct

from cuebook.records.prompt import ParamType

# ---- impact ---------------------------------------------------------------------------------------------------------


class TokenChange(Struct, frozen=True, kw_only=True, rename="camel"):
    """Tokens before and after."""

    before: int
    after: int
    change: int


class TurnOf(Struct, frozen=True, kw_only=True, rename="camel"):
    """A turn of a conversation."""

    conversation_id: str
    turn: int


class MovedBlocks(Struct, frozen=True, kw_only=True, rename="camel"):
    """Blocks of a kind (`memory`, `post`, …) that left windows or came in: in how many turns, and how many in all.

    `at`: the newest of these turns, 20 at most, of conversations that who asks may read.
    """

    kind: str
    turns: int
    share: float
    total: int
    mean: float
    tokens: int
    at: list[TurnOf]


class TurnsByReason(Struct, frozen=True, kw_only=True, rename="camel"):
    """Why something could not be done, and in how many turns."""

    reason: str
    turns: int


class ImpactAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """What version `b` would have done to the windows of the last turns in the place of `a`.

    `share`: the turns in which something more is left out. `tokens`: the prompt as rendered, `window`: all of it, both
    as means. `prefixKept`: bytes from the front that stay. `refused`: turns whose window could not have been made.
    `shortenedAt`, `refusedAt`: the newest of these turns, 20 at most.
    `reproduced`: turns whose window comes out as it was sent, byte for byte. `missed`: turns that are not measured.
    """

    summary: str
    turns: int
    looked_at: int
    share: float
    tokens: TokenChange
    window: TokenChange
    left_out: list[MovedBlocks]
    let_in: list[MovedBlocks]
    shortened: int
    shortened_at: list[TurnOf]
    prefix_kept: float
    refused: int
    refused_at: list[TurnOf]
    reproduced: int
    unsaid: list[TurnsByReason]
    missed: list[TurnsByReason]


Bump = Literal["major", "minor", "patch", "none"]


# ---- answers --------------------------------------------------------------------------------------------------------


class _Out(Struct, frozen=True, kw_only=True, rename="camel"):
    """An answer, for the document at /schema; routes give the same fields."""


class Written(_Out, frozen=True, kw_only=True):
    """Which version it is. `version` counts on its branch."""

    slug: str
    branch: str
    version: int
    semver: str
    digest: str


class VersionSummary(Written, frozen=True, kw_only=True):
    """A version without its texts. `head`: the newest; `active`: what is used; `rolledBack`: not explored."""

    type: str
    engine: str
    inherits: str | None
    description: str
    tags: list[str]
    author: str
    sync: bool
    created_at: str | None
    supersedes: int | None
    branched_from: str | None
    head: bool
    active: bool
    rolled_back: bool
    labels: list[str]


class ParamAnswer(_Out, frozen=True, kw_only=True):
    """A declared parameter. A default makes it optional."""

    name: str
    type: ParamType
    required: bool
    default: str | None
    description: str


class VersionAnswer(VersionSummary, frozen=True, kw_only=True):
    """A version. With `resolve` sections and parameters are merged with its ancestors'; `lineage` names all of them."""

    sections: dict[str, str]
    override_sections: dict[str, str]
    params: list[ParamAnswer]
    metadata: dict[str, Any]
    lineage: list[str]


class BranchAnswer(_Out, frozen=True, kw_only=True):
    """A branch: its newest version, the one that is used, what was learnt of that, and those that are not explored."""

    name: str
    head: int
    active: int
    semver: str
    digest: str
    edge_weight: float
    observations: int
    rolled_back_versions: list[int]


class LabelAnswer(_Out, frozen=True, kw_only=True):
    """A label, where it points, and who moved it there."""

    name: str
    branch: str
    version: int
    moved_by: str
    moved_at: str | None


class PromptAnswer(Written, frozen=True, kw_only=True):
    """A prompt: the active version of `main`, its branches and its labels."""

    type: str
    description: str
    tags: list[str]
    author: str
    created_at: str | None
    branches: list[BranchAnswer]
    labels: list[LabelAnswer]


class EventAnswer(_Out, frozen=True, kw_only=True):
    """What was done to a prompt; `to` is the version that is active or labelled since."""

    kind: str
    branch: str
    version: int
    to: int | None
    label: str | None
    by: str
    reason: str
    timestamp: str | None
    evidence: dict[str, Any]


class _Paged(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A list, whole or a page of it; `next` is the cursor of the page behind."""

    next: str | None = None


class PromptPage(_Paged, frozen=True, kw_only=True, omit_defaults=True):
    """Prompts by name."""

    items: list[PromptAnswer]


class VersionPage(_Paged, frozen=True, kw_only=True, omit_defaults=True):
    """Versions, `main` first, oldest first."""

    items: list[VersionSummary]


class BranchPage(_Paged, frozen=True, kw_only=True, omit_defaults=True):
    """Branches, `main` first."""

    items: list[BranchAnswer]


class LabelPage(_Paged, frozen=True, kw_only=True, omit_defaults=True):
    """Labels by name."""

    items: list[LabelAnswer]


class EventPage(_Paged, frozen=True, kw_only=True, omit_defaults=True):
    """What was done, the newest first."""

    items: list[EventAnswer]


class SectionChange(_Out, frozen=True, kw_only=True):
    """A section that is new, gone or other; `lines` as in a unified diff."""

    name: str
    kind: str
    override: bool
    lines: list[str]


class ParamChange(_Out, frozen=True, kw_only=True):
    """A parameter that is new (no `before`), gone (no `after`) or other."""

    name: str
    kind: str
    before: ParamAnswer | None
    after: ParamAnswer | None


class FieldChange(_Out, frozen=True, kw_only=True):
    """Another field with its two values."""

    name: str
    before: Any
    after: Any


class DiffAnswer(_Out, frozen=True, kw_only=True, omit_defaults=True):
    """What is other in version `b` than in `a`, what that asks of the semantic version, and what it costs."""

    slug: str
    branch: str
    a: int
    b: int
    bump: Bump
    sections: list[SectionChange]
    params: list[ParamChange]
    fields: list[FieldChange]
    tokens: TokenChange
    impact: ImpactAnswer | None = None


class RenderAnswer(Written, frozen=True, kw_only=True):
    """A rendered prompt and what it was rendered from; with `log` its record in the audit."""

    text: str
    timestamp: str
    lineage: list[str]
    audit_seq: int | None = None


class ChoiceAnswer(_Out, frozen=True, kw_only=True):
    """A variant with its scores in these signals, and the probability with which it is picked."""

    slug: str
    branch: str
    version: int
    edge_weight: float
    context_fit: float
    total_score: float
    propensity: float


class SelectAnswer(_Out, frozen=True, kw_only=True):
    """What was picked, and from what."""

    selected: ChoiceAnswer
    propensity: float
    explored: bool
    variants: list[ChoiceAnswer]


class ObserveAnswer(_Out, frozen=True, kw_only=True):
    """What an observation came to."""

    score: float
    edge_weight: float
    rolled_back: bool


class RollbackAnswer(Written, frozen=True, kw_only=True):
    """The version that is active again, and those of its branch that are not explored."""

    head: bool
    rolled_back_versions: list[int]


class RatingPart(_Out, frozen=True, kw_only=True):
    """One part of a rating: its points of how many, and why."""

    name: str
    points: float
    most: int
    reason: str


class RatingAnswer(_Out, frozen=True, kw_only=True):
    """How good a version is, from 0 to 100: the sum of its parts."""

    slug: str
    branch: str
    version: int
    score: float
    parts: list[RatingPart]


class FindingAnswer(_Out, frozen=True, kw_only=True):
    """What is wrong about a prompt: by which rule, how bad, and where in it."""

    rule: str
    severity: Literal["error", "warning", "info"]
    slug: str
    where: str
    message: str


class LintAnswer(_Out, frozen=True, kw_only=True):
    """What the rules found, the worst first."""

    items: list[FindingAnswer]


class MigratedVersion(Written, frozen=True, kw_only=True):
    """A version that was or would be written, its place in the document, and what its change asks for."""

    place: str
    bump: Bump


class SkippedVersion(_Out, frozen=True, kw_only=True):
    """A version that stood there already."""

    place: str
    slug: str
    branch: str
    version: int


class MigrateAnswer(_Out, frozen=True, kw_only=True):
    """What was written, or with `dryRun` would be; parents and `main` first."""

    dry_run: bool
    written: list[MigratedVersion]
    skipped: list[SkippedVersion]
