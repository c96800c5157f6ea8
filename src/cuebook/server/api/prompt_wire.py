"""Define the response types under `/api/prompts` for the OpenAPI document."""

from typing import Literal

from msgspec import Struct

# ---- impact ---------------------------------------------------------------------------------------------------------


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


class RollbackEvidence(_Out, frozen=True, kw_only=True):
    """The numbers of conversations, mean scores and statistics of a comparison, with the thresholds of a rollback."""

    method: str
    n: dict[str, int]
    means: dict[str, float]
    statistics: dict[str, float]
    thresholds: dict[str, float]


class RollbackState(_Out, frozen=True, kw_only=True):
    """The state of automatic rollback: done, or the reason why not, with the evidence so far."""

    decision: Literal["rollback", "keep", "wait", "hold", "off", "none", "refused", "lost"]
    reason: str
    evidence: RollbackEvidence | None


class ObserveAnswer(_Out, frozen=True, kw_only=True):
    """The result of an observation."""

    score: float
    edge_weight: float
    rolled_back: bool
    rollback: RollbackState


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
