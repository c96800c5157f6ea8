"""Command `cuebook eval`: evaluate recall, memory quality and the utility of each memory."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cuebook.app.cuebook import Cuebook
from cuebook.app.evaluate import EvidenceRecall
from cuebook.app.evaluate.items import Cleanness
from cuebook.app.evaluate.replay import Survival
from cuebook.app.evaluate.run import QUESTIONS, Evaluation, evaluate, to_wire, together
from cuebook.app.gold import GoldSurvival
from cuebook.app.reports.memory_use import BUDGET, SAID, TURNS, VERDICTS, MeasureCost, MemoryUsefulness, UsedMemory
from cuebook.app.reports.prices import UNKNOWN, money
from cuebook.cli.group import User, command, new_app
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.records.answer import to_wire as answer_to_wire
from cuebook.records.erasure import Receipt
from cuebook.records.expression import counted

app = new_app()

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE|CONVERSATION",
        help="Transcript in a format of `conversation import`. Default: a sample. With --leave-one-out: IDs of stored "
        "conversations.",
        show_default=False,
    ),
]
Gold = Annotated[
    Path | None, typer.Option("--gold", metavar="GOLD", help="Gold list: a JSON file with the facts of FILE.")
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Ask at most N questions per conversation.")]
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

    --leave-one-out measures the memories in the recorded turns of this project instead. With a configured model, it
    asks with and without each memory and compares the answers. Otherwise, or with --budget 0, it counts how many words
    that only this memory contributed are in the recorded answer. Memories in at least 10 turns without any use are
    proposed for deletion. Memories about health, diet or identity and handwritten ones are never proposed. Without a
    model, neither are wishes, decisions and tasks, since an answer can follow them silently. Only --prune forgets.
    """
    if left_out:
        value: Any = {"turns": turns, "budget": budget, "user": user}
        if estimate:
            _estimate(state, files or [], value)
        else:
            _leave_one_out(state, files or [], value, prune=prune, yes=yes)
        return
    if prune or estimate or len(files or ()) > 1:
        needed = "--prune and --estimate require --leave-one-out. Add it"
        raise typer.BadParameter(needed if prune or estimate else "More than one FILE given. Pass only one")
    file = Path(files[0]) if files else None
    with screen.progress("replaying", None) as advance:
        every = asyncio.run(
            evaluate(file, gold=gold, limit=limit, progress=lambda done, total, _: advance(done, total))
        )
    whole = together(every)
    texts = ["\n".join(report_lines(each)) for each in [*every, *([whole] if whole else [])]]
    state.report(to_wire(every), "\n\n".join(texts))


def _estimate(state: State, names: list[str], asked: Any) -> None:
    async def reckoned() -> Any:
        async with Cuebook.open(state.project(), worker=False) as cue:
            return (await cue.memory.utility(names, **asked, estimate=True)).cost

    cost = asyncio.run(reckoned())
    state.report(cost, cost_line(cost))


def _leave_one_out(state: State, names: list[str], asked: Any, *, prune: bool, yes: bool) -> None:
    async def measured() -> tuple[MemoryUsefulness, Receipt | None]:
        async with Cuebook.open(state.project(), worker=False) as cue:
            cost = (await cue.memory.utility(names, **asked, estimate=True)).cost if asked["budget"] else None
            if cost and cost.calls and not state.json:
                screen.complain(cost_line(cost))
            utilities = await cue.memory.utility(names, **asked)
            if not state.json:
                for line in utility_lines(utilities):
                    screen.say(line)
            many = sum(each.prune for each in utilities.items)
            agreed = prune and many > 0 and (yes or _agreed(many))
            return utilities, await cue.memory.prune(utilities, user=asked["user"]) if agreed else None

    utilities, receipt = asyncio.run(measured())
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


# ---- the report -----------------------------------------------------------------------------------------------------


#: Width of a name and of a figure, in columns.
NAME, FIGURE = 46, 10
#: Maximum number of faulty items shown, and their length in characters.
SHOWN, QUOTE = 3, 100
_ORIGINS = {
    "file": "from the file",
    "gold": "from the gold list",
    "cloze": "clozes: half the words of a user's sentence, without its value",
}
_WHOSE = {
    "gold": "current gold facts",
    "user": "values in the user's posts",
    "others": "values in other posts",
}


def report_lines(report: Evaluation) -> Iterator[str]:
    """Yield the lines of a report."""
    talks = f"{report.conversations} conversations, " if report.conversations > 1 else ""
    posts, compactions = counted(report.posts, "post"), counted(report.compactions, "summarization")
    yield f"{report.title}: {talks}{posts}, {compactions}, without a model"
    yield ""
    yield from _recall_lines(report.recall)
    yield ""
    yield from _item_lines(report.items)
    yield ""
    yield from _survival_lines(report.survival)
    if report.current_facts is not None:
        yield ""
        yield from _current_lines(report.current_facts)


def _recall_lines(recall: EvidenceRecall) -> Iterator[str]:
    if recall.at5 is None:
        yield "evidence recall: no questions, because no summarized post of the user states a value"
        return
    some = f"{recall.questions} of {recall.there_are}" if recall.questions < recall.there_are else recall.questions
    yield f"{'evidence recall':{NAME}}{'R@5':>{FIGURE}}{'R@10':>{FIGURE}}{'1000 tokens':>{FIGURE + 4}}"
    figures = (
        f"{_share(recall.at5):>{FIGURE}}{_share(recall.at10):>{FIGURE}}{_share(recall.within_tokens):>{FIGURE + 4}}"
    )
    yield f"{f'  {some} questions':{NAME}}{figures}"
    yield f"  source: {_ORIGINS[recall.origin]}"


