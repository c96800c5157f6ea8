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
    "Search, list, correct and forget memories.",
    'cuebook memory search "when does the lease end"',
    "cuebook memory show c1",
)
app.registered_commands += memory_judge.app.registered_commands


@command(app, 'cuebook memory search "when does the lease end"', "cuebook memory search budget --user ann --scope user")
def search(
    state: State,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Question or keywords.", show_default=False)],
    *,
    conversation: Annotated[
        str | None, typer.Option("--conversation", metavar="ID", help="Search only this conversation.")
    ] = None,
    user: User = None,
    persona: Annotated[
        str | None, typer.Option("--persona", metavar="ID", help="Include memories of this persona.")
    ] = None,
    organization: Organization = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="S",
            help="Search only this scope: conversation, user, persona, organization; repeatable.",
            show_default=False,
        ),
    ] = None,
    as_of: Annotated[
        datetime | None,
        typer.Option(
            "--as-of", metavar="DATE", formats=DAYS, help="Search the memories as of the start of this date (UTC)."
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show the scores of each result, from 0 to 1: keywords, meaning and others."),
    ] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=200, help="Show at most N results.")] = 10,
    token_budget: Annotated[
        int | None, typer.Option("--token-budget", metavar="N", min=1, help="Limit the results to N tokens.")
    ] = None,
    time_zone: TimeZone = None,
) -> None:
    """Search messages and memories, best match first."""
    with state.open() as cue:
        hits = cue.memory.search(
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
        zone = cue.memory.zone(conversation=conversation, user=user, time_zone=time_zone)
    if state.json:
        screen.say_json({"hits": [shapes.hit(hit) for hit in hits]})
        return
    if not hits:
        screen.say("no results")
    for number, hit in enumerate(hits, 1):
        _say_hit(number, hit, zone, explain=explain, named=conversation is not None)


def _say_hit(number: int, hit: Hit, zone: tzinfo, *, explain: bool, named: bool) -> None:
    """Print a search result; `named` omits the conversation."""
    when = shapes.day(hit.timestamp, zone)
    source = hit.speaker or f"{hit.scope}'s {hit.kind} {hit.memory_id.removeprefix('memory:')}"
    within = f" · {hit.conversation}" if not named and hit.conversation else ""
    sources = f"{within} · {', '.join(hit.sources)}" if hit.sources else ""
    why = f" · {hit.why}" if explain and hit.why else ""
    screen.heading(f"{number}. {when} {source}{sources} · {hit.score:.2f}{why}")
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
        str | None,
        typer.Argument(metavar="CONVERSATION", help="Conversation ID. Default: cross-conversation memories."),
    ] = None,
    *,
    organization: Organization = None,
    ended: Annotated[bool, typer.Option("--ended", help="Include superseded memories.")] = False,
    as_of: Annotated[
        datetime | None,
        typer.Option(
            "--as-of", metavar="DATE", formats=DAYS, help="Show the memories as of the start of this date (UTC)."
        ),
    ] = None,
    limit: PageLimit = None,
    cursor: Cursor = None,
    user: User = None,
) -> None:
    """List the memories of a conversation, or the cross-conversation memories."""
    if conversation is None:
        asked: dict[str, Any] = {"ended": ended, "as_of": seconds(as_of), "limit": limit or LIMIT, "cursor": cursor}
        _list_across(state, user, organization, asked)
        return
    asked = {"user": user, "ended": ended, "as_of": seconds(as_of)}
    with state.open() as cue:
        if limit is None and cursor is None:
            page = Paged(tuple(cue.memory.items(conversation, **asked)))
        else:
            page = cue.memory.items_page(conversation, **asked, limit=limit or LIMIT, cursor=cursor)
    items = page.items
    if state.json:
        screen.say_json(
            {"items": [shapes.item(each, conversation) for each in items]}
            | ({"next": page.cursor} if page.cursor else {})
        )
        return
    if not items:
        screen.say(
            "no memories at that time"
            if as_of is not None
            else "no memories yet. Items are created with the summary; run `cuebook settle` to create them now."
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
    screen.table(("memory", "category", "since", "until", "source", "text"), rows, fold=("memory", "source"))
    if page.cursor:
        screen.say(f"more results: --cursor {page.cursor}")


def _list_across(state: State, user: str | None, organization: str | None, asked: Mapping[str, Any]) -> None:
    ended = asked["ended"] or asked["as_of"] is not None  # may be superseded since
    with state.open() as cue:
        page = cue.memories.page(user=user, organization=organization, **asked)
    items = [memory_shapes.memory(each) for each in page.items]
    if state.json:
        screen.say_json({"items": items} | ({"next": page.cursor} if page.cursor else {}))
        return
    if not items and asked["as_of"] is not None:
        screen.say("no memories at that time")
        return
    if not items:
        off = "Set `user = true` under [memory] to enable them."
        on = state.settings().settings.memory.user
        screen.say(f"no cross-conversation memories yet. {'Run `cuebook settle` to extract them now.' if on else off}")
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
        for each in items
    ]
    names = ("memory", "owner", "category", "since", *(("until",) if ended else ()), "confidence", "text")
    screen.table(names, rows, fold=("memory", "text"))
    if page.cursor:
        screen.say(f"more results: --cursor {page.cursor}")


