"""Tests of `cuebook worker`: it does the background work of a database, stops gracefully and answers /healthz."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from commands import CUEBOOK, cuebook, environment

from cuebook import Cuebook
from cuebook.app.workers import JobWorker
from cuebook.storage.database.postgres import stored_key

SECRET = {"CUEBOOK_KEY_SECRET": "a long secret"}


@pytest.fixture(params=["sqlite", "postgresql"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project whose background work only workers do."""
    url = "c.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
        monkeypatch.setenv(*next(iter(SECRET.items())))
        stored_key(url, SECRET["CUEBOOK_KEY_SECRET"], new=bytes(32))
    (tmp_path / "cuebook.toml").write_text(
        f'[store]\nurl = "{url}"\n[work]\nwhere = "workers"\n[memory]\nuser = true\n'
    )
    return tmp_path


async def fill(cue: Cuebook, conversations: int, posts: int = 40) -> None:
    """Store conversations long enough to be summarized."""
    for n in range(conversations):
        texts = [{"role": "user", "content": f"My locker {k} is in corridor {k * 3}."} for k in range(posts)]
        await cue.append(f"c{n}", texts, user=f"u{n}")


async def until(condition: Callable[[], object], *, within_s: float = 60.0) -> None:
    """Wait until an asynchronous condition is true."""
    async with asyncio.timeout(within_s):
        while not await condition():  # type: ignore[misc]  # noqa: ASYNC110  # another process changes it
            await asyncio.sleep(0.1)


@contextmanager
def worker_process(folder: Path, *arguments: str, **variables: str) -> Iterator[tuple[subprocess.Popen[str], dict]]:
    """Start a worker. Yield its process and what it printed when it was ready."""
    command = [CUEBOOK, "worker", "--json", "--port", "0", *arguments]
    env = environment(**SECRET, **variables)
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        printed = ""
        while not printed.endswith("}\n"):
            line = process.stdout.readline()
            assert line, "the worker ended"
            printed += line
        try:
            yield process, json.loads(printed)
        finally:
            process.kill()


async def test_only_workers_do_the_work(folder: Path) -> None:
    async with Cuebook.open(folder) as cue:
        await fill(cue, 2)
        assert cue.services.wakeup is not None
        await asyncio.sleep(0.5)
        assert set(await cue.settle(timeout=0)) >= {"compaction"}
        async with JobWorker(cue, concurrency=2) as worker:
            await until(lambda: _is_settled(cue))
            assert (await worker.health()).status == "alive"


async def _is_settled(cue: Cuebook) -> bool:
    return not await cue.settle(timeout=0)


async def test_a_worker_runs_the_named_jobs(folder: Path) -> None:
    async with Cuebook.open(folder) as cue:
        await fill(cue, 1)
        async with JobWorker(cue, concurrency=1, queues=["optimizer"]) as worker:
            assert worker.queues == ("optimizer",)
            await until(lambda: _is_tuned(cue))
        assert "compaction" in await cue.settle(timeout=0)


async def _is_tuned(cue: Cuebook) -> bool:
    return "optimizer" not in await cue.settle(timeout=0)


def test_an_unknown_job_is_refused(tmp_path: Path) -> None:
    done = cuebook("worker", "--queues", "compaction,dreams", cwd=tmp_path)
    assert (done.returncode, "Unknown queue 'dreams'. Available: compaction," in done.stderr) == (1, True)


@pytest.mark.slow
async def test_a_worker_process_answers_healthz_and_stops(folder: Path) -> None:
    async with Cuebook.open(folder) as cue:
        await fill(cue, 3)
        with worker_process(folder) as (process, printed):
            assert printed["concurrency"] == 4
            async with httpx.AsyncClient() as client:
                answer = await client.get(printed["health"])
            assert (answer.status_code, answer.json()["status"]) == (200, "alive")
            await until(lambda: _is_settled(cue))
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 20) == 0
