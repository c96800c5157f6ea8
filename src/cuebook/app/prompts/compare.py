"""Compare the prompt files with the prompt database, and determine for each branch which side changed.

| state | file and database | push | pull |
| --- | --- | --- | --- |
| same | equal | - | - |
| new | the database has no such branch | stores it, with the history in its registry | - |
| changed | the file was edited | stores a version, or restores the earlier one that it is | skips it |
| behind | another version is active in the database | skips it | writes the file |
| missing | there is no file | - | writes the file |
| both | both changed since the last synchronization | refuses | refuses |

The last synchronized state decides. It is stored in a file next to the database, which is specific to this machine and
may be deleted at any time. Without it (a new or in-memory database) a text found in the branch's history counts as an
old one.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.files import write_whole
from cuebook.app.prompts.folder import Contents, PromptFile
from cuebook.engine.core.services import Services
from cuebook.errors import BackendError
from cuebook.interfaces.prompts import Family
from cuebook.prompts.difference import next_version
from cuebook.prompts.digest import level
from cuebook.prompts.files import written
from cuebook.prompts.registry import path_of
from cuebook.records.memory import Scope
from cuebook.records.prompt import BranchPlace, Version

#: By branch: the SHA-256 of the content that its file and head last shared, and the file's path.
Agreed = dict[BranchPlace, tuple[str, str]]
State = Literal["same", "new", "changed", "behind", "missing", "both", "registry"]


class BranchState(Struct, frozen=True, kw_only=True):
    """A branch's file and active version. `file` is the version to store."""

    place: BranchPlace
    path: str
    state: State
    source: PromptFile | None = None
    file: Version | None = None
    active: Version | None = None
    newest: int = 0  # the branch's newest version, 0 for no branch; after a rollback it is not the active one
    restores: int = 0  # the earlier version that a changed file is
    text: str = ""  # SHA-256 of the file's content


async def families_of(services: Services, slugs: Collection[str] | None) -> dict[str, Family]:
    """Return the given prompts by name (default: all)."""
    if slugs is not None:
        return await services.prompts.families(Scope(), sorted(set(slugs)), ancestors=False)
    return await services.prompts.every(Scope())


async def compare(
    services: Services, contents: Contents, families: Mapping[str, Family], agreed: Agreed
) -> list[BranchState]:
    """Return the state of each branch in the folder or of these prompts."""
    branches = {(slug, each.name): each for slug, family in families.items() for each in family.branches}
    files = {each.version.place: each for each in contents.prompts}
    standings = []
    for place in sorted({*files, *branches}):
        source, active = files.get(place), families[place[0]].version(place[1]) if place in branches else None
        standing = BranchState(
            place=place,
            path=source.path if source else path_of(*place),
            state="missing",
            source=source,
            active=active,
            newest=branches[place].head if place in branches else 0,
        )
        if source is not None:
            file = wanted(source, active)
            base, text = agreed.get(place), text_hash(file)
            state, restores = await _state(services, text, active, base[0] if base else None)
            standing = replace(standing, state=state, file=file, restores=restores, text=text)
        standings.append(standing)
    return standings


def wanted(source: PromptFile, active: Version | None) -> Version:
    """Return the version that a file would become on top of the active one, which supplies omitted fields.

    A file without a `version`, or with that of the active text, gets the semantic version that its change requires.
    """
    return source.version if active is None else next_version(source.version, active, source.keys)


async def _state(services: Services, text: str, active: Version | None, base: str | None) -> tuple[State, int]:
    """Return a branch's state and the earlier version that a changed file is, 0 for none."""
    if active is None:
        return "new", 0
    theirs = text_hash(active)
    if text == theirs:
        return "same", 0
    if base is not None and theirs != base:
        return ("behind" if text == base else "both"), 0
    versions = await services.prompts.versions(Scope(), active.slug, branch=active.branch)
    numbers = [each.number for each in versions if text_hash(each) == text]
    if base is None and numbers:
        return "behind", 0
    return "changed", max((each for each in numbers if each < active.number), default=0)


def text_hash(version: Version) -> str:
    """Compute a SHA-256 of a version's file content.

    It does not hash the bytes: YAML takes 0.3 ms to write, and the style may differ between PyYAML versions.
    """
    version = level(version)
    content = (written(version), list(version.sections.items()), list(version.override_sections.items()))
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()


# ---- the last synchronized state ------------------------------------------------------------------------------------


def read_base(file: Path | None) -> Agreed:
    """Return the stored state; empty if the file is missing or invalid, or None."""
    if file is None or not file.is_file():
        return {}
    try:
        rows = msgspec.json.decode(file.read_bytes(), type=list[tuple[str, str, str, str]])
    except (OSError, msgspec.DecodeError):
        return {}
    return {(slug, branch): (text, path) for slug, branch, text, path in rows}


def write_base(file: Path | None, agreed: Agreed) -> None:
    """Write the state; None: not stored. Raises BackendError."""
    if file is None or read_base(file) == agreed:
        return
    lines = ",\n".join(json.dumps([*place, *base]) for place, base in sorted(agreed.items()))
    try:
        write_whole(file, [f"[{lines}]\n"])
    except OSError as error:
        msg = f"{str(file)!r} cannot be written ({error.strerror})"
        raise BackendError(msg) from error
