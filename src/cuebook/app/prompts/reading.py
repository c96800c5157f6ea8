"""The read operations of `cue.prompts`: list, show, render, compare, lint, rate and select versions."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta
from msgspec.structs import replace

from cuebook.app.arguments import OWNER, CallerOf, Cursor, IdempotencyKey, MaybePageSize, User
from cuebook.app.namespace import Namespace
from cuebook.app.paging import LIMIT, no_cursor, read_cursor, short_page, write_cursor
from cuebook.app.prompts import answers
from cuebook.app.prompts.answers import (
    BranchStatus,
    EdgeWeights,
    PromptEntry,
    VersionDiff,
    VersionEntry,
    VersionSummary,
)
from cuebook.app.prompts.arguments import (
    HIGHEST,
    BranchName,
    LabelName,
    Number,
    Prefix,
    Project,
    Reference,
    Resolve,
    Slug,
)
from cuebook.app.prompts.clusters import Clusters, clusters_of
from cuebook.app.prompts.impact import MOST_TURNS, TURNS, Tokens, measure
from cuebook.app.prompts.lint import lint_prompts, rate_version
from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.branch_trial import GUARD, OBSERVATIONS
from cuebook.engine.core.prompt_reading import resolved_of, select_from
from cuebook.engine.core.services import Services
from cuebook.engine.jobs import rollback
from cuebook.errors import InvalidInput, NotFound
from cuebook.interfaces.prompts import Family
from cuebook.operations import Argument, operation
from cuebook.prompts.difference import Difference, bump, difference
from cuebook.prompts.inherit import text_of
from cuebook.prompts.learn import trail
from cuebook.prompts.lint import LintFinding, refuse_secrets
from cuebook.prompts.names import candidates, check_project, check_slug, read_place
from cuebook.prompts.params import coerce
from cuebook.prompts.rating import QualityRating
from cuebook.prompts.registry import twin
from cuebook.prompts.rollback_evidence import Course, course
from cuebook.prompts.select import EPSILON, Selection
from cuebook.prompts.template import render
from cuebook.records.answer import Answer, Page, Time, as_answer
from cuebook.records.memory import Scope
from cuebook.records.prompt import MAIN, Branch, Label, Observation, PromptEvent, ResolvedVersion, Strategy, Version

T = TypeVar("T")

#: Longer versions, in characters, are compared in a thread.
LARGE: Final = 50_000
#: Maximum number of events.
_ALL_EVENTS: Final = 1_000_000


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
        """Return a prompt's branches, active versions and labels. Raises NotFound, InvalidInput.

        If `project` has its own prompt of this id, return that one.
        """
        names = candidates(slug, check_project(project))
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
        """Return a version: the given one, a label's, or the active one of the branch. Raises NotFound, InvalidInput.

        `slug` may name branch, version or label too: `persona/a@trial:2`.
        """
        return (await self._found(slug, branch=branch, version=version, label=label, project=project))[1]

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
            return await self._rendered(resolved, params or {}, log=log, by=by or "")

        if not (idempotency_key and log):
            return await work()

        async def logged() -> RenderedPrompt:  # a key stores only the record's place, so that the text can be erased
            return replace(await work(), text="")

        asked = ["render", slug, params or {}, branch, version, label, whose]
        place = await self._run_once(idempotency_key, asked, RenderedPrompt, logged, user=by)
        return await self._with_logged_text(place)

    @operation("GET /api/prompts/{slug}", role="viewer")
    async def show(
        self,
        slug: Reference,
        *,
        branch: BranchName = None,
        version: Number = None,
        label: LabelName = None,
        resolve: Resolve = False,
        project: Project = None,
    ) -> VersionEntry:
        """Return a prompt version. Default: the branch's active one. Raises NotFound, InvalidInput."""
        whose = self.project_scope(project)
        family, found = await self._found(slug, branch=branch, version=version, label=label, project=whose)
        return answers.version_entry(found, family, await resolved_of(self._services, found) if resolve else None)

    @operation("GET /api/prompts/{slug}/versions", role="viewer")
    async def versions(
        self,
        slug: Slug,
        *,
        branch: Annotated[str | None, Meta(description="Branch. Default: all.")] = None,
        limit: MaybePageSize = None,
        cursor: Cursor = None,
    ) -> Page[VersionSummary]:
        """List the versions of a prompt without their texts, oldest first, of one branch or of all, `main` first.

        Raises NotFound.
        """
        family = await self.family(slug)
        if branch:
            await self._found(family.slug, branch=branch)  # raises NotFound
        versions = await self._services.prompts.versions(Scope(), family.slug, branch=branch or None)
        page = short_page(versions, f"versions {family.slug} {branch}", limit=limit, cursor=cursor, grows=True)
        return Page(items=tuple(answers.version_summary(each, family) for each in page), next=page.next)

    @operation("GET /api/prompts/{slug}/versions/{number}", role="viewer")
    async def version(
        self,
        slug: Slug,
        number: Annotated[int, Meta(description="Version.")],
        *,
        branch: BranchName = None,
        resolve: Resolve = False,
    ) -> VersionEntry:
        """Return a version of a prompt by its number. Raises NotFound."""
        family, found = await self._found(slug, branch=branch, version=number)
        return answers.version_entry(found, family, await resolved_of(self._services, found) if resolve else None)

    @operation("GET /api/prompts/{slug}/branches", role="viewer")
    async def branches(self, slug: Slug, *, limit: MaybePageSize = None, cursor: Cursor = None) -> Page[BranchStatus]:
        """List the branches of a prompt, `main` first, with the scores of their active versions. Raises NotFound."""
        family = await self.family(slug)
        page = short_page(family.branches, f"branches {family.slug}", limit=limit, cursor=cursor, grows=True)
        status = [await rollback.status(self._services, family.slug, each) for each in page]
        entries = [as_answer(BranchStatus, each, rollback=of) for each, of in zip(page, status, strict=True)]
        return Page(items=tuple(entries), next=page.next)

    @operation("GET /api/prompts/{slug}/labels", role="viewer")
    async def labels(self, slug: Slug, *, limit: MaybePageSize = None, cursor: Cursor = None) -> Page[Label]:
        """List the labels of a prompt by name. Raises NotFound."""
        family = await self.family(slug)
        return short_page(family.labels, f"labels {family.slug}", limit=limit, cursor=cursor, grows=True)

    @operation(
        "GET /api/prompts/{slug}/history",
        role="viewer",
        cli="prompt log",
        examples=("cuebook prompt log persona/kind", "cuebook prompt log persona/kind --limit 5 --json"),
    )
    async def history(self, slug: Slug, *, limit: MaybePageSize = None, cursor: Cursor = None) -> Page[PromptEvent]:
        """Return the history of a prompt, newest first. Raises NotFound."""
        family = await self.family(slug)
        prompt_events = await self._services.prompts.events(Scope(), family.slug, limit=_ALL_EVENTS)
        name = f"events {family.slug}"
        older = int(read_cursor(cursor, name)[0]) if cursor is not None else len(prompt_events)
        if older > len(prompt_events):
            raise no_cursor(cursor or "")
        left = prompt_events[len(prompt_events) - older :]
        page = short_page(left, name, limit=limit if limit or cursor is None else LIMIT, cursor=None)
        more = write_cursor(name, older - len(page)) if page.next else None
        return Page(items=page.items, next=more)

    @operation(
        "GET /api/prompts/{slug}/rating",
        role="viewer",
        cli="prompt rate",
        examples=("cuebook prompt rate persona/kind", "cuebook prompt rate persona/kind@trial --json"),
    )
    async def rating(
        self, slug: Reference, *, branch: BranchName = None, version: Number = None, label: LabelName = None
    ) -> QualityRating:
        """Return a version's quality score from 0 to 100, by lint findings, descriptions, tests and observations.

        Raises NotFound.
        """
        found = await self.get(slug, branch=branch, version=version, label=label)
        return await rate_version(self._services, found)

    @operation("GET /api/prompts/{slug}/diff", role="viewer", heavy="a prompt measurement")
    async def diff(
        self,
        slug: Slug,
        a: Annotated[int, Meta(ge=1, le=HIGHEST, description="The old version.")],
        b: Annotated[
            int | None, Meta(ge=1, le=HIGHEST, description="The new version. Default: the active one.")
        ] = None,
        *,
        branch: BranchName = None,
        turns: Annotated[
            int, Meta(ge=0, le=MOST_TURNS, description="Measure it on the last N turns with the prompt; 0: on none.")
        ] = TURNS,
        user: User = None,
    ) -> VersionDiff:
        """Return the changes from version `a` to `b`, the change in tokens, and the impact on recorded turns.

        With `user`, only turns of their conversations are listed. Raises NotFound.
        """
        after = await self.get(slug, branch=branch or None, version=b)
        before = await self.get(after.slug, branch=after.branch, version=a)
        return await compare_versions(self._services, before, after, turns=turns, user=user)

    @operation("GET /api/prompts/{slug}/lint", role="viewer")
    async def lint(self, slug: Slug = "") -> Page[LintFinding]:
        """Lint the active versions of a prompt: secrets, injections, lost parameters, and more, worst first.

        In Python, lint all prompts without `slug`. Raises NotFound.
        """
        return Page(items=tuple(await lint_prompts(self._services, None, [slug] if slug else ())))

    @operation(
        "GET /api/prompt-clusters",
        role="viewer",
        cli="prompt clusters",
        examples=("cuebook prompt clusters", "cuebook prompt clusters --prefix persona/ --json"),
    )
    async def clusters(
        self,
        *,
        prefix: Prefix = "",
        least: Annotated[
            float | None, Meta(gt=0, le=1, description="Minimum mean similarity. Default: by the method.")
        ] = None,
    ) -> Clusters:
        """Group similar prompts and list near duplicates.

        Compares the active versions on `main`, by the configured embedder, else by words. Groups are merged while their
        mean similarity is at least `least`. Raises InvalidInput.
        """
        return await clusters_of(self._services, prefix=prefix, least=least)

    async def weights(self, slug: str) -> list[EdgeWeights]:
        """Return the edge weight history of each observed version, from the newest 5,000 observations.

        Sorted by branch and version, points oldest first. Raises NotFound.
        """
        observations = await self._services.prompts.observations(Scope(), (await self.family(slug)).slug)
        by_version: dict[tuple[bool, str, int], list[Observation]] = {}
        for each in observations:
            by_version.setdefault((each.branch != MAIN, each.branch, each.number), []).append(each)
        return [
            EdgeWeights(
                branch=branch,
                number=number,
                points=tuple((each.at, each.score, weight) for each, weight in zip(group, trail(group), strict=True)),
            )
            for (_, branch, number), group in sorted(by_version.items())
        ]

    async def course(self, slug: str, event: PromptEvent) -> Course:
        """Return the evidence over time that led to a rollback; `event` is a rollback from `history`.

        Computed from the newest 50,000 observations of both versions, as they are now. Raises NotFound, and
        InvalidInput for another kind of event.
        """
        if event.kind != "rollback":
            msg = f"event: {event.kind!r} has no evidence. Pass a rollback."
            raise InvalidInput(msg, where="event")
        name, numbers = (await self.family(slug)).slug, (event.number, event.to or 0)
        observations, *_ = await self._services.prompts.observations_since(
            Scope(), name, event.branch, numbers, after=0, limit=OBSERVATIONS
        )
        since = float(event.evidence.get("since", 0.0))
        return course(observations, new=event.number, control=numbers[1], since=since, until=event.at, settings=GUARD)

    @operation(
        "POST /api/prompts/{slug}/select",
        role="viewer",
        cli="prompt select",
        examples=(
            "cuebook prompt select persona/kind --signal task_coding --explain",
            "cuebook prompt select persona/kind --signal user_frustrated=0.7 --strategy thompson --seed 7 --json",
        ),
    )
    async def select(
        self,
        slug: Slug,
        signals: Annotated[
            dict[str, float | bool] | None,
            Meta(description="Signals and their strengths."),
            Argument(flag="signal", metavar="NAME[=0..1]"),
        ] = None,
        *,
        strategy: Annotated[
            Strategy | None, Meta(description="Selection strategy. Default: the setting prompts.strategy.")
        ] = None,
        epsilon: Annotated[float | None, Meta(ge=0, le=1, description="Exploration rate of epsilon_greedy.")] = None,
        seed: Annotated[
            int | None, Meta(ge=-(2**63), le=2**63 - 1, description="The same seed selects the same variant.")
        ] = None,
    ) -> Selection:
        """Select a variant of a prompt (an active version of its branches). Stores nothing. Raises NotFound."""
        return select_from(
            self._services,
            await self.family(slug),
            signals or {},
            strategy=strategy or self._services.config.prompts.strategy,
            epsilon=EPSILON if epsilon is None else epsilon,
            seed=seed,
        )

    async def _found(
        self,
        slug: str,
        *,
        branch: str | None = None,
        version: int | None = None,
        label: str | None = None,
        project: str = "",
    ) -> tuple[Family, Version]:
        """Return a prompt and one of its versions, as `get` does."""
        place = read_place(slug, branch=branch, version=version)
        family = await self.family(place.slug, project=project)
        name, number = place.branch or MAIN, place.number
        if label is not None:
            name, number = _labelled(family, label, branch=place.branch, version=place.number)
        elif number is None and family.branch(name) is None:
            name, number = next(((one.branch, one.number) for one in family.labels if one.name == name), (name, None))
        active = family.version(name)
        if active is None:
            labels = f" Labels: {_names(family.labels)}." if family.labels else ""
            msg = f"Unknown branch {name!r} of prompt {family.slug!r}. Available: {_names(family.branches)}.{labels}"
            raise NotFound(msg)
        if number in (None, active.number):
            return family, active
        versions = await self._services.prompts.versions(Scope(), family.slug, branch=name, numbers=[number or 0])
        if not versions:
            branch_of = family.branch(name)
            newest = branch_of.head if branch_of else 0
            msg = f"Unknown version {number} of prompt {family.slug!r} on {name!r}. Available: 1 to {newest}."
            raise NotFound(msg)
        return family, versions[0]

    async def _rendered(
        self, resolved: ResolvedVersion, params: Mapping[str, Any], *, log: bool, by: str
    ) -> RenderedPrompt:
        """Render a version; with `log`, append the render to the audit log."""
        services, version, values = self._services, resolved.version, coerce(resolved.params, params)
        rendered = as_answer(
            RenderedPrompt,
            version,
            text=render(text_of(resolved), values, engine=version.engine, declared=set(values)),
            version=version.number,
            timestamp=str(Time(services.clock.now())),
            lineage=resolved.lineage,
        )
        if not log:
            return rendered
        name = services.dice.new_id("render")
        refuse_secrets("userId", by)
        record = receipt(services, version, "render", agent=by, context=values, text=rendered.text, render_id=name)
        [chained] = await services.audit.append(Scope(), [record])
        return replace(rendered, audit_seq=chained.seq)

    async def _with_logged_text(self, rendered: RenderedPrompt) -> RenderedPrompt:
        """Return a render with the text of its audit record, "" if that was erased."""
        records = await self._services.audit.records(Scope(), after=(rendered.audit_seq or 0) - 1, limit=1)
        text = records[0].texts.get("interpolated_text") if records else None
        return replace(rendered, text=text.text) if text else rendered

    @operation(
        "GET /api/prompts",
        role="viewer",
        cli="prompt list",
        examples=("cuebook prompt list", "cuebook prompt list --prefix persona/ --json"),
    )
    async def list(
        self,
        *,
        prefix: Prefix = "",
        limit: Annotated[int, Meta(ge=1, le=200, description="Return at most N items.")] = LIMIT,
        cursor: Cursor = None,
    ) -> Page[PromptEntry]:
        """List prompts by name, each with its branches and labels. Raises InvalidInput."""
        name = f"prompts {prefix}"
        after = str(read_cursor(cursor, name)[0]) if cursor is not None else ""
        page = await self.page(prefix=prefix, limit=limit, after=after)
        more = write_cursor(name, page.next) if page.next is not None else None
        return Page(items=tuple(map(answers.prompt_entry, page.items)), next=more)


