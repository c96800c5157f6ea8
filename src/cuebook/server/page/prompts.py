"""The views of prompts: a list, a prompt's versions and what they learnt, and what is other between two of them."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Annotated, Any

from litestar import Response, get
from litestar.params import FromPath, FromQuery, QueryParameter

from cuebook import Cuebook
from cuebook.app.prompts import lookup, shapes
from cuebook.app.prompts import views as prompt_views
from cuebook.app.prompts.impact import MOST_TURNS
from cuebook.errors import CuebookError
from cuebook.server.caller import AnyRequest, book_of, user_of
from cuebook.server.guard import name_in
from cuebook.server.page.graph import graph_of
from cuebook.server.page.plots import plotted_over_time
from cuebook.server.page.render import show
from cuebook.server.page.rollbacks import taken_back

ALL = "/page/prompts"
ONE = ALL + "/{prompt:str}"
#: Prompts and events a page lists.
LISTED = 50
EVENTS = 100
#: Turns a change is measured on, each with two or three assemblies.
TURNS = 20
VIEW = "Prompts"

At = Annotated[str | None, QueryParameter(name="at", description="Which version: branch, branch:number or a label")]
Turns = Annotated[int, QueryParameter(name="turns", ge=0, le=MOST_TURNS, description="Measured on so many turns")]

Sides = Annotated[bool, QueryParameter(name="sides", description="Both texts side by side")]


@get(ALL, include_in_schema=False)
async def prompts(
    request: AnyRequest, prefix: FromQuery[str] = "", cursor: FromQuery[str | None] = None
) -> Response[bytes]:
    """List prompts with their branches and labels."""
    book = book_of(request)
    items, more = await prompt_views.prompts_page(book.prompts, prefix=prefix, limit=LISTED, cursor=cursor)
    return show("prompts.html", view=VIEW, items=items, next=more, prefix=prefix)


@get("/page/prompt-clusters", include_in_schema=False)
async def clusters(request: AnyRequest, prefix: FromQuery[str] = "") -> Response[bytes]:
    """Show which prompts are about the same, and which say nearly the same."""
    found = await book_of(request).prompts.clusters(prefix=prefix)
    return show("prompt_clusters.html", view=VIEW, found=found, prefix=prefix)


@get(ONE, include_in_schema=False)
async def prompt(request: AnyRequest, prompt: FromPath[str], at: At = None) -> Response[bytes]:
    """Show a prompt: its versions as a graph, one version's text, what its variants learnt, and what was done to it."""
    book = book_of(request)
    family = await book.prompts.family(name_in(prompt))
    active = family.version() or family.active[0]
    named = await lookup.find_beside(book.prompts, active, at) if at else active
    shown = await prompt_views.show(book.prompts, family.slug, branch=named.branch, version=named.number, project="")
    versions, _ = await prompt_views.versions_page(book.prompts, family.slug)
    events, _ = await prompt_views.history_page(book.prompts, family.slug, limit=EVENTS)
    weights = await book.prompts.weights(family.slug)
    undone = [each for each in await book.prompts.events(family.slug, limit=EVENTS) if each.kind == "rollback"]
    plot = plotted_over_time(
        {f"{each.branch}:{each.number}": [(when, weight) for when, _, weight in each.points] for each in weights},
        low=0.0, high=1.0, events=[(each.at, f"{each.branch}:{each.number} rolled back") for each in undone],
    )  # fmt: skip
    return show(
        "prompt.html",
        view=VIEW,
        slug=family.slug,
        shown=shown,
        lineage=await _lineage(book, family.slug, named.branch, named.number),
        versions=list(reversed(versions)),
        names=[f"{each['branch']}:{each['version']}" for each in versions],
        graph=graph_of(versions, [each.name for each in family.branches]),
        branches=[shapes.branch(each, family) for each in family.branches],
        labels=[shapes.label(each) for each in family.labels],
        plot=plot,
        learnt=[_learnt(each.branch, each.number, each.points) for each in weights],
        events=events,
        undone=await taken_back(book, family.slug, undone),
        turns=TURNS,
    )


@get(ONE + "/quality", include_in_schema=False)
async def quality(request: AnyRequest, prompt: FromPath[str], at: At = None) -> Response[bytes]:
    """Show how good a version is: its rating and what that is made of, and what is wrong about the prompt."""
    book = book_of(request)
    family = await book.prompts.family(name_in(prompt))
    active = family.version() or family.active[0]
    named = await lookup.find_beside(book.prompts, active, at) if at else active
    rated = await prompt_views.rating(book.prompts, family.slug, branch=named.branch, version=named.number)
    found = await prompt_views.findings(book.prompts, family.slug)
    return show("prompt_quality.html", view=VIEW, slug=family.slug, rated=rated, findings=found)


@get(ONE + "/diff", include_in_schema=False)
async def diff(
    request: AnyRequest,
    *,
    prompt: FromPath[str],
    a: FromQuery[str],
    b: FromQuery[str],
    turns: Turns = TURNS,
    sides: Sides = False,
) -> Response[bytes]:
    """Show what is other in version `b` than in `a`: sections, tokens, and what past prompts would have left out."""
    book = book_of(request)
    family = await book.prompts.family(name_in(prompt))
    active = family.version() or family.active[0]
    before = await lookup.find_beside(book.prompts, active, a)
    after = await lookup.find_beside(book.prompts, active, b)
    async with request.app.state.measures.hold("a measure of prompts"):
        found = await lookup.compare(book.desk, before, after, turns=turns, user=user_of(request))
    versions, _ = await prompt_views.versions_page(book.prompts, family.slug)
    return show(
        "prompt_diff.html",
        view=VIEW,
        slug=family.slug,
        a=f"{before.branch}:{before.number}",
        b=f"{after.branch}:{after.number}",
        names=[f"{each['branch']}:{each['version']}" for each in versions],
        diff=found,
        impact=found.get("impact"),
        turns=turns,
        sides=sides,
        paired=[paired(each["lines"]) for each in found["sections"]] if sides else [],
    )


def paired(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Give a difference line by line with both texts side by side: what went, and what stands in its place."""
    found: list[tuple[str, str]] = []
    gone: list[str] = []
    new: list[str] = []
    for line in lines:
        if line.startswith("+"):
            new.append(line)
            continue
        if new or not line.startswith("-"):
            found += zip_longest(gone, new, fillvalue="")
            gone, new = [], []
        if line.startswith("-"):
            gone.append(line)
        else:
            found.append((line, line))
    return [*found, *zip_longest(gone, new, fillvalue="")]


async def _lineage(book: Cuebook, slug: str, branch: str, version: int) -> list[dict[str, str]]:
    """Give a version and what it inherits, the nearest first; nothing where that is broken."""
    try:
        resolved = await book.prompts.resolve(slug, branch=branch, version=version)
    except CuebookError:
        return []
    names = [each.removeprefix("prompt:") for each in reversed(resolved.lineage)]
    return [{"name": each, "slug": each.partition("@")[0], "at": each.partition("@")[2]} for each in names]


def _learnt(branch: str, number: int, points: tuple[tuple[float, float, float], ...]) -> dict[str, Any]:
    return {
        "name": f"{branch}:{number}",
        "observations": len(points),
        "mean": sum(score for _, score, _ in points) / len(points),
        "weight": points[-1][2],
    }


ROUTES = [prompts, clusters, prompt, quality, diff]
