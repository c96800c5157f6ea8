"""The write operations of `cue.prompts`: save, fork, merge and label versions, observe, roll back and migrate.

A migrated branch that is new starts from the most similar version, of `main` if it exists, so that it can be merged.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import asdict, replace

from cuebook.app.arguments import By, IdempotencyKey
from cuebook.app.prompts.answers import (
    MigratedVersion,
    MigrationResult,
    ObservationResult,
    RolledBack,
    VersionIdentity,
)
from cuebook.app.prompts.arguments import (
    HIGHEST,
    Force,
    ForkOrigin,
    LabelName,
    Number,
    Propensity,
    Reference,
    Signals,
    Slug,
    TargetBranch,
)
from cuebook.app.prompts.reading import LARGE, PromptReading, differ, standing
from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.drafts import check_text
from cuebook.engine.core.prompt_reading import resolved_of
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.rollback import learn
from cuebook.errors import Conflict, InvalidInput, MergeConflict
from cuebook.interfaces.prompts import Write
from cuebook.operations import Argument, operation
from cuebook.prompts.difference import bump, check_semver, difference, next_semver
from cuebook.prompts.digest import sealed
from cuebook.prompts.files import write_file
from cuebook.prompts.inherit import merge_versions
from cuebook.prompts.learn import score
from cuebook.prompts.lint import refuse_secrets, secret_in
from cuebook.prompts.migrate import plan, slugs
from cuebook.prompts.names import check_branch, check_section, check_slug, parse_reference, read_place
from cuebook.prompts.params import read_params
from cuebook.prompts.registry import twin
from cuebook.prompts.select import context_fit
from cuebook.records.answer import Time, as_answer
from cuebook.records.memory import Scope
from cuebook.records.prompt import (
    MAIN,
    Branch,
    Engine,
    Label,
    Missing,
    Observation,
    PromptEvent,
    TaskOutcome,
    Version,
)

#: Default of `inherits`: keep the current value. No prompt can have this name.
KEEP: Literal["(keep)"] = "(keep)"


class Prompts(PromptReading):
    """The managed prompts of a project."""

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
        force: Force = False,
        by: By = "",
        idempotency_key: IdempotencyKey = None,
    ) -> VersionIdentity:
        """Store a new version of a prompt, or a new prompt; omitted fields keep their values.

        Raises InvalidInput if a section contains a secret, unless `force` is set. Raises Conflict if the head is newer
        than `base`, or if another text has the given `semver`.
        """
        branch = check_branch(branch or MAIN)
        changes: dict[str, Any] = {
            "type": type,
            "sections": sections,
            "override_sections": override_sections,
            "params": None if params is None else read_params(params),
            "engine": engine,
            "metadata": metadata,
            "tags": None if tags is None else tuple(tags),
            "description": description,
            "sync": sync,
        }
        own = await standing(self._services, slug)
        family = (await self._services.prompts.families(Scope(), [own], ancestors=False)).get(own)
        stands = family.branch(branch) if family else None
        before = await self.get(own, branch=branch, version=stands.head) if stands else None
        changes = {name: value for name, value in changes.items() if value is not None}
        changes |= {} if inherits == KEEP else {"inherits": inherits}
        start = before or Version(slug=own)
        version = replace(start, branch=branch, number=0, digest="", author=author or "", **changes)
        ready = await _numbered(version, before, semver)
        stored = await self.store([ready], base=base, by=author or by, named=semver is not None, force=force)
        return as_answer(VersionIdentity, stored[0])

    async def store(
        self,
        versions: Sequence[Version],
        *,
        base: int | None = None,
        named: bool = False,
        by: str = "",
        force: bool = False,
    ) -> list[Version]:
        """Store complete versions, all or none, each as its branch's head. Raises InvalidInput, Conflict, NotFound.

        If their semantic versions were `named` by an author, one that another text has is a conflict. With `force` they
        may contain secrets.
        """
        await self.check(versions, force=force)
        writes = [Write(version=each, base=base, named=named) for each in versions]
        return await save_writes(self._services, writes, by=by)

    async def check(self, versions: Sequence[Version], *, force: bool = False) -> None:
        """Check that versions can be stored, alone and together. Raises InvalidInput, without `force` for a secret."""
        for each in versions:
            self._check(each)
        if not force:
            await asyncio.to_thread(_check_no_secret, versions)
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
        family, source = await self._found(slug, **asdict(origin or ForkOrigin()))
        if any(each.name == name for each in family.labels):
            msg = f"Prompt {source.slug!r} already has a label {name!r}. Choose another name for the branch."
            raise Conflict(msg)
        copy = replace(source, branch=name, number=0)
        new = Write(version=copy, begins=(source.branch, source.number))
        return as_answer(VersionIdentity, (await save_writes(self._services, [new], by=by))[0])

    @operation("POST /api/prompts/{slug}/merge", role="editor", status=201, stores=True)
    async def merge(
        self,
        slug: Slug,
        branch: Annotated[str, Meta(min_length=1, description="Branch to merge.")],
        *,
        into: Annotated[str | None, Meta(min_length=1, description="Branch to merge into. Default: `main`.")] = None,
        theirs: Annotated[bool, Meta(description="Take what is in conflict from `branch`.")] = False,
        by: By = "",
        idempotency_key: IdempotencyKey = None,
    ) -> VersionIdentity:
        """Merge a branch into another, by section and field (three-way, with the version it was forked from as base).

        If both changed one, nothing is stored without `theirs`, and `conflicts` of the error has both values.
        Raises MergeConflict, NotFound, InvalidInput.
        """
        into = into or MAIN
        if branch == into:
            msg = f"into: {into!r} is the branch to merge. Choose another."
            raise InvalidInput(msg, where="into")
        other, ours = await self.get(slug, branch=branch), await self.get(slug, branch=into)
        base = await self._base_of_merge(other, ours)
        combine = partial(merge_versions, base, ours, other, prefer_theirs=theirs)
        texts = [
            text for each in (base, ours, other) for text in (*each.sections.values(), *each.override_sections.values())
        ]
        fields, conflicts = await asyncio.to_thread(combine) if sum(map(len, texts)) > LARGE else combine()
        if conflicts and not theirs:
            names = ", ".join(repr(each["section"]) for each in conflicts)
            msg = f"{branch!r} and {into!r} both changed {names}. Make them equal in one of the two, then merge again."
            raise MergeConflict(msg, conflicts=conflicts)
        version = replace(ours, branch=into, number=0, digest="", author="", **fields)
        stored = await self.store([await _numbered(version, ours, None)], by=by, force=True)  # its texts are stored
        return as_answer(VersionIdentity, stored[0])

    async def _base_of_merge(self, other: Version, ours: Version) -> Version:
        """Return the version at which the two branches parted.

        Raises InvalidInput if neither was forked from the other.
        """
        for one, origin_of in ((other, None), (ours, other.branch)):
            [first] = await self._services.prompts.versions(Scope(), one.slug, branch=one.branch, numbers=[1])
            origin, _, number = first.branched_from.rpartition(":")
            if origin and origin_of in (None, origin):
                return await self.get(one.slug, branch=origin, version=int(number))
        msg = f"Cannot merge branch {other.branch!r} of prompt {other.slug!r}: it was not forked from another version."
        raise InvalidInput(msg, where="branch")

    @operation("PUT /api/prompts/{slug}/labels", role="admin", stores=True)
    async def label(
        self,
        slug: Slug,
        name: Annotated[str, Meta(description="Label to move, such as `production`.")],
        *,
        branch: TargetBranch = None,
        version: Number = None,
        label: Annotated[
            str | None, Meta(min_length=1, description="Label of the version, instead of branch and version.")
        ] = None,
        by: By = "",
        idempotency_key: IdempotencyKey = None,
    ) -> Label:
        """Move a label such as `production` to a version (default: the active one), or to the version of another label.

        The history records it. Raises NotFound, and Conflict if a branch has this name.
        """
        check_branch(name, where="label")
        refuse_secrets("author", by)
        family, found = await self._found(slug, branch=branch, version=version, label=label)
        if family.branch(name) is not None:
            msg = f"Prompt {found.slug!r} already has a branch {name!r}. Choose another name for the label."
            raise Conflict(msg)
        now = Time(self._services.clock.now())
        moved = Label(name=name, branch=found.branch, number=found.number, moved_by=by, moved_at=now)
        record = receipt(self._services, found, "label", agent=by, context={"label": name})
        return await self._services.prompts.move_label(Scope(), found.slug, moved, audit=record)

    @operation(
        "POST /api/prompts/{slug}/observations",
        role="editor",
        status=201,
        stores=True,
        cli="prompt observe",
        examples=(
            "cuebook prompt observe persona/kind --sentiment 0.9 --outcome success",
            "cuebook prompt observe persona/kind@trial --sentiment 0.2 --corrections 3",
        ),
    )
    async def observe(
        self,
        slug: Reference,
        *,
        sentiment: Annotated[float, Meta(ge=0, le=1, description="User satisfaction.")],
        corrections: Annotated[
            int,
            Meta(ge=0, le=HIGHEST, description="Number of corrections."),
            Argument(wire="correctionCount"),
        ] = 0,
        outcome: Annotated[
            TaskOutcome | None, Meta(description="Outcome of the task."), Argument(wire="taskOutcome")
        ] = None,
        missing: Annotated[
            Missing | None, Meta(description="How an unknown outcome counts. Default: the setting's.")
        ] = None,
        branch: TargetBranch = None,
        version: Number = None,
        label: LabelName = None,
        signals: Signals = None,
        propensity: Propensity = 1.0,
        conversation: Annotated[
            str | None, Meta(description="Conversation of the feedback."), Argument(metavar="ID")
        ] = None,
        user: Annotated[str, Meta(description="User who gave the feedback."), Argument(source="user")] = "",
        idempotency_key: IdempotencyKey = None,
    ) -> ObservationResult:
        """Store feedback on a version: the named, the conversation's or the active one.

        The score updates the edge weight of the branch. Raises NotFound, InvalidInput.
        """
        services = self._services
        refuse_secrets("signals", *(signals or {}))
        found = await self.get(slug, branch=branch, version=version, label=label)
        observation = Observation(
            slug=found.slug,
            branch=found.branch,
            number=found.number,
            score=score(sentiment, corrections, outcome, missing=missing or services.config.learning.missing),
            sentiment=sentiment,
            corrections=corrections,
            outcome=outcome,
            signals=dict(signals or {}),
            propensity=propensity,
            conversation=conversation or "",
            user=user,
            at=services.clock.now(),
        )
        place = read_place(slug, branch=branch, version=version)
        named = place.number is not None or label is not None or place.branch not in (None, found.branch)  # a label
        placed = named or place.branch is not None
        stands, judged = await learn(services, observation, found, named=named, placed=placed)
        return ObservationResult(
            score=observation.score,
            edge_weight=stands.weight,
            rolled_back=judged.decision == "rollback",
            rollback=judged,
        )

    @operation("POST /api/prompts/{slug}/rollback", role="admin", stores=True)
    async def roll_back(
        self,
        slug: Reference,
        *,
        branch: TargetBranch = None,
        to: Annotated[
            int | None, Meta(ge=1, le=HIGHEST, description="Version to activate. Default: the one before.")
        ] = None,
        reason: Annotated[str, Meta(min_length=1, description="Reason for the history.")],
        by: By = "",
        idempotency_key: IdempotencyKey = None,
    ) -> RolledBack:
        """Make an earlier version active again, and write it to its file. The other is not selected until cleared.

        Raises NotFound, and InvalidInput if there is no earlier version.
        """
        services = self._services
        refuse_secrets("author", by)
        active = await self.get(slug, branch=branch)
        if to is not None:
            await self.get(active.slug, branch=active.branch, version=to)  # raises NotFound listing the versions
        event = PromptEvent(
            kind="rollback",
            branch=active.branch,
            number=active.number,
            to=active.number - 1 if to is None else to,
            by=by,
            reason=services.writer.clean(reason),
            at=Time(services.clock.now()),
        )
        record = receipt(services, active, "rollback", agent=by, context={"to": event.to, "reason": reason})
        stands = await services.prompts.activate(Scope(), active.slug, event, audit=record)
        await services.restore_file(active.slug)
        restored = await self.get(active.slug, branch=stands.name, version=stands.active)
        head = stands.head == stands.active
        return as_answer(RolledBack, restored, head=head, rolled_back=stands.rolled_back)

    @operation(
        "POST /api/prompts/{slug}/clear",
        role="admin",
        stores=True,
        cli="prompt clear",
        examples=("cuebook prompt clear persona/kind 3 --reason 'it was the model'",),
    )
    async def clear(
        self,
        slug: Reference,
        version: Annotated[int, Meta(ge=1, le=HIGHEST, description="Rolled-back version.")],
        *,
        branch: TargetBranch = None,
        by: By = "",
        reason: Annotated[str, Meta(description="Reason for the history."), Argument(metavar="TEXT")] = "",
        idempotency_key: IdempotencyKey = None,
    ) -> Branch:
        """Allow a rolled-back version to be selected again. The active version does not change. Raises NotFound."""
        refuse_secrets("author", by)
        found = await self.get(slug, branch=branch, version=version)
        now = Time(self._services.clock.now())
        clean = self._services.writer.clean(reason)
        event = PromptEvent(kind="clear", branch=found.branch, number=found.number, by=by, reason=clean, at=now)
        record = receipt(self._services, found, "clear", agent=by, context={"reason": reason})
        return await self._services.prompts.activate(Scope(), found.slug, event, audit=record)

    @operation("POST /api/prompts/migrate", role="admin", stores=True)
    async def migrate(
        self,
        document: Annotated[
            Any,
            Meta(
                description='A parsed migration file: an array of versions, or {"prompts", "versions", "inheritance"}.'
            ),
        ],
        *,
        dry_run: Annotated[bool, Meta(description="Show the changes without making them.")] = False,
        force: Force = False,
        by: By = "",
        idempotency_key: IdempotencyKey = None,
    ) -> MigrationResult:
        """Store the versions of a migration file, all or none; running it again changes nothing.

        Raises InvalidInput naming the path of the first error, also for a secret unless `force` is set, and Conflict
        after a concurrent write.
        """
        services = self._services
        families = await services.prompts.families(Scope(), list(await asyncio.to_thread(slugs, document)))
        existing = [each for slug in families for each in await services.prompts.versions(Scope(), slug)]
        rows, skipped = await asyncio.to_thread(plan, document, existing)
        versions = [row.version for row in rows]
        await self.check(versions, force=force)
        if not dry_run:
            begun = zip(versions, _begins(versions, existing), strict=True)
            writes = [Write(version=each, base=each.number - 1, begins=begins) for each, begins in begun]
            versions = await save_writes(services, writes, by=by) if writes else []
        written = [
            as_answer(MigratedVersion, version, place=row.place, bump=bump(row.change))
            for row, version in zip(rows, versions, strict=True)
        ]
        return MigrationResult(dry_run=dry_run, written=tuple(written), skipped=skipped)

    # inside

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


def _check_no_secret(versions: Iterable[Version]) -> None:
    """Check that versions contain no secret. Raises InvalidInput naming the prompt and the field."""
    for version in versions:
        if found := secret_in(version):
            where, family = found[0].replace("override_sections", "overrideSections"), found[1].replace("_", " ")
            msg = f"{where}: contains a secret ({family}), in prompt {version.slug!r}."
            raise InvalidInput(f"{msg} Use a parameter, or set force (`--force`) to store it.", where=where)


async def save_writes(services: Services, writes: Sequence[Write], *, by: str) -> list[Version]:
    """Store checked versions, each with its audit record. Raises Conflict, NotFound, InvalidInput for an author."""
    refuse_secrets("author", by)
    ready = []
    for each in writes:
        version = sealed(each.version)
        record = receipt(services, version, "branch" if each.begins else "write", agent=by)
        ready.append(replace(each, version=version, audit=record))
    return await services.prompts.save(Scope(), ready, by=by, now=services.clock.now())


async def _numbered(version: Version, before: Version | None, semver: str | None) -> Version:
    """Return a version with its semantic version: the given one, else the increment that the change requires."""
    if semver is not None:
        return replace(version, semver=semver)
    if before is None:
        return version
    return replace(version, semver=next_semver(before.semver, bump(await differ(before, version))))


def _begins(added: Sequence[Version], existing: Sequence[Version]) -> list[tuple[str, int] | None]:
    """Return for each added version the origin of its branch: None for an existing branch or a new prompt."""
    versions: dict[str, list[Version]] = {}
    for version in existing:
        versions.setdefault(version.slug, []).append(version)
    results: list[tuple[str, int] | None] = []
    for version in added:
        family = versions.setdefault(version.slug, [])
        stands = any(each.branch == version.branch for each in family)
        origins = [each for each in family if each.branch == MAIN] or family
        results.append(None if stands or not origins else _most_like(version, origins))
        family.append(version)
    return results


def _most_like(version: Version, origins: Sequence[Version]) -> tuple[str, int]:
    """Return the place of the version with the fewest different sections and parameters, the newest if tied."""

    def far(origin: Version) -> tuple[int, int]:
        change = difference(origin, version)
        return len(change.sections) + len(change.params) + len(change.fields), -origin.number

    nearest = min(origins, key=far)
    return nearest.branch, nearest.number
