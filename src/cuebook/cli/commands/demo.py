"""Command `cuebook demo`: replay a conversation and report prompt cost, memory and recall."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cuebook.app.demo.run import (
    FILE,
    HITS,
    ReplayReport,
    demo_config,
    demo_folder,
    demo_server,
    new_database,
    run_demo,
    to_wire,
)
from cuebook.app.demo.sample_project import add_sample_project
from cuebook.app.gold import MemoryLine, QuestionResult
from cuebook.cli.group import command, new_app
from cuebook.cli.output import screen
from cuebook.cli.output.profiles import lines_of
from cuebook.cli.output.report import report
from cuebook.cli.state import State
from cuebook.server.app import listen
from cuebook.server.app import serve as run_server

#: Address of the demo server: local connections only.
HOST = "127.0.0.1"

app = new_app()


@command(
    app, "cuebook demo", "cuebook demo --serve", "cuebook demo --postgres", "cuebook demo my-chat.json", name="demo"
)
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
        str, typer.Option("--price-as", metavar="MODEL", help="Model whose prices are used for costs.")
    ] = "gpt-5-mini",
    postgres: Annotated[
        bool,
        typer.Option(
            "--postgres",
            help="Use a temporary PostgreSQL server and a worker process. Needs cuebook[postgres-embedded].",
        ),
    ] = False,
) -> None:
    """Replay a long conversation without a model or network, and report prompt cost, memory and recall."""
    if not serve:
        with demo_server() if postgres else nullcontext("") as server:
            _tell(
                _replay(file, database=partial(new_database, server) if server else lambda: FILE, model=price_as),
                state,
                postgres=postgres,
            )
        if not state.json:
            screen.say()
            screen.say("To inspect each prompt in a browser, run: cuebook demo --serve")
        return
    for each in listen(HOST, port):  # before the replay, so that a port in use fails at once
        each.close()
    with demo_folder() as folder, demo_server() if postgres else nullcontext("") as server:
        database = new_database(server) if server else FILE
        _tell(_replay(file, folder=folder, database=lambda: database, model=price_as), state, postgres=postgres)
        if file is None:
            asyncio.run(add_sample_project(folder, database, price_as))
        config = demo_config(folder, database)
        run_server(config, host=HOST, port=port, started=lambda address: _greet(state, address, price_as))


def _replay(
    file: Path | None, *, database: Callable[[], str], folder: Path | None = None, model: str = ""
) -> list[ReplayReport]:
    with screen.progress("replaying") as advance:
        return asyncio.run(
            run_demo(
                file,
                progress=lambda done, total, _: advance(done, total),
                folder=folder,
                database=database,
                model=model,
            )
        )


def _tell(reports: list[ReplayReport], state: State, *, postgres: bool) -> None:
    where = ", in a temporary PostgreSQL database with a worker process" if postgres else ""
    texts = [_rendered(each, where) for each in reports]
    state.report({"items": list(map(to_wire, reports))}, "\n\n".join(texts))


def _greet(state: State, address: str, model: str) -> None:
    costs = f"  costs use the prices of {model}; choose another model with --price-as"
    end = "Press Ctrl-C to stop and delete the demo data."
    state.report({"url": address}, "", f"Inspector: {address}", costs, end)


# ---- the report -----------------------------------------------------------------------------------------------------


#: Number of questions shown with their answers.
SHOWN = 8
_OTHERWISE = "evidence, in other words"


def _rendered(found: ReplayReport, where: str) -> str:
    asked, summary = found.asked, found.summary
    step = max(1, len(asked) // SHOWN)
    return report(
        "demo.txt",
        report=found,
        where=where,
        hits=HITS,
        upto=datetime.fromtimestamp(summary.upto_at, UTC).date() if summary else "",
        stands={where: sum(each.stands_in(where) for each in asked) for where in ("summary", "item", "hit")},
        profiles=lines_of(found.profiles) if found.profiles else (),
        answers=[(each, list(_places(each))) for each in asked[::step][:SHOWN]],
    )


def _places(asked: QuestionResult) -> Iterator[tuple[str, MemoryLine, str]]:
    """Yield the places of the answer, and the first result if it is another; else a post with the evidence."""
    first, source = asked.first, asked.source
    for memory_line in asked.stands:
        same = [each for each in asked.stands if each.sources == memory_line.sources != ()]
        if memory_line not in same[1:]:  # else already listed with another place of the same posts
            yield " and ".join(map(_place, same or [memory_line])), memory_line, "✓"
    if first is not None and all(memory_line.rank != 1 for memory_line in asked.stands):
        is_source = source is not None and source.rank == 1 and not asked.stands
        yield "first result", first, _OTHERWISE if is_source else f"not the answer; its score: {first.why}"
    if source is not None and source.rank > 1 and not asked.stands:
        yield _place(source), source, _OTHERWISE


def _place(told: MemoryLine) -> str:
    return f"result {told.rank}" if told.where == "hit" else told.where
