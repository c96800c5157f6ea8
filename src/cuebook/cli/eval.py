"""`cuebook eval`."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from cuebook.app.book import Cuebook
from cuebook.app.evaluate import QUESTIONS, evaluate, to_wire, together
from cuebook.app.forgetting import receipt_shape
from cuebook.app.utility import BUDGET, TURNS, Cost, Utilities, cost_to_wire
from cuebook.app.utility import to_wire as utility_to_wire
from cuebook.cli import screen
from cuebook.cli.eval_report import report_lines
from cuebook.cli.eval_utility import cost_line, utility_lines
from cuebook.cli.group import User, command, new_app
from cuebook.cli.state import State
from cuebook.records.erasure import Receipt

app = new_app()

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE|CONVERSATION",
        help="Your own transcript, as `conversation import` reads it; with --leave-one-out the book's own.",
        show_default=False,
    ),
]
Gold = Annotated[Path | None, typer.Option("--gold", metavar="GOLD", help="A list of the facts that FILE tells.")]
Limit = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, help="Ask at most so many questions of a conversation.")
]
LeftOut = Annotated[
    bool, typer.Option("--leave-one-out", help="Of what use each memory was in the turns that said it.")
]
Turns = Annotated[
    int, typer.Option("--turns", metavar="N", min=1, max=1000, help="Of the last so many turns of a conversation.")
]
Budget = Annotated[
    int, typer.Option("--budget", metavar="N", min=0, help="Ask the configured model so often; 0 asks none.")
]
Estimate = Annotated[bool, typer.Option("--estimate", help="Say what asking the model would cost; ask it nothing.")]
Prune = Annotated[bool, typer.Option("--prune", help="Forget what was of no use, once you agree; a receipt proves it.")]


@command(
    app,
    "cuebook eval",
    "cuebook eval my-chat.json --json",
    "cuebook eval my-chat.json --gold facts.json",
    "cuebook eval --leave-one-out c1 c2 --budget 0",
    name="eval",
)
def eval_(
    state: State,
    files: Names = None,
    *,
    gold: Gold = None,
    limit: Limit = QUESTIONS,
    left_out: LeftOut = False,
    turns: Turns = TURNS,
    budget: Budget = BUDGET,
    estimate: Estimate = False,
    prune: Prune = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask whether to prune.")] = False,
    user: User = None,
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

    --leave-one-out measures your own book instead: the memories of its recorded turns. With a configured model it asks
    with and without each and compares the answers; with none, or --budget 0, it looks how many of the words that a
    memory alone brought stand in the answer that was given. What was said in 10 turns or more and was of use in none is
    proposed to be let go, unless it is of health, diet or who somebody is, or written by hand; without a model neither
    wishes, decisions and tasks, which an answer follows without a word of them. Only --prune forgets.
    """
    if left_out:
        asked: Any = {"turns": turns, "budget": budget, "user": user}
        if estimate:
            _estimate(state, files or [], asked)
        else:
            _leave_one_out(state, files or [], asked, prune=prune, yes=yes)
        return
    if prune or estimate or len(files or ()) > 1:
        own = prune or estimate
        msg = "--prune, --estimate and several names belong to --leave-one-out" if own else "name one FILE"
        raise typer.BadParameter(msg)
    file = Path(files[0]) if files else None
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


def _estimate(state: State, names: list[str], asked: Any) -> None:
    async def reckoned() -> Cost:
        async with Cuebook.open(state.project(), worker=False) as book:
            return await book.memory.utility_cost(names, **asked)

    cost = asyncio.run(reckoned())
    if state.json:
        screen.say_json(cost_to_wire(cost))
    else:
        screen.say(cost_line(cost))


def _leave_one_out(state: State, names: list[str], asked: Any, *, prune: bool, yes: bool) -> None:
    async def measured() -> tuple[Utilities, Receipt | None]:
        async with Cuebook.open(state.project(), worker=False) as book:
            cost = await book.memory.utility_cost(names, **asked) if asked["budget"] else None
            if cost is not None and cost.calls and not state.json:
                screen.complain(cost_line(cost))
            found = await book.memory.utility(names, **asked)
            if not state.json:
                for line in utility_lines(found):
                    screen.say(line)
            many = sum(each.prunes for each in found.items)
            agreed = prune and many > 0 and (yes or _agreed(many))
            return found, await book.memory.prune(found, user=asked["user"]) if agreed else None

    found, receipt = asyncio.run(measured())
    if state.json:
        screen.say_json(utility_to_wire(found) | {"receipt": receipt_shape(receipt) if receipt else None})
    elif receipt:
        screen.say(f"forgotten; {receipt.id} is the proof")
    if prune and receipt is None and any(each.prunes for each in found.items):
        screen.complain("nothing was forgotten; --yes forgets without asking")
        raise typer.Exit(1)


def _agreed(many: int) -> bool:
    what = "this memory" if many == 1 else f"these {many} memories"
    return screen.on_terminal() and typer.confirm(f"Forget {what}, with everything derived from it, for good?")
