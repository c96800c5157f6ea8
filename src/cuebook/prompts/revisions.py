"""Exchange prompt versions between projects as revisions: their encoding, merge base and three-way merge.

A revision is a version with the ids of its parents. Its id is the SHA-256 of its payload, so that equal revisions have
equal ids in all projects, and a history cannot be altered (as in Git).
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuebook.errors import InvalidInput, SyncRefused
from cuebook.prompts.difference import bump, difference, next_semver
from cuebook.prompts.digest import canonical, digest_of
from cuebook.prompts.files import read_stated, write_file
from cuebook.prompts.inherit import merge3
from cuebook.prompts.registry import rank
from cuebook.records.prompt import MAIN, Version
from cuebook.records.redaction import spans

#: Fields that are merged as a whole; sections and metadata are merged by name.
_FIELDS: Final = ("type", "params", "engine", "inherits", "tags", "description")
_MAPPINGS: Final = ("sections", "override_sections", "metadata")


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
    except (msgspec.DecodeError, InvalidInput) as error:
        msg = f"Cannot read a synced version: {error}."
        raise SyncRefused(msg, reason="path" if "not a valid id" in str(error) else "invalid") from error
    if "name" not in keys or version.branch != MAIN or not version.sync:
        msg = f"Cannot read a synced version of {version.slug!r}: it needs a name, branch main and `sync: true`."
        raise SyncRefused(msg, reason="invalid")
    if spans(form.file):
        msg = f"Prompt {version.slug!r} ({version.semver}) contains a secret. Ask its author to remove it."
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
            msg = f"The file of prompt {slug!r} contains prompt {each.version.slug!r}. Ask its author to repair it."
            raise SyncRefused(msg, reason="path")
        if not known.issuperset(each.parents):
            msg = f"The history of prompt {slug!r} is incomplete. Ask its author to publish it again."
            raise SyncRefused(msg, reason="invalid")
        known.add(each.id)


def ancestors(head: str, pool: Pool) -> dict[str, Revision]:
    """Return a revision and all its ancestors, parents first."""
    found: dict[str, Revision] = {}
    way = [head]
    while way:
        missing = [each for each in pool[way[-1]].parents if each not in found]
        if missing:
            way += missing[::-1]
        else:
            last = way.pop()
            found[last] = pool[last]
    return found


def path_to(head: str, pool: Pool, *, after: str | None) -> list[Revision]:
    """Return the revisions that lead from one (None: the first) to its descendant `head`, without the first."""
    path: list[Revision] = []
    here: str | None = head
    while here is not None and here != after:
        path.append(pool[here])
        parents = pool[here].parents
        here = next((each for each in parents if after is None or after in ancestors(each, pool)), None)
    return path[::-1]


def merge_bases(one: str, other: str, pool: Pool) -> list[Revision]:
    """Return the nearest common ancestors by id: several after two different merges of the same revisions."""
    common = ancestors(one, pool).keys() & ancestors(other, pool).keys()
    behind = {parent for each in common for parent in ancestors(each, pool) if parent != each}
    return [pool[each] for each in sorted(common - behind)]


def same_text(one: Version, other: Version) -> bool:
    """Return whether two versions differ at most in semantic version, author and location."""
    return write_file(_plain(one)) == write_file(_plain(other))


def merge(one: Revision, other: Revision, pool: Pool) -> tuple[Revision | None, list[str]]:
    """Return the merge of two revisions, or the names of the sections and fields in conflict.

    The result does not depend on the order of the two, so all projects compute the same revision.
    """
    ours, theirs = sorted((one, other), key=lambda each: each.id)
    a, b = ours.version, theirs.version
    bases = [each.version for each in merge_bases(one.id, other.id, pool)] or [Version(slug=a.slug)]
    merged, conflicts = _merged(bases[0], a, b)
    for base in bases[1:]:  # two sides merged in different ways: one base would undo the choice of one side
        again, others = _merged(base, a, b)
        differing = {key for key in merged.keys() | again.keys() if merged.get(key) != again.get(key)}
        conflicts += [*others, *sorted(name for _, name in differing)]
    if conflicts:
        return None, list(dict.fromkeys(conflicts))
    values: dict[str, Any] = {kind: {} for kind in _MAPPINGS}
    for (kind, name), value in merged.items():
        if kind in _MAPPINGS:
            values[kind][name] = value
        else:
            values[name] = value
    newest = max(ours, theirs, key=lambda each: (each.created_at, each.id))
    version = replace(newest.version, sync=True, **values)
    top = max((a, b), key=lambda each: (rank(each.semver), each.semver))
    version = replace(version, semver=next_semver(top.semver, bump(difference(top, version))))
    return revision_of(version, (ours.id, theirs.id), newest.created_at), []


def _merged(base: Version, a: Version, b: Version) -> tuple[dict[tuple[str, str], Any], list[str]]:
    """Return the merged values by kind and name, and the names of those in conflict."""
    merged: dict[tuple[str, str], Any] = {}
    conflicts: list[str] = []
    for kind in ("sections", "override_sections"):
        texts, clashes = merge3(getattr(base, kind), getattr(a, kind), getattr(b, kind))
        conflicts += [str(each["section"]) for each in clashes]
        conflicts += sorted(name for name in texts if ("sections", name) in merged)
        merged |= {(kind, name): text for name, text in texts.items()}
    for name in _FIELDS:
        merged["field", name], clash = _pick(getattr(base, name), getattr(a, name), getattr(b, name))
        conflicts += [name] if clash else []
    for name in dict.fromkeys((*a.metadata, *b.metadata)):
        value, clash = _pick(base.metadata.get(name), a.metadata.get(name), b.metadata.get(name))
        conflicts += [name] if clash else []
        merged |= {} if value is None else {("metadata", name): value}
    return merged, conflicts


def _pick(base: Any, ours: Any, theirs: Any) -> tuple[Any, bool]:
    """Return the merged value of a field, and whether both sides changed it."""
    if theirs in (ours, base):
        return ours, False
    return (theirs, False) if ours == base else (ours, True)


def _plain(version: Version) -> Version:
    return replace(version, branch=MAIN, semver="1.0.0", author="")
