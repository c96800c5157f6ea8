"""`cuebook eval`."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from cuebook.app.evaluate import QUESTIONS, evaluate, to_wire, together
from cuebook.cli import screen
from cuebook.cli.eval_report import report_lines
from cuebook.cli.group import command, new_app
from cuebook.cli.state import State

app = new_app()


@command(
    app, "cuebook eval", "cuebook eval my-chat.json --json", "cuebook eval my-chat.json --gold facts.json", name="eval"
)
def eval_(
    state: State,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Your own transcript, as `conversation import` reads it.")
    ] = None,
    gold: Annotated[
        Path | None, typer.Option("--gold", metavar="GOLD", help="A list of the facts that FILE tells.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="Ask at most so many questions of a conversation.")
    ] = QUESTIONS,
) -> None:
    """Measure memory on your own conversations, with no model and no network.

    Evidence recall: the share of the posts that answer a question among the first 5 and 10 posts found, and within
    1000 tokens. The questions are FILE's (LoCoMo), else those of the gold list, else clozes: half the words of a
    sentence the user said, without the value it tells, of posts that stand under the summary.

    Junk: items shown as current with no value (number, date, address, quoted word), no named thing and no gold fact;
    plain preferences count too, so it is an upper bound. Duplicates: items whose content words are nine tenths those
    of an earlier one, or that give the same values of the same subject. Contradictions: pairs of items of one subject
    whose values exclude each other.

    Fact survival: values and gold facts of posts, 1, 5 and 20 compactions after they went under the summary: held in
    summary or items, ended by what came later, only found by a search, or lost. Current facts: gold facts that still
    hold and stand in an item, and superseded ones that do.
    """
    with screen.progress("replaying", None) as advance:
        every = asyncio.run(
            evaluate(file, gold=gold, limit=limit, progress=lambda done, total, _: advance(done, total))
        )
    if state.json:
        screen.say_json(to_wire(every))
        return
    whole = together(every)
    for number, each in enumerate([*every, *([whole] if whole else [])]):
        if number:
            screen.say()
        for line in report_lines(each):
            screen.say(line)
