"""Tests of storage workers killed at every failpoint and at any moment: every acknowledged write is stored.

The suite runs a short version. The long one is scripts/chaos: CUEBOOK_CHAOS_KILLS=1000.
"""

import asyncio
import os
import random
import signal
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from worker_process import WorkerProcess

from cuebook.storage.database.transaction import NAMES
from cuebook.storage.store import sqlite_store
from storage.audit import audit
from storage.hammer import RUN
from storage.history import Checker

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("CUEBOOK_CHAOS_KILLS", "10"))
#: A file is checked in full after each kill; a new file now and then keeps the check fast.
KILLS_PER_FILE = 25

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


@pytest.fixture
def shared(tmp_path):
    """A folder in memory, if the machine has one."""
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield folder


class DatabaseFile:
    """A database file, the workers that wrote to it, and its expected contents."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checker = Checker()
        self.run = 0

    def settle(self) -> None:
        """Open the file again and compare its contents."""

        async def compare() -> None:
            store = sqlite_store(str(self.path))
            try:
                await self.checker.settle(store, now=(self.run + 1) * RUN - 1)
            finally:
                await store.aclose()

        asyncio.run(compare())
        self.run += 1
        assert self.checker.problems == []
        assert audit(str(self.path), integrity=True) == []


def test_every_failpoint_is_tested():
    assert set(NAMES) == {*TESTED_HERE, *TESTED_ELSEWHERE}
    assert not set(TESTED_HERE) & set(TESTED_ELSEWHERE)
    for failpoint, test in TESTED_ELSEWHERE.items():
        assert failpoint in (ROOT / test).read_text("utf-8"), f"{failpoint} is not exercised by {test}"


@pytest.mark.timeout(600)
def test_a_kill_at_each_failpoint_loses_no_acknowledged_write(process, tmp_path):
    database = DatabaseFile(tmp_path / "cuebook.db")
    for failpoint in TESTED_HERE:
        for nth in (1, 4):
            process.order(database.path, run=database.run, failpoint=f"{failpoint}:kill@{nth}", writes=400)
            assert process.listen(database.checker.hear) == -signal.SIGKILL, f"{failpoint} was not passed {nth} times"
            database.settle()
    assert database.checker.counts["acknowledged"] > 100


def test_an_error_at_each_failpoint_affects_nobody_else(process, shared):
    """A failed write raises an error unless it was stored already; the writer continues."""
    for failpoint in TESTED_HERE:
        database = DatabaseFile(
            Path(shared) / f"{failpoint}.db"
        )  # nobody is killed, so disk durability does not matter
        database.checker.failures_stand = failpoint == "commit.after"
        process.order(database.path, run=database.run, failpoint=f"{failpoint}:raise@2", writes=100)
        assert process.listen(database.checker.hear) == 0
        assert database.checker.counts["failed"] > 0, f"{failpoint} was not passed"
        database.settle()


@pytest.mark.timeout(max(120, 3 * KILLS))
def test_a_kill_at_any_moment_loses_no_acknowledged_write(process, tmp_path, shared, capsys):
    """Measures the published numbers: kills, acknowledged writes and posts; none lost, duplicated or out of order."""
    dice = random.Random(KILLS)
    total: Counter[str] = Counter()
    killed = 0
    while killed < KILLS:
        # Half of the files skip disk syncs, so that more kills hit Python code instead of an fsync.
        folder = Path(shared) if killed // KILLS_PER_FILE % 2 else tmp_path
        database = DatabaseFile(folder / f"cuebook-{killed}.db")
        for _ in range(min(KILLS_PER_FILE, KILLS - killed)):
            pid = process.order(database.path, run=database.run, tasks=dice.choice((1, 4, 16)), writes=100_000)
            after = int(dice.expovariate(1 / 350))
            assert process.listen(database.checker.hear, kill=pid, after=max(1, after)) == -signal.SIGKILL
            database.settle()
            killed += 1
        total += database.checker.counts
        database.path.unlink()
    with capsys.disabled():
        if KILLS > 10:
            print(  # noqa: T201 - what scripts/chaos is for
                f"\n{killed:,} kills, {total['acknowledged']:,} acknowledged writes, {total['posts']:,} acknowledged"
                f" posts: 0 lost, 0 doubled, 0 out of order, 0 gaps ({total['unacknowledged']:,} writes were under way,"
                f" {total['stored all the same']:,} of them stood whole, the others not at all)"
            )
