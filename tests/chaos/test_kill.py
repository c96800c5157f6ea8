"""Tests of storage workers killed at every failpoint and at any moment: every acknowledged write is stored.

The suite runs a short version. The long one is scripts/chaos: CUEBOOK_CHAOS_KILLS=1000.
"""

import asyncio
import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest
from worker_process import WorkerProcess

from cuebook.storage.database.transaction import NAMES
from storage.audit import audit
from storage.databases import open_alone, wait_until_unused
from storage.hammer import RUN
from storage.history import Checker

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("CUEBOOK_CHAOS_KILLS", "10"))
#: Random kills are divided by SHARE, because a server is slower; LINES is the mean number of lines before a kill.
SHARE, LINES = {"sqlite": 1, "postgresql": 5}, {"sqlite": 350, "postgresql": 120}
#: A database is checked in full after each kill; a new one now and then keeps the check fast.
KILLS_PER_DATABASE = 25

#: The test of each failpoint. A name of NAMES that is missing here fails a test.
TESTED_HERE = (
    "append.begin", "append.stored", "open.begin", "open.stored", "checkpoint.stored", "close.begin", "close.stored",
    "commit.before", "commit.after", "expire.stored", "summary.begin", "summary.stored", "head.stored", "delete.stored",
)  # fmt: skip
TESTED_ELSEWHERE = {
    "outcome.folded": "tests/chaos/test_loop_kill.py",
    "reflect.read": "tests/chaos/test_reflection_kill.py",
    "reflect.made": "tests/chaos/test_reflection_kill.py",
    "stream.piece": "tests/chaos/test_turn_kill.py",
    "stream.ended": "tests/chaos/test_turn_kill.py",
    "compact.read": "tests/chaos/test_turn_kill.py",
    "compact.made": "tests/chaos/test_turn_kill.py",
    "migrate.statement": "tests/storage/test_migrations.py",
    "request.finish": "tests/engine/test_idempotency.py",
    "forget.begin": "tests/chaos/test_forget_kill.py",
    "forget.stored": "tests/chaos/test_forget_kill.py",
    "forget.mirror": "tests/chaos/test_forget_kill.py",
    "forget.log": "tests/chaos/test_forget_kill.py",
    "forget.signed": "tests/chaos/test_forget_kill.py",
}


@pytest.fixture(scope="module")
def process():
    process = WorkerProcess()
    yield process
    process.close()


class Database:
    """A database, the workers that wrote to it, and its expected contents."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.checker = Checker()
        self.run = 0

    def settle(self) -> None:
        """Open the database again and compare its contents."""

        async def compare() -> None:
            store = open_alone(self.url)
            try:
                await self.checker.settle(store, now=(self.run + 1) * RUN - 1)
            finally:
                await store.aclose()

        wait_until_unused(self.url)
        asyncio.run(compare())
        self.run += 1
        assert self.checker.problems == []
        assert audit(self.url, integrity=True) == []


def test_every_failpoint_is_tested():
    assert set(NAMES) == {*TESTED_HERE, *TESTED_ELSEWHERE}
    assert not set(TESTED_HERE) & set(TESTED_ELSEWHERE)
    for failpoint, test in TESTED_ELSEWHERE.items():
        assert failpoint in (ROOT / test).read_text("utf-8"), f"{failpoint} is not exercised by {test}"


@pytest.mark.timeout(600)
def test_a_kill_at_each_failpoint_loses_no_acknowledged_write(process, new_database, record_fault):
    database = Database(new_database())
    for failpoint in TESTED_HERE:
        for nth in (1, 4):
            process.order(database.url, run=database.run, failpoint=f"{failpoint}:kill@{nth}", writes=400)
            assert process.listen(database.checker.hear) == -signal.SIGKILL, f"{failpoint} was not passed {nth} times"
            database.settle()
    assert database.checker.counts["acknowledged"] > 100
    record_fault("kill -9 at a commit or failpoint", database.checker.counts, runs=2 * len(TESTED_HERE))


def test_an_error_at_each_failpoint_affects_nobody_else(process, new_database, record_fault):
    """A failed write raises an error unless it was stored already; the writer continues."""
    for failpoint in TESTED_HERE:
        database = Database(new_database(synced=False))  # nobody is killed, so disk durability does not matter
        database.checker.failures_stand = failpoint == "commit.after"
        process.order(database.url, run=database.run, failpoint=f"{failpoint}:raise@2", tasks=2, writes=100)
        assert process.listen(database.checker.hear) == 0
        assert database.checker.counts["failed"] > 0, f"{failpoint} was not passed"
        database.settle()
        record_fault("error at a commit or failpoint", database.checker.counts)


@pytest.mark.timeout(max(120, 3 * KILLS))
def test_a_kill_at_any_moment_loses_no_acknowledged_write(process, new_database, record_fault, database_kind):
    """Measures the published numbers: kills and acknowledged writes; none lost, duplicated or out of order."""
    kills = max(KILLS // SHARE[database_kind], min(KILLS, 10))
    dice = random.Random(KILLS)
    total: Counter[str] = Counter()
    killed = 0
    while killed < kills:
        # Half of the databases skip disk syncs, so that more kills hit Python code instead of an fsync.
        database = Database(new_database(synced=killed // KILLS_PER_DATABASE % 2 == 0))
        for _ in range(min(KILLS_PER_DATABASE, kills - killed)):
            pid = process.order(database.url, run=database.run, tasks=dice.choice((1, 4, 16)), writes=100_000)
            after = int(dice.expovariate(1 / LINES[database_kind]))
            assert process.listen(database.checker.hear, kill=pid, after=max(1, after)) == -signal.SIGKILL
            database.settle()
            killed += 1
        total += database.checker.counts
    record_fault("kill -9 at any moment", total, runs=killed)
