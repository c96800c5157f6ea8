"""Tests of background jobs: the list is complete, jobs and due work can be pickled, and one loop runs them all."""

import asyncio
import importlib
import pickle
import pkgutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from turn_helpers import cue_on, open_with_memory

from cuebook import Ask, Cuebook
from cuebook.engine import jobs
from cuebook.engine.core.services import Services
from cuebook.engine.jobs import JOBS
from cuebook.engine.jobs.job import DueQuery, DueWork, Job, RunResult, run_due
from cuebook.errors import InvalidInput
from cuebook.records.memory import Scope
from cuebook.testing import FrozenClock
from hashing_embedder import HashingEmbedder

TEXTS = [f"My locker {n} is in corridor {n * 3}." for n in range(40)]


def test_the_list_contains_every_job_of_the_package_once() -> None:
    modules = [importlib.import_module(f"{jobs.__name__}.{each.name}") for each in pkgutil.iter_modules(jobs.__path__)]
    defined = {id(value) for module in modules for value in vars(module).values() if isinstance(value, Job)}
    assert defined == {id(job) for job in JOBS}
    names = [job.name for job in JOBS]
    assert len(names) == len(set(names)) == 14


@pytest.mark.parametrize("job", JOBS, ids=[job.name for job in JOBS])
def test_a_job_can_be_pickled(job: Job[int]) -> None:
    assert pickle.loads(pickle.dumps(job)) == job  # noqa: S301  # our own bytes


async def test_due_work_can_be_pickled(tmp_path: Path) -> None:
    clock, seen = FrozenClock(), set[str]()
    settings = {"retention__conversations_days": 1, "memory__sink": "sink.jsonl", "learning__observe": "all"}
    async with open_with_memory(tmp_path, clock, embedder=HashingEmbedder(), **settings) as cue:
        await cue.append("c1", [{"role": "user", "content": text} for text in TEXTS], user="ann")
        await cue.prompts.save("a", {"body": "x"})
        for _ in range(2):
            await cue.ask(Ask("This is terrible, nothing works and I hate it!!", "c2", user="ann"))
        clock.advance(100_000.0)
        for job in JOBS:
            for each in await job.due(cue.services, DueQuery()):
                assert pickle.loads(pickle.dumps(each)) == each  # noqa: S301  # our own bytes
                seen.add(job.name)
            await run_due(cue.services, job)
    assert seen >= {"compaction", "delivery", "sink", "optimizer", "retention", "audit", "embedding"}


# ---- The loop -------------------------------------------------------------------------------------------------------


class Queue:
    """A job on a list of numbers. Odd ones fail, and negative ones stay due."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = list(numbers)
        self.ran: list[int] = []
        self.limits: list[int] = []

    def job(self, batch_size: int = 3) -> Job[int]:
        return Job(name="queue", due=self.due, run=self.run, batch_size=batch_size)

    async def due(self, _: Services, query: DueQuery) -> list[DueWork[int]]:
        self.limits.append(query.limit)
        return [DueWork("t", f"number {each}", each) for each in self.numbers[: query.limit]]

    async def run(self, _: Services, __: Scope, number: int) -> bool:
        self.ran.append(number)
        if number % 2:
            msg = "odd"
            raise InvalidInput(msg)
        if number >= 0:
            self.numbers.remove(number)
        return number >= 0


@pytest.fixture
async def cue():
    async with cue_on() as handle:
        yield handle


async def test_every_piece_runs_once_and_failed_ones_do_not_block_others(
    cue: Cuebook, caplog: pytest.LogCaptureFixture
) -> None:
    queue = Queue([1, 3, 5, 7, -2, 2, 4, 6, 8])
    assert await run_due(cue.services, queue.job()) == RunResult(done=4, is_left=True)
    assert sorted(queue.ran) == [-2, 1, 2, 3, 4, 5, 6, 7, 8]
    assert queue.numbers == [1, 3, 5, 7, -2]
    assert "Background job queue failed for number 1: odd" in caplog.text


async def test_a_long_backlog_is_loaded_in_batches(cue: Cuebook) -> None:
    queue = Queue(range(0, 200, 2))
    assert await run_due(cue.services, queue.job()) == RunResult(done=100)
    assert max(queue.limits) == 3


async def test_a_job_stops_when_its_time_is_over(cue: Cuebook) -> None:
    queue = Queue([1, 3, 5, 7, 2, 4])
    assert await run_due(cue.services, queue.job(), patience_s=0.0) == RunResult(done=1, is_cut=True)
    assert queue.numbers == [1, 3, 5, 7, 4], "failed pieces take no time from the others"
    assert await run_due(cue.services, Queue([1, 3]).job(), patience_s=0.0) == RunResult(is_left=True)


async def test_a_failing_query_is_logged(cue: Cuebook, caplog: pytest.LogCaptureFixture) -> None:
    async def due(*_: object) -> list[DueWork[int]]:
        msg = "no database"
        raise InvalidInput(msg)

    assert await run_due(cue.services, Job(name="query", due=due, run=Queue([]).run)) == RunResult(is_left=True)
    assert "Background job query failed: no database" in caplog.text


async def test_failed_work_waits_and_is_logged_once(cue: Cuebook, caplog: pytest.LogCaptureFixture) -> None:
    queue = Queue([1])
    for _ in range(3):
        await run_due(cue.services, queue.job())
    assert queue.ran == [1]
    await run_due(cue.services, queue.job(), DueQuery(hurry=True))
    assert queue.ran == [1, 1]
    assert caplog.text.count("failed for number 1: odd") == 1


async def test_an_outage_of_the_database_is_logged_as_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with cue_on(tmp_path, worker=True) as cue:
        await cue.services.store.aclose()
        async with asyncio.timeout(60):
            while not caplog.records:
                cue.services.notify_jobs()
                await asyncio.sleep(0.01)
        [record] = caplog.records
        assert record.getMessage().startswith(
            "Background jobs wait for the database, and will continue by themselves: "
        )
        assert record.exc_info is None
