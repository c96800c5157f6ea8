"""Several real processes write to one file at once: nobody hears of a lock, nothing is lost, whoever dies."""

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest
from nursery import Nursery

from cuebook.storage.sqlite.store import SqliteStore
from storage.audit import audit
from storage.hammer import RUN
from storage.history import Checker

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def nurseries():
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Nursery())) for _ in range(4)]


def settle(checker, path, now):
    async def look():
        store = SqliteStore(str(path))
        try:
            await checker.settle(store, now=now)
        finally:
            await store.aclose()

    asyncio.run(look())
    assert checker.problems == []
    assert audit(str(path), integrity=True) == []


def work(nursery, path, lines, *, name, runs=((0, 0),), **order):
    """Let one process work, a run after another, each killed after so many lines (0: it may finish).

    What was under way when a run was killed is found out at the end, so each has conversations of its own.
    """
    endings = []
    for run, after in runs:
        pid = nursery.order(path, name=f"{name}{run}-", run=run, abandons=name == "a", **order)
        endings.append(nursery.listen(lines.append, kill=pid, after=after))
    return endings


def together(nurseries, path, works):
    """Let processes work at once; answers with how their runs ended, and a checker that heard all of it."""
    lines = [[] for _ in works]
    with ThreadPoolExecutor(len(works)) as pool:
        futures = [
            pool.submit(work, nursery, path, heard, **each)
            for nursery, heard, each in zip(nurseries, lines, works, strict=False)
        ]
        endings = [future.result() for future in futures]
    checker = Checker()
    for heard in lines:
        for line in heard:
            checker.hear(line)
    return endings, checker


def test_two_processes_at_once_lose_nothing_and_hear_of_no_lock(nurseries, tmp_path):
    path = tmp_path / "cuebook.db"
    works = [{"name": name, "tasks": 4, "writes": 150} for name in "ab"]
    endings, checker = together(nurseries, path, works)
    assert endings == [[0], [0]]
    assert checker.counts["failed"] == 0
    settle(checker, path, RUN - 1)
    assert checker.counts["acknowledged"] > 1000


def test_one_process_is_killed_while_another_goes_on(nurseries, tmp_path):
    path = tmp_path / "cuebook.db"
    killed = tuple((run, 40 + 30 * run) for run in range(6))
    works = [{"name": "a", "tasks": 2, "writes": 200}, {"name": "b", "tasks": 2, "writes": 9999, "runs": killed}]
    endings, checker = together(nurseries, path, works)
    assert endings == [[0], [-signal.SIGKILL] * 6]
    assert checker.counts["failed"] == 0
    settle(checker, path, 9 * RUN)


def test_processes_that_begin_a_store_at_the_same_time(nurseries, tmp_path):
    for n in range(12):
        path = tmp_path / f"cuebook-{n}.db"
        endings, checker = together(nurseries, path, [{"name": name, "tasks": 1, "writes": 3} for name in "abcd"])
        assert endings == [[0]] * 4
        settle(checker, path, RUN - 1)
