"""Workers are killed at every named place and at any moment; whatever they were told was stored is stored.

The short slice is a part of the suite. The long one is scripts/chaos: CUEBOOK_CHAOS_KILLS=1000.
"""

import asyncio
import os
import random
import signal
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from nursery import Nursery

from cuebook.storage import failpoints
from cuebook.storage.sqlite.store import SqliteStore
from storage.audit import audit
from storage.hammer import RUN
from storage.history import Checker

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("CUEBOOK_CHAOS_KILLS", "10"))
#: A file is checked in full after each kill; a fresh one now and then keeps that quick.
KILLS_PER_FILE = 25

#: Where each place is exercised. A name of failpoints.NAMES that is missing here fails a test.
HERE = (
    "append.begin", "append.stored", "open.begin", "open.stored", "checkpoint.stored", "close.begin", "close.stored",
    "commit.before", "commit.after", "expire.stored", "summary.begin", "summary.stored", "head.stored", "delete.stored",
)  # fmt: skip
ELSEWHERE = {
    "outcome.folded": "tests/chaos/test_loop_kill.py",
    "reflect.read": "tests/chaos/test_reflection_kill.py",
    "reflect.made": "tests/chaos/test_reflection_kill.py",
    "stream.piece": "tests/chaos/test_turn_kill.py",
    "stream.ended": "tests/chaos/test_turn_kill.py",
    "compact.read": "tests/chaos/test_turn_kill.py",
    "compact.made": "tests/chaos/test_turn_kill.py",
    "migrate.statement": "tests/storage/test_migrations.py",
    "forget.begin": "tests/chaos/test_forget_kill.py",
    "forget.stored": "tests/chaos/test_forget_kill.py",
    "forget.mirror": "tests/chaos/test_forget_kill.py",
    "forget.log": "tests/chaos/test_forget_kill.py",
    "forget.signed": "tests/chaos/test_forget_kill.py",
}


@pytest.fixture(scope="module")
def nursery():
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def shared(tmp_path):
    """A folder in memory, if there is such a place."""
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield folder


class Fate:
    """A file, the workers that wrote to it, and what must be in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checker = Checker()
        self.run = 0

    def settle(self) -> None:
        """Open the file again and compare."""

        async def look() -> None:
            store = SqliteStore(str(self.path))
            try:
                await self.checker.settle(store, now=(self.run + 1) * RUN - 1)
            finally:
                await store.aclose()

        asyncio.run(look())
        self.run += 1
        assert self.checker.problems == []
        assert audit(str(self.path), integrity=True) == []


def test_every_place_is_exercised():
    assert set(failpoints.NAMES) == {*HERE, *ELSEWHERE}
    assert not set(HERE) & set(ELSEWHERE)
    for place, test in ELSEWHERE.items():
        assert place in (ROOT / test).read_text("utf-8"), f"{place} is not exercised by {test}"


@pytest.mark.timeout(600)
def test_killed_at_each_place_nothing_acknowledged_is_lost(nursery, tmp_path):
    fate = Fate(tmp_path / "cuebook.db")
    for place in HERE:
        for nth in (1, 4):
            nursery.order(fate.path, run=fate.run, failpoint=f"{place}:kill@{nth}", writes=400)
            assert nursery.listen(fate.checker.hear) == -signal.SIGKILL, f"{place} was not passed {nth} times"
            fate.settle()
    assert fate.checker.counts["acknowledged"] > 100


def test_an_error_at_each_place_harms_nobody_else(nursery, shared):
    """What fails is refused with an error, unless it was stored already; the writer goes on."""
    for place in HERE:
        fate = Fate(Path(shared) / f"{place}.db")  # nobody is killed: the disk has no part in it
        fate.checker.failures_stand = place == "commit.after"
        nursery.order(fate.path, run=fate.run, failpoint=f"{place}:raise@2", writes=100)
        assert nursery.listen(fate.checker.hear) == 0
        assert fate.checker.counts["failed"] > 0, f"{place} was not passed"
        fate.settle()


@pytest.mark.timeout(max(120, 3 * KILLS))
def test_killed_at_any_moment_nothing_acknowledged_is_lost(nursery, tmp_path, shared, capsys):
    """Published figure: kills, acknowledged writes and posts; lost, doubled, out of order: none."""
    dice = random.Random(KILLS)
    total: Counter[str] = Counter()
    killed = 0
    while killed < KILLS:
        # Half of the files cost no disk, so that many are killed in the middle of Python and not of an fsync.
        folder = Path(shared) if killed // KILLS_PER_FILE % 2 else tmp_path
        fate = Fate(folder / f"cuebook-{killed}.db")
        for _ in range(min(KILLS_PER_FILE, KILLS - killed)):
            pid = nursery.order(fate.path, run=fate.run, tasks=dice.choice((1, 4, 16)), writes=100_000)
            after = int(dice.expovariate(1 / 350))
            assert nursery.listen(fate.checker.hear, kill=pid, after=max(1, after)) == -signal.SIGKILL
            fate.settle()
            killed += 1
        total += fate.checker.counts
        fate.path.unlink()
    with capsys.disabled():
        if KILLS > 10:
            print(  # noqa: T201 - what scripts/chaos is for
                f"\n{killed:,} kills, {total['acknowledged']:,} acknowledged writes, {total['posts']:,} acknowledged"
                f" posts: 0 lost, 0 doubled, 0 out of order, 0 gaps ({total['unacknowledged']:,} writes were under way,"
                f" {total['stored all the same']:,} of them stood whole, the others not at all)"
            )
