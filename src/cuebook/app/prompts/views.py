"""List, show and compare prompts, versions, branches, labels and their history, and lint and rate versions."""

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from msgspec import Meta

from cuebook.app.arguments import Cursor, MaybePageSize, User
from cuebook.app.paging import LIMIT, check_limit, no_cursor, read_cursor, write_cursor
from cuebook.app.prompts import answers
from cuebook.app.prompts.answers import (
    BranchStatus,
    EventEntry,
    LabelEntry,
    PromptEntry,
    VersionDiff,
    VersionEntry,
    VersionSummary,
)
from cuebook.app.prompts.arguments import HIGHEST, BranchName, LabelName, Number, Prefix, Project, Resolve, Slug
from cuebook.app.prompts.clusters import Clusters, clusters_of
from cuebook.app.prompts.impact import MOST_TURNS, TURNS, Tokens, measure
from cuebook.app.prompts.lint import lint_prompts, rate_version
from cuebook.app.prompts.reading import PromptReading, differ
from cuebook.engine.core.prompt_reading import resolved_of
from cuebook.engine.core.services import Services
from cuebook.engine.jobs import rollback
from cuebook.operations import Argument, operation
from cuebook.prompts.difference import bump
from cuebook.prompts.inherit import text_of
from cuebook.prompts.lint import LintFinding
from cuebook.prompts.rating import QualityRating
from cuebook.records.answer import Page
from cuebook.records.memory import Scope
from cuebook.records.prompt import MAIN, Version

T = TypeVar("T")

#: Maximum number of events.
_ALL_EVENTS = 1_000_000


