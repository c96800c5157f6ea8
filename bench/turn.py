"""Turn benchmark: the overhead of a whole turn without the model, in short and long conversations."""

import asyncio
import statistics
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import count, repeat

from bench.assemble import cue_on
from bench.measure import AsyncRound, Figure, Run, Sample, compared, interleave_async, shown
from bench.random_text import TextGenerator
from bench.stores import CONVERSATION, copy, drafts, fill, store
from cuebook import Ask, Cuebook
from cuebook.testing import ScriptedModel

_WORDS = 23
_FEW, _SOME = 10, 1_000
#: Tokens of every window: about what ten posts take, so that a long conversation shows no more than a short one.
_BUDGET = 700
_TURNS = 4  # per round; each round starts a new short conversation
_REPLY = "That was said before; the garden is next, and then the kitchen."


def turn(run: Run) -> Iterator[Figure]:
    """Run turns with a model that answers at once: read, plan, open, stream and close, all durable."""
    return iter(asyncio.run(_turn(run)))


async def _turn(run: Run) -> list[Figure]:
    rounds = run.rounds(30)
    few = run.fast / "turn-few.db"
    fill(few, {f"{CONVERSATION}{n}": drafts(_FEW, _WORDS, prefix=f"p{n}-") for n in range(rounds + 1)})
    many, some = store(run, run.many, _WORDS), store(run, _SOME, _WORDS)
    spent: dict[str, list[float]] = {}
    async with AsyncExitStack() as stack:
        asks: dict[str, AsyncRound] = {}
        for name, path, usual in (
            ("many", many, True),
            ("some", some, True),
            ("few", few, True),
            ("many, bare", many, False),
            ("few, bare", few, False),
        ):
            own = copy(
                path, name.replace(", ", "-")
            )  # two open projects on one file would invalidate each other's caches
            model = ScriptedModel(default=_REPLY)
            cue = await stack.enter_async_context(cue_on(own, usual=usual, model=model))
            names = (f"{CONVERSATION}{n}" for n in count()) if path is few else repeat(CONVERSATION)
            asks[name] = _asks(cue, names, spent.setdefault(name, []))
        sides = await interleave_async(rounds, asks)
    cpu = {name: Sample(tuple(values[1:])) for name, values in spent.items()}
    long, brief = f"{run.many:,} posts", f"{_FEW}-{_FEW + 2 * _TURNS} posts"
    recall = shown(cpu["many"].median - cpu["many, bare"].median)
    return [
        compared(f"p50, {long}", sides["many"], brief, sides["few"], bar=1.3, note=f"windows of {_BUDGET} tokens"),
        compared("the same, CPU", cpu["many"], brief, cpu["few"]),
        compared(f"CPU, {long}", cpu["many"], f"{_SOME:,} posts", cpu["some"]),
        compared(
            "CPU, without recall and cache rules",
            cpu["many, bare"],
            brief,
            cpu["few, bare"],
            note=f"these take {recall} at {run.many:,} posts",
        ),
    ]


def _asks(cue: Cuebook, conversations: Iterator[str], spent: list[float]) -> AsyncRound:
    """Time some turns of one conversation. The first warms up, and the median of the others counts."""
    talk = TextGenerator(7)

    async def one() -> float:
        where = next(conversations)
        took, cpu = [], []
        for _ in range(_TURNS):
            ask = Ask(f"What do you know about {' and '.join(talk.rare(3))}?", where, token_budget=_BUDGET)
            began, used = time.perf_counter(), time.process_time()
            await cue.ask(ask)
            took.append(time.perf_counter() - began)
            cpu.append(time.process_time() - used)
        spent.append(statistics.median(cpu[1:]))
        return statistics.median(took[1:])

    return one
