"""`cuebook prompt`: write, compare, render, choose and roll back prompts, and keep their files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from cuebook.app import prompt_shapes as shapes
from cuebook.app.prompt_files import Change
from cuebook.cli import screen
from cuebook.cli.group import command, new_app
from cuebook.cli.state import State
from cuebook.errors import InvalidInput

app = new_app(
    "Write, compare, render, choose and roll back prompts.",
    "cuebook prompt list",
    "cuebook prompt test persona/kind_helper --param user_name=Alex",
)

Slug = Annotated[
    str, typer.Argument(metavar="ID", help="The prompt's id, such as persona/kind_helper.", show_default=False)
]
OnBranch = Annotated[str, typer.Option("--branch", metavar="NAME", help="The branch.")]
Number = Annotated[
    int | None, typer.Option("--version", metavar="N", min=1, help="The version; the active one without.")
]
Pairs = Annotated[
    list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="A parameter; as often as needed.")
]


@command(app, "cuebook prompt list", "cuebook prompt list --prefix persona/", name="list")
def list_(
    state: State,
    *,
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Ids that begin with it.")] = "",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=200, help="At most so many.")] = 50,
) -> None:
    """List prompts with their branches."""
    with state.open() as book:
        page = book.prompts.page(prefix=prefix, limit=limit)
    if state.json:
        screen.say_json(
            {"items": [shapes.family(each) for each in page.items]} | ({"next": page.next} if page.next else {})
        )
        return
    rows = [
        (
            family.slug,
            ", ".join(f"{each.name}:{each.active}" for each in family.branches),
            family.active[0].semver,
            ", ".join(f"{each.name} → {each.branch}:{each.number}" for each in family.labels),
            family.active[0].description,
        )
        for family in page.items
    ]
    screen.table(("id", "active", "semver", "labels", "what"), rows, fold=("id",))


@command(
    app, "cuebook prompt show persona/kind_helper", "cuebook prompt show persona/kind_helper --resolve", name="show"
)
def show(
    state: State,
    slug: Slug,
    *,
    branch: OnBranch = "main",
    version: Number = None,
    resolve: Annotated[bool, typer.Option("--resolve", help="With its ancestors merged in.")] = False,
) -> None:
    """Show a version of a prompt."""
    with state.open() as book:
        found = book.prompts.get(slug, branch=branch, version=version)
        family = book.prompts.family(slug)
        resolved = book.prompts.resolve(slug, branch=branch, version=version) if resolve else None
    if state.json:
        screen.say_json(shapes.version(found, family, resolved))
        return
    screen.say(f"{found.source} ({found.semver})  {found.description}")
    for name, text in (resolved.sections if resolved else found.sections).items():
        screen.say(f"\n[{name}]\n{text}")
    for name, text in found.override_sections.items():
        screen.say(f"\n[{name}, in the place of an ancestor's]\n{text}")


@command(app, "cuebook prompt log persona/kind_helper", name="log")
def log(state: State, slug: Slug) -> None:
    """Show what was done to a prompt, the newest first."""
    with state.open() as book:
        events = book.prompts.events(slug)
    if state.json:
        screen.say_json({"items": [shapes.event(each) for each in events]})
        return
    rows = [
        (shapes.event(each)["timestamp"][:19].replace("T", " "), each.kind, f"{each.branch}:{each.number}",
         str(each.to or ""), each.by, each.label or each.reason)
        for each in events
    ]  # fmt: skip
    screen.table(("when", "what", "version", "to", "by", "why"), rows)


@command(app, "cuebook prompt new persona/brief --section body='Be brief.'", name="new")
def new(
    state: State,
    slug: Slug,
    *,
    section: Annotated[list[str], typer.Option("--section", metavar="NAME=TEXT", help="A section; @FILE reads one.")],
    branch: OnBranch = "main",
    param: Annotated[list[str] | None, typer.Option("--param", metavar="NAME", help="A parameter it names.")] = None,
    inherits: Annotated[str | None, typer.Option("--inherits", metavar="ID", help="What it builds on.")] = None,
    base: Annotated[int | None, typer.Option("--base", metavar="N", help="The version you saw.")] = None,
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Who writes.")] = "",
) -> None:
    """Write a new version of a prompt, or a prompt that is new."""
    sections = {name: _text(text) for name, text in map(_pair, section)}
    more: dict[str, Any] = {"inherits": inherits} if inherits is not None else {}
    with state.open() as book:
        stored = book.prompts.save(slug, sections, branch=branch, params=param, base=base, author=by, **more)
    _told(state, stored)


@command(app, "cuebook prompt test persona/kind_helper --param user_name=Alex", name="test")
def render(state: State, slug: Slug, *, param: Pairs = None, branch: OnBranch = "main", version: Number = None) -> None:
    """Render a prompt and show the text. A missing parameter exits 1 and is named."""
    with state.open() as book:
        rendered = book.prompts.render(slug, dict(map(_pair, param or [])), branch=branch, version=version)
    if state.json:
        screen.say_json(shapes.rendered(rendered))
    else:
        screen.say(rendered.text)


@command(app, "cuebook prompt diff persona/kind_helper 1 2", name="diff")
def diff(
    state: State,
    slug: Slug,
    a: Annotated[int, typer.Argument(metavar="A", min=1, help="The older version.", show_default=False)],
    b: Annotated[int | None, typer.Argument(metavar="B", min=1, help="The newer one; the active one without.")] = None,
    *,
    branch: OnBranch = "main",
) -> None:
    """Show what changed from one version to another, section by section."""
    with state.open() as book:
        found = book.prompts.diff(slug, a, b, branch=branch)
    if state.json:
        screen.say_json(shapes.difference(found))
        return
    for section in found.sections:
        screen.say(f"[{section.name}] {section.kind}")
        for line in section.lines:
            screen.say(f"  {line}")
    for change in found.params:
        screen.say(f"${change.name}: {change.kind}")
    for field in found.fields:
        screen.say(f"{field.name}: {field.before!r} → {field.after!r}")
    if not found:
        screen.say("the same")


@command(app, "cuebook prompt branch persona/kind_helper warm", name="branch")
def branch_(
    state: State,
    slug: Slug,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new branch.", show_default=False)],
    *,
    branch: OnBranch = "main",
    version: Number = None,
) -> None:
    """Begin a branch with a copy of a version."""
    with state.open() as book:
        stored = book.prompts.fork(slug, name, branch=branch, version=version)
    _told(state, stored)


@command(app, "cuebook prompt merge persona/kind_helper warm", name="merge")
def merge(
    state: State,
    slug: Slug,
    name: Annotated[str, typer.Argument(metavar="BRANCH", help="The branch to merge.", show_default=False)],
    *,
    into: Annotated[str, typer.Option("--into", metavar="NAME", help="Where to.")] = "main",
) -> None:
    """Merge a branch into another. Clashes exit 1, each with both texts, and nothing is written."""
    with state.open() as book:
        stored, merged = book.prompts.merge(slug, name, into=into)
    if stored is not None:
        _told(state, stored)
        return
    for clash in merged.conflicts:
        screen.say(
            f"[{clash.section}] both sides changed it\n<<<<<<< {into}\n{clash.ours}\n======="
            f"\n{clash.theirs}\n>>>>>>> {name}"
        )
    raise typer.Exit(1)


@command(app, "cuebook prompt label persona/kind_helper production --version 3", name="label")
def label(
    state: State,
    slug: Slug,
    name: Annotated[str, typer.Argument(metavar="LABEL", help="Such as production.", show_default=False)],
    *,
    branch: OnBranch = "main",
    version: Number = None,
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Who moves it.")] = "",
) -> None:
    """Point a label at a version."""
    with state.open() as book:
        found = book.prompts.label(slug, name, branch=branch, version=version, by=by)
    if state.json:
        screen.say_json(shapes.label(found))
    else:
        screen.say(f"{found.name} → {slug}@{found.branch}:{found.number}")


@command(app, "cuebook prompt rollback persona/kind_helper --reason 'answers got longer'", name="rollback")
def rollback(
    state: State,
    slug: Slug,
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why.", show_default=False)],
    branch: OnBranch = "main",
    to: Annotated[
        int | None, typer.Option("--to", metavar="N", min=1, help="The version; the one before without.")
    ] = None,
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Who decides.")] = "",
) -> None:
    """Make an earlier version active again."""
    with state.open() as book:
        found = book.prompts.roll_back(slug, branch=branch, to=to, reason=reason, by=by)
    screen.say(f"version {found.active} of {slug} is active on {found.name}; the newest is {found.head}")


@command(app, "cuebook prompt select persona/kind_helper --signal task_coding=1 --explain", name="select")
def select(
    state: State,
    slug: Slug,
    *,
    signal: Annotated[list[str] | None, typer.Option("--signal", metavar="NAME=0..1", help="A signal.")] = None,
    strategy: Annotated[
        str, typer.Option("--strategy", metavar="NAME", help="epsilon_greedy or thompson.")
    ] = "epsilon_greedy",
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="The same seed chooses the same.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show all variants with their scores.")] = False,
) -> None:
    """Choose among a prompt's variants."""
    signals = {name: _number(name, text) for name, text in map(_pair, signal or [])}
    with state.open() as book:
        found = book.prompts.select(slug, signals, strategy=strategy, seed=seed)
    if state.json:
        screen.say_json(shapes.selection(found))
        return
    picked = found.selected
    screen.say(
        f"{picked.slug}@{picked.branch}:{picked.number}  propensity {found.propensity:.3f}"
        f"{'  explored' * found.explored}"
    )
    if explain:
        rows = [
            (f"{each.branch}:{each.number}", f"{each.edge_weight:.3f}", f"{each.context_fit:.3f}",
             f"{each.total_score:.3f}", f"{each.propensity:.3f}")
            for each in found.variants
        ]  # fmt: skip
        screen.table(
            ("variant", "weight", "fit", "total", "propensity"), rows, right=("weight", "fit", "total", "propensity")
        )


