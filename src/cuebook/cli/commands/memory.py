"""Commands `cuebook memory`: search, list, correct, export and show memories and summaries; compress text."""

import sys
from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Annotated, Any

import typer

from cuebook.app import json_shapes as shapes
from cuebook.app.blocking import BlockingCuebook
from cuebook.app.memories import json_shapes as memory_shapes
from cuebook.app.paging import LIMIT, Paged
from cuebook.cli.commands import memory_judge
from cuebook.cli.commands.memory_forget import add_to
from cuebook.cli.group import (
    DAYS,
    Conversation,
    Cursor,
    Organization,
    PageLimit,
    TimeZone,
    User,
    command,
    new_app,
    seconds,
)
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.errors import NotFound
from cuebook.records.memory import Hit

app = new_app(
    "Search, list and show what is remembered.",
    'cuebook memory search "when does the lease end"',
    "cuebook memory show c1",
)
app.registered_commands += memory_judge.app.registered_commands


@command(app, 'cuebook memory search "when does the lease end"', "cuebook memory search budget --user ann --scope user")
def search(
    state: State,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A question or words.", show_default=False)],
    *,
    conversation: Annotated[str | None, typer.Option("--conversation", metavar="ID", help="Only this one.")] = None,
    user: User = None,
    persona: Annotated[str | None, typer.Option("--persona", metavar="ID", help="What only this one knows.")] = None,
    organization: Organization = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="S",
            help="Only of this one: conversation, user, persona, organization; repeatable.",
            show_default=False,
        ),
    ] = None,
    as_of: Annotated[
        datetime | None,
        typer.Option("--as-of", metavar="DAY", formats=DAYS, help="What held as it began (UTC), and was said before."),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Why each was found: its own words, those around it, its meaning, each 0 to 1; what else counted.",
        ),
    ] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=200, help="How many.")] = 10,
    token_budget: Annotated[
        int | None, typer.Option("--token-budget", metavar="N", min=1, help="Pack the answer into so many tokens.")
    ] = None,
    time_zone: TimeZone = None,
) -> None:
    """Search messages and memories, best match first."""
    with state.open() as book:
        hits = book.memory.search(
            query,
            conversation=conversation,
            user=user,
            persona=persona,
            organization=organization,
            scopes=scope or None,
            as_of=seconds(as_of),
            limit=limit,
            token_budget=token_budget,
            time_zone=time_zone,
        )
        zone = book.memory.zone(conversation=conversation, user=user, time_zone=time_zone)
    if state.json:
        screen.say_json({"hits": [shapes.hit(hit) for hit in hits]})
        return
    if not hits:
        screen.say("nothing found")
    for number, hit in enumerate(hits, 1):
        _say_hit(number, hit, zone, explain=explain, named=conversation is not None)


def _say_hit(number: int, hit: Hit, zone: tzinfo, *, explain: bool, named: bool) -> None:
    """Print a search result; `named` omits the conversation."""
    when = shapes.day(hit.timestamp, zone)
    said = hit.speaker or f"{hit.scope}'s {hit.kind} {hit.memory_id.removeprefix('memory:')}"
    within = f" · {hit.conversation}" if not named and hit.conversation else ""
    sources = f"{within} · {', '.join(hit.sources)}" if hit.sources else ""
    why = f" · {hit.why}" if explain and hit.why else ""
    screen.heading(f"{number}. {when} {said}{sources} · {hit.score:.2f}{why}")
    screen.say(f"   {screen.line_of(hit.text, 300)}")


