"""Command `cuebook eval`: evaluate recall, memory quality and the utility of each memory."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cuebook.app.evaluate.compare import compare
from cuebook.app.evaluate.compare import to_wire as recall_to_wire
from cuebook.app.evaluate.run import QUESTIONS, evaluate, to_wire, together
from cuebook.app.evaluate.sets import is_set
from cuebook.app.reports.memory_use import BUDGET, SAID, TURNS, VERDICTS, MeasureCost
from cuebook.app.reports.prices import UNKNOWN, money
from cuebook.cli.group import User, command, new_app
from cuebook.cli.output import screen
from cuebook.cli.output.report import report
from cuebook.cli.state import State
from cuebook.records.answer import to_wire as answer_to_wire
from cuebook.records.expression import counted

app = new_app()

#: Number of examples of each kind.
SHOWN = 3

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE|FOLDER|CONVERSATION",
        help="Transcript in a format of `conversation import`, or test sets. Default: a sample. With --leave-one-out: "
        "IDs of stored conversations.",
        show_default=False,
    ),
]
Gold = Annotated[
    Path | None, typer.Option("--gold", metavar="GOLD", help="Gold list: a JSON file with the facts of FILE.")
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Ask at most N questions per conversation.")]
Recall = Annotated[
    bool, typer.Option("--recall", help="Compare search with BM25 and embeddings, on the questions of test sets.")
]
Kinds = Annotated[bool, typer.Option("--kinds", help="Also show each kind of question; implies --recall.")]
LeftOut = Annotated[bool, typer.Option("--leave-one-out", help="Measure the utility of each memory in recorded turns.")]
Turns = Annotated[
    int, typer.Option("--turns", metavar="N", min=1, max=1000, help="Measure the last N turns of each conversation.")
]
Budget = Annotated[int, typer.Option("--budget", metavar="N", min=0, help="Maximum number of model calls; 0 for none.")]
Estimate = Annotated[bool, typer.Option("--estimate", help="Show the cost of the model calls without making them.")]
Prune = Annotated[bool, typer.Option("--prune", help="Forget useless memories after confirmation, with a receipt.")]


@command(
    app,
    "cuebook eval",
    "cuebook eval my-chat.json --json",
    "cuebook eval my-chat.json --gold facts.json",
    "cuebook eval --recall locomo10.json chats/100K",
    "cuebook eval --leave-one-out c1 c2 --budget 0",
    name="eval",
)
async def eval_(
    state: State,
    files: Names = None,
    *,
    gold: Gold = None,
    limit: Limit = QUESTIONS,
    recall: Recall = False,
    kinds: Kinds = False,
    left_out: LeftOut = False,
    turns: Turns = TURNS,
    budget: Budget = BUDGET,
    estimate: Estimate = False,
    prune: Prune = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Prune without confirmation.")] = False,
    user: User = None,
) -> None:
    """Measure memory on your own conversations, without a model or network.

    Evidence recall: the share of the posts with the answer to a question that are among the first 5 and 10 results, and
    within 1000 tokens. The questions come from FILE (LoCoMo), else from the gold list. Otherwise they are clozes: half
    the words of a user's sentence, without its value, from summarized posts.

    Junk: current items without a value (number, date, address, quoted word), name or gold fact. Plain preferences count
    too, so it is an upper bound. Duplicates: items that share 90% of their content words with an earlier one, or have
    the same values for the same subject. Contradictions: pairs of items of one subject whose values exclude each other.

    Fact survival: the state of values and gold facts 1, 5 and 20 summarizations after their posts were summarized:
    kept in the summary or items, superseded, only found by search, or lost. Current facts: gold facts in an item, both
    current and superseded.

    --recall compares search with BM25 over posts, BM25 over passages of 90 words, and embeddings alone. Several FILEs,
    a FOLDER, or a test set that is no transcript imply it. Supported: LoCoMo, REALTALK, LoCoMo-Plus (with a LoCoMo
    file), MemoryCode, BEAM, PrecisionMemBench, VehicleMemBench, BFCL memory, and transcripts with `questions`. Cuebook
    is measured without a cutoff and with the default one, by words and with each installed local embedder.

    --leave-one-out measures the memories in the recorded turns of this project instead. With a configured model, it
    asks with and without each memory and compares the answers. Otherwise, or with --budget 0, it counts how many words
    that only this memory contributed are in the recorded answer. Memories in at least 10 turns without any use are
    proposed for deletion. Memories about health, diet or identity and handwritten ones are never proposed. Without a
    model, neither are wishes, decisions and tasks, since an answer can follow them silently. Only --prune forgets.
    """
    if left_out:
        value: Any = {"turns": turns, "budget": budget, "user": user}
        if estimate:
            await _estimate(state, files or [], value)
        else:
            await _leave_one_out(state, files or [], value, prune=prune, yes=yes)
        return
    if prune or estimate:
        msg = "--prune and --estimate require --leave-one-out. Add it"
        raise typer.BadParameter(msg)
    paths = [Path(each) for each in files or ()]
    if recall or kinds or len(paths) > 1 or (paths and is_set(paths[0])):
        await _compare(state, paths, limit, gold, kinds=kinds)
        return
    with screen.progress("replaying") as advance:
        every = await evaluate(*paths, gold=gold, limit=limit, progress=lambda done, total, _: advance(done, total))
    whole = together(every)
    found = [*every, *([whole] if whole else [])]
    state.report(to_wire(every), "\n\n".join(report("eval.txt", report=each, shown=SHOWN) for each in found))


async def _compare(state: State, paths: list[Path], limit: int, gold: Path | None, *, kinds: bool) -> None:
    if gold is not None or not paths:
        msg = "--gold is for one transcript. Omit it" if paths else "--recall needs a FILE or FOLDER. Pass a test set"
        raise typer.BadParameter(msg)
    with screen.progress("searching") as advance:
        sets = await compare(paths, limit=limit, progress=advance)
    state.report(recall_to_wire(sets), report("eval_recall.txt", sets=sets, kinds=kinds))


async def _estimate(state: State, names: list[str], asked: Any) -> None:
    async with state.open_async() as cue:
        cost: Any = (await cue.memory.utility(names, **asked, estimate=True)).cost
    state.report(cost, cost_line(cost))


async def _leave_one_out(state: State, names: list[str], asked: Any, *, prune: bool, yes: bool) -> None:
    async with state.open_async() as cue:
        cost = (await cue.memory.utility(names, **asked, estimate=True)).cost if asked["budget"] else None
        if cost and cost.calls and not state.json:
            screen.complain(cost_line(cost))
        utilities = await cue.memory.utility(names, **asked)
        if not state.json:
            screen.say(report("usefulness.txt", report=utilities, verdicts=VERDICTS, said=SAID))
        many = sum(each.prune for each in utilities.items)
        agreed = prune and many > 0 and (yes or _agreed(many))
        receipt = await cue.memory.prune(utilities, user=asked["user"]) if agreed else None
    if state.json:
        screen.say_json(answer_to_wire(utilities) | {"receipt": receipt})
    elif receipt:
        screen.say(f"memories forgotten; receipt: {receipt.id}")
    if prune and receipt is None and any(each.prune for each in utilities.items):
        screen.complain("Nothing was forgotten. Use --yes to skip the confirmation.")
        raise typer.Exit(1)


def _agreed(many: int) -> bool:
    what = "this memory" if many == 1 else f"these {many} memories"
    return screen.agreed(f"Permanently forget {what} and everything derived from {'it' if many == 1 else 'them'}?")


def cost_line(cost: MeasureCost) -> str:
    """Describe the model calls of a measurement and their maximum cost."""
    if not cost.calls:
        return "no model calls"
    prompts, answers = f"{cost.prompt_tokens:,} prompt tokens", f"{cost.answer_tokens:,} answer tokens"
    priced = f"{money(cost.costs)} at most" if cost.costs else f"{UNKNOWN} (add one in config/prices.json)"
    asks = f"{counted(cost.calls, 'call')} of {cost.model} for {counted(cost.turns, 'turn')}"
    return f"{asks}: {prompts}, up to {answers}; {priced}"
