"""Convert prompts to JSON objects: INTERFACE's names, camelCase, ISO 8601 times. `version` is the number."""

import msgspec

from cuebook.app.json_shapes import Wire
from cuebook.app.prompts import ObservationResult, answers
from cuebook.app.prompts.migration import MigrationResult
from cuebook.records.answer import to_wire
from cuebook.records.prompt import Param, Version


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
