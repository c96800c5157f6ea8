"""Define the response types under `/api/prompts` for the OpenAPI document."""

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
    """Blocks of a kind (`memory`, `post`, …) that windows lose or gain: number of turns, and total.

    `at`: the newest 20 of these turns, in conversations that the caller may read.
    """

    kind: str
    turns: int
    share: float
    total: int
    mean: float
    tokens: int
    at: list[TurnOf]


class TurnsByReason(Struct, frozen=True, kw_only=True, rename="camel"):
    """A reason, and the number of turns it applies to."""

    reason: str
    turns: int


class ImpactAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """The effect on the windows of recorded turns if version `b` replaced `a`.

    `share`: share of turns that leave out more. `tokens`: mean size of the rendered prompt, `window`: of the window.
    `prefixKept`: share of unchanged leading bytes. `refused`: turns whose window could not be assembled.
    `shortenedAt`, `refusedAt`: the newest 20 of these turns.
    `reproduced`: turns whose unchanged window matches the sent bytes. `missed`: turns that were not measured.
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
    """A response body in the OpenAPI document; routes return the same fields."""


class Written(_Out, frozen=True, kw_only=True):
    """A version's identity. `version` is its number on its branch."""

    slug: str
    branch: str
    version: int
    semver: str
    digest: str


class ParamAnswer(_Out, frozen=True, kw_only=True):
    """A declared parameter; optional if it has a default."""

    name: str
    type: ParamType
    required: bool
    default: str | None
    description: str


class BranchAnswer(_Out, frozen=True, kw_only=True):
    """A branch: its newest version, the active version with its score, and the rolled-back versions."""

    name: str
    head: int
    active: int
    semver: str
    digest: str
    edge_weight: float
    observations: int
    rolled_back_versions: list[int]


class RollbackEvidence(_Out, frozen=True, kw_only=True):
    """The numbers of conversations, mean scores and statistics of a comparison, with the thresholds of a rollback."""

    method: str
    n: dict[str, int]
    means: dict[str, float]
    statistics: dict[str, float]
    thresholds: dict[str, float]


class RollbackState(_Out, frozen=True, kw_only=True):
    """Whether the newest version was automatically rolled back, or the reason why not, with the evidence so far."""

    decision: Literal["rollback", "keep", "wait", "hold", "off", "none", "refused", "lost"]
    reason: str
    evidence: RollbackEvidence | None


class LabelAnswer(_Out, frozen=True, kw_only=True):
    """A label, its version, and who moved it."""

    name: str
    branch: str
    version: int
    moved_by: str
    moved_at: str | None


class SectionChange(_Out, frozen=True, kw_only=True):
    """A section that was added, removed or changed; `lines` is a unified diff."""

    name: str
    kind: str
    override: bool
    lines: list[str]


class ParamChange(_Out, frozen=True, kw_only=True):
    """A parameter that was added (no `before`), removed (no `after`) or changed."""

    name: str
    kind: str
    before: ParamAnswer | None
    after: ParamAnswer | None


class FieldChange(_Out, frozen=True, kw_only=True):
    """A changed metadata field with both values."""

    name: str
    before: Any
    after: Any


class DiffAnswer(_Out, frozen=True, kw_only=True, omit_defaults=True):
    """The changes from version `a` to `b`, the semantic version bump, and the change in tokens."""

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
    """A rendered prompt and its version; with `log` also its audit record."""

    text: str
    timestamp: str
    lineage: list[str]
    audit_seq: int | None = None


class ChoiceAnswer(_Out, frozen=True, kw_only=True):
    """A variant with its scores for the signals, and its selection probability."""

    slug: str
    branch: str
    version: int
    edge_weight: float
    context_fit: float
    total_score: float
    propensity: float


class SelectAnswer(_Out, frozen=True, kw_only=True):
    """The selected variant, and all variants."""

    selected: ChoiceAnswer
    propensity: float
    explored: bool
    variants: list[ChoiceAnswer]


class ObserveAnswer(_Out, frozen=True, kw_only=True):
    """The result of an observation."""

    score: float
    edge_weight: float
    rolled_back: bool
    rollback: RollbackState


class RollbackAnswer(Written, frozen=True, kw_only=True):
    """The version that is active again, and the rolled-back versions of its branch."""

    head: bool
    rolled_back_versions: list[int]


class MigratedVersion(Written, frozen=True, kw_only=True):
    """A migrated version, its place in the document, and its semantic version bump."""

    place: str
    bump: Bump


class SkippedVersion(_Out, frozen=True, kw_only=True):
    """A version that already existed."""

    place: str
    slug: str
    branch: str
    version: int


class MigrateAnswer(_Out, frozen=True, kw_only=True):
    """Versions that were written, or with `dryRun` would be; parents and `main` first."""

    dry_run: bool
    written: list[MigratedVersion]
    skipped: list[SkippedVersion]