@command(app, "cuebook prompt observe persona/kind_helper --sentiment 0.9 --outcome success", name="observe")
def observe(
    state: State,
    slug: Slug,
    *,
    sentiment: Annotated[
        float, typer.Option("--sentiment", metavar="0..1", help="How pleased the user was.", show_default=False)
    ],
    corrections: Annotated[
        int, typer.Option("--corrections", metavar="N", min=0, help="How often they corrected.")
    ] = 0,
    outcome: Annotated[
        str | None, typer.Option("--outcome", metavar="WHAT", help="success, partial, failure or unknown.")
    ] = None,
    branch: OnBranch = "main",
    version: Number = None,
    conversation: Annotated[str, typer.Option("--conversation", metavar="ID", help="Where it was said.")] = "",
) -> None:
    """Keep what a round says about the version that spoke."""
    with state.open() as book:
        found = book.prompts.observe(
            slug, sentiment=sentiment, corrections=corrections, outcome=outcome, branch=branch, version=version,  # type: ignore[arg-type]
            conversation=conversation,
        )  # fmt: skip
    if state.json:
        screen.say_json(shapes.observed(found))
    else:
        screen.say(f"score {found.score:.3f}; edge weight {found.edge_weight:.3f}{'; rolled back' * found.rolled_back}")


