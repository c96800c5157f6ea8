"""What comes in and goes out under `/api/prompts`, as types: they are read, refused and documented by these."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from cuebook.records.prompt import Engine, ParamType, Strategy, TaskOutcome
from cuebook.server.wire import In, Text

#: No version has a higher number.
HIGHEST = 2**31

Bump = Literal["major", "minor", "patch", "none"]
Number = Annotated[int, Meta(ge=1, le=HIGHEST)]
Share = Annotated[float, Meta(ge=0, le=1)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
User = Annotated[str | None, Meta(description="Who asks")]


# ---- requests -------------------------------------------------------------------------------------------------------


class SaveBody(In, frozen=True, kw_only=True):
    """A version to write. What is left out stays what it was; `inherits: null` removes the parent.

    `base` is the version its writer saw, 0 for none: 409 where the head has moved on.
    """

    slug: str
    sections: dict[str, str]
    branch: Text | None = None
    type: Text | None = None
    override_sections: dict[str, str] | None = None
    inherits: str | UnsetType | None = UNSET
    metadata: dict[str, Any] | None = None
    params: Any = None
    engine: Engine | None = None
    semver: str | None = None
    base: Annotated[int, Meta(ge=0, le=HIGHEST)] | None = None
    tags: list[str] | None = None
    author: str | None = None
    description: str | None = None
    sync: bool | None = None
    user_id: User = None


class Origin(In, frozen=True, kw_only=True):
    """A version by its place: the active one of `main` unless named."""

    branch: Text | None = None
    version: Number | None = None


class ForkBody(In, frozen=True, kw_only=True):
    """A branch to begin, and with which version."""

    name: str
    origin: Origin | None = field(default=None, name="from")
    user_id: User = None


class RenderBody(In, frozen=True, kw_only=True):
    """Values of the declared parameters, with or without `$`. `log` puts the render into the audit."""

    params: dict[str, Any] = field(default_factory=dict)
    branch: Text | None = None
    version: Number | None = None
    log: bool = False
    user_id: User = None


class SelectBody(In, frozen=True, kw_only=True):
    """The signals of the moment, and how to choose. The same seed chooses the same."""

    signals: dict[str, float | bool] = field(default_factory=dict)
    strategy: Strategy | None = None
    epsilon: Share | None = None
    seed: Seed | None = None


class ObserveBody(In, frozen=True, kw_only=True):
    """What a round says about the version that spoke, the active one unless named."""

    sentiment: Share
    correction_count: Annotated[int, Meta(ge=0, le=HIGHEST)] = 0
    task_outcome: TaskOutcome | None = None
    branch: Text | None = None
    version: Number | None = None
    conversation_id: Text | None = None
    signals: dict[str, Share | bool] = field(default_factory=dict)
    propensity: Annotated[float, Meta(gt=0, le=1)] = 1.0
    user_id: User = None


class RollbackBody(In, frozen=True, kw_only=True):
    """Why, and to which version: the one before the active one unless named."""

    reason: Text
    branch: Text | None = None
    to: Number | None = None
    user_id: User = None


class LabelBody(In, frozen=True, kw_only=True):
    """A label, and where it is to point: at the active version of `main` unless named."""

    name: str
    branch: Text | None = None
    version: Number | None = None
    user_id: User = None


class MigrateBody(In, frozen=True, kw_only=True):
    """The content of a migration file: an array of versions, or `{"prompts", "versions", "inheritance"}`."""

    document: Any
    dry_run: bool = False
    user_id: User = None


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


class Summary(Written, frozen=True, kw_only=True):
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


class VersionAnswer(Summary, frozen=True, kw_only=True):
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

    items: list[Summary]


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


class DiffAnswer(_Out, frozen=True, kw_only=True):
    """What is other in version `b` than in `a`, and what that asks of the semantic version."""

    slug: str
    branch: str
    a: int
    b: int
    bump: Bump
    sections: list[SectionChange]
    params: list[ParamChange]
    fields: list[FieldChange]


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