def _item_lines(items: Cleanness) -> Iterator[str]:
    head = f"{counted(items.items, 'current item')}"
    yield f"{head:{NAME}}{'':>{FIGURE}}{'share':>{FIGURE}}"
    rows: list[tuple[str, Sequence[str]]] = [
        ("junk: no value, no name, no gold fact", items.junk),
        ("duplicates of an earlier one", items.duplicates),
        ("contradictions: pairs of them", [" / ".join(pair) for pair in items.contradictions]),
    ]
    for name, results in rows:
        share = _share(len(results) / items.items if items.items else None)
        yield f"{'  ' + name:{NAME}}{len(results):>{FIGURE}}{share:>{FIGURE}}"
        yield from (f"    {screen.quote(text, QUOTE)}" for text in results[:SHOWN])


def _survival_lines(rows: Sequence[Survival]) -> Iterator[str]:
    if not rows:
        yield "fact survival: no facts, because no summarized post states a value"
        return
    heads = ("summarizations", "facts", "kept", "ended", "found", "lost")
    yield f"{'fact survival':{NAME - 14}}" + "".join(f"{head:>{15 if n == 0 else 8}}" for n, head in enumerate(heads))
    for row in rows:
        figures = (row.facts, row.held, row.ended, row.found, row.lost)
        name = f"{'  ' + _WHOSE[row.whose]:{NAME - 14}}{row.compactions:>15}"
        yield name + "".join(f"{figure:>8,}" for figure in figures)
    yield "  kept: in the summary or items; ended: superseded; found: only by search"
    dropped = [text for row in rows for text in row.dropped]
    yield f"  facts lost between two of these points, superseded gold facts included: {len(dropped)}"
    yield from (f"    {screen.quote(text, QUOTE)}" for text in dropped[:SHOWN])


def _current_lines(facts: GoldSurvival) -> Iterator[str]:
    yield f"{'gold facts at the end':{NAME}}{'':>{FIGURE}}{'share':>{FIGURE}}"
    content = _share(facts.held / facts.current if facts.current else None)
    yield f"{'  current, in an item':{NAME}}{f'{facts.held} of {facts.current}':>{FIGURE}}{content:>{FIGURE}}"
    yield from (f"    missing: {screen.quote(text, QUOTE)}" for text in facts.missing[:SHOWN])
    wrong = _share(facts.shown / facts.superseded if facts.superseded else None)
    count = f"{facts.shown} of {facts.superseded}"
    yield f"{'  superseded, but in an item':{NAME}}{count:>{FIGURE}}{wrong:>{FIGURE}}"
    yield from (f"    wrong: {screen.quote(text, QUOTE)}" for text in facts.wrong[:SHOWN])


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f}%"


# ---- use of memories ------------------------------------------------------------------------------------------------


#: Maximum length of a memory in characters, and number of turns listed as evidence.
WORDS, EVIDENCE = 60, 3
_HOW: Final = {
    "model": "measured by asking the model with and without each",
    "words": "measured by the words that only this memory contributed to the answers",
}


def utility_lines(found: MemoryUsefulness) -> Iterator[str]:
    """Yield the lines of a utility report, the most useful memory first."""
    calls = f", {found.calls:,} calls" if found.calls else ""
    memories, turns = counted(len(found.items), "memory", "memories"), counted(found.turns, "turn")
    yield f"{memories} in {turns}, {_HOW[found.by]}{calls}"
    if found.items:
        yield ""
        yield f"{'utility':>7}  {'turns':>5}  {'uses':>5}  memory"
    for each in found.items:
        yield f"{each.utility:>7.2f}  {each.said:>5}  {each.uses:>5}  {_memory(each)}"
        yield f"{'':>21}  {_evidence(each)}"
    for reason, many in found.missed.items():
        yield f"not measured: {counted(many, 'turn')}, {reason}"
    useless = [each for each in found.items if each.prune]
    if useless:
        yield ""
        yield f"useless in {SAID} turns or more; use --prune to forget {'it' if len(useless) == 1 else 'them'}:"
        yield from (f"  {each.memory_id}  {screen.line_of(each.text, WORDS)}" for each in useless)


def cost_line(cost: MeasureCost) -> str:
    """Describe the model calls of a measurement and their maximum cost."""
    if not cost.calls:
        return "no model calls"
    prompts, answers = f"{cost.prompt_tokens:,} prompt tokens", f"{cost.answer_tokens:,} answer tokens"
    priced = f"{money(cost.costs)} at most" if cost.costs else f"{UNKNOWN} (add one in config/prices.json)"
    asks = f"{counted(cost.calls, 'call')} of {cost.model} for {counted(cost.turns, 'turn')}"
    return f"{asks}: {prompts}, up to {answers}; {priced}"


def _memory(each: UsedMemory) -> str:
    return f"{each.memory_id} {each.category}: {screen.line_of(each.text, WORDS)}"


def _evidence(each: UsedMemory) -> str:
    best = sorted(each.turns, key=lambda use: -use.score)[:EVIDENCE]
    more = f", {len(each.turns) - len(best)} more" if len(each.turns) > len(best) else ""
    kept = "" if each.verdict in ("useful", "useless") else f"; kept: {VERDICTS[each.verdict]}"
    return ", ".join(f"{use.conversation_id} turn {use.turn}: {use.score:.2f}" for use in best) + more + kept