class PromptViews(PromptReading):
    """The operations of `cue.prompts` that show stored prompts."""

    @operation("GET /api/prompts/{slug}", role="viewer")
    async def show(
        self,
        slug: Slug,
        *,
        branch: BranchName = None,
        version: Number = None,
        label: LabelName = None,
        resolve: Resolve = False,
        project: Project = None,
    ) -> VersionEntry:
        """Return a prompt version. Default: the branch's active one. Raises NotFound, InvalidInput."""
        family = await self.family(slug, project=self.project_scope(project))
        found = family.version(branch or MAIN)
        if found is None or version not in (None, found.number) or label is not None:
            found = await self.get(family.slug, branch=branch, version=version, label=label)
        if not resolve:
            return answers.version_entry(found, family)
        resolved = await self.resolve(found.slug, branch=found.branch, version=found.number)
        return answers.version_entry(found, family, resolved)

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
            await self.get(family.slug, branch=branch)  # raises NotFound listing the branches
        versions = await self._services.prompts.versions(Scope(), family.slug, branch=branch or None)
        name = f"versions {family.slug} {branch}"
        rows, more = _page(versions, lambda each: f"{_key(each.branch)} {each.number:09}", name, limit, cursor)
        return Page(items=tuple(answers.version_summary(each, family) for each in rows), next=more)

    @operation("GET /api/prompts/{slug}/versions/{number}", role="viewer")
    async def version(
        self,
        slug: Slug,
        number: Annotated[int, Meta(description="Version."), Argument(metavar="N")],
        *,
        branch: BranchName = None,
        resolve: Resolve = False,
    ) -> VersionEntry:
        """Return a version of a prompt by its number. Raises NotFound."""
        family = await self.family(slug)
        found = await self.get(family.slug, branch=branch, version=number)
        resolved = await self.resolve(found.slug, branch=found.branch, version=number) if resolve else None
        return answers.version_entry(found, family, resolved)

    @operation("GET /api/prompts/{slug}/branches", role="viewer")
    async def branches(self, slug: Slug, *, limit: MaybePageSize = None, cursor: Cursor = None) -> Page[BranchStatus]:
        """List the branches of a prompt, `main` first, with the scores of their active versions. Raises NotFound."""
        family = await self.family(slug)
        rows, more = _page(family.branches, lambda each: _key(each.name), f"branches {family.slug}", limit, cursor)
        status = [await rollback.status(self._services, family.slug, each) for each in rows]
        entries = [answers.branch_status(each, family, of) for each, of in zip(rows, status, strict=True)]
        return Page(items=tuple(entries), next=more)

    @operation("GET /api/prompts/{slug}/labels", role="viewer")
    async def labels(self, slug: Slug, *, limit: MaybePageSize = None, cursor: Cursor = None) -> Page[LabelEntry]:
        """List the labels of a prompt by name. Raises NotFound."""
        family = await self.family(slug)
        rows, more = _page(family.labels, lambda each: each.name, f"labels {family.slug}", limit, cursor)
        return Page(items=tuple(map(answers.label_entry, rows)), next=more)

    @operation(
        "GET /api/prompts/{slug}/history",
        role="viewer",
        cli="prompt log",
        examples=("cuebook prompt log persona/kind", "cuebook prompt log persona/kind --limit 5 --json"),
    )
    async def history(self, slug: Slug, *, limit: MaybePageSize = None, cursor: Cursor = None) -> Page[EventEntry]:
        """Return the history of a prompt, newest first. Raises NotFound."""
        family = await self.family(slug)
        prompt_events = await self.events(family.slug, limit=_ALL_EVENTS)
        name = f"events {family.slug}"
        count = int(read_cursor(cursor, name)[0]) if cursor is not None else len(prompt_events)
        if count > len(prompt_events):
            raise no_cursor(cursor or "")
        left = prompt_events[len(prompt_events) - count :]
        shown = left if limit is None and cursor is None else left[: _checked(limit)]
        more = write_cursor(name, len(left) - len(shown)) if len(left) > len(shown) else None
        return Page(items=tuple(map(answers.event_entry, shown)), next=more)

    @operation("GET /api/prompts/{slug}/rating", role="viewer")
    async def rating(
        self, slug: Slug, *, branch: BranchName = None, version: Number = None, label: LabelName = None
    ) -> QualityRating:
        """Return a version's quality score from 0 to 100, by lint findings, descriptions, tests and observations.

        Raises NotFound.
        """
        found = await self.get(slug, branch=branch, version=version, label=label)
        return await rate_version(self._services, None, found)

    @operation("GET /api/prompts/{slug}/diff", role="viewer", heavy="a prompt measurement")
    async def diff(
        self,
        slug: Slug,
        a: Annotated[int, Meta(ge=1, le=HIGHEST, description="The old version."), Argument(metavar="A")],
        b: Annotated[
            int | None,
            Meta(ge=1, le=HIGHEST, description="The new version. Default: the active one."),
            Argument(metavar="B"),
        ] = None,
        *,
        branch: BranchName = None,
        turns: Annotated[
            int,
            Meta(ge=0, le=MOST_TURNS, description="Measure it on the last N turns with the prompt; 0: on none."),
            Argument(metavar="N"),
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
            float | None,
            Meta(gt=0, le=1, description="Minimum mean similarity. Default: by the method."),
            Argument(metavar="0..1"),
        ] = None,
    ) -> Clusters:
        """Group similar prompts and list near duplicates.

        Compares the active versions on `main`, by the configured embedder, else by words. Groups are merged while their
        mean similarity is at least `least`. Raises InvalidInput.
        """
        return await clusters_of(self._services, prefix=prefix, least=least)

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
        limit: Annotated[int, Meta(ge=1, le=200, description="Return at most N items."), Argument(metavar="N")] = LIMIT,
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
    found = await differ(before, after)
    apart = before.slug != after.slug
    return VersionDiff(
        slug=after.slug,
        branch=after.branch,
        a=before.number,
        b=after.number or None,
        slug_a=before.slug if apart else None,
        branch_a=before.branch if apart or before.branch != after.branch else None,
        bump=bump(found),
        sections=found.sections,
        params=found.params,
        fields=found.fields,
        tokens=Tokens(old, new, new - old),
        impact=await measure(services, before, after, turns=turns, user=user) if turns and not apart else None,
    )


async def whole_text(services: Services, version: Version) -> str:
    """Return a version's text with everything it inherits, not rendered."""
    return text_of(await resolved_of(services, version))


def _page(
    rows: Sequence[T], key: Callable[[T], str], name: str, limit: int | None, cursor: str | None
) -> tuple[Sequence[T], str | None]:
    """Return a page of rows sorted by key."""
    if limit is None and cursor is None:
        return rows, None
    after = str(read_cursor(cursor, name)[0]) if cursor is not None else ""
    left = [each for each in rows if key(each) > after]
    entries = left[: _checked(limit)]
    return entries, write_cursor(name, key(entries[-1])) if len(left) > len(entries) else None


def _checked(limit: int | None) -> int:
    limit = LIMIT if limit is None else limit
    check_limit(limit)
    return limit


def _key(branch: str) -> str:
    """Return the sort key of a branch: `main` first, then by name. A space sorts before all their letters."""
    return f"{branch != MAIN:d}{branch}"
