"""`cuebook demo`."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from cuebook.app.demo import ReplayReport, demo_config, demo_folder, run_demo, to_wire
from cuebook.cli import screen
from cuebook.cli.demo_report import report_lines
from cuebook.cli.group import command, new_app
from cuebook.cli.state import State
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
    """Replay a long conversation turn by turn, with no model and no network: what was remembered, what it cost."""
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
