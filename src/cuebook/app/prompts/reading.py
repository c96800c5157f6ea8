"""Read prompts: look up versions by branch, number or label, resolve inheritance, render, compare, lint and rate."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from msgspec import Meta
from msgspec.structs import replace

from cuebook.app.arguments import OWNER, CallerOf, IdempotencyKey
from cuebook.app.namespace import Namespace
from cuebook.app.prompts.arguments import BranchName, LabelName, Number, Project, Slug
from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.prompt_reading import resolved_of
from cuebook.engine.core.services import Services
from cuebook.errors import InvalidInput, NotFound
from cuebook.interfaces.prompts import Family, PromptEvent
from cuebook.operations import Argument, operation
from cuebook.prompts.difference import Difference, difference
from cuebook.prompts.inherit import text_of
from cuebook.prompts.names import candidates, check_project, check_slug
from cuebook.prompts.params import coerce
from cuebook.prompts.registry import twin
from cuebook.prompts.template import render
from cuebook.records.answer import Answer, Page
from cuebook.records.memory import Scope
from cuebook.records.prompt import MAIN, Branch, Label, ResolvedVersion, Version

#: Longer versions, in characters, are compared in a thread.
LARGE: Final = 50_000


class RenderedPrompt(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """A rendered prompt and its version; with `log` also its audit record. `timestamp` is ISO 8601 UTC."""

    text: str
    slug: str
    branch: str
    version: int
    semver: str
    digest: str
    timestamp: str
    lineage: tuple[str, ...]
    audit_seq: int | None = None  # seq of its audit record, if it was logged


async def standing(services: Services, slug: str) -> str:
    """Return the stored id of a prompt, with or without `default/`; the given id for a new prompt."""
    names = [name for name in (check_slug(slug), twin(slug)) if name]
    families = await services.prompts.families(Scope(), names, ancestors=False)
    return next((name for name in names if name in families), slug)


class PromptReading(Namespace):
    """The read operations of `cue.prompts`."""

    async def page(self, *, prefix: str = "", limit: int = 50, after: str = "") -> Page[Family]:
        """Return a page of prompts, sorted by name."""
        if not 1 <= limit <= 200:
            msg = f"limit: {limit}. Must be between 1 and 200."
            raise InvalidInput(msg, where="limit")
        return await self._services.prompts.page(Scope(), prefix=prefix, limit=limit, after=after)

    def project_scope(self, project: str | None) -> str:
        """Return the project whose own prompts are preferred: the given one, "" for none, else the setting's."""
        return self._services.settings.project if project is None else project

    async def family(self, slug: str, *, project: str = "") -> Family:
        """Return a prompt's branches, active versions and labels. Raises NotFound.

        If `project` has its own prompt of this id, return that one.
        """
        names = candidates(check_slug(slug), check_project(project))
        families = await self._services.prompts.families(Scope(), names, ancestors=False)
        for name in names:
            if name in families:
                return families[name]
        msg = f"Unknown prompt {slug!r}. List prompts with `cuebook prompt list`."
        raise NotFound(msg)

    async def get(
        self,
        slug: str,
        *,
        branch: str | None = None,
        version: int | None = None,
        label: str | None = None,
        project: str = "",
    ) -> Version:
        """Return a version: the given one, a label's, or the active one of the branch. Raises NotFound."""
        family = await self.family(slug, project=project)
        if label is not None:
            branch, version = _labelled(family, label, branch=branch, version=version)
        name = branch or MAIN
        active = family.version(name)
        if active is None:
            labels = f" Labels: {_names(family.labels)}." if family.labels else ""
            msg = f"Unknown branch {name!r} of prompt {family.slug!r}. Available: {_names(family.branches)}.{labels}"
            raise NotFound(msg)
        if version is None or version == active.number:
            return active
        versions = await self._services.prompts.versions(Scope(), family.slug, branch=name, numbers=[version])
        if not versions:
            stands = family.branch(name)
            newest = stands.head if stands else 0
            msg = f"Unknown version {version} of prompt {family.slug!r} on {name!r}. Available: 1 to {newest}."
            raise NotFound(msg)
        return versions[0]

    async def events(self, slug: str, *, limit: int = 100) -> list[PromptEvent]:
        """Return the change history of a prompt, newest first."""
        return await self._services.prompts.events(Scope(), (await self.family(slug)).slug, limit=limit)

    async def resolve(
        self,
        slug: str,
        *,
        branch: str | None = None,
        version: int | None = None,
        label: str | None = None,
        project: str = "",
    ) -> ResolvedVersion:
        """Return a version with its ancestors merged in. Raises NotFound, InvalidInput."""
        found = await self.get(slug, branch=branch, version=version, label=label, project=project)
        return await resolved_of(self._services, found)

    @operation("POST /api/prompts/{slug}/render", role="viewer")
    async def render(
        self,
        slug: Slug,
        params: Annotated[
            Mapping[str, Any] | None, Meta(description="Values of the declared parameters, with or without `$`.")
        ] = None,
        *,
        branch: BranchName = None,
        version: Number = None,
        label: LabelName = None,
        project: Project = None,
        log: Annotated[bool, Meta(description="Store an audit record, once per Idempotency-Key.")] = False,
        by: Annotated[
            str | None, Meta(description="The acting user."), Argument(wire="userId", flag="-", source="user")
        ] = None,
        caller: CallerOf = OWNER,
        idempotency_key: IdempotencyKey = None,
    ) -> RenderedPrompt:
        """Render a prompt with its ancestors' sections. A missing parameter is an error that names it.

        With `log` it adds an audit record, and returns its number. Raises NotFound, InvalidInput, Denied.
        """
        if log:
            caller.need("editor", "log: storing an audit record")
        whose = self.project_scope(project)

        async def work() -> RenderedPrompt:
            resolved = await self.resolve(slug, branch=branch, version=version, label=label, project=whose)
            values = coerce(resolved.params, params or {})
            rendered = self._rendered(resolved, values)
            return await self._logged(resolved, values, rendered, by or "") if log else rendered

        if not (idempotency_key and log):
            return await work()

        async def logged() -> RenderedPrompt:  # a key stores only the record's place, so that the text can be erased
            return replace(await work(), text="")

        asked = ["render", slug, params or {}, branch, version, label, whose]
        place = await self._run_once(idempotency_key, asked, RenderedPrompt, logged, user=by)
        return await self._said_before(place)

    def _rendered(self, resolved: ResolvedVersion, data: Mapping[str, Any]) -> RenderedPrompt:
        version = resolved.version
        now = datetime.fromtimestamp(self._services.clock.now(), UTC)
        return RenderedPrompt(
            text=render(text_of(resolved), data, engine=resolved.engine, declared=set(data)),
            slug=version.slug,
            branch=version.branch,
            version=version.number,
            semver=version.semver,
            digest=version.digest,
            timestamp=now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            lineage=resolved.lineage,
        )

    async def _logged(
        self, resolved: ResolvedVersion, data: Mapping[str, Any], rendered: RenderedPrompt, by: str
    ) -> RenderedPrompt:
        """Append a render to the audit log."""
        services = self._services
        name = services.dice.new_id("render")
        record = receipt(
            services, resolved.version, "render", agent=by, context=data, text=rendered.text, render_id=name
        )
        [chained] = await services.audit.append(Scope(), [record])
        return replace(rendered, audit_seq=chained.seq)

    async def _said_before(self, rendered: RenderedPrompt) -> RenderedPrompt:
        """Return a render with the text of its audit record, "" if that was erased."""
        records = await self._services.audit.records(Scope(), after=(rendered.audit_seq or 0) - 1, limit=1)
        text = records[0].texts.get("interpolated_text") if records else None
        return replace(rendered, text=text.text) if text else rendered


async def differ(before: Version, after: Version) -> Difference:
    """Return the difference between two versions. Large ones are compared in a thread: up to 0.5 s."""
    large = sum(len(text) for each in (before, after) for text in _texts(each)) > LARGE
    return await asyncio.to_thread(difference, before, after) if large else difference(before, after)


def _texts(version: Version) -> list[str]:
    return [*version.sections.values(), *version.override_sections.values()]


def _labelled(family: Family, label: str, *, branch: str | None, version: int | None) -> tuple[str, int]:
    """Return the place of a label. Raises NotFound, and InvalidInput if branch or version are given too."""
    if branch is not None or version is not None:
        msg = f"label: {label!r} not allowed with branch or version. Omit them, or the label."
        raise InvalidInput(msg, where="label")
    for each in family.labels:
        if each.name == label:
            return each.branch, each.number
    known = f"Available: {_names(family.labels)}." if family.labels else "It has no labels."
    msg = f"Unknown label {label!r} of prompt {family.slug!r}. {known}"
    raise NotFound(msg)


def _names(values: Sequence[Branch] | Sequence[Label]) -> str:
    return ", ".join(each.name for each in values)