async def compare_versions(
    services: Services, before: Version, after: Version, *, turns: int = 0, user: str | None = None
) -> VersionDiff:
    """Return the difference between two versions, and the tokens of both whole texts.

    With `turns` above 0, also the impact on the last turns that used the prompt, unless they are two prompts. With
    `user`, only turns of their conversations are listed.
    """
    old, new = [services.count(await whole_text(services, each)) for each in (before, after)]
    tokens = Tokens(old, new, new - old)
    found = await differ(before, after)
    apart, impact = before.slug != after.slug, None
    if turns and not apart:
        impact = await measure(services, before, after, tokens=tokens, turns=turns, user=user)
    return as_answer(
        VersionDiff,
        found,
        slug=after.slug,
        branch=after.branch,
        a=before.number,
        b=after.number or None,
        slug_a=before.slug if apart else None,
        branch_a=before.branch if apart or before.branch != after.branch else None,
        bump=bump(found),
        tokens=tokens,
        impact=impact,
    )


async def whole_text(services: Services, version: Version) -> str:
    """Return a version's text with everything it inherits, not rendered."""
    return text_of(await resolved_of(services, version))


async def find_beside(prompts: "PromptReading", other: Version, text: str) -> Version:
    """Return another version of the same prompt: `3`, `trial`, `trial:2` or a label; or any as `persona/b@trial`."""
    if "@" in text or "/" in text:
        return await prompts.get(text if text.partition("@")[0] else f"{other.slug}{text}")
    branch, _, number = text.partition(":")
    if branch.isdecimal() and not number:
        return await prompts.get(f"{other.slug}@{other.branch}:{branch}")
    return await prompts.get(f"{other.slug}@{text}")


async def differ(before: Version, after: Version) -> Difference:
    """Return the difference between two versions. Large ones are compared in a thread: up to 0.5 s."""
    texts = [text for each in (before, after) for text in (*each.sections.values(), *each.override_sections.values())]
    large = sum(map(len, texts)) > LARGE
    return await asyncio.to_thread(difference, before, after) if large else difference(before, after)


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
