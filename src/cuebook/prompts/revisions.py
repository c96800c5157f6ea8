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
    file = write_file(replace(version, branch=MAIN))
    if spans(file):
        msg = f"Prompt {version.slug!r} ({version.semver}) contains a secret. Remove it, or set `sync: false`."
        raise SyncRefused(msg, reason="secret")
    payload = canonical({"createdAt": created_at, "file": file, "parents": sorted(parents)})
    return read_revision(payload)


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


def merge_base(one: str, other: str, pool: Pool) -> Revision | None:
    """Return the nearest common ancestor, the one with the smallest id if there are several; None for none."""
    common = ancestors(one, pool).keys() & ancestors(other, pool).keys()
    behind = {parent for each in common for parent in ancestors(each, pool) if parent != each}
    return min((pool[each] for each in common - behind), key=lambda each: each.id, default=None)


def same_text(one: Version, other: Version) -> bool:
    """Return whether two versions differ at most in semantic version, author and location."""
    return write_file(_plain(one)) == write_file(_plain(other))


def merge(one: Revision, other: Revision, pool: Pool) -> tuple[Revision | None, list[str]]:
    """Return the merge of two revisions, or the names of the sections and fields in conflict.

    The result does not depend on the order of the two, so all projects compute the same revision.
    """
    ours, theirs = sorted((one, other), key=lambda each: each.id)
    nearest = merge_base(one.id, other.id, pool)
    base = nearest.version if nearest else Version(slug=one.version.slug)
    a, b = ours.version, theirs.version
    sections, clashes = merge3(base.sections, a.sections, b.sections)
    over, others = merge3(base.override_sections, a.override_sections, b.override_sections)
    conflicts = [str(each["section"]) for each in (*clashes, *others)]
    fields: dict[str, Any] = {}
    for name in _FIELDS:
        fields[name], clash = _pick(getattr(base, name), getattr(a, name), getattr(b, name))
        conflicts += [name] if clash else []
    metadata: dict[str, Any] = {}
    for name in dict.fromkeys((*a.metadata, *b.metadata)):
        value, clash = _pick(base.metadata.get(name), a.metadata.get(name), b.metadata.get(name))
        conflicts += [name] if clash else []
        metadata |= {} if value is None else {name: value}
    conflicts += sorted(sections.keys() & over.keys())
    if conflicts:
        return None, list(dict.fromkeys(conflicts))
    newest = max(ours, theirs, key=lambda each: (each.created_at, each.id))
    version = replace(newest.version, sections=sections, override_sections=over, metadata=metadata, sync=True, **fields)
    top = max((a, b), key=lambda each: (rank(each.semver), each.semver))
    version = replace(version, semver=next_semver(top.semver, bump(difference(top, version))))
    return revision_of(version, (ours.id, theirs.id), newest.created_at), []


def _pick(base: Any, ours: Any, theirs: Any) -> tuple[Any, bool]:
    """Return the merged value of a field, and whether both sides changed it."""
    if theirs in (ours, base):
        return ours, False
    return (theirs, False) if ours == base else (ours, True)


def _plain(version: Version) -> Version:
    return replace(version, branch=MAIN, semver="1.0.0", author="")
