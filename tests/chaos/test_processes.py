"""Tests of several processes that write to one file: no lock errors, no lost writes, despite kills."""

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest
from worker_process import WorkerProcess

from cuebook.storage.store import sqlite_store
from storage.audit import audit
from storage.hammer import RUN
from storage.history import Checker

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def processes():
    with ExitStack() as stack:
        yield [stack.enter_context(closing(WorkerProcess())) for _ in range(4)]


def settle(checker, path, now):
    async def look():
        store = sqlite_store(str(path))
        try:
            await checker.settle(store, now=now)
        finally:
            await store.aclose()

    asyncio.run(look())
    assert checker.problems == []
    assert audit(str(path), integrity=True) == []


def work(process, path, lines, *, name, runs=((0, 0),), **order):
    """Let one process do several runs, each killed after so many lines (0: it may finish).

    Writes under way at a kill are resolved at the end, so each run has its own conversations.
    """
    endings = []
    for run, after in runs:
        pid = process.order(path, name=f"{name}{run}-", run=run, abandons=name == "a", **order)
        endings.append(process.listen(lines.append, kill=pid, after=after))
    return endings


def run_together(processes, path, works):
    """Let processes work at once. Return the ends of their runs and a checker that received all lines."""
    lines = [[] for _ in works]
    with ThreadPoolExecutor(len(works)) as pool:
        futures = [
            pool.submit(work, process, path, output, **each)
            for process, output, each in zip(processes, lines, works, strict=False)
        ]
        endings = [future.result() for future in futures]
    checker = Checker()
    for output in lines:
        for line in output:
            checker.hear(line)
    return endings, checker


def test_two_processes_lose_nothing_and_raise_no_lock_errors(processes, tmp_path):
    path = tmp_path / "cuebook.db"
    works = [{"name": name, "tasks": 4, "writes": 150} for name in "ab"]
    endings, checker = run_together(processes, path, works)
    assert endings == [[0], [0]]
    assert checker.counts["failed"] == 0
    settle(checker, path, RUN - 1)
    assert checker.counts["acknowledged"] > 1000


def test_one_process_is_killed_while_another_continues(processes, tmp_path):
    path = tmp_path / "cuebook.db"
    killed = tuple((run, 40 + 30 * run) for run in range(6))
    works = [{"name": "a", "tasks": 2, "writes": 200}, {"name": "b", "tasks": 2, "writes": 9999, "runs": killed}]
    endings, checker = run_together(processes, path, works)
    assert endings == [[0], [-signal.SIGKILL] * 6]
    assert checker.counts["failed"] == 0
    settle(checker, path, 9 * RUN)


def test_processes_create_a_store_at_the_same_time(processes, tmp_path):
    for n in range(12):
        path = tmp_path / f"cuebook-{n}.db"
        endings, checker = run_together(processes, path, [{"name": name, "tasks": 1, "writes": 3} for name in "abcd"])
        assert endings == [[0]] * 4
        settle(checker, path, RUN - 1)
