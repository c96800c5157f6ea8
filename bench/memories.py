"""Memories of one user as everybody else's grow: finding them, by words and by meaning, costs their place."""

import asyncio
import os
import random
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from operator import mul

from bench.measure import AsyncRound, Figure, Run, compared, interleave_async
from cuebook import Ask, Cuebook
from cuebook.config import build
from cuebook.engine.sense import space_of
from cuebook.memory.placed import memory_id
from cuebook.ports.memories import Asked, PlaceChange
from cuebook.ports.vectors import EmbeddedPlace
from cuebook.records.memory import Dense, Memory, Place, Scope
from cuebook.testing.embedder import HashingEmbedder

_OWN, _FEW = 200, 1_000
_QUERIES, _CLOSEST = 50, 10
EMBEDDER = HashingEmbedder(dimension=384)
WORDS = "lamp harbour bread kitchen invoice bicycle winter garden letter piano market river stone window ticket".split()


def memories(run: Run) -> Iterator[Figure]:
    """Search and a turn of a user with 200 memories among 1,000 and among many (MEMORIES, else 100,000), embedded."""
    return iter(asyncio.run(_memories(run)))


async def _memories(run: Run) -> list[Figure]:
    many = int(os.environ.get("MEMORIES", "20_000" if run.quick else "100_000"))
    recalled = 1.0
    async with AsyncExitStack() as stack:
        searches: dict[str, AsyncRound] = {}
        turns: dict[str, AsyncRound] = {}
        for name, total in (("few", _FEW), ("many", many)):
            folder = run.fast / f"memories-{name}"
            folder.mkdir()
            settings = {"store.url": str(folder / "book.db"), "memory.user": True}
            config = build(arguments=settings, folder=str(folder))
            book = await stack.enter_async_context(Cuebook.open(config, embedder=EMBEDDER, worker=False))
            await fill(book, total)
            recalled = min(recalled, await _recalled(book))
            searches[name], turns[name] = _searches(book), _assembles(book)
        found = await interleave_async(run.rounds(60), searches)
        told = await interleave_async(run.rounds(60), turns)
    beside = f"among {_FEW:,}"
    return [
        Figure(
            "the closest ten of 200, as by brute force", f"{recalled:.2f}", ratio=recalled, bar=1, least=True, unit=""
        ),
        compared(f"search 200 memories among {many:,}", found["many"], beside, found["few"], bar=1.3),
        compared(f"assemble a first turn that knows 200 among {many:,}", told["many"], beside, told["few"], bar=1.3),
    ]


async def fill(book: Cuebook, total: int, *, own: int = _OWN) -> list[list[str]]:
    """Give Ann and others memories, `own` each, with their vectors; answers with the texts of each."""
    dice = random.Random(total)  # noqa: S311
    told = []
    for user in ("ann", *(f"user {n}" for n in range((total - own) // own))):
        place = Place("user", user)
        texts = [f"{' '.join(dice.sample(WORDS, 6))} number {n}" for n in range(own)]
        made = tuple(
            Memory(id=memory_id(place, "facts", text), place=place, category="facts", text=text, written=True)
            for text in texts
        )
        change = PlaceChange(place=place, generation=0, memories=made)
        await book.desk.store.memories.save(Scope(), change, now=1.0)
        vectors = await EMBEDDER.embed(texts)
        rows = tuple((number, 0, vector) for number, vector in enumerate(vectors, 1))
        space = space_of(EMBEDDER)
        kept = EmbeddedPlace(place=place, model=space, after=0, upto=own, rows=rows, now=1.0)
        await book.desk.store.vectors.keep_of_place(Scope(), kept)
        told.append(texts)
    return told


async def _recalled(book: Cuebook) -> float:
    """Give the part of the ten memories closest to a query that search finds, over some queries."""
    place, dice, found = Place("user", "ann"), random.Random(3), 0  # noqa: S311
    _, held = await book.desk.store.memories.place(Scope(), place)
    own = {each.no: array("f", vector) for each, vector in zip(held, await _embedded(held), strict=True)}
    for _ in range(_QUERIES):
        [query] = await EMBEDDER.embed([" ".join(dice.sample(WORDS, 3))])
        numbers = array("f", query)
        asked = Asked(text="", dense=Dense(space_of(EMBEDDER), query, 0.5), limit=_CLOSEST)
        near = (await book.desk.store.memories.find(Scope(), [place], asked)).found
        cosines = {no: sum(map(mul, numbers, vector)) for no, vector in own.items()}
        least = sorted(cosines.values())[-_CLOSEST] - 1e-6  # among equals any will do
        found += sum(cosines[no] >= least for no in near)
    return found / (_QUERIES * _CLOSEST)


async def _embedded(held: Sequence[Memory]) -> list[bytes]:
    return await EMBEDDER.embed([each.text for each in held])


def _searches(book: Cuebook) -> AsyncRound:
    dice = random.Random(1)  # noqa: S311

    async def search() -> float:
        began = time.perf_counter()
        await book.memory.search(" ".join(dice.sample(WORDS, 3)), user="ann", scopes=["user"], limit=10)
        return time.perf_counter() - began

    return search


def _assembles(book: Cuebook) -> AsyncRound:
    dice = random.Random(2)  # noqa: S311

    async def assemble() -> float:
        question = f"Where is the {dice.choice(WORDS)} by the {dice.choice(WORDS)}?"
        began = time.perf_counter()
        await book.assemble(Ask(question, "fresh", user="ann"))
        return time.perf_counter() - began

    return assemble
