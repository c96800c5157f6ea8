"""Commands `cuebook memory`: most are derived from operations; these print, read or ask in their own way."""

import json
from functools import partial
from typing import Annotated, Any

import typer

from cuebook.app.blocking.cuebook import BlockingCuebook
from cuebook.app.files import write_whole
from cuebook.app.memories.reading import Budget, Judgement
from cuebook.app.memories.search import Memories
from cuebook.app.paging import LIMIT
from cuebook.cli.commands.memory_forget import add_to
from cuebook.cli.commands.memory_sync import add_to as add_sync
from cuebook.cli.group import Organization, Output, PageLimit, User, command, new_app
from cuebook.cli.operations import add_operations, operation_command, print_answer
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.errors import NotFound
from cuebook.records.answer import to_wire
from cuebook.records.conversation_answers import SummaryState
from cuebook.records.expression import counted
from cuebook.records.memory import ITEM, Hit
from cuebook.records.tuning import MemoryStats

app = new_app(
    "Search, list, correct and forget memories.",
    'cuebook memory search "when does the lease end"',
    "cuebook memory show c1",
)

#: Where memories come from, by the setting `memory.user`.
_HINTS = {
    True: "Run `cuebook settle` to extract them now. Messages from before `user = true` add none.",
    "named": "Requests to /v1 that name their user add them. Set `user = true` under [memory] for other conversations.",
    False: "Set `user = true` under [memory] to enable them.",
}


def print_hits(
    hits: list[Hit],
    *,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Show the parts of each score: words, meaning, neighboring posts and others (docs/memory.md).",
        ),
    ] = False,
    conversation: str | None = None,
    token_budget: int | None = None,
) -> None:
    """Print search results, best first."""
    if not hits:
        within = f" within {counted(token_budget, 'token')}. Raise --token-budget" if token_budget else ""
        other = f" in conversation {conversation!r}. Try other words. `cuebook conversation list` shows all IDs"
        screen.say(f"no results{within or (other if conversation else '')}")
    one = len({hit.conversation for hit in hits}) == 1
    for number, hit in enumerate(hits, 1):
        source = hit.speaker or f"{hit.scope}'s {hit.kind} {hit.memory_id}"
        within = f" · {hit.conversation}" if not one and hit.conversation else ""
        sources = f"{within} · {', '.join(hit.sources)}" if hit.sources else ""
        why = f" · {hit.why}" if explain and hit.why else ""
        screen.heading(f"{number}. {hit.day} {source}{sources} · {hit.score:.2f}{why}")
        screen.say(f"   {screen.line_of(hit.alone.text, 300)}")
        for each in hit.nearby:
            where = "(before)" if each.seq < hit.seq else "(after)"
            screen.say(f"   {where} {each.speaker}: {screen.line_of(each.text, 300)}")


def print_analysis(found: Judgement) -> None:
    """Print the counts of posts and the suggested actions."""
    screen.say(
        f"{counted(found.total_entries, 'post')}, {found.relevant_entries:,} relevant, "
        f"{found.redundant_entries:,} redundant; {found.token_usage:,} tokens after the summary"
    )
    if found.suggested_actions:
        rows = [(each.type, each.post_id, each.reason) for each in found.suggested_actions]
        screen.table(("action", "post", "reason"), rows)


def print_stats(found: MemoryStats) -> None:
    """Print the counts by tier."""
    rows = [
        ("short-term (posts)", f"{found.by_type.short_term:,}"),
        ("  of them summarized", f"{found.compressed:,}"),
        ("long-term (items)", f"{found.by_type.long_term:,}"),
        ("cross-session (memories)", f"{found.by_type.cross_session:,}"),
    ]
    screen.table(("tier", "count"), rows, right=("count",))


def print_budget(found: Budget) -> None:
    """Print the budget as a bar, and the settings that it is computed from."""
    share = min(1.0, found.usage_percent / 100)
    screen.say(
        f"{found.used:,} of {found.budget:,} tokens, {found.usage_percent:g}% {screen.bar(share)}".rstrip()
        + (" · summarization due" if found.should_compress else "")
    )
    model = f" of {found.model} (source: {found.source})" if found.source else ""
    screen.say(
        f"context{model} {found.config.max_context_tokens:,} tokens, {found.config.response_reserve_tokens:,} reserved "
        f"for the reply and {found.config.system_prompt_tokens:,} for the system prompt; summarization starts at "
        f"{found.config.compression_trigger_ratio:.0%}; newest {found.config.full_message_window} posts kept verbatim"
    )


