"""Memories of one user as everybody else's grow: finding them costs their place, not the store."""

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack

from bench.measure import AsyncRound, Figure, Run, compared, interleave_async
from cuebook import Ask, Cuebook
from cuebook.config import build
from cuebook.memory.placed import memory_id
from cuebook.ports.memories import PlaceChange
from cuebook.records.memory import Memory, Place, Scope

_OWN, _FEW = 200, 1_000
_WORDS = (
    "lamp harbour bread kitchen invoice bicycle winter garden letter piano market river stone window ticket".split()
)


def memories(run: Run) -> Iterator[Figure]:
    """Search and a turn of a user with 200 memories among 1,000 and among many."""
    return iter(asyncio.run(_memories(run)))


async def _memories(run: Run) -> list[Figure]:
    many = 20_000 if run.quick else 100_000
    async with AsyncExitStack() as stack:
        searches: dict[str, AsyncRound] = {}
        turns: dict[str, AsyncRound] = {}
        for name, total in (("few", _FEW), ("many", many)):
            folder = run.fast / f"memories-{name}"
            folder.mkdir()
            settings = {"store.url": str(folder / "book.db"), "memory.user": True}
            config = build(arguments=settings, folder=str(folder))
            book = await stack.enter_async_context(Cuebook.open(config, worker=False))
            await _fill(book, total)
            searches[name], turns[name] = _searches(book), _assembles(book)
        found = await interleave_async(run.rounds(60), searches)
        told = await interleave_async(run.rounds(60), turns)
    beside = f"among {_FEW:,}"
    return [
        compared(f"search 200 memories among {many:,}", found["many"], beside, found["few"], bar=1.3),
        compared(f"assemble a first turn that knows 200 among {many:,}", told["many"], beside, told["few"], bar=1.3),
    ]


async def _fill(book: Cuebook, total: int) -> None:
    dice = random.Random(total)  # noqa: S311
    for user, count in (("ann", _OWN), *((f"user {n}", _OWN) for n in range((total - _OWN) // _OWN))):
        place = Place("user", user)
        texts = [f"{' '.join(dice.sample(_WORDS, 6))} number {n}" for n in range(count)]
        made = tuple(
            Memory(id=memory_id(place, "facts", text), place=place, category="facts", text=text, written=True)
            for text in texts
        )
        change = PlaceChange(place=place, generation=0, memories=made)
        await book.desk.store.memories.save(Scope(), change, now=1.0)


def _searches(book: Cuebook) -> AsyncRound:
    dice = random.Random(1)  # noqa: S311

    async def search() -> float:
        began = time.perf_counter()
        await book.memory.search(" ".join(dice.sample(_WORDS, 3)), user="ann", scopes=["user"], limit=10)
        return time.perf_counter() - began

    return search


def _assembles(book: Cuebook) -> AsyncRound:
    dice = random.Random(2)  # noqa: S311

    async def assemble() -> float:
        question = f"Where is the {dice.choice(_WORDS)} by the {dice.choice(_WORDS)}?"
        began = time.perf_counter()
        await book.assemble(Ask(question, "fresh", user="ann"))
        return time.perf_counter() - began

    return assemble
