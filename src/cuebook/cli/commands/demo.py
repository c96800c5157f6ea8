"""Command `cuebook demo`: replay a conversation and report prompt cost, memory and recall."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from cuebook.app.demo import HITS, ReplayReport, demo_config, demo_folder, run_demo, to_wire
from cuebook.app.gold import MemoryLine, QuestionResult
from cuebook.cli.group import command, new_app
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.records.expression import counted
from cuebook.server.app import listen
from cuebook.server.app import serve as run_server

#: Where the demo's page is served, this machine alone.
HOST = "127.0.0.1"

app = new_app()


@command(app, "cuebook demo", "cuebook demo --serve", "cuebook demo my-chat.json", name="demo")
def demo(
    state: State,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Your own transcript, as `conversation import` reads it.")
    ] = None,
    *,
    serve: Annotated[
        bool, typer.Option("--serve", help="Then serve its page, until Ctrl-C; the demo's book is gone afterwards.")
    ] = False,
    port: Annotated[
        int, typer.Option("--port", metavar="P", min=0, max=65535, help="Serve there; 0 takes a free one.")
    ] = 8760,
    price_as: Annotated[
        str, typer.Option("--price-as", metavar="MODEL", help="Whose price the page tells costs at.")
    ] = "gpt-5-mini",
) -> None:
    """Replay a long conversation without a model or network, and report prompt cost, memory and recall."""
    if not serve:
        _tell(_replay(file), state)
        if not state.json:
            screen.say()
            screen.say("See it in a browser, each prompt block by block: cuebook demo --serve")
        return
    for each in listen(HOST, port):  # before the replay: a port that cannot be had is told at once
        each.close()
    with demo_folder() as folder:
        _tell(_replay(file, folder=folder, model=price_as), state)
        run_server(demo_config(folder), host=HOST, port=port, started=lambda address: _greet(state, address, price_as))


def _replay(file: Path | None, *, folder: Path | None = None, model: str = "") -> list[ReplayReport]:
    with screen.progress("replaying", None) as advance:
        return asyncio.run(
            run_demo(file, progress=lambda done, total, _: advance(done, total), folder=folder, model=model)
        )


def _tell(reports: list[ReplayReport], state: State) -> None:
    if state.json:
        screen.say_json({"items": [to_wire(report) for report in reports]})
        return
    for number, report in enumerate(reports):
        if number:
            screen.say()
        for line in report_lines(report):
            screen.say(line)


def _greet(state: State, address: str, model: str) -> None:
    if state.json:
        screen.say_json({"url": address})
        return
    screen.say()
    screen.say(f"Look at it in a browser: {address}")
    screen.say(f"  costs there are at the price of {model}, as if it had answered; --price-as names another")
    screen.say("Ctrl-C ends it, and the demo's book is gone.")


# ---- the report -----------------------------------------------------------------------------------------------------


#: Questions shown with what memory gives.
SHOWN = 8
#: Characters of a quoted text.
QUOTE = 110
_OTHERWISE = "a post that tells it, in other words"
#: Columns of a figure.
FIGURE = 14


def report_lines(report: ReplayReport) -> Iterator[str]:
    """Yield the lines of a report."""
    yield f"{report.title}: {counted(report.posts, 'post')}{_span(report.days)}, turn by turn, no model, no network"
    yield ""
    yield from _cost_lines(report)
    yield ""
    yield from _memory_lines(report)
    if report.asked:
        yield ""
        yield from _question_lines(report)
        yield ""
        yield from _answers(report.asked)


def _span(days: float | None) -> str:
    if days is None:
        return ""
    return f" over {counted(round(days), 'day')}" if days >= 1 else " within a day"


def _cost_lines(report: ReplayReport) -> Iterator[str]:
    ours, whole, rule = report.ours, report.everything, report.rule
    rows = [
        (f"  tokens in {counted(ours.calls, 'prompt')}", ours.tokens, whole.tokens),
        ("  tokens in the last one", ours.last_tokens, whole.last_tokens),
        ("  simulated cost, by the cache rule below", round(ours.cost), round(whole.cost)),
    ]
    width = max(len(name) for name, *_ in rows)
    yield f"{'what the prompts cost':{width}}{'Cuebook':>{FIGURE}}{'everything':>{FIGURE}}"
    for name, mine, all_ in rows:
        share = f"{_percent(mine / all_):>8}" if all_ else ""
        yield f"{name:{width}}{mine:>{FIGURE},}{all_:>{FIGURE},}{share}"
    name = "  read from the provider's cache"
    yield f"{name:{width}}{_percent(ours.read_share):>{FIGURE}}{_percent(whole.read_share):>{FIGURE}}"
    yield f"  {rule.name}: a token read from the cache costs {rule.read:g}, one written {rule.write:g}, any other 1;"
    yield "  sending everything reads a larger share from the cache, of prompts that grow with every turn"
    if report.rendered:
        yield f"  rendered again from what is kept: {report.identical} of {report.rendered} identical, byte for byte"


def _memory_lines(report: ReplayReport) -> Iterator[str]:
    summary = report.summary
    yield "what memory holds"
    if summary is not None:
        day = datetime.fromtimestamp(summary.upto_at, UTC).date().isoformat()
        upto = f", up to {day}" if report.days is not None else ""
        yield f"  summary, version {summary.version}: {counted(summary.tokens, 'token')}{upto}"
    else:
        yield "  no summary: all that was said still stands in the prompt"
    hold = f"{counted(len(report.items), 'item')} that hold" + "s" * (len(report.items) == 1)
    yield f"  {hold}, each with its source posts; {report.ended} ended by what came later"
    kept = report.survival
    if kept is not None:
        yield f"  gold facts that hold: {kept.held} of {kept.current} in items ({_percent(kept.held / kept.current)})"
        yield f"  of them in the summary that stands in every prompt: {kept.in_summary}"
        yield f"  superseded facts shown as current: {kept.shown} of {kept.superseded}"


def _question_lines(report: ReplayReport) -> Iterator[str]:
    asked = report.asked
    some = f"{len(asked)} of {report.questions}" if len(asked) < report.questions else f"{len(asked)}"
    yield f"questions put to memory when all was said: {some}"
    answered = [each for each in asked if each.stands]
    yield f"  the answer stands in what memory holds or finds: {len(answered)} ({_percent(len(answered) / len(asked))})"
    places = {"summary": "in the summary", "item": "in an item", "hit": f"in one of the first {HITS} hits"}
    for where, name in places.items():
        yield f"    {name}: {sum(each.stands_in(where) for each in asked)}"
    evidence = sum(each.evidence for each in asked) / len(asked)
    yield f"  posts that tell the answer, among the first {HITS} hits: {_percent(evidence)}"


def _answers(asked: Sequence[QuestionResult]) -> Iterator[str]:
    step = max(1, len(asked) // SHOWN)
    shown = asked[::step][:SHOWN]
    yield f"{len(shown)} of them, with what memory gives in its own words; the answer key stands in brackets"
    for each in shown:
        yield f"  {each.question} [{each.key}]" if each.key else f"  {each.question}"
        yield from _given(each)


def _given(asked: QuestionResult) -> Iterator[str]:
    """Yield the places of the answer, and the first result if it is another; else a post with the evidence."""
    first, source = asked.first, asked.source
    if first is None and not asked.stands:
        yield "    nothing found"
    for told in asked.stands:
        same = [each for each in asked.stands if each.sources == told.sources != ()]
        if told in same[1:]:
            continue  # it was said with the other place of the same posts
        yield _line(" and ".join(map(_place, same or [told])), told, "✓")
    if first is not None and all(told.rank != 1 for told in asked.stands):
        is_source = source is not None and source.rank == 1 and not asked.stands
        yield _line("first hit", first, _OTHERWISE if is_source else "not the answer")
    if source is not None and source.rank > 1 and not asked.stands:
        yield _line(_place(source), source, _OTHERWISE)


def _line(name: str, told: MemoryLine, verdict: str) -> str:
    sources = f", {', '.join(told.sources)}" if told.sources else ""
    return f"    {name}{sources}: {_quote(told.text)}  {verdict}"


def _place(told: MemoryLine) -> str:
    return f"hit {told.rank}" if told.where == "hit" else told.where


def _quote(text: str) -> str:
    flat = " ".join(text.split())
    return f"“{flat if len(flat) <= QUOTE else flat[: QUOTE - 1] + '…'}”"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