@command(
    app,
    "cuebook memory list c1",
    "cuebook memory list --user ann",
    "cuebook memory list --user ann --as-of 2026-05-01",
    "cuebook memory list --organization acme --ended --json",
    name="list",
)
def list_(
    state: State,
    conversation: Annotated[
        str | None, typer.Argument(metavar="[CONVERSATION]", help="Of this one; without, across all.")
    ] = None,
    *,
    organization: Organization = None,
    ended: Annotated[bool, typer.Option("--ended", help="Also what no longer holds.")] = False,
    as_of: Annotated[
        datetime | None,
        typer.Option("--as-of", metavar="DAY", formats=DAYS, help="What held as it began (UTC)."),
    ] = None,
    limit: PageLimit = None,
    cursor: Cursor = None,
    user: User = None,
) -> None:
    """List memories, of one conversation or across conversations."""
    if conversation is None:
        asked: dict[str, Any] = {"ended": ended, "as_of": seconds(as_of), "limit": limit or LIMIT, "cursor": cursor}
        _list_across(state, user, organization, asked)
        return
    asked = {"user": user, "ended": ended, "as_of": seconds(as_of)}
    with state.open() as book:
        if limit is None and cursor is None:
            page = Paged(tuple(book.memory.items(conversation, **asked)))
        else:
            page = book.memory.items_page(conversation, **asked, limit=limit or LIMIT, cursor=cursor)
    items = page.items
    if state.json:
        screen.say_json(
            {"items": [shapes.item(each, conversation) for each in items]}
            | ({"next": page.cursor} if page.cursor else {})
        )
        return
    if not items:
        screen.say(
            "nothing held then"
            if as_of is not None
            else "nothing yet; items are made when a summary is, `cuebook settle` does what is due now"
        )
        return
    rows = [
        (
            shapes.item(each, conversation)["memoryId"],
            each.category,
            (shapes.iso(each.valid_from) or "")[:10],
            (shapes.iso(each.valid_to) or "")[:10] if each.valid_to is not None else "",
            ", ".join(each.sources),
            each.text,
        )
        for each in items
    ]
    screen.table(("memory", "kind", "since", "until", "from", "what"), rows, fold=("memory", "from"))
    if page.cursor:
        screen.say(f"there are more: --cursor {page.cursor}")


def _list_across(state: State, user: str | None, organization: str | None, asked: Mapping[str, Any]) -> None:
    ended = asked["ended"] or asked["as_of"] is not None  # what held then may have ended since
    with state.open() as book:
        page = book.memories.page(user=user, organization=organization, **asked)
    shown = [memory_shapes.memory(each) for each in page.items]
    if state.json:
        screen.say_json({"items": shown} | ({"next": page.cursor} if page.cursor else {}))
        return
    if not shown and asked["as_of"] is not None:
        screen.say("nothing held then")
        return
    if not shown:
        off = "users are remembered where `user = true` stands under [memory]"
        on = state.settings().settings.memory.user
        screen.say(f"nothing across conversations; {'`cuebook settle` takes up what was said last' if on else off}")
        return
    rows = [
        (
            each["id"],
            " ".join(str(each[name]) for name in ("scope", "personaId", "userId", "organizationId") if each.get(name)),
            each["category"],
            (each["validFrom"] or "")[:10],
            *([(each["validTo"] or "")[:10]] if ended else []),
            f"{each['confidence']:.2f}",
            f"{each['key']}: {each['text']}" if each.get("key") else each["text"],
        )
        for each in shown
    ]
    names = ("memory", "whose", "kind", "since", *(("until",) if ended else ()), "sure", "what")
    screen.table(names, rows, fold=("memory", "what"))
    if page.cursor:
        screen.say(f"there are more: --cursor {page.cursor}")


@command(
    app,
    'cuebook memory correct 1f0c9a7be2d44c31 "Lives in Bergen."',
    'cuebook memory correct item:c1:1f0c9a7be2d44c31 "Lives in Bergen." --user ann',
    name="correct",
)
def correct(
    state: State,
    memory: Annotated[str, typer.Argument(metavar="MEMORY", help="Its id, as `memory list` shows it.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What it should have said.")],
    *,
    user: User = None,
    organization: Organization = None,
) -> None:
    """Correct the text of a memory. The old text is erased."""
    with state.open() as book:
        found = memory_shapes.memory(book.memories.correct(memory, text, user=user, organization=organization))
    if state.json:
        screen.say_json(found)
    else:
        screen.say(f"{found['id']} says now: {screen.line_of(found['text'], 200)}")


