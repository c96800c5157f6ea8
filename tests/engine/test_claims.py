"""Tests of several workers on one database: each piece runs once, and tenants take turns."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from cuebook import Cuebook
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.job import DueQuery, DueWork, Job, in_turn
from cuebook.engine.jobs.worker import Worker
from cuebook.records.memory import Scope
from cuebook.storage.database.postgres_key import stored_key

SECRET = "a long secret"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def open_cue(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Cuebook]:
    """Return a function that opens one more Cuebook on the same database."""
    url = "c.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
        monkeypatch.setenv("CUEBOOK_KEY_SECRET", SECRET)
        stored_key(url, SECRET, new=bytes(32))
    (tmp_path / "cuebook.toml").write_text(f'[store]\nurl = "{url}"\n')
    return lambda: Cuebook.open(tmp_path, worker=False)


class Pieces:
    """A job on numbered pieces in memory. Each run waits, and is counted."""

    def __init__(self, count: int, *, tenants: int = 1, wait_s: float = 0.01) -> None:
        self.left = {n: f"t{n % tenants}" for n in range(count)}
        self.runs: Counter[int] = Counter()
        self.order: list[str] = []
        self.running = self.most = 0
        self.wait_s = wait_s
        self.is_running, self.is_done = asyncio.Event(), asyncio.Event()

    def job(self) -> Job[int]:
        return Job(name="pieces", due=self.due, run=self.run)

    async def due(self, _: Services, query: DueQuery) -> list[DueWork[int]]:
        return [DueWork(tenant, f"piece {n}", n) for n, tenant in self.left.items()][: query.limit]

    async def run(self, _: Services, scope: Scope, piece: int) -> bool:
        self.runs[piece] += 1
        self.order.append(scope.tenant)
        self.is_running.set()
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(self.wait_s)
        self.running -= 1
        found = self.left.pop(piece, None) is not None
        if not self.left:
            self.is_done.set()
        return found


async def test_two_workers_run_each_piece_once(open_cue: Callable[[], Cuebook]) -> None:
    pieces = Pieces(40)
    async with open_cue() as one, open_cue() as two:
        workers = [Worker(each.services, interval_s=0.1, jobs=[pieces.job()], concurrency=2) for each in (one, two)]
        for worker in workers:
            worker.start()
        async with asyncio.timeout(300):
            await pieces.is_done.wait()
        for worker in workers:
            await worker.stop(grace_s=5)
    assert set(pieces.runs.values()) == {1}
    assert len(pieces.runs) == 40
    assert pieces.most > 1


async def test_settle_waits_for_the_piece_of_another_worker(open_cue: Callable[[], Cuebook]) -> None:
    pieces = Pieces(1, wait_s=1.0)
    async with open_cue() as one, open_cue() as two:
        first, second = (Worker(each.services, interval_s=60.0, jobs=[pieces.job()]) for each in (one, two))
        await asyncio.to_thread(two.services.store.database.shared)  # it lets the other one know of itself
        working = asyncio.create_task(first.work())
        await pieces.is_running.wait()
        assert await second.settle(timeout_s=300.0) == {}
        assert (await working, pieces.runs) == (1, {0: 1})


async def test_a_stopped_worker_gives_its_piece_up(open_cue: Callable[[], Cuebook]) -> None:
    pieces = Pieces(1, wait_s=600.0)
    async with open_cue() as one, open_cue() as two:
        first, second = (
            Worker(each.services, interval_s=60.0, jobs=[pieces.job()], concurrency=2) for each in (one, two)
        )
        first.start()
        async with asyncio.timeout(300):
            await pieces.is_running.wait()
        assert await second.work() == 0
        pieces.wait_s = 0.0
        await first.stop(grace_s=0.1)
        assert await second.work() == 1


def test_due_work_comes_from_tenants_in_turn() -> None:
    due = [DueWork(tenant, "s", n) for n, tenant in enumerate("aaaabbc")]
    assert [each.tenant for each in in_turn(due)] == list("abcabaa")
    assert [each.work for each in in_turn(due) if each.tenant == "a"] == [0, 1, 2, 3]


async def test_a_busy_tenant_does_not_delay_others(open_cue: Callable[[], Cuebook]) -> None:
    async with open_cue() as cue:
        for tenant, count in (("busy", 30), ("quiet", 2)):
            for n in range(count):
                texts = [{"role": "user", "content": f"My locker {n} is in corridor {k}."} for k in range(2)]
                await cue.of(tenant).append(f"c{n}", texts, user="ann")
        store = cue.services.store
        changed = await store.tuning.changed(least=1, since=0.0, before=1e12, limit=10)
        assert [tenant for tenant, _ in changed].count("quiet") == 2
        assert [each.tenant for each in await store.vectors.due("m", limit=10)].count("quiet") == 2
