"""What prompts learn from users' words alone: a month of conversations in which nobody observes anything by hand.

People of `cuebook.testing.audience` talk with a book whose model answers as the variant in its prompt would have it;
whether they are pleased depends on that variant, and they say so in words. 300 conversations of 3 to 7 rounds.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

from bench.measure import Figure, Run, compared, interleave_async
from cuebook import Ask, Cuebook
from cuebook.testing import FrozenClock
from cuebook.testing.audience import DISPLEASED, PLEASED, Audience, Echo, Taste

SLUG = "persona/assistant"
_GOOD, _POOR = "PLAIN", "LENGTHY"
_BETTER: Mapping[str, Taste] = {_GOOD: Taste(0.50, 0.15), _POOR: Taste(0.25, 0.40)}
_EQUAL: Mapping[str, Taste] = {_GOOD: Taste(0.35, 0.25), _POOR: Taste(0.35, 0.25)}
_USERS = 60
_PAUSE_S = 45.0
_GAP_S = 8_000.0  # 300 conversations in 29 days
_SHOUTS = 500
_EDITED = 300  # conversations with a new version


def loop(run: Run) -> Iterator[Figure]:
    """Let months go by, and time what a turn pays for it."""
    seeds, talks = (range(1, 2), 90) if run.quick else (range(1, 4), 300)
    for strategy in ("epsilon_greedy", "thompson"):
        for world, tastes, bar in (("the better of two", _BETTER, 0.7), ("one of two equals", _EQUAL, None)):
            found = [asyncio.run(_variants(tastes, strategy, seed, talks)) for seed in seeds]
            shares = [share for share, _ in found]
            shown = ", ".join(f"{share:.0%}" for share in shares)
            yield Figure(
                what=f"{strategy}: {world} spoke in the last third of {talks} conversations",
                ours=shown,
                ratio=min(shares) if bar else None,
                bar=bar,
                least=True,
                unit=" the least share" if bar else "",
                note=f"{sum(taken for _, taken in found)} taken back",
            )
    yield from _edits(seeds)
    for strategy in ("epsilon_greedy", "thompson"):
        yield asyncio.run(_shouting(strategy, talks))
    yield asyncio.run(_price(run.rounds(20)))


@asynccontextmanager
async def _book(clock: FrozenClock, **settings: str) -> AsyncIterator[Cuebook]:
    arguments = {"store.synchronous": "OFF"} | {name.replace("__", "."): value for name, value in settings.items()}
    async with Cuebook.open(model=Echo((_GOOD, _POOR)), clock=clock, worker=False, arguments=arguments) as book:
        yield book


async def _talk(book: Cuebook, clock: FrozenClock, crowd: Audience, name: str, user: str) -> bool:
    """Hold a conversation; says whether the good variant spoke at its end."""
    text, reply = crowd.begins(), ""
    for _ in range(crowd.rounds()):
        reply = (await book.ask(Ask(text, name, user=user))).text
        clock.advance(_PAUSE_S)
        text = crowd.answers(reply)
    await book.work()
    clock.advance(_GAP_S)
    return _GOOD in reply


async def _variants(tastes: Mapping[str, Taste], strategy: str, seed: int, talks: int) -> tuple[float, int]:
    """Let two variants begin alike; gives the good one's share of the last third, and rollbacks."""
    clock, crowd = FrozenClock(), Audience(tastes, seed=seed)
    async with _book(clock, prompts__strategy=strategy) as book:
        await _two(book)
        spoke = [await _talk(book, clock, crowd, f"{seed}-{n}", f"u{n % _USERS}") for n in range(talks)]
        return statistics.fmean(spoke[-talks // 3 :]), await _taken_back(book)


async def _two(book: Cuebook) -> None:
    await book.prompts.save(SLUG, {"body": f"Answer {_POOR}."})
    await book.prompts.fork(SLUG, "plain")
    await book.prompts.save(SLUG, {"body": f"Answer {_GOOD}."}, branch="plain")


async def _taken_back(book: Cuebook) -> int:
    return sum(event.kind == "rollback" for event in await book.prompts.events(SLUG))


def _edits(seeds: range) -> Iterator[Figure]:
    """Replace a version after 60 conversations by a worse one, and by one as good."""
    for what, tastes in (("worse", _BETTER), ("as good", _EQUAL)):
        found = [asyncio.run(_edited(tastes, seed, _EDITED)) for seed in seeds]
        after = ", ".join(str(each) if each else "never" for each in found)
        yield Figure(what=f"guarded: a version that is {what} was taken back after", ours=after, unit="")


async def _edited(tastes: Mapping[str, Taste], seed: int, talks: int) -> int:
    clock, crowd = FrozenClock(), Audience(tastes, seed=seed)
    async with _book(clock, learning__observe="all") as book:
        await book.prompts.save(SLUG, {"body": f"Answer {_GOOD}."})
        for n in range(60):
            await _talk(book, clock, crowd, f"before {n}", f"u{n % _USERS}")
        await book.prompts.save(SLUG, {"body": f"Answer {_POOR}."})
        for n in range(talks):
            await _talk(book, clock, crowd, f"after {seed} {n}", f"u{n % _USERS}")
            if await _taken_back(book):
                return n + 1
    return 0


async def _shouting(strategy: str, talks: int) -> Figure:
    """Let one user be displeased in 100 conversations of five rounds, whatever is answered, among those of others."""
    clock, crowd = FrozenClock(), Audience(_BETTER, seed=1)
    every, spoke, shouts = max(1, talks // (_SHOUTS // 5)), [], 0
    async with _book(clock, prompts__strategy=strategy) as book:
        await _two(book)
        for n in range(talks):
            spoke.append(await _talk(book, clock, crowd, f"c{n}", f"u{n % _USERS}"))
            for _ in range(6 if n % every == 0 else 0):  # the first of them goes on from nothing
                await book.ask(Ask(DISPLEASED[shouts % 7], f"shouting {n}", user="mallory"))
                clock.advance(_PAUSE_S)
                shouts += 1
            await book.work()
        share, taken = statistics.fmean(spoke[-talks // 3 :]), await _taken_back(book)
    return Figure(
        what=f"{strategy}: the better of two, while one user is displeased {shouts - len(spoke[::every])} times",
        ours=f"{share:.0%}",
        ratio=share,
        bar=0.7,
        least=True,
        unit="",
        note=f"{taken} taken back",
    )


async def _price(rounds: int) -> Figure:
    """Time a turn with and without the loop, both choosing between two variants."""
    clock = FrozenClock()
    async with _book(clock) as with_it, _book(clock, learning__observe="off") as without:
        for book in (with_it, without):
            await _two(book)

        def asks(book: Cuebook) -> "asyncio.Future[float]":
            return asyncio.ensure_future(_timed(book, clock))

        sides = await interleave_async(rounds, {"on": lambda: asks(with_it), "off": lambda: asks(without)})
        return compared("a turn with the loop, learning behind it (CPU)", sides["on"], "without", sides["off"], bar=1.1)


async def _timed(book: Cuebook, clock: FrozenClock) -> float:
    took = []
    for n in range(20):
        began = time.process_time()
        await book.ask(Ask(PLEASED[n % 7], "c", user="ann"))
        took.append(time.process_time() - began)
        clock.advance(_PAUSE_S)
    await book.work()
    return statistics.median(took)