@command(app, "cuebook prompt push", "cuebook prompt push --dry-run", name="push")
def push(
    state: State,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Store files on top of what changed in the book too.")] = False,
) -> None:
    """Store what was edited in the project's prompt files, all or nothing."""
    with state.open() as book:
        _changes(state, book.prompt_files.push(dry_run=dry_run, force=force), "nothing to push")


@command(app, "cuebook prompt pull", "cuebook prompt pull --dry-run", name="pull")
def pull(
    state: State,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over files that were edited too.")] = False,
) -> None:
    """Write the book's prompts into the project's files, with their registry."""
    with state.open() as book:
        _changes(state, book.prompt_files.pull(dry_run=dry_run, force=force), "nothing to pull")


@command(app, "cuebook prompt drift", name="drift")
def drift(state: State) -> None:
    """Show where files and book do not say the same. Exits 1 if they differ, for CI."""
    with state.open() as book:
        found = book.prompt_files.drift()
    _changes(state, found, "files and book say the same")
    if found:
        raise typer.Exit(1)


def _changes(state: State, found: Sequence[Change], nothing: str) -> None:
    if state.json:
        screen.say_json({"items": [msgspec.to_builtins(each) for each in found]})
    elif not found:
        screen.say(nothing)
    for each in () if state.json else found:
        told = f"{each.slug}@{each.branch}:{each.version}" if each.version else each.slug
        screen.say(f"{each.state:>8}  {each.path}  {told}  {each.message}".rstrip())


def _told(state: State, stored: Any) -> None:
    if state.json:
        screen.say_json(shapes.written(stored))
    else:
        screen.say(f"{stored.source} ({stored.semver})")


def _pair(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals or not name:
        msg = f"{given!r}: expected NAME=VALUE"
        raise InvalidInput(msg, where=given)
    return name, value


def _text(given: str) -> str:
    return Path(given[1:]).read_text("utf-8") if given.startswith("@") else given


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        msg = f"signal {name}: {text!r} is no number from 0 to 1"
        raise InvalidInput(msg, where=name) from None
