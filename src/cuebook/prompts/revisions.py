"""Exchange prompt versions between projects as revisions: their encoding, merge base and three-way merge.

A revision is a version with the ids of its parents. Its id is the SHA-256 of its payload, so that equal revisions have
equal ids in all projects, and a history cannot be altered (as in Git).
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuebook.errors import InvalidInput, SyncRefused
from cuebook.prompts.difference import bump, difference, next_semver
from cuebook.prompts.digest import canonical, digest_of
from cuebook.prompts.files import read_stated, write_file
from cuebook.prompts.inherit import merge_versions
from cuebook.prompts.registry import rank
from cuebook.records.prompt import MAIN, Version
from cuebook.records.redaction import spans


class Revision(Struct, frozen=True, kw_only=True):
    """A version as projects exchange it. `payload` is what is signed."""

    id: str
    parents: tuple[str, ...]
    created_at: float
    version: Version
    payload: bytes


class _Payload(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    file: str
    created_at: float
    parents: tuple[str, ...]


Pool = Mapping[str, Revision]


def revision_of(version: Version, parents: Iterable[str], created_at: float) -> Revision:
    """Return the revision of a version. Raises SyncRefused if it contains a secret."""
    if has_secret(version):
        msg = f"Prompt {version.slug!r} ({version.semver}) contains a secret. Remove it, or set `sync: false`."
        raise SyncRefused(msg, reason="secret")
    file = write_file(replace(version, branch=MAIN))
    payload = canonical({"createdAt": created_at, "file": file, "parents": sorted(parents)})
    return read_revision(payload)


def has_secret(version: Version) -> bool:
    """Return whether a version's file contains a secret."""
    return bool(spans(write_file(replace(version, branch=MAIN))))


def read_revision(payload: bytes) -> Revision:
    """Parse a signed payload. Raises SyncRefused, also if it contains a secret or a path."""
    try:
        form = msgspec.json.decode(payload, type=_Payload)
        version, keys = read_stated(form.file, path="revision.md")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidInput) as error:
        msg = f"Cannot read a synced version: {error}."
        raise SyncRefused(msg, reason="path" if "not a valid id" in str(error) else "invalid") from error
    if "name" not in keys or version.branch != MAIN or not version.sync:
        msg = f"Cannot read a synced version of {version.slug!r}: it needs a name, branch main and `sync: true`."
        raise SyncRefused(msg, reason="invalid")
    if spans(form.file):
        msg = f"Prompt {version.slug!r} ({version.semver}) contains a secret. Ask its project to remove it."
        raise SyncRefused(msg, reason="secret")
    return Revision(
        id=hashlib.sha256(payload).hexdigest(),
        parents=form.parents,
        created_at=form.created_at,
        version=replace(version, digest=digest_of(version)),
        payload=payload,
    )


def check_history(revisions: Sequence[Revision], slug: str) -> None:
    """Check that revisions are one prompt's, each after its parents. Raises SyncRefused."""
    known: set[str] = set()
    for each in revisions:
        if each.version.slug != slug:
            msg = f"The file of prompt {slug!r} contains prompt {each.version.slug!r}. Ask its project to repair it."
            raise SyncRefused(msg, reason="path")
        if not known.issuperset(each.parents):
            msg = f"The history of prompt {slug!r} is incomplete. Ask its project to publish it again."
            raise SyncRefused(msg, reason="invalid")
        known.add(each.id)


def ancestors(head: str, pool: Pool) -> dict[str, Revision]:
    """Return a revision and all its ancestors, parents first."""
    found: dict[str, Revision] = {}
    pending = [head]
    while pending:
        missing = [each for each in pool[pending[-1]].parents if each not in found]
        if missing:
            pending += missing[::-1]
        else:
            last = pending.pop()
            found[last] = pool[last]
    return found


def path_to(head: str, pool: Pool, *, after: str | None) -> list[Revision]:
    """Return the revisions that lead from one (None: the first) to its descendant `head`, without the first."""
    previous: dict[str, str] = {}  # by revision: the first parent that descends from `after`
    for each in ancestors(head, pool).values():
        leading = [parent for parent in each.parents if after in (None, parent) or parent in previous]
        previous |= {each.id: leading[0]} if leading else {}
    path: list[Revision] = []
    here: str | None = head
    while here is not None and here != after:
        path.append(pool[here])
        here = previous.get(here)
    return path[::-1]


def common_versions(one: Revision, other: Revision, pool: Pool) -> list[Revision]:
    """Return the nearest common ancestors, by id: several after two different merges of the same revisions.

    Without one, return the newest version with the same text and semantic version, as after the import of a bundle.
    """
    ours, theirs = ancestors(one.id, pool), ancestors(other.id, pool)
    common = ours.keys() & theirs.keys()
    if common:
        return [pool[each] for each in sorted(common.difference(*(pool[each].parents for each in common)))]
    texts = {(each.version.semver, write_file(_plain(each.version))) for each in theirs.values()}
    equal = {(each.version.semver, write_file(_plain(each.version))): each for each in ours.values()}
    newest = max(equal.keys() & texts, key=lambda each: (rank(each[0]), *each), default=None)
    return [equal[newest]] if newest else []


def same_text(one: Version, other: Version) -> bool:
    """Return whether two versions differ at most in semantic version, author and location."""
    return write_file(_plain(one)) == write_file(_plain(other))


def merge(one: Revision, other: Revision, pool: Pool) -> tuple[Revision | None, list[str]]:
    """Return the merge of two revisions, or the names of the sections and fields in conflict.

    The result does not depend on the order of the two, so all projects compute the same revision.
    """
    ours, theirs = sorted((one, other), key=lambda each: each.id)
    a, b = ours.version, theirs.version
    bases = [each.version for each in common_versions(one, other, pool)] or [Version(slug=a.slug)]
    (fields, conflicts), *others = [merge_versions(base, a, b) for base in bases]
    names = [str(each["section"]) for each in conflicts]
    for again, more in others:  # two sides merged in different ways: one base would undo the choice of one side
        names += [*(str(each["section"]) for each in more), *_differing(fields, again)]
    if names:
        return None, list(dict.fromkeys(names))
    newest = max(ours, theirs, key=lambda each: (each.created_at, each.id))
    version = replace(newest.version, sync=True, **fields)
    top = max((a, b), key=lambda each: (rank(each.semver), each.semver))
    version = replace(version, semver=next_semver(top.semver, bump(difference(top, version))))
    return revision_of(version, (ours.id, theirs.id), newest.created_at), []


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the names of the sections and fields in which two merges differ."""
    names: list[str] = []
    for field, value in one.items():
        if isinstance(value, Mapping):
            names += [each for each in sorted({*value, *other[field]}) if value.get(each) != other[field].get(each)]
        elif value != other[field]:
            names.append(field)
    return names


def _plain(version: Version) -> Version:
    return replace(version, branch=MAIN, semver="1.0.0", author="")
