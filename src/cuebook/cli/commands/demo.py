"""Command `cuebook demo`: replay a conversation and report prompt cost, memory and recall."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from cuebook.app.demo.run import HITS, ReplayReport, demo_config, demo_folder, run_demo, to_wire
from cuebook.app.gold import MemoryLine, QuestionResult
from cuebook.cli.group import command, new_app
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.records.expression import counted
from cuebook.server.app import listen
from cuebook.server.app import serve as run_server

#: Address of the demo server: local connections only.
HOST = "127.0.0.1"

app = new_app()


@command(app, "cuebook demo", "cuebook demo --serve", "cuebook demo my-chat.json", name="demo")
def demo(
    state: State,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="Your own transcript, in a format of `conversation import`. Default: a sample."
        ),
    ] = None,
    *,
    serve: Annotated[
        bool,
        typer.Option("--serve", help="Then serve the inspector until Ctrl-C, and delete the demo data afterwards."),
    ] = False,
    port: Annotated[
        int, typer.Option("--port", metavar="P", min=0, max=65535, help="Port; 0 selects a free one.")
    ] = 8760,
    price_as: Annotated[
        str, typer.Option("--price-as", metavar="MODEL", help="Model whose prices the inspector uses for costs.")
    ] = "gpt-5-mini",
) -> None:
    """Replay a long conversation without a model or network, and report prompt cost, memory and recall."""
    if not serve:
        _tell(_replay(file), state)
        if not state.json:
            screen.say()
            screen.say("To inspect each prompt in a browser, run: cuebook demo --serve")
        return
    for each in listen(HOST, port):  # before the replay, so that a port in use fails at once
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
    texts = ["\n".join(report_lines(report)) for report in reports]
    state.report({"items": [to_wire(report) for report in reports]}, "\n\n".join(texts))


def _greet(state: State, address: str, model: str) -> None:
    costs = f"  costs use the prices of {model}; choose another model with --price-as"
    end = "Press Ctrl-C to stop and delete the demo data."
    state.report({"url": address}, "", f"Inspector: {address}", costs, end)


# ---- the report -----------------------------------------------------------------------------------------------------


#: Number of questions shown with their answers.
SHOWN = 8
#: Maximum length of a quoted text, in characters.
QUOTE = 110
_OTHERWISE = "evidence, in other words"
#: Width of a figure, in columns.
FIGURE = 14


def report_lines(report: ReplayReport) -> Iterator[str]:
    """Yield the lines of a report."""
    yield f"{report.title}: {counted(report.posts, 'post')}{_span(report.days)}, without a model or network"
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
        ("  tokens in the last prompt", ours.last_tokens, whole.last_tokens),
        ("  simulated cost, with the cache rule below", round(ours.cost), round(whole.cost)),
    ]
    width = max(len(name) for name, *_ in rows)
    yield f"{'prompt cost':{width}}{'Cuebook':>{FIGURE}}{'full history':>{FIGURE}}"
    for name, mine, all_ in rows:
        share = f"{_percent(mine / all_):>8}" if all_ else ""
        yield f"{name:{width}}{mine:>{FIGURE},}{all_:>{FIGURE},}{share}"
    name = "  read from the provider's cache"
    yield f"{name:{width}}{_percent(ours.read_share):>{FIGURE}}{_percent(whole.read_share):>{FIGURE}}"
    yield f"  {rule.name}: a token costs {rule.read:g} if read from the cache, {rule.write:g} if written to it, else 1;"
    yield "  the full history reads a larger share from the cache, but its prompts grow with every turn"
    if report.rendered:
        yield f"  replay check: {report.identical} of {report.rendered} prompts identical, byte for byte"


def _memory_lines(report: ReplayReport) -> Iterator[str]:
    summary = report.summary
    yield "memory"
    if summary is not None:
        day = datetime.fromtimestamp(summary.upto_at, UTC).date().isoformat()
        upto = f", up to {day}" if report.days is not None else ""
        yield f"  summary, version {summary.version}: {counted(summary.tokens, 'token')}{upto}"
    else:
        yield "  no summary: all posts still fit into the prompt"
    current = counted(len(report.items), "current item")
    yield f"  {current}, each with its source posts; {report.ended} superseded"
    gold_survival = report.survival
    if gold_survival is not None:
        share = _percent(gold_survival.held / gold_survival.current)
        yield f"  current gold facts: {gold_survival.held} of {gold_survival.current} in items ({share})"
        yield f"  current gold facts in the summary: {gold_survival.in_summary}"
        yield f"  superseded facts shown as current: {gold_survival.shown} of {gold_survival.superseded}"


def _question_lines(report: ReplayReport) -> Iterator[str]:
    question_results = report.asked
    some = (
        f"{len(question_results)} of {report.questions}"
        if len(question_results) < report.questions
        else f"{len(question_results)}"
    )
    yield f"questions asked at the end: {some}"
    answered = [each for each in question_results if each.stands]
    yield f"  answer in memory or search results: {len(answered)} ({_percent(len(answered) / len(question_results))})"
    places = {"summary": "in the summary", "item": "in an item", "hit": f"in the first {HITS} results"}
    for where, name in places.items():
        yield f"    {name}: {sum(each.stands_in(where) for each in question_results)}"
    evidence = sum(each.evidence for each in question_results) / len(question_results)
    yield f"  evidence posts among the first {HITS} results: {_percent(evidence)}"


def _answers(asked: Sequence[QuestionResult]) -> Iterator[str]:
    step = max(1, len(asked) // SHOWN)
    question_results = asked[::step][:SHOWN]
    yield f"{len(question_results)} of the questions, with the answers quoted from memory; expected answers in brackets"
    for each in question_results:
        yield f"  {each.question} [{each.key}]" if each.key else f"  {each.question}"
        yield from _given(each)


def _given(asked: QuestionResult) -> Iterator[str]:
    """Yield the places of the answer, and the first result if it is another; else a post with the evidence."""
    first, source = asked.first, asked.source
    if first is None and not asked.stands:
        yield "    nothing found"
    for memory_line in asked.stands:
        same = [each for each in asked.stands if each.sources == memory_line.sources != ()]
        if memory_line in same[1:]:
            continue  # already listed with another place of the same posts
        yield _line(" and ".join(map(_place, same or [memory_line])), memory_line, "✓")
    if first is not None and all(memory_line.rank != 1 for memory_line in asked.stands):
        is_source = source is not None and source.rank == 1 and not asked.stands
        yield _line("first result", first, _OTHERWISE if is_source else "not the answer")
    if source is not None and source.rank > 1 and not asked.stands:
        yield _line(_place(source), source, _OTHERWISE)


def _line(name: str, told: MemoryLine, verdict: str) -> str:
    sources = f", {', '.join(told.sources)}" if told.sources else ""
    return f"    {name}{sources}: {screen.quote(told.text, QUOTE)}  {verdict}"


def _place(told: MemoryLine) -> str:
    return f"result {told.rank}" if told.where == "hit" else told.where


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"