@command(app, "cuebook memory export --user ann > ann.json", name="export")
def export(state: State, *, user: User = None, organization: Organization = None) -> None:
    """Export memories as JSON with history and sources. Default: all memories of the project."""
    with state.open() as book:
        shown = [memory_shapes.memory(each) for each in book.memories.export(user=user, organization=organization)]
    screen.say_json({"items": shown})


@command(
    app,
    "cuebook memory show c1",
    "cuebook memory show c1 --version 3",
    "cuebook memory show item:c1:1f0c9a7be2d44c31",
    name="show",
)
def show(
    state: State,
    conversation: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A conversation, or a memory: item:CONVERSATION:ID, memory:ID.", show_default=False
        ),
    ],
    *,
    version: Annotated[int | None, typer.Option("--version", metavar="V", min=1, help="An earlier one.")] = None,
    user: User = None,
) -> None:
    """Show a rolling summary, or one memory with its sources."""
    if conversation.startswith(("item:", "memory:")):
        _show_memory(state, conversation, user)
        return
    with state.open() as book:
        summary = book.memory.summary(conversation, user=user, version=version)
        if summary is None and version is not None and (newest := _newest(book, conversation, user)):
            there = f"there are versions 1 to {newest}" if newest > 1 else "there is version 1 only"
            msg = f"conversation {conversation!r} has no summary version {version}; {there}"
            raise NotFound(msg)
    if state.json:
        screen.say_json({"summary": shapes.summary_state(summary) if summary else None})
        return
    if summary is None:
        screen.say("no summary yet; it is made once enough was said, `cuebook settle` does what is due now")
        return
    by = f"{summary.made_by}, told {summary.prompt}" if summary.prompt else summary.made_by
    upto = f"up to post {summary.upto_seq}, {(shapes.iso(summary.upto_at) or '')[:16].replace('T', ' ')}"
    screen.heading(f"summary {summary.version} of {conversation} · {upto} · by {by}")
    screen.say(summary.markdown)


def _show_memory(state: State, name: str, user: str | None) -> None:
    with state.open() as book:
        found = memory_shapes.memory(book.memories.get(name, user=user))
    if state.json:
        screen.say_json({"memory": found})
        return
    whose = " ".join(str(found[each]) for each in ("scope", "conversationId", "personaId", "userId") if found.get(each))
    sources = ", ".join(f"{each['conversationId']} {each['postId']}" for each in found["sources"])
    ended = f" · until {found['validTo'][:10]}" if found["validTo"] else ""
    screen.heading(f"{found['id']} · {found['category']} · {whose} · since {(found['validFrom'] or '')[:10]}{ended}")
    screen.say(found["text"])
    if sources:
        screen.say(f"from {sources}")


def _newest(book: BlockingCuebook, conversation: str, user: str | None) -> int:
    """Return the version of the newest summary on any branch; 0 if there is none."""
    summary = book.memory.summary(conversation, user=user)
    newest = summary.version if summary else 0
    while book.memory.summary(conversation, user=user, version=newest + 1):
        newest += 1
    return newest


@command(app, "cuebook memory digest c1", "cuebook memory digest c1 --last 40", name="digest")
def digest(
    state: State,
    conversation: Conversation,
    *,
    last: Annotated[int, typer.Option("--last", metavar="N", min=1, max=1000, help="Of so many posts.")] = 15,
    user: User = None,
) -> None:
    """Summarize the newest posts: actions, results, key facts."""
    with state.open() as book:
        text = book.memory.digest(conversation, user=user, last=last)
    if state.json:
        screen.say_json({"text": text})
    else:
        screen.say(text)


@command(app, "cuebook memory compress < long.txt", "cuebook memory compress --json < long.txt", name="compress")
def compress(
    state: State,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A text; - reads from the pipe.")] = "-",
) -> None:
    """Shorten a text to its first line, last line and facts. A text that cannot shrink is unchanged."""
    with state.open() as book:
        made = book.memory.compress(sys.stdin.read() if text == "-" else text)
    if state.json:
        screen.say_json({"text": made.text, "tokensBefore": made.tokens_before, "tokensAfter": made.tokens_after})
    else:
        screen.say(made.text)


add_to(app)
