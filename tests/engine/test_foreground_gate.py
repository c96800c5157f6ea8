"""Who waits for a first token goes before the work behind replies, which stands back a while and does not starve."""

import asyncio
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from stage import cue_on

from cuebook import Ask, Cuebook, Posted
from cuebook.engine.core.desk import Chore
from cuebook.engine.core.foreground_gate import STANDS_BACK_S, Urgent
from cuebook.engine.jobs.optimizer import Tuner
from cuebook.testing.embedder import HashingEmbedder


async def test_standing_back_ends_with_the_last_who_waits() -> None:
    urgent = Urgent()
    await urgent.stand_back(60.0)  # for nobody
    one, other = urgent.begin(), urgent.begin()
    work = asyncio.create_task(urgent.stand_back(60.0))
    one()
    one()  # said twice it counts once
    await asyncio.sleep(0)
    assert (urgent.count, work.done()) == (1, False)
    other()
    await work
    assert urgent.count == 0


async def test_standing_back_ends_by_itself() -> None:
    urgent = Urgent()
    urgent.begin()
    await urgent.stand_back(0.01)
    assert urgent.count == 1


class _Counting(HashingEmbedder):
    """Notes how many wait for a first token when a query's vector is made."""

    cue: Cuebook
    noted: tuple[int, ...] = ()

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.noted += (self.cue.desk.urgent.count,)
        return await super().embed(texts)


async def test_a_turn_is_waited_for_until_it_is_open(tmp_path: Path) -> None:
    embedder = _Counting()
    async with cue_on(tmp_path, embedder=embedder, worker=False) as cue:
        embedder.cue = cue
        reply = cue.stream(Ask("Where does the ferry leave?", "trip", user="mara"))
        await anext(reply)
        assert embedder.noted == (1,)
        assert cue.desk.urgent.count == 0
        await reply.aclose()


async def test_the_optimizer_stands_back_before_each_conversation_and_runs_for_all_of_them(tmp_path: Path) -> None:
    async with cue_on(tmp_path, worker=False) as cue:
        for name in ("one", "other"):
            await cue.append(name, [Posted(sender="user", message=f"Question {n} of {name}?") for n in range(10)])
        over, began = cue.desk.urgent.begin(), time.monotonic()  # somebody waits all the while
        await Tuner(interval_s=120.0).keep(cue.desk)
        assert time.monotonic() - began >= 2 * STANDS_BACK_S
        over()
        assert await cue.settle(timeout=0) == {}


async def test_turns_that_end_together_are_one_reason_to_look(tmp_path: Path) -> None:
    looks: list[float] = []

    async def look() -> None:
        looks.append(time.monotonic())

    async def due() -> int:
        return 0

    async with cue_on(tmp_path, worker=True) as cue:
        cue.desk.chores[:] = [Chore(name="look", run=look, due=due)]
        cue.desk.urgent.begin()  # and never answered: the work behind goes on
        while len(looks) < 3:
            cue.desk.stirred()
            await asyncio.sleep(0.01)
    between = [later - earlier for earlier, later in pairwise(looks)]
    assert min(between) >= 0.25
