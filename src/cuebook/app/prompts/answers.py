"""The answers of prompt operations as JSON shows them: versions, branches, labels, history, ratings and differences."""

from typing import Any

from msgspec import Struct, field

from cuebook.app.prompts.impact import Impact, Tokens
from cuebook.interfaces.prompts import Family, PromptEvent
from cuebook.prompts.difference import Bump, FieldDifference, ParamDifference, SectionDifference
from cuebook.prompts.migrate import Skip
from cuebook.prompts.rollback import RollbackStatus
from cuebook.records.answer import Answer, Time
from cuebook.records.prompt import Branch, Label, Param, ResolvedVersion, Version


class VersionIdentity(Answer, frozen=True, kw_only=True):
    """A version's identity. `version` is its number on its branch."""

    slug: str
    branch: str
    number: int = field(name="version")
    semver: str
    digest: str

    def __str__(self) -> str:
        return f"{self.slug}@{self.branch}:{self.number} ({self.semver})"


class MigratedVersion(VersionIdentity, frozen=True, kw_only=True):
    """A version of a migration file, its path in the file, and the semantic version bump."""

    place: str
    bump: Bump


class MigrationResult(Answer, frozen=True, kw_only=True):
    """The versions that a migration stored, or with `dryRun` would store; `skipped` are stored already."""

    dry_run: bool
    written: tuple[MigratedVersion, ...]
    skipped: tuple[Skip, ...]


class ObservationResult(Answer, frozen=True, kw_only=True):
    """The result of an observation. `rollback` has the reason for or against a rollback of the newest version."""

    score: float
    edge_weight: float
    rolled_back: bool
    rollback: RollbackStatus


class VersionSummary(VersionIdentity, frozen=True, kw_only=True):
    """A version without its text. `head`: newest; `active`: in use; `rolledBack`: excluded from exploration."""

    type: str
    engine: str
    inherits: str | None
    description: str
    tags: tuple[str, ...]
    author: str
    sync: bool
    created_at: Time
    supersedes: int | None
    branched_from: str | None
    head: bool
    active: bool
    rolled_back: bool
    labels: tuple[str, ...]


class VersionEntry(VersionSummary, frozen=True, kw_only=True):
    """A version. With `resolve` it includes its ancestors' sections and parameters; `lineage` lists the ancestors."""

    sections: dict[str, str]
    override_sections: dict[str, str]
    params: tuple[Param, ...]
    metadata: dict[str, Any]
    lineage: tuple[str, ...]


class BranchEntry(Answer, frozen=True, kw_only=True):
    """A branch: its newest version, the active version with its score, and the rolled-back versions."""

    name: str
    head: int
    active: int
    semver: str
    digest: str
    weight: float = field(name="edgeWeight")
    observations: int
    rolled_back: tuple[int, ...] = field(name="rolledBackVersions")


class RolledBack(VersionIdentity, frozen=True, kw_only=True):
    """The version that is active again, and the rolled-back versions of its branch."""

    head: bool
    rolled_back: tuple[int, ...] = field(name="rolledBackVersions")


class BranchStatus(BranchEntry, frozen=True, kw_only=True):
    """A branch with the status of its automatic rollback."""

    rollback: RollbackStatus


class LabelEntry(Answer, frozen=True, kw_only=True):
    """A label, its version, and who moved it."""

    name: str
    branch: str
    number: int = field(name="version")
    moved_by: str
    moved_at: Time


class PromptEntry(VersionIdentity, frozen=True, kw_only=True):
    """A prompt: the active version of `main`, its branches and its labels."""

    type: str
    description: str
    tags: tuple[str, ...]
    author: str
    created_at: Time
    branches: tuple[BranchEntry, ...]
    labels: tuple[LabelEntry, ...]


class EventEntry(Answer, frozen=True, kw_only=True):
    """An event in a prompt's history; `to` is the version that became active or labeled."""

    kind: str
    branch: str
    number: int = field(name="version")
    to: int | None
    label: str | None
    by: str
    reason: str
    at: Time = field(name="timestamp")
    evidence: dict[str, Any]


class EdgeWeights(Struct, frozen=True, kw_only=True):
    """The history of a version's edge weight: each observation's time (Unix seconds), score and resulting weight."""

    branch: str
    number: int
    points: tuple[tuple[float, float, float], ...]


