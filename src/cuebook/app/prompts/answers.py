"""The answers of prompt operations as JSON shows them: versions, branches, labels, history, ratings and differences."""

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct, field

from cuebook.app.prompts.impact import Impact, Tokens
from cuebook.interfaces.prompts import Family
from cuebook.prompts.difference import Bump, FieldDifference, ParamDifference, SectionDifference
from cuebook.prompts.migrate import Skip
from cuebook.prompts.rollback import RollbackStatus
from cuebook.records.answer import Answer, Time, as_answer
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

    def __str__(self) -> str:
        done = "version rolled back" if self.rolled_back else "no rollback"
        return f"score {self.score:.3f}, new edge weight {self.edge_weight:.3f}\n{done}: {self.rollback.reason}"


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

    sections: Mapping[str, str]
    override_sections: Mapping[str, str]
    params: tuple[Param, ...]
    metadata: Mapping[str, Any]
    lineage: tuple[str, ...]


class RolledBack(VersionIdentity, frozen=True, kw_only=True):
    """The version that is active again, and the rolled-back versions of its branch."""

    head: bool
    rolled_back: tuple[int, ...] = field(name="rolledBackVersions")


class BranchStatus(Branch, frozen=True, kw_only=True):
    """A branch with the status of its automatic rollback."""

    COLUMNS: ClassVar = ("name", "head", "active", "semver", "weight", "observations", "rolled_back")

    rollback: RollbackStatus


class PromptEntry(VersionIdentity, frozen=True, kw_only=True):
    """A prompt: the active version of `main`, its branches and its labels."""

    type: str
    description: str
    tags: tuple[str, ...]
    author: str
    created_at: Time
    branches: tuple[Branch, ...]
    labels: tuple[Label, ...]


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


def version_summary(value: Version, family: Family) -> VersionSummary:
    """Return a version without its texts, with its status and labels."""
    return as_answer(VersionSummary, value, **_status(value, family))


def version_entry(value: Version, family: Family, resolved: ResolvedVersion | None = None) -> VersionEntry:
    """Return a version with its own texts, or with its ancestors' merged in."""
    return as_answer(
        VersionEntry,
        value,
        sections=resolved.sections if resolved else value.sections,
        params=resolved.params if resolved else value.params,
        lineage=resolved.lineage if resolved else (value.source,),
        **_status(value, family),
    )


def prompt_entry(value: Family) -> PromptEntry:
    """Return a prompt as a list item."""
    return as_answer(PromptEntry, value.version() or value.active[0], branches=value.branches, labels=value.labels)


def _status(value: Version, family: Family) -> dict[str, Any]:
    branch = family.branch(value.branch)
    return {
        "supersedes": value.supersedes or None,
        "branched_from": value.branched_from or None,
        "head": branch is not None and branch.head == value.number,
        "active": branch is not None and branch.active == value.number,
        "rolled_back": branch is not None and value.number in branch.rolled_back,
        "labels": tuple(
            each.name for each in family.labels if (each.branch, each.number) == (value.branch, value.number)
        ),
    }
