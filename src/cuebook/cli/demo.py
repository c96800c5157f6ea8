"""`cuebook demo`."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from cuebook.app.demo import run_demo, to_wire
from cuebook.cli import screen
from cuebook.cli.demo_report import report_lines
from cuebook.cli.group import command, new_app
from cuebook.cli.state import State

app = new_app()


@command(app, "cuebook demo", "cuebook demo my-chat.json", name="demo")
def demo(
    state: State,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Your own transcript, as `conversation import` reads it.")
    ] = None,
) -> None:
    """Replay a long conversation turn by turn, with no model and no network: what was remembered, what it cost."""
    with screen.progress("replaying", None) as advance:
        reports = asyncio.run(run_demo(file, progress=lambda done, total, _: advance(done, total)))
    if state.json:
        screen.say_json({"items": [to_wire(report) for report in reports]})
        return
    for number, report in enumerate(reports):
        if number:
            screen.say()
        for line in report_lines(report):
            screen.say(line)