class VersionDiff(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """The changes from version `a` to `b`, the semantic version bump, and the change in tokens.

    `slugA` and `branchA` are those of `a` if they differ. On the command line, `file` may replace `b`.
    """

    slug: str
    branch: str
    a: int
    b: int | None
    slug_a: str | None = None
    branch_a: str | None = None
    bump: Bump
    sections: tuple[SectionDifference, ...]
    params: tuple[ParamDifference, ...]
    fields: tuple[FieldDifference, ...]
    tokens: Tokens
    impact: Impact | None = None
    file: str | None = None


def identity(value: Version) -> VersionIdentity:
    """Return a version's identity."""
    return VersionIdentity(**identity_fields(value))


def version_summary(value: Version, family: Family) -> VersionSummary:
    """Return a version without its texts, with its status and labels."""
    return VersionSummary(**_summary(value, family))


def version_entry(value: Version, family: Family, resolved: ResolvedVersion | None = None) -> VersionEntry:
    """Return a version with its own texts, or with its ancestors' merged in."""
    return VersionEntry(
        **_summary(value, family),
        sections=dict(resolved.sections if resolved else value.sections),
        override_sections=dict(value.override_sections),
        params=resolved.params if resolved else value.params,
        metadata=dict(value.metadata),
        lineage=resolved.lineage if resolved else (value.source,),
    )


def prompt_entry(value: Family) -> PromptEntry:
    """Return a prompt as a list item."""
    shown = value.version() or value.active[0]
    return PromptEntry(
        **identity_fields(shown),
        type=shown.type,
        description=shown.description,
        tags=shown.tags,
        author=shown.author,
        created_at=Time(shown.created_at),
        branches=tuple(branch_entry(each, value) for each in value.branches),
        labels=tuple(map(label_entry, value.labels)),
    )


def branch_entry(value: Branch, family: Family) -> BranchEntry:
    """Return a branch of a prompt."""
    return BranchEntry(**_branch(value, family))


def rolled_back(active: Version, branch: Branch) -> RolledBack:
    """Return a version that is active again."""
    return RolledBack(**identity_fields(active), head=branch.head == active.number, rolled_back=branch.rolled_back)


def branch_status(value: Branch, family: Family, rollback: RollbackStatus) -> BranchStatus:
    """Return a branch of a prompt with the status of its automatic rollback."""
    return BranchStatus(**_branch(value, family), rollback=rollback)


def label_entry(value: Label) -> LabelEntry:
    """Return a label."""
    return LabelEntry(
        name=value.name,
        branch=value.branch,
        number=value.number,
        moved_by=value.moved_by,
        moved_at=Time(value.moved_at),
    )


def event_entry(value: PromptEvent) -> EventEntry:
    """Return a change of a prompt."""
    return EventEntry(
        kind=value.kind,
        branch=value.branch,
        number=value.number,
        to=value.to or None,
        label=value.label or None,
        by=value.by,
        reason=value.reason,
        at=Time(value.at),
        evidence=dict(value.evidence),
    )


def identity_fields(value: Version) -> dict[str, Any]:
    """Return the fields of a version's identity by name."""
    return {name: getattr(value, name) for name in VersionIdentity.__struct_fields__}


def _summary(value: Version, family: Family) -> dict[str, Any]:
    stands = family.branch(value.branch)
    same = ("type", "engine", "inherits", "description", "tags", "author", "sync")
    return identity_fields(value) | {name: getattr(value, name) for name in same} | {
        "created_at": Time(value.created_at),
        "supersedes": value.supersedes or None,
        "branched_from": value.branched_from or None,
        "head": stands is not None and stands.head == value.number,
        "active": stands is not None and stands.active == value.number,
        "rolled_back": stands is not None and value.number in stands.rolled_back,
        "labels": tuple(
            each.name for each in family.labels if (each.branch, each.number) == (value.branch, value.number)
        ),
    }  # fmt: skip


def _branch(value: Branch, family: Family) -> dict[str, Any]:
    active = family.version(value.name)
    return {name: getattr(value, name) for name in value.__struct_fields__} | {
        "semver": active.semver if active else "",
        "digest": active.digest if active else "",
    }
