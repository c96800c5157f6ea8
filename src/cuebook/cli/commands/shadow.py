"""Command `cuebook shadow report`: compare forwarded requests with what Cuebook would have sent."""

from typing import Annotated

import typer

from cuebook.app.reports.shadow import ModelCost, ShadowReport
from cuebook.cli.group import User, command, new_app
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.records.expression import counted

app = new_app(
    "Show what would have been sent of what passed in shadow mode.",
    "cuebook shadow report",
    "cuebook shadow report --conversation c1",
)


@command(app, "cuebook shadow report", "cuebook shadow report --conversation c1 --json", name="report")
def report(
    state: State,
    *,
    conversation: Annotated[
        str | None, typer.Option("--conversation", metavar="C", help="Of this one only.", show_default=False)
    ] = None,
    user: User = None,
) -> None:
    """Report tokens, cost and added latency of shadow calls. Counts the posts missing in either prompt too."""
    with state.open() as book:
        found = book.shadow.report(conversation, user=user)
    if state.json:
        screen.say_json(found)
        return
    if found.refused_calls:
        screen.say(f"refused by the upstream, and counted nowhere else: {counted(found.refused_calls, 'call')}")
    if not found.calls and not found.refused_calls:
        screen.say("nothing passed in shadow yet; `cuebook serve --upstream URL --shadow` begins")
        return
    if not found.calls:
        return
    _tokens(found)
    _costs(found)
    _posts(found)
    if found.lost:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(found.lost.items()))
        screen.say(f"not kept: {sum(found.lost.values()):,} calls passed and are not in this ledger ({reasons})")


def _tokens(found: ShadowReport) -> None:
    screen.heading(f"{counted(found.calls, 'call')} of {counted(found.conversations, 'conversation')}")
    share = f" ({found.window_tokens / found.client_tokens:.0%})" if found.client_tokens else ""
    screen.say(
        f"input tokens, by our counter: sent {found.client_tokens:,} · would have sent {found.window_tokens:,}{share}"
    )
    if found.reported_calls:
        screen.say(
            f"as the provider counted {found.reported_calls:,} of them: {found.reported_tokens:,}, "
            f"{found.reported_cached:,} from its cache"
        )
    if found.rules:
        screen.say(
            f"from the cache by rule {', '.join(found.rules)}: sent {found.client_read:,} · "
            f"would have {found.window_read:,}"
        )
    if found.added_ms_p50 is not None:
        screen.say(f"time added to a call: {found.added_ms_p50:.1f} ms (p50), {found.added_ms_p95:.1f} ms (p95)")


def _costs(found: ShadowReport) -> None:
    rows = [
        (
            each.model or "(unnamed)",
            f"{each.calls:,}",
            f"{each.client_tokens:,}",
            f"{each.window_tokens:,}",
            _money(each, each.client_cost),
            _money(each, each.window_cost),
            _money(each, each.output_cost),
        )
        for each in found.models
    ]
    columns = ("model", "calls", "sent", "would be", "input cost", "would be", "output cost")
    screen.table(columns, rows, right=columns[1:])
    unknown = [each.model or "(unnamed)" for each in found.models if each.currency is None]
    if unknown:
        screen.say(f"no price is known of {', '.join(unknown)}: tokens only; config/prices.json may name one")
    screen.say(f"costs are simulated by the cache's rule, at prices of {found.prices_as_of} or the project's own")


def _money(each: ModelCost, cost: float | None) -> str:
    return "" if cost is None else f"{cost:.4f} {each.currency}"


def _posts(found: ShadowReport) -> None:
    screen.say(
        f"posts before the newest calls: {found.posts:,} · in neither prompt {found.neither:,} · "
        f"in the client's alone {found.client_alone:,} · in ours alone {found.window_alone:,} · "
        f"sent whole, summarised in ours {found.condensed:,}"
    )
    if found.truncated:
        screen.say(f"posts the client cut short: {found.truncated:,}")
    if found.parted_calls:
        screen.say(f"calls whose messages part tool calls from their results: {found.parted_calls:,}")
    for each in found.examples:
        screen.say(f"  {each.why}: {each.conversation} {each.seq} {each.role}: {screen.line_of(each.text, 120)}")