@operation_command(
    app,
    Memories.list,
    "cuebook memory list c1",
    "cuebook memory list --user ann",
    "cuebook memory list --user ann --as-of 2026-05-01",
    "cuebook memory list --organization acme --ended --json",
)
def list_(
    state: State,
    values: Any,
    conversation: Annotated[
        str | None,
        typer.Argument(metavar="CONVERSATION", help="Conversation ID. Default: cross-conversation memories."),
    ] = None,
    *,
    limit: PageLimit = None,
) -> None:
    """List the memories of a conversation, or the cross-conversation memories."""
    if conversation is not None and any(values[name] for name in ("persona", "organization", "category")):
        msg = "CONVERSATION cannot be combined with --persona, --organization and --category. Omit one of them"
        raise typer.BadParameter(msg, param_hint="CONVERSATION")
    with state.open() as cue:
        if conversation is not None:
            options = {name: values[name] for name in ("user", "ended", "as_of", "cursor")}
            page: Any = cue.memory.items(conversation, limit=limit, **options)
        else:
            page = cue.memory.list(limit=limit or LIMIT, **values)
    if values["as_of"] is not None:
        none = "no memories at that time"
    elif conversation is not None:
        none = "no memories yet. Items are created with the summary; run `cuebook settle` to create them now."
    else:
        setting = None if len(page) else state.settings().settings.memory.user
        none = f"no cross-conversation memories. {_HINTS[setting]}" if setting is not None else ""
    state.report(page, render=partial(print_answer, page, none))


@command(
    app,
    "cuebook memory export --user ann > ann.json",
    "cuebook memory export --user ann --everything -o ann.zip",
    name="export",
)
def export(
    state: State,
    *,
    user: User = None,
    organization: Organization = None,
    everything: Annotated[
        bool,
        typer.Option("--everything", help="Export all data stored about the user as a zip archive. Needs --output."),
    ] = False,
    output: Output = None,
) -> None:
    """Export memories as JSON with history and sources. Default: all memories of the project."""
    if everything:
        if not user or organization or output is None:
            msg = "Pass --user and --output with --everything, and omit --organization"
            raise typer.BadParameter(msg, param_hint="--everything")
        with state.open() as cue:
            write_whole(output, cue.memory.export_everything(user=user))
        state.report({"file": str(output), "user": user}, f"wrote {output} (all data stored about {user})")
        return
    with state.open() as cue:
        found = to_wire({"items": list(cue.memory.export(user=user, organization=organization))})
    if output is None:
        screen.say_json(found)
        return
    write_whole(output, [json.dumps(found, ensure_ascii=False, indent=2), "\n"])
    count = len(found["items"])
    state.report({"file": str(output), "memories": count}, f"wrote {output} ({counted(count, 'memory', 'memories')})")


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
            metavar="NAME", help="Conversation ID, or memory ID as in `cuebook memory list`.", show_default=False
        ),
    ],
    *,
    version: Annotated[
        int | None, typer.Option("--version", metavar="V", min=1, help="Summary version. Default: the newest.")
    ] = None,
    user: User = None,
) -> None:
    """Show a rolling summary, or one memory with its sources."""
    with state.open() as cue:
        try:
            memory = cue.memory.get(conversation, user=user)
        except NotFound:
            if conversation.startswith(ITEM):
                raise
        else:
            state.report({"memory": memory}, str(memory))
            return
        summary = cue.conversations.summary(conversation, user=user, version=version)
        if summary is None and version is not None and (newest := _newest(cue, conversation, user)):
            there = f"1 to {newest}" if newest > 1 else "1"
            msg = f"Unknown summary version {version} of conversation {conversation!r}. Available: {there}."
            raise NotFound(msg)
    state.report({"summary": summary}, render=partial(_print_summary, summary, conversation))


def _print_summary(summary: SummaryState | None, conversation: str) -> None:
    if summary is None:
        screen.say("no summary yet. Short conversations have none; run `cuebook settle` to finish pending jobs.")
        return
    by = f"{summary.made_by}, prompt {summary.prompt}" if summary.prompt else summary.made_by
    upto = f"up to post {summary.upto_seq}, {str(summary.upto_at)[:16].replace('T', ' ')}"
    screen.heading(f"summary {summary.version} of {conversation} · {upto} · by {by}")
    screen.say(summary.markdown)


def _newest(cue: BlockingCuebook, conversation: str, user: str | None) -> int:
    """Return the version of the newest summary on any branch; 0 if there is none."""
    summary = cue.conversations.summary(conversation, user=user)
    newest = summary.version if summary else 0
    while cue.conversations.summary(conversation, user=user, version=newest + 1):
        newest += 1
    return newest


add_operations(
    app, "memory", {"search": print_hits, "analyze": print_analysis, "stats": print_stats, "budget": print_budget}
)
add_to(app)
add_sync(app)
