"""How the use of memories reads in a terminal."""

from collections.abc import Iterator
from typing import Final

from cuebook.app.utility import SAID, VERDICTS, Cost, Utilities, Utility
from cuebook.cli import screen
from cuebook.records.counted import counted

#: Characters of a memory, and turns named as evidence.
WORDS, EVIDENCE = 60, 3
_HOW: Final = {
    "model": "by asking the model with and without each",
    "words": "by the words of the answers that came of each alone",
}


def utility_lines(found: Utilities) -> Iterator[str]:
    """Give a measure line by line, the most useful first."""
    calls = f", {found.calls:,} calls" if found.calls else ""
    memories, turns = counted(len(found.items), "memory", "memories"), counted(found.turns, "turn")
    yield f"{memories} said in {turns}, {_HOW[found.by]}{calls}"
    if found.items:
        yield ""
        yield f"{'utility':>7}  {'turns':>5}  {'uses':>5}  memory"
    for each in found.items:
        yield f"{each.utility:>7.2f}  {each.said:>5}  {each.memory.uses:>5}  {_memory(each)}"
        yield f"{'':>21}  {_evidence(each)}"
    for reason, many in found.missed.items():
        yield f"not measured: {counted(many, 'turn')}, {reason}"
    useless = [each for each in found.items if each.prunes]
    if useless:
        yield ""
        yield f"of no use in {SAID} turns or more; --prune forgets {'it' if len(useless) == 1 else 'them'}:"
        yield from (f"  {each.memory.id}  {screen.line_of(each.memory.text, WORDS)}" for each in useless)


def cost_line(cost: Cost) -> str:
    """Say what a measure asks a model, and costs at most."""
    if not cost.calls:
        return "asks no model"
    money = " + ".join(f"{spent:.4f} {currency}" for currency, spent in cost.costs.items())
    prompts, answers = f"{cost.prompt_tokens:,} tokens of prompts", f"{cost.answer_tokens:,} of answers"
    priced = f"{money} at most" if money else "no price of it is known (config/prices.json may name one)"
    asks = f"asks {cost.model} {counted(cost.calls, 'time')} about {counted(cost.turns, 'turn')}"
    return f"{asks}: {prompts}, up to {answers}; {priced}"


def _memory(each: Utility) -> str:
    return f"{each.memory.id} {each.memory.category}: {screen.line_of(each.memory.text, WORDS)}"


def _evidence(each: Utility) -> str:
    best = sorted(each.uses, key=lambda use: -use.score)[:EVIDENCE]
    more = f", {len(each.uses) - len(best)} more" if len(each.uses) > len(best) else ""
    kept = "" if each.verdict in ("useful", "useless") else f"; kept: {VERDICTS[each.verdict]}"
    return ", ".join(f"{use.conversation} turn {use.turn}: {use.score:.2f}" for use in best) + more + kept
