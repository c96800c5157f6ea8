"""Convert prompts to JSON objects: INTERFACE's names, camelCase, ISO 8601 times. `version` is the number."""

from typing import Any

import msgspec

from cuebook.app.json_shapes import Wire, iso
from cuebook.app.prompts import ObservationResult, RenderedPrompt
from cuebook.app.prompts.migration import MigrationResult
from cuebook.interfaces.prompts import Family, PromptEvent
from cuebook.prompts.difference import Difference, bump
from cuebook.prompts.inherit import Clash
from cuebook.prompts.select import Choice, Selection
from cuebook.records.prompt import Branch, Label, Param, ResolvedVersion, Version


def written(value: Version) -> Wire:
    """Return the identity of a version: the response of every route that creates one."""
    return {
        "slug": value.slug,
        "branch": value.branch,
        "version": value.number,
        "semver": value.semver,
        "digest": value.digest,
    }


def summary(value: Version, family: Family) -> Wire:
    """Return a version without its texts, with its status and labels."""
    stands = family.branch(value.branch)
    return written(value) | {
        "type": value.type,
        "engine": value.engine,
        "inherits": value.inherits,
        "description": value.description,
        "tags": list(value.tags),
        "author": value.author,
        "sync": value.sync,
        "createdAt": iso(value.created_at),
        "supersedes": value.supersedes or None,
        "branchedFrom": value.branched_from or None,
        "head": stands is not None and stands.head == value.number,
        "active": stands is not None and stands.active == value.number,
        "rolledBack": stands is not None and value.number in stands.rolled_back,
        "labels": [each.name for each in family.labels if (each.branch, each.number) == (value.branch, value.number)],
    }


def version(value: Version, family: Family, resolved: ResolvedVersion | None = None) -> Wire:
    """Return a version with its own texts, or with its ancestors' merged in; `lineage` lists the ancestors."""
    return summary(value, family) | {
        "sections": dict(resolved.sections if resolved else value.sections),
        "overrideSections": dict(value.override_sections),
        "params": [param(each) for each in (resolved.params if resolved else value.params)],
        "metadata": dict(value.metadata),
        "lineage": list(resolved.lineage) if resolved else [value.source],
    }


def param(value: Param) -> Wire:
    """Return a declared parameter."""
    return {
        "name": value.name,
        "type": value.type,
        "required": value.required,
        "default": value.default,
        "description": value.description,
    }


def family(value: Family) -> Wire:
    """Return a prompt as a list item: the active version of `main`, its branches and its labels."""
    shown = value.version() or value.active[0]
    return written(shown) | {
        "type": shown.type,
        "description": shown.description,
        "tags": list(shown.tags),
        "author": shown.author,
        "createdAt": iso(shown.created_at),
        "branches": [branch(each, value) for each in value.branches],
        "labels": [label(each) for each in value.labels],
    }


def branch(value: Branch, family: Family) -> Wire:
    """Return a branch: its version numbers, and the learned weights of its active version."""
    active = family.version(value.name)
    return {
        "name": value.name,
        "head": value.head,
        "active": value.active,
        "semver": active.semver if active else "",
        "digest": active.digest if active else "",
        "edgeWeight": value.weight,
        "observations": value.observations,
        "rolledBackVersions": list(value.rolled_back),
    }


def label(value: Label) -> Wire:
    """Return a label, the version it points at, and who moved it."""
    return {
        "name": value.name,
        "branch": value.branch,
        "version": value.number,
        "movedBy": value.moved_by,
        "movedAt": iso(value.moved_at),
    }


def event(value: PromptEvent) -> Wire:
    """Return a change of a prompt; `to` is the version that became active or labeled."""
    return {
        "kind": value.kind,
        "branch": value.branch,
        "version": value.number,
        "to": value.to or None,
        "label": value.label or None,
        "by": value.by,
        "reason": value.reason,
        "timestamp": iso(value.at),
        "evidence": dict(value.evidence),
    }


def difference(value: Difference) -> Wire:
    """Return the difference between two versions, and the semantic version change it requires."""
    return {
        "bump": bump(value),
        "sections": [
            {"name": each.name, "kind": each.kind, "override": each.override, "lines": list(each.lines)}
            for each in value.sections
        ],
        "params": [
            {
                "name": each.name,
                "kind": each.kind,
                "before": param(each.before) if each.before else None,
                "after": param(each.after) if each.after else None,
            }
            for each in value.params
        ],
        "fields": [{"name": each.name, "before": each.before, "after": each.after} for each in value.fields],
    }


def conflict(value: Clash) -> dict[str, str | None]:
    """Return a merge conflict: a section that both sides changed, with its original text."""
    return {"section": value.section, "base": value.base, "ours": value.ours, "theirs": value.theirs}


def rendered(value: RenderedPrompt) -> Wire:
    """Return a rendered prompt and its source."""
    data: dict[str, Any] = msgspec.to_builtins(value)
    seq = data.pop("audit_seq")
    return data | ({} if seq is None else {"auditSeq": seq})


def selection(value: Selection) -> Wire:
    """Return the selected variant with its probability, and the other variants."""
    return {
        "selected": _choice(value.selected),
        "propensity": value.propensity,
        "explored": value.explored,
        "variants": [_choice(each) for each in value.variants],
    }


def _choice(value: Choice) -> Wire:
    return {
        "slug": value.slug,
        "branch": value.branch,
        "version": value.number,
        "edgeWeight": value.edge_weight,
        "contextFit": value.context_fit,
        "totalScore": value.total_score,
        "propensity": value.propensity,
    }


def observed(value: ObservationResult) -> Wire:
    """Return the result of an observation."""
    return {
        "score": value.score,
        "edgeWeight": value.edge_weight,
        "rolledBack": value.rolled_back,
        "rollback": msgspec.to_builtins(value.rollback),
    }


def migrated(value: MigrationResult) -> Wire:
    """Return the versions that a migration stored or would store, and those skipped, each with its path in the file."""
    return {
        "dryRun": value.dry_run,
        "written": [{"place": place} | written(each) | {"bump": asked} for place, asked, each in value.written],
        "skipped": [
            {"place": each.place, "slug": each.slug, "branch": each.branch, "version": each.number}
            for each in value.skipped
        ],
    }


def rolled_back(value: Version, stands: Branch) -> Wire:
    """Return the version that is active again, and the suspended versions of its branch."""
    return written(value) | {"head": stands.head == value.number, "rolledBackVersions": list(stands.rolled_back)}
