"""Compare the prompt files with the prompt database, and determine for each branch which side changed.

| state | file and database | push | pull |
| --- | --- | --- | --- |
| same | equal | - | - |
| new | the database has no such branch | stores it, with the history in its registry | - |
| changed | the file was edited | stores a version | skips it |
| behind | the database has newer versions | skips it | writes the file |
| missing | there is no file | - | writes the file |
| both | both changed since the last synchronization | refuses | refuses |

The last synchronized state decides. If it is unknown, a text found in the branch's history counts as an old one.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.prompts.base import Agreed, Base, text_hash
from cuebook.app.prompts.folder import Contents, Place, PromptFile, PromptFolder
from cuebook.engine.core.services import Services
from cuebook.interfaces.prompts import Family
from cuebook.prompts.difference import bump, difference, next_semver
from cuebook.prompts.registry import path_of
from cuebook.records.memory import Scope
from cuebook.records.prompt import Version

State = Literal["same", "new", "changed", "behind", "missing", "both", "registry"]

#: Number of prompts loaded from the database at a time.
_PAGE = 200


class BranchState(Struct, frozen=True, kw_only=True):
    """A branch's file and head. `file` is the version to store, None if the file was not parsed again."""

    place: Place
    path: str
    state: State
    source: PromptFile | None = None
    file: Version | None = None
    head: Version | None = None
    text: str = ""  # SHA-256 of the file's content

    @property
    def display_version(self) -> Version | None:
        """The version to show: the head, or the file without a head."""
        return self.head or self.file

    @property
    def base(self) -> Base:
        """The state to store once both sides are equal."""
        return Base(self.text, self.path, self.source.data if self.source else "")


async def families_of(services: Services, slugs: Collection[str] | None) -> dict[str, Family]:
    """Return the given prompts by name (default: all)."""
    if slugs is not None:
        return await services.prompts.families(Scope(), sorted(set(slugs)), ancestors=False)
    families: dict[str, Family] = {}
    after = ""
    while True:
        page = await services.prompts.page(Scope(), limit=_PAGE, after=after)
        families |= {each.slug: each for each in page.items}
        if page.next is None:
            return families
        after = page.next


async def compare(
    services: Services, shelf: PromptFolder, contents: Contents, families: Mapping[str, Family], agreed: Agreed
) -> list[BranchState]:
    """Return the state of each branch in the folder or of these prompts."""
    heads = await _heads(services, families)
    files = {each.place: each for each in contents.prompts}
    standings = []
    for place in sorted({*files, *heads}):
        source, head = files.get(place), heads.get(place)
        if source is None:
            standings.append(BranchState(place=place, path=path_of(*place), state="missing", head=head))
            continue
        if head is None and source.version is None:  # not the database that it was pushed to
            source = await asyncio.to_thread(shelf.reread, source)
        file = wanted(source, head)
        base = agreed.get(place)
        text = text_hash(file) if file else base.text if base else ""
        state = await _state(services, text, head, base.text if base else None)
        standings.append(
            BranchState(place=place, path=source.path, state=state, source=source, file=file, head=head, text=text)
        )
    return standings


def wanted(source: PromptFile, head: Version | None) -> Version | None:
    """Return the version that a file would become on top of the head, which supplies omitted fields."""
    version = source.version
    if version is None or head is None:
        return version
    if not source.said:
        version = replace(head, sections=version.sections, override_sections={})
    if "version" in source.said:
        return version
    return replace(version, semver=next_semver(head.semver, bump(difference(head, version))))


async def _heads(services: Services, families: Mapping[str, Family]) -> dict[Place, Version]:
    """Return the newest version of each branch."""
    heads: dict[Place, Version] = {}
    for slug, family in families.items():
        for branch in family.branches:
            head = family.version(branch.name)
            if head is None or head.number != branch.head:  # rolled back
                [head] = await services.prompts.versions(Scope(), slug, branch=branch.name, numbers=[branch.head])
            heads[slug, branch.name] = head
    return heads


async def _state(services: Services, text: str, head: Version | None, base: str | None) -> State:
    if head is None:
        return "new"
    theirs = text_hash(head)
    if text == theirs:
        return "same"
    if base is None:
        older = await services.prompts.versions(Scope(), head.slug, branch=head.branch)
        return "behind" if text in {text_hash(each) for each in older} else "changed"
    if theirs == base:
        return "changed"
    return "behind" if text == base else "both"