@command(
    app,
    'cuebook memory correct 1f0c9a7be2d44c31 "Lives in Bergen."',
    'cuebook memory correct item:c1:1f0c9a7be2d44c31 "Lives in Bergen." --user ann',
    name="correct",
)
def correct(
    state: State,
    memory: Annotated[str, typer.Argument(metavar="MEMORY", help="Memory ID from `cuebook memory list`.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Corrected text.")],
    *,
    user: User = None,
    organization: Organization = None,
) -> None:
    """Correct the text of a memory. The old text is erased."""
    with state.open() as cue:
        data = memory_shapes.memory(cue.memories.correct(memory, text, user=user, organization=organization))
    if state.json:
        screen.say_json(data)
    else:
        screen.say(f"corrected {data['id']}: {screen.line_of(data['text'], 200)}")


@command(app, "cuebook memory export --user ann > ann.json", name="export")
def export(state: State, *, user: User = None, organization: Organization = None) -> None:
    """Export memories as JSON with history and sources. Default: all memories of the project."""
    with state.open() as cue:
        items = [memory_shapes.memory(each) for each in cue.memories.export(user=user, organization=organization)]
    screen.say_json({"items": items})


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
            metavar="NAME", help="Conversation ID or memory ID: item:CONVERSATION:ID, memory:ID.", show_default=False
        ),
    ],
    *,
    version: Annotated[
        int | None, typer.Option("--version", metavar="V", min=1, help="Summary version. Default: the newest.")
    ] = None,
    user: User = None,
) -> None:
    """Show a rolling summary, or one memory with its sources."""
    if conversation.startswith(("item:", "memory:")):
        _show_memory(state, conversation, user)
        return
    with state.open() as cue:
        summary = cue.memory.summary(conversation, user=user, version=version)
        if summary is None and version is not None and (newest := _newest(cue, conversation, user)):
            there = f"1 to {newest}" if newest > 1 else "1"
            msg = f"Unknown summary version {version} of conversation {conversation!r}. Available: {there}."
            raise NotFound(msg)
    if state.json:
        screen.say_json({"summary": shapes.summary_state(summary) if summary else None})
        return
    if summary is None:
        screen.say("no summary yet. Short conversations have none; run `cuebook settle` to finish pending jobs.")
        return
    by = f"{summary.made_by}, prompt {summary.prompt}" if summary.prompt else summary.made_by
    upto = f"up to post {summary.upto_seq}, {(shapes.iso(summary.upto_at) or '')[:16].replace('T', ' ')}"
    screen.heading(f"summary {summary.version} of {conversation} · {upto} · by {by}")
    screen.say(summary.markdown)


def _show_memory(state: State, name: str, user: str | None) -> None:
    with state.open() as cue:
        data = memory_shapes.memory(cue.memories.get(name, user=user))
    if state.json:
        screen.say_json({"memory": data})
        return
    whose = " ".join(str(data[each]) for each in ("scope", "conversationId", "personaId", "userId") if data.get(each))
    sources = ", ".join(f"{each['conversationId']} {each['postId']}" for each in data["sources"])
    ended = f" · until {data['validTo'][:10]}" if data["validTo"] else ""
    screen.heading(f"{data['id']} · {data['category']} · {whose} · since {(data['validFrom'] or '')[:10]}{ended}")
    screen.say(data["text"])
    if sources:
        screen.say(f"from {sources}")


def _newest(cue: BlockingCuebook, conversation: str, user: str | None) -> int:
    """Return the version of the newest summary on any branch; 0 if there is none."""
    summary = cue.memory.summary(conversation, user=user)
    newest = summary.version if summary else 0
    while cue.memory.summary(conversation, user=user, version=newest + 1):
        newest += 1
    return newest


@command(app, "cuebook memory digest c1", "cuebook memory digest c1 --last 40", name="digest")
def digest(
    state: State,
    conversation: Conversation,
    *,
    last: Annotated[int, typer.Option("--last", metavar="N", min=1, max=1000, help="Number of posts.")] = 15,
    user: User = None,
) -> None:
    """Summarize the newest posts: actions, results, key facts."""
    with state.open() as cue:
        text = cue.memory.digest(conversation, user=user, last=last)
    if state.json:
        screen.say_json({"text": text})
    else:
        screen.say(text)


@command(app, "cuebook memory compress < long.txt", "cuebook memory compress --json < long.txt", name="compress")
def compress(
    state: State,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text; - reads standard input.")] = "-",
) -> None:
    """Shorten a text to its first line, last line and facts. A text that cannot shrink is unchanged."""
    with state.open() as cue:
        compressed = cue.memory.compress(sys.stdin.read() if text == "-" else text)
    if state.json:
        screen.say_json(
            {"text": compressed.text, "tokensBefore": compressed.tokens_before, "tokensAfter": compressed.tokens_after}
        )
    else:
        screen.say(compressed.text)


add_to(app)
