"""Tests of several processes that write to one database: no lock errors, no lost writes, despite kills."""

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest
from worker_process import WorkerProcess

from storage.audit import audit
from storage.databases import open_alone, wait_until_unused
from storage.hammer import RUN
from storage.history import Checker

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def processes():
    with ExitStack() as stack:
        yield [stack.enter_context(closing(WorkerProcess())) for _ in range(4)]


def settle(checker, url, now):
    async def look():
        store = open_alone(url)
        try:
            await checker.settle(store, now=now)
        finally:
            await store.aclose()

    wait_until_unused(url)
    asyncio.run(look())
    assert checker.problems == []
    assert audit(url, integrity=True) == []


def work(process, url, lines, *, name, runs=((0, 0),), **order):
    """Let one process do several runs, each killed after so many lines (0: it may finish).

    Writes under way at a kill are resolved at the end, so each run has its own conversations.
    """
    endings = []
    for run, after in runs:
        pid = process.order(url, name=f"{name}{run}-", run=run, abandons=name == "a", **order)
        endings.append(process.listen(lines.append, kill=pid, after=after))
    return endings


def run_together(processes, url, works):
    """Let processes work at once. Return the ends of their runs and a checker that received all lines."""
    lines = [[] for _ in works]
    with ThreadPoolExecutor(len(works)) as pool:
        futures = [
            pool.submit(work, process, url, output, **each)
            for process, output, each in zip(processes, lines, works, strict=False)
        ]
        endings = [future.result() for future in futures]
    checker = Checker()
    for output in lines:
        for line in output:
            checker.hear(line)
    return endings, checker


def test_two_processes_lose_nothing_and_raise_no_lock_errors(processes, new_database, record_fault):
    url = new_database()
    works = [{"name": name, "tasks": 4, "writes": 150} for name in "ab"]
    endings, checker = run_together(processes, url, works)
    assert endings == [[0], [0]]
    assert checker.counts["failed"] == 0
    settle(checker, url, RUN - 1)
    assert checker.counts["acknowledged"] > 1000
    record_fault("2-4 processes on one database", checker.counts, runs=2)


def test_one_process_is_killed_while_another_continues(processes, new_database, record_fault):
    url = new_database()
    killed = tuple((run, 40 + 30 * run) for run in range(6))
    works = [{"name": "a", "tasks": 2, "writes": 200}, {"name": "b", "tasks": 2, "writes": 9999, "runs": killed}]
    endings, checker = run_together(processes, url, works)
    assert endings == [[0], [-signal.SIGKILL] * 6]
    assert checker.counts["failed"] == 0
    settle(checker, url, 9 * RUN)
    record_fault("kill -9 while another process writes", checker.counts, runs=6)


def test_processes_create_a_store_at_the_same_time(processes, new_database, record_fault):
    for _ in range(12):
        url = new_database(tables=False)
        endings, checker = run_together(processes, url, [{"name": name, "tasks": 1, "writes": 3} for name in "abcd"])
        assert endings == [[0]] * 4
        settle(checker, url, RUN - 1)
        record_fault("2-4 processes on one database", checker.counts, runs=4)
