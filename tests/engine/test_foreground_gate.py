"""Tests of the foreground gate: calls have priority over background jobs, which do not starve."""

import asyncio
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from turn_helpers import cue_on

from cuebook import Ask, Cuebook, Posted
from cuebook.engine.core.scheduling import MAX_WAIT_S, ForegroundGate
from cuebook.engine.jobs.job import Job, run_due
from cuebook.engine.jobs.optimizer import OPTIMIZER
from cuebook.engine.jobs.worker import Worker
from hashing_embedder import HashingEmbedder


async def test_jobs_wait_until_the_last_waiting_call_is_served() -> None:
    gate = ForegroundGate()
    await gate.wait_until_free(60.0)  # nobody waits
    one, other = gate.begin(), gate.begin()
    work = asyncio.create_task(gate.wait_until_free(60.0))
    one.close()
    one.close()  # a call reported twice counts once
    await asyncio.sleep(0)
    assert (gate.count, work.done()) == (1, False)
    other.close()
    await work
    assert gate.count == 0


async def test_jobs_resume_after_a_time_limit() -> None:
    gate = ForegroundGate()
    gate.begin()
    await gate.wait_until_free(0.01)
    assert gate.count == 1


class _Counting(HashingEmbedder):
    """Record the number of waiting calls when a query is embedded."""

    cue: Cuebook
    noted: tuple[int, ...] = ()

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.noted += (self.cue.services.foreground.count,)
        return await super().embed(texts)


async def test_a_call_counts_as_waiting_until_its_turn_is_open(tmp_path: Path) -> None:
    embedder = _Counting()
    async with cue_on(tmp_path, embedder=embedder, worker=False) as cue:
        embedder.cue = cue
        reply = cue.stream(Ask("Where does the ferry leave?", "trip", user="mara"))
        await anext(reply)
        assert embedder.noted == (1,)
        assert cue.services.foreground.count == 0
        await reply.aclose()


async def test_the_optimizer_waits_before_each_conversation_and_completes_all(tmp_path: Path) -> None:
    async with cue_on(tmp_path, worker=False) as cue:
        for name in ("one", "other"):
            await cue.append(name, [Posted(sender="user", message=f"Question {n} of {name}?") for n in range(10)])
        over, began = cue.services.foreground.begin(), time.monotonic()  # a call waits the whole time
        assert (await run_due(cue.services, OPTIMIZER)).done == 2
        assert time.monotonic() - began >= 2 * MAX_WAIT_S
        over.close()
        assert await cue.settle(timeout=0) == {}


async def test_turns_that_end_together_trigger_one_check(tmp_path: Path) -> None:
    looks: list[float] = []

    async def due(*_: object) -> list[Any]:
        looks.append(time.monotonic())
        return []

    async def run(*_: object) -> bool:
        return True

    async with cue_on(tmp_path, worker=False) as cue:
        worker = Worker(cue.services, interval_s=60.0, jobs=[Job(name="look", due=due, run=run)])
        worker.start()
        cue.services.foreground.begin()  # never answered: background jobs continue anyway
        while len(looks) < 3:
            cue.services.notify_jobs()
            await asyncio.sleep(0.01)
        await worker.stop()
    between = [later - earlier for earlier, later in pairwise(looks)]
    assert min(between) >= 0.25
