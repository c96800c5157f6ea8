"""Convert prompts to JSON objects: INTERFACE's names, camelCase, ISO 8601 times. `version` is the number."""

import msgspec

from cuebook.app.json_shapes import Wire
from cuebook.app.prompts import ObservationResult, answers
from cuebook.app.prompts.migration import MigrationResult
from cuebook.interfaces.prompts import Family
from cuebook.records.answer import to_wire
from cuebook.records.prompt import Branch, Label, Param, Version


def written(value: Version) -> Wire:
    """Return the identity of a version: the response of every route that creates one."""
    return {
        "slug": value.slug,
        "branch": value.branch,
        "version": value.number,
        "semver": value.semver,
        "digest": value.digest,
    }


def param(value: Param) -> Wire:
    """Return a declared parameter."""
    data: Wire = to_wire(answers.param_entry(value))
    return data


def branch(value: Branch, family: Family) -> Wire:
    """Return a branch: its version numbers, and the learned weights of its active version."""
    data: Wire = to_wire(answers.branch_entry(value, family))
    return data


def label(value: Label) -> Wire:
    """Return a label, the version it points at, and who moved it."""
    data: Wire = to_wire(answers.label_entry(value))
    return data


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
