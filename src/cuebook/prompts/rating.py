"""Rate a prompt's quality from 0 to 100, with the parts of the score.

| part | most | of what |
| --- | --- | --- |
| lint | 40 | minus 20 per error, 5 per warning, 1 per hint |
| described | 15 | 10 for a description, 5 for those of its parameters, by share |
| tested | 15 | 5 for having tests; the rest would need a run of them |
| observed | 30 | the mean score of its observations, drawn towards 0.5 by `PRIOR` virtual observations |

A prompt without observations gets 15 of the 30, which is neutral. The weights are ours: half for the text, half for
tests and observations.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct, field

from cuebook.prompts.lint import LintFinding, Severity
from cuebook.records.answer import Answer
from cuebook.records.expression import counted
from cuebook.records.prompt import MAIN, Version

#: The number of observations that 0.5, a branch's first weight, counts as (notes: a baseline needs 10).
PRIOR: Final = 10
_COST: Final[dict[Severity, int]] = {"error": 20, "warning": 5, "info": 1}
_LINT, _DESCRIPTION, _PARAMS, _LISTED, _TESTED, _OBSERVED = 40, 10, 5, 5, 15, 30


class PointsPart(Struct, frozen=True):
    """One part of a rating: points, maximum and reason."""

    name: str
    points: float
    most: int
    reason: str


class QualityRating(Answer, frozen=True, kw_only=True):
    """A version's quality, 0 to 100, the sum of its parts."""

    slug: str
    branch: str
    number: int = field(name="version")
    score: float
    parts: tuple[PointsPart, ...]


def rate(version: Version, findings: Iterable[LintFinding], *, scores: Sequence[float] = ()) -> QualityRating:
    """Return a version's rating. `scores` are its observations', 0 to 1. Findings of other prompts are ignored."""
    parts = (_lint(version, findings), _described(version), _tested(version), _observed(scores))
    score = round(sum(part.points for part in parts), 1)
    return QualityRating(slug=version.slug, branch=version.branch, number=version.number, score=score, parts=parts)


def _lint(version: Version, findings: Iterable[LintFinding]) -> PointsPart:
    slug = version.slug if version.branch == MAIN else f"{version.slug}@{version.branch}"
    lint_findings = [finding for finding in findings if finding.slug == slug]
    counts = {severity: sum(finding.severity == severity for finding in lint_findings) for severity in _COST}
    points = max(0, _LINT - sum(_COST[severity] * count for severity, count in counts.items()))
    text = ", ".join(f"{count} {severity}" for severity, count in counts.items() if count)
    return PointsPart("lint", points, _LINT, text or "nothing found")


def _described(version: Version) -> PointsPart:
    params = [param for param in version.params if param.description.strip()]
    share = len(params) / len(version.params) if version.params else 1.0
    described = bool(version.description.strip())
    reason = "a description" if described else "no description"
    if version.params:
        reason += f", {len(params)} of {len(version.params)} parameters described"
    points = _DESCRIPTION * described + _PARAMS * share * (described or bool(version.params))
    return PointsPart("described", round(points, 1), _DESCRIPTION + _PARAMS, reason)


def _tested(version: Version) -> PointsPart:
    if version.metadata.get("tests"):
        return PointsPart("tested", _LISTED, _TESTED, "tests listed, but not run")
    return PointsPart("tested", 0, _TESTED, "no tests")


def _observed(scores: Sequence[float]) -> PointsPart:
    count = len(scores)
    mean = (sum(scores) + 0.5 * PRIOR) / (count + PRIOR)
    called = counted(count, "observation")
    reason = f"{called}, mean {sum(scores) / count:.2f}" if count else "not observed yet"
    return PointsPart("observed", round(_OBSERVED * mean, 1), _OBSERVED, reason)
