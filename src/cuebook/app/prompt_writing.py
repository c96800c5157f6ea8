"""Prompts as they are written: versions, branches, merges and labels."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from cuebook.app.prompt_ancestors import check_ancestors
from cuebook.app.prompt_reading import Reading
from cuebook.engine.drafts import check_text
from cuebook.engine.receipts import receipt
from cuebook.errors import InvalidInput
from cuebook.ports.prompts import Family, Write
from cuebook.prompts.difference import bump, check_semver, difference, next_semver
from cuebook.prompts.digest import sealed
from cuebook.prompts.files import write_file
from cuebook.prompts.inherit import Merged, merge3
from cuebook.prompts.names import check_branch, check_section, check_slug, parse_reference
from cuebook.prompts.params import read_params
from cuebook.prompts.select import context_fit
from cuebook.records.memory import Scope
from cuebook.records.prompt import MAIN, Engine, Label, Param, Version

#: What is asked for as `inherits` of a new version where it stays what it was; no prompt has such a name.
KEEP: Literal["(keep)"] = "(keep)"


class Writing(Reading):
    """Prompts as they are written."""

    async def save(  # a version's fields
        self,
        slug: str,
        sections: Mapping[str, str],
        *,
        branch: str = MAIN,
        type: str | None = None,  # noqa: A002  # the wire's name
        override_sections: Mapping[str, str] | None = None,
        params: Any = None,
        engine: Engine | None = None,
        inherits: str | None = KEEP,
        metadata: Mapping[str, Any] | None = None,
        tags: Sequence[str] | None = None,
        author: str = "",
        description: str | None = None,
        semver: str | None = None,
        sync: bool | None = None,
        base: int | None = None,
    ) -> Version:
        """Write a new version of a prompt, or a prompt that is new; what is not given stays what it was.

        `base` is the version its writer saw: Conflict where the head has moved on. The semantic version is suggested by
        what changed unless given. Raises InvalidInput.
        """
        check_slug(slug)
        check_branch(branch)
        family = (await self._desk.prompts.families(Scope(), [slug], ancestors=False)).get(slug)
        before = await self._head(family, branch)
        was = before or Version(slug=slug)
        version = Version(
            slug=slug,
            branch=branch,
            type=was.type if type is None else type,
            sections=_sections(sections, "sections"),
            override_sections=was.override_sections
            if override_sections is None
            else _sections(override_sections, "overrideSections"),
            params=was.params if params is None else _params(params),
            engine=was.engine if engine is None else engine,
            inherits=was.inherits if inherits == KEEP else inherits,
            metadata=was.metadata if metadata is None else dict(metadata),
            tags=was.tags if tags is None else tuple(tags),
            author=author,
            description=was.description if description is None else description,
            sync=was.sync if sync is None else sync,
        )
        return (await self.store([_numbered(version, before, semver)], base=base, by=author))[0]

    async def store(
        self, versions: Sequence[Version], *, base: int | None = None, if_changed: bool = False, by: str = ""
    ) -> list[Version]:
        """Store whole versions, all or none, each on its branch's head. Raises InvalidInput, Conflict, NotFound."""
        await self.check(versions)
        ready = [sealed(each) for each in versions]
        writes = [
            Write(version=each, base=base, if_changed=if_changed, audit=receipt(self._desk, each, "write", agent=by))
            for each in ready
        ]
        return await self._desk.prompts.save(Scope(), writes, by=by, now=self._desk.clock.now())

    async def check(self, versions: Sequence[Version]) -> None:
        """Refuse versions that could not be stored, alone or with each other. Raises InvalidInput."""
        for each in versions:
            self._check(each)
        await check_ancestors(self._desk, versions)

    async def fork(
        self, slug: str, name: str, *, branch: str = MAIN, version: int | None = None, by: str = ""
    ) -> Version:
        """Begin a branch with a copy of a version; nothing is shared afterwards. Raises Conflict where there is one."""
        check_branch(name)
        origin = await self.get(slug, branch=branch, version=version)
        copy = msgspec.structs.replace(origin, branch=name, number=0)
        told = receipt(self._desk, copy, "branch", agent=by)
        write = Write(version=copy, begins=(origin.branch, origin.number), audit=told)
        return (await self._desk.prompts.save(Scope(), [write], by=by, now=self._desk.clock.now()))[0]

    async def merge(self, slug: str, branch: str, *, into: str = MAIN, by: str = "") -> tuple[Version | None, Merged]:
        """Merge a branch's sections into another, against the version it was forked from.

        With conflicts nothing is written: they are answered, each with both texts. Raises NotFound, InvalidInput.
        """
        theirs, ours = await self.get(slug, branch=branch), await self.get(slug, branch=into)
        first = (await self._desk.prompts.versions(Scope(), theirs.slug, branch=branch))[0]
        origin, _, number = first.branched_from.rpartition(":")
        if not origin:
            msg = f"branch {branch!r} of prompt {theirs.slug!r} was forked from none; there is nothing to merge against"
            raise InvalidInput(msg, where="branch")
        base = await self.get(theirs.slug, branch=origin, version=int(number))
        merged = merge3(base.sections, ours.sections, theirs.sections)
        over = merge3(base.override_sections, ours.override_sections, theirs.override_sections)
        if merged.conflicts or over.conflicts:
            return None, msgspec.structs.replace(merged, conflicts=(*merged.conflicts, *over.conflicts))
        version = msgspec.structs.replace(
            ours, sections=merged.sections, override_sections=over.sections, digest="", author=""
        )
        stored = await self.store([_numbered(version, ours, None)], base=None, by=by)
        return stored[0], merged

    async def label(
        self, slug: str, name: str, *, branch: str = MAIN, version: int | None = None, by: str = ""
    ) -> Label:
        """Point a label such as `production` at a version, the active one unless named."""
        check_branch(name, where="label")
        found = await self.get(slug, branch=branch, version=version)
        label = Label(name=name, branch=found.branch, number=found.number, moved_by=by, moved_at=self._desk.clock.now())
        told = receipt(self._desk, found, "label", agent=by, context={"label": name})
        await self._desk.prompts.move_label(Scope(), found.slug, label, audit=told)
        return label

    # inside

    async def _head(self, family: Family | None, branch: str) -> Version | None:
        """Give a branch's newest version."""
        found = family.branch(branch) if family else None
        if family is None or found is None:
            return None
        active = family.version(branch)
        if active is not None and active.number == found.head:
            return active
        versions = await self._desk.prompts.versions(Scope(), family.slug, branch=branch, numbers=[found.head])
        return versions[0]

    def _check(self, version: Version) -> None:
        check_slug(version.slug)
        check_branch(version.branch)
        check_semver(version.semver)
        if version.inherits is not None and parse_reference(version.inherits, where="inherits").slug == version.slug:
            msg = f"inherits: prompt {version.slug!r} cannot inherit from itself"
            raise InvalidInput(msg, where="inherits")
        context_fit(version.context_weights, {})  # a weight that is no number stops all choosing
        for place, texts in (("sections", version.sections), ("overrideSections", version.override_sections)):
            for name, text in texts.items():
                check_section(name, where=place)
                check_text(text, f"{place}.{name}")
        write_file(version)  # what no file can hold is refused


def _numbered(version: Version, before: Version | None, semver: str | None) -> Version:
    """Give a version with its semantic version: the given one, else what the change asks for."""
    if semver is not None:
        return msgspec.structs.replace(version, semver=semver)
    if before is None:
        return version
    return msgspec.structs.replace(version, semver=next_semver(before.semver, bump(difference(before, version))))


def _sections(given: Mapping[str, Any], where: str) -> dict[str, str]:
    for name, text in given.items():
        check_section(name, where=where)
        if not isinstance(text, str):
            msg = f"{where}.{name}: expected a text, got {type(text).__name__}"
            raise InvalidInput(msg, where=f"{where}.{name}")
    return dict(given)


def _params(given: Any) -> tuple[Param, ...]:
    ready = isinstance(given, tuple) and all(isinstance(each, Param) for each in given)
    return given if ready else read_params(given)
