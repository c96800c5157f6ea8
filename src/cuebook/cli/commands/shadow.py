"""Command `cuebook shadow report`: compare summarization profiles and both prompts of shadow calls on own traffic."""

from cuebook.app.reports.prices import UNKNOWN, money
from cuebook.app.reports.shadow import ModelCost, ShadowReport
from cuebook.cli.group import new_app
from cuebook.cli.operations import add_operations
from cuebook.cli.output import screen
from cuebook.cli.output.profiles import COLUMNS, rows_of
from cuebook.records.expression import counted

app = new_app(
    "Report tokens and cost of each summarization profile.",
    "cuebook shadow report",
    "cuebook shadow report --conversation c1",
)


def print_report(shadow_report: ShadowReport) -> None:
    """Print the figures of each profile, and the totals of shadow calls."""
    _profiles(shadow_report)
    failed = {"rejected": shadow_report.refused_calls, "not answered": shadow_report.unanswered_calls}
    for state, calls in failed.items():
        if calls:
            screen.say(f"{state} by the upstream, not included below: {counted(calls, 'call')}")
    if not (shadow_report.calls or any(failed.values()) or shadow_report.replay.profiles):
        screen.say("no calls recorded yet. Start the proxy with `cuebook serve --upstream URL`, or add --shadow.")
    if not shadow_report.calls:
        return
    _tokens(shadow_report)
    _costs(shadow_report)
    _posts(shadow_report)
    if shadow_report.lost:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(shadow_report.lost.items()))
        screen.say(f"not recorded: {counted(sum(shadow_report.lost.values()), 'forwarded call')} ({reasons})")


def _profiles(found: ShadowReport) -> None:
    """Print the figures of each profile."""
    replay = found.replay
    profiles = [each for each in replay.profiles if each.calls]
    if not profiles:
        return
    state = "a server uses" if found.serving else "configured"
    screen.heading(f"The newest {counted(profiles[0].calls, 'call')} under each profile ({state}: {found.profile})")
    screen.table(COLUMNS, rows_of(profiles), right=COLUMNS[1:])
    if replay.unpriced:
        names = ", ".join(each or "(unnamed)" for each in replay.unpriced)
        screen.say(f"{UNKNOWN}: {names}. Add one in config/prices.json.")
    if replay.uncached:
        screen.say(f"no cache rule for {', '.join(replay.uncached)}: each token has the full price")
    if replay.left_out:
        missing = counted(replay.left_out, "call")
        screen.say(f"not replayed: {missing} (history not sent by the client, or erased)")
    screen.say("choose a profile with `cuebook serve --profile NAME`, or set `profile` under [memory]")


def _tokens(found: ShadowReport) -> None:
    screen.heading(f"{counted(found.calls, 'call')} of {counted(found.conversations, 'conversation')}")
    share = f" ({found.window_tokens / found.client_tokens:.0%})" if found.client_tokens else ""
    screen.say(
        f"input tokens (Cuebook's count): client sent {found.client_tokens:,} · Cuebook {found.window_tokens:,}{share}"
    )
    if found.reported_calls:
        screen.say(
            f"reported by the provider for {counted(found.reported_calls, 'call')}: {found.reported_tokens:,}, "
            f"{found.reported_cached:,} from its cache"
        )
    if found.rules:
        screen.say(
            f"cache reads (simulated, rule {', '.join(found.rules)}): client {found.client_read:,} · "
            f"Cuebook {found.window_read:,}"
        )
    if found.added_ms_p50 is not None:
        screen.say(f"added latency per call: {found.added_ms_p50:.1f} ms (p50), {found.added_ms_p95:.1f} ms (p95)")


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
    columns = ("model", "calls", "client tokens", "Cuebook tokens", "client cost", "Cuebook cost", "output cost")
    screen.table(columns, rows, right=columns[1:])
    unknown = [each.model or "(unnamed)" for each in found.models if each.currency is None]
    if unknown:
        screen.say(f"{UNKNOWN}: {', '.join(unknown)}. Add one in config/prices.json.")
    screen.say(f"costs are simulated with the cache rule and prices of {found.prices_as_of} or the project's own")


def _money(each: ModelCost, cost: float | None) -> str:
    if each.currency is None:
        return UNKNOWN
    return "no cache rule" if cost is None else money({each.currency: cost})


def _posts(found: ShadowReport) -> None:
    screen.say(
        f"earlier posts: {found.posts:,} · in neither prompt {found.neither:,} · "
        f"only in the client's {found.client_alone:,} · only in Cuebook's {found.window_alone:,} · "
        f"summarized in Cuebook's {found.condensed:,}"
    )
    if found.truncated:
        screen.say(f"posts truncated by the client: {found.truncated:,}")
    if found.parted_calls:
        screen.say(f"calls that separate tool calls from their results: {found.parted_calls:,}")
    for each in found.examples:
        screen.say(f"  {each.why}: {each.conversation} {each.seq} {each.role}: {screen.line_of(each.text, 120)}")


add_operations(app, "shadow", {"report": print_report})
