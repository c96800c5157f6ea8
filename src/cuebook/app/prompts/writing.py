"""Write prompts: save versions, fork and merge branches, move labels."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import asdict, replace

from cuebook.app.arguments import By, IdempotencyKey
from cuebook.app.prompts import answers
from cuebook.app.prompts.answers import LabelEntry, VersionIdentity
from cuebook.app.prompts.arguments import HIGHEST, ForkOrigin, Number, Slug, TargetBranch
from cuebook.app.prompts.reading import LARGE, PromptReading, differ, standing
from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.drafts import check_text
from cuebook.engine.core.prompt_reading import resolved_of
from cuebook.errors import Conflict, InvalidInput, MergeConflict
from cuebook.interfaces.prompts import Family, Write
from cuebook.operations import Argument, operation
from cuebook.prompts.difference import bump, check_semver, next_semver
from cuebook.prompts.digest import sealed
from cuebook.prompts.files import write_file
from cuebook.prompts.inherit import Clash, merge3
from cuebook.prompts.names import check_branch, check_section, check_slug, parse_reference
from cuebook.prompts.params import read_params
from cuebook.prompts.registry import twin
from cuebook.prompts.select import context_fit
from cuebook.records.memory import Scope
from cuebook.records.prompt import MAIN, Engine, Label, Param, Version

#: Default of `inherits`: keep the current value. No prompt can have this name.
KEEP: Literal["(keep)"] = "(keep)"


class PromptWriting(PromptReading):
    """The write operations of `cue.prompts`."""

    @operation("POST /api/prompts", role="editor", status=201, stores=True)
    async def save(  # a version's fields
        self,
        slug: Slug,
        sections: Annotated[Mapping[str, str], Meta(description="Texts by section name.")],
        *,
        branch: TargetBranch = None,
        type: Annotated[str | None, Meta(min_length=1)] = None,  # noqa: A002  # the wire's name
        override_sections: Annotated[
            Mapping[str, str] | None, Meta(description="Sections that replace the parent's.")
        ] = None,
        params: Annotated[Any, Meta(description="Declared parameters: names, or objects.")] = None,
        engine: Engine | None = None,
        inherits: Annotated[
            str | None, Meta(description="Parent prompt; null removes it. Default: the current one.")
        ] = KEEP,
        metadata: Mapping[str, Any] | None = None,
        tags: Sequence[str] | None = None,
        author: Annotated[str | None, Meta(description="Default: the caller.")] = None,
        description: str | None = None,
        semver: Annotated[
            str | None, Meta(description="Semantic version. Default: the increment that the changes require.")
        ] = None,
        sync: bool | None = None,
        base: Annotated[
            int | None, Meta(ge=0, le=HIGHEST, description="The version that the edit started from; 0 for none.")
        ] = None,
        by: By = "",
        idempotency_key: IdempotencyKey = None,
    ) -> VersionIdentity:
        """Store a new version of a prompt, or a new prompt; omitted fields keep their values.

        Raises Conflict if the head is newer than `base`, or if another text has the given `semver`.
        """
        branch = check_branch(branch or MAIN)
        changes = {
            "type": type,
            "sections": sections,
            "override_sections": override_sections,
            "params": None if params is None else _params(params),
            "engine": engine,
            "metadata": metadata,
            "tags": None if tags is None else tuple(tags),
            "description": description,
            "sync": sync,
        }
        own = await standing(self._services, slug)
        family = (await self._services.prompts.families(Scope(), [own], ancestors=False)).get(own)
        before = await self._head(family, branch)
        version = replace(
            before or Version(slug=own),
            branch=branch,
            number=0,
            digest="",
            author=author or "",
            **({} if inherits == KEEP else {"inherits": inherits}),
            **{name: value for name, value in changes.items() if value is not None},
        )
        ready = await _numbered(version, before, semver)
        stored = await self._store([ready], base=base, by=author or by, named=semver is not None)
        return answers.identity(stored[0])

    async def store(
        self, versions: Sequence[Version], *, base: int | None = None, if_changed: bool = False, by: str = ""
    ) -> list[Version]:
        """Store complete versions, all or none, each as its branch's head. Raises InvalidInput, Conflict, NotFound."""
        return await self._store(versions, base=base, if_changed=if_changed, by=by)

    async def check(self, versions: Sequence[Version]) -> None:
        """Check that versions can be stored, alone and together. Raises InvalidInput."""
        for each in versions:
            self._check(each)
        slugs = {each.slug for each in versions}
        for slug in sorted(slugs):
            own = twin(slug) if twin(slug) in slugs else await standing(self._services, slug)
            if own != slug:
                msg = f"slug: {slug!r} and {own!r} are the same prompt, with one file. Use {own!r}."
                raise InvalidInput(msg, where="slug")
        parents = {parse_reference(each.inherits, where="inherits").slug for each in versions if each.inherits}
        families = await self._services.prompts.families(Scope(), sorted(parents)) if parents else {}
        for each in versions:
            await resolved_of(self._services, each, families, fresh=versions)

    @operation("POST /api/prompts/{slug}/branches", role="editor", status=201, stores=True)
    async def fork(
        self,
        slug: Slug,
        name: Annotated[str, Meta(description="Name of the new branch.")],
        *,
        origin: Annotated[
            ForkOrigin | None,
            Meta(description="Version to copy. Default: the active one of `main`."),
            Argument(wire="from"),
        ] = None,
        by: By = "",
        idempotency_key: IdempotencyKey = None,
    ) -> VersionIdentity:
        """Create a branch with a copy of a version. It is independent afterwards.

        Raises Conflict if a branch or a label has this name.
        """
        check_branch(name)
        source = await self.get(slug, **asdict(origin or ForkOrigin()))
        family = await self.family(source.slug)
        if any(each.name == name for each in family.labels):
            msg = f"Prompt {source.slug!r} already has a label {name!r}. Choose another name for the branch."
            raise Conflict(msg)
        copy = replace(source, branch=name, number=0)
        record = receipt(self._services, copy, "branch", agent=by)
        new = Write(version=copy, begins=(source.branch, source.number), audit=record)
        now = self._services.clock.now()
        return answers.identity((await self._services.prompts.save(Scope(), [new], by=by, now=now))[0])

    @operation("POST /api/prompts/{slug}/merge", role="editor", status=201, stores=True)
    async def merge(
        self,
        slug: Slug,
        branch: Annotated[str, Meta(min_length=1, description="Branch to merge."), Argument(metavar="BRANCH")],
        *,
        into: Annotated[str | None, Meta(min_length=1, description="Branch to merge into. Default: `main`.")] = None,
        by: By = "",
        idempotency_key: IdempotencyKey = None,
    ) -> VersionIdentity:
        """Merge a branch's sections into another (three-way, with the version it was forked from as base).

        If both changed a section, nothing is stored, and `conflicts` of the error has its texts. Raises MergeConflict,
        NotFound, InvalidInput.
        """
        into = into or MAIN
        if branch == into:
            msg = f"into: {into!r} is the branch to merge. Choose another."
            raise InvalidInput(msg, where="into")
        theirs, ours = await self.get(slug, branch=branch), await self.get(slug, branch=into)
        [first] = await self._services.prompts.versions(Scope(), theirs.slug, branch=branch, numbers=[1])
        origin, _, number = first.branched_from.rpartition(":")
        if not origin:
            msg = f"Cannot merge branch {branch!r} of prompt {theirs.slug!r}: it was not forked from another version."
            raise InvalidInput(msg, where="branch")
        base = await self.get(theirs.slug, branch=origin, version=int(number))
        pairs = (
            (base.sections, ours.sections, theirs.sections),
            (base.override_sections, ours.override_sections, theirs.override_sections),
        )
        large = sum(len(text) for pair in pairs for texts in pair for text in texts.values()) > LARGE
        (sections, clashes), (over, others) = [
            await asyncio.to_thread(merge3, *pair) if large else merge3(*pair) for pair in pairs
        ]
        if clashes or others:
            raise _merge_conflict(branch, into, [*clashes, *others])
        version = replace(ours, sections=sections, override_sections=over, number=0, digest="", author="")
        stored = await self._store([await _numbered(version, ours, None)], base=None, by=by)
        return answers.identity(stored[0])

    @operation("PUT /api/prompts/{slug}/labels", role="admin", stores=True)
    async def label(
        self,
        slug: Slug,
        name: Annotated[str, Meta(description="Label to move, such as `production`."), Argument(metavar="LABEL")],
        *,
        branch: TargetBranch = None,
        version: Number = None,
        label: Annotated[
            str | None, Meta(min_length=1, description="Label of the version, instead of branch and version.")
        ] = None,
        by: By = "",
        idempotency_key: IdempotencyKey = None,
    ) -> LabelEntry:
        """Move a label such as `production` to a version (default: the active one), or to the version of another label.

        The history records it. Raises NotFound, and Conflict if a branch has this name.
        """
        check_branch(name, where="label")
        found = await self.get(slug, branch=branch, version=version, label=label)
        if (await self.family(found.slug)).branch(name) is not None:
            msg = f"Prompt {found.slug!r} already has a branch {name!r}. Choose another name for the label."
            raise Conflict(msg)
        now = self._services.clock.now()
        moved = Label(name=name, branch=found.branch, number=found.number, moved_by=by, moved_at=now)
        record = receipt(self._services, found, "label", agent=by, context={"label": name})
        return answers.label_entry(await self._services.prompts.move_label(Scope(), found.slug, moved, audit=record))

    # inside

    async def _store(
        self,
        versions: Sequence[Version],
        *,
        base: int | None,
        by: str,
        if_changed: bool = False,
        named: bool = False,
    ) -> list[Version]:
        await self.check(versions)
        ready = [sealed(each) for each in versions]
        writes = [
            Write(
                version=each,
                base=base,
                if_changed=if_changed,
                named=named,
                audit=receipt(self._services, each, "write", agent=by),
            )
            for each in ready
        ]
        return await self._services.prompts.save(Scope(), writes, by=by, now=self._services.clock.now())

    async def _head(self, family: Family | None, branch: str) -> Version | None:
        """Return a branch's newest version."""
        found = family.branch(branch) if family else None
        if family is None or found is None:
            return None
        active = family.version(branch)
        if active is not None and active.number == found.head:
            return active
        versions = await self._services.prompts.versions(Scope(), family.slug, branch=branch, numbers=[found.head])
        return versions[0]

    def _check(self, version: Version) -> None:
        check_slug(version.slug)
        check_branch(version.branch)
        check_semver(version.semver)
        if version.inherits is not None and parse_reference(version.inherits, where="inherits").slug == version.slug:
            msg = f"inherits: prompt {version.slug!r} cannot inherit from itself. Choose another prompt."
            raise InvalidInput(msg, where="inherits")
        context_fit(version.context_weights, {})  # a weight that is not a number would break every selection
        for name in version.sections.keys() & version.override_sections.keys():
            msg = f"overrideSections.{name}: also defined in sections. Define it in one of the two."
            raise InvalidInput(msg, where=f"overrideSections.{name}")
        for place, texts in (("sections", version.sections), ("overrideSections", version.override_sections)):
            for name, text in texts.items():
                check_section(name, where=place)
                check_text(text, f"{place}.{name}")
        write_file(version)  # raises for content that a file cannot represent


async def _numbered(version: Version, before: Version | None, semver: str | None) -> Version:
    """Return a version with its semantic version: the given one, else the increment that the change requires."""
    if semver is not None:
        return replace(version, semver=semver)
    if before is None:
        return version
    return replace(version, semver=next_semver(before.semver, bump(await differ(before, version))))


def _merge_conflict(branch: str, into: str, conflicts: Sequence[Clash]) -> MergeConflict:
    names = ", ".join(repr(each.section) for each in conflicts)
    msg = f"{branch!r} and {into!r} both changed {names}. Make them equal in one of the two, then merge again."
    return MergeConflict(msg, conflicts=[asdict(each) for each in conflicts])


def _params(value: Any) -> tuple[Param, ...]:
    ready = isinstance(value, tuple) and all(isinstance(each, Param) for each in value)
    return value if ready else read_params(value)
