"""Return prompts as JSON objects for the HTTP API, the CLI and MCP: single versions, and paginated lists."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from cuebook.app.json_shapes import Wire
from cuebook.app.paging import LIMIT, check_limit, no_cursor, read_cursor, write_cursor
from cuebook.app.prompts import Prompts, lookup
from cuebook.app.prompts import json_shapes as shapes
from cuebook.app.prompts import lint as linting
from cuebook.engine.core.services import Services
from cuebook.errors import MergeConflict
from cuebook.records.prompt import MAIN

T = TypeVar("T")


#: A page of rows, and the cursor of the next page.
Page = tuple[list[Wire], str | None]


#: Maximum number of events.
_ALL_EVENTS = 1_000_000


async def prompts_page(prompts: Prompts, *, prefix: str = "", limit: int = LIMIT, cursor: str | None = None) -> Page:
    """Return a page of prompts, sorted by name."""
    name = f"prompts {prefix}"
    after = str(read_cursor(cursor, name)[0]) if cursor is not None else ""
    family_page = await prompts.page(prefix=prefix, limit=limit, after=after)
    more = write_cursor(name, family_page.next) if family_page.next is not None else None
    return [shapes.family(each) for each in family_page.items], more


async def show(
    prompts: Prompts,
    slug: str,
    *,
    branch: str | None = None,
    version: int | None = None,
    label: str | None = None,
    resolve: bool = False,
    project: str | None = None,
) -> Wire:
    """Return a version (default: the active one); with `resolve`, with its ancestors merged in.

    `project` selects the project whose own prompt is preferred ("": none; default: the setting's).
    """
    family = await prompts.family(slug, project=prompts.project_scope(project))
    found = family.version(branch or MAIN)
    if found is None or version not in (None, found.number) or label is not None:
        found = await prompts.get(family.slug, branch=branch, version=version, label=label)
    if not resolve:
        return shapes.version(found, family)
    resolved = await prompts.resolve(found.slug, branch=found.branch, version=found.number)
    return shapes.version(found, family, resolved)


async def versions_page(
    prompts: Prompts, slug: str, *, branch: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Page:
    """Return a page of a prompt's versions without texts, of one branch or of all, `main` first, oldest first."""
    family = await prompts.family(slug)
    if branch:
        await prompts.get(family.slug, branch=branch)  # raises NotFound listing the branches
    versions = await prompts.versions(family.slug, branch=branch or None)
    name = f"versions {family.slug} {branch}"
    rows, more = _page(versions, lambda each: f"{_key(each.branch)} {each.number:09}", name, limit, cursor)
    return [shapes.summary(each, family) for each in rows], more


async def branches_page(prompts: Prompts, slug: str, *, limit: int | None = None, cursor: str | None = None) -> Page:
    """Return a page of a prompt's branches, `main` first, each with the status of its automatic rollback."""
    family = await prompts.family(slug)
    rows, more = _page(family.branches, lambda each: _key(each.name), f"branches {family.slug}", limit, cursor)
    status = await prompts.rollback_status(family.slug)
    wires = [shapes.branch(each, family) | {"rollback": msgspec.to_builtins(status[each.name])} for each in rows]
    return wires, more


async def labels_page(prompts: Prompts, slug: str, *, limit: int | None = None, cursor: str | None = None) -> Page:
    """Return a page of a prompt's labels, sorted by name."""
    family = await prompts.family(slug)
    rows, more = _page(family.labels, lambda each: each.name, f"labels {family.slug}", limit, cursor)
    return [shapes.label(each) for each in rows], more


async def history_page(prompts: Prompts, slug: str, *, limit: int | None = None, cursor: str | None = None) -> Page:
    """Return a page of a prompt's change history, newest first."""
    family = await prompts.family(slug)
    prompt_events = await prompts.events(family.slug, limit=_ALL_EVENTS)
    name = f"events {family.slug}"
    count = int(read_cursor(cursor, name)[0]) if cursor is not None else len(prompt_events)
    if count > len(prompt_events):
        raise no_cursor(cursor or "")
    left = prompt_events[len(prompt_events) - count :]
    if limit is None and cursor is None:
        return [shapes.event(each) for each in left], None
    shown = left[: _checked(limit)]
    more = write_cursor(name, len(left) - len(shown)) if len(left) > len(shown) else None
    return [shapes.event(each) for each in shown], more


async def compare(
    services: Services,
    slug: str,
    a: int,
    b: int | None = None,
    *,
    branch: str | None = None,
    turns: int = 0,
    user: str | None = None,
) -> Wire:
    """Return the difference from version `a` to `b` (default: the active one), with token counts and impact."""
    prompts = Prompts(services)
    after = await prompts.get(slug, branch=branch, version=b)
    before = await prompts.get(after.slug, branch=after.branch, version=a)
    return await lookup.compare(services, before, after, turns=turns, user=user)


async def rating(
    prompts: Prompts, slug: str, *, branch: str | None = None, version: int | None = None, label: str | None = None
) -> Wire:
    """Return the rating of a version (default: the active one)."""
    found = await prompts.get(slug, branch=branch, version=version, label=label)
    quality_rating = await prompts.rating(found.slug, branch=found.branch, version=found.number)
    return linting.rating_to_wire(found, quality_rating)


async def findings(prompts: Prompts, slug: str) -> list[Wire]:
    """Return the lint findings of a prompt."""
    return [msgspec.to_builtins(each) for each in await prompts.lint(slug)]


async def merge(
    prompts: Prompts, slug: str, branch: str, *, into: str = MAIN, by: str = "", idempotency_key: str | None = None
) -> Wire:
    """Merge a branch's sections into another and return the new version. Raises MergeConflict with the conflicts."""
    version, merged = await prompts.merge(slug, branch, into=into, by=by, idempotency_key=idempotency_key)
    if version is not None:
        return shapes.written(version)
    clashes = [shapes.conflict(each) for each in merged.conflicts]
    names = ", ".join(repr(each.section) for each in merged.conflicts)
    msg = f"{branch!r} and {into!r} both changed {names}. Make them equal in one of the two, then merge again."
    raise MergeConflict(msg, conflicts=clashes)


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
