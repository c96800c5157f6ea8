"""Tests of `cuebook worker`: it does the background work of a database, stops gracefully and answers /healthz."""

import asyncio
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from commands import CUEBOOK, cuebook, environment
from upstream import chunk, whole

from cuebook import Ask, Cuebook
from cuebook.app.setup.compose import database_of
from cuebook.app.setup.database import check_database
from cuebook.app.workers import JobWorker
from cuebook.config import SERVERS
from cuebook.records.memory import Scope
from cuebook.storage.database.postgres import upgrade
from cuebook.storage.database.postgres_key import stored_key

SECRET = {"CUEBOOK_KEY_SECRET": "a long secret"}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
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


async def fill(cue: Cuebook, conversations: int, posts: int = 40, prefix: str = "c") -> None:
    """Store conversations long enough to be summarized."""
    for n in range(conversations):
        texts = [{"role": "user", "content": f"My locker {k} is in corridor {k * 3}."} for k in range(posts)]
        await cue.append(f"{prefix}{n}", texts, user=f"u{n}")


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
        await asyncio.sleep(0.5)
        assert set(await cue.settle(timeout=0)) >= {"compaction"}
        if database_of(cue.config).startswith(SERVERS):
            [note] = (await asyncio.to_thread(check_database, cue.config)).notes
            assert "Background jobs wait (compaction" in note
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
    empty = cuebook("worker", "--queues", "", cwd=tmp_path)
    assert (empty.returncode, "names no job" in empty.stderr) == (1, True)
    assert (done.returncode, "Unknown job 'dreams'. Available: compaction," in done.stderr) == (1, True)


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
            assert await asyncio.to_thread(process.wait, 60) == 0


# ---- wake-up and failures -------------------------------------------------------------------------------------------


@pytest.fixture
def on_postgres(folder: Path, request: pytest.FixtureRequest) -> str:
    """Return the URL of the project's PostgreSQL database. Workers look for work once in ten minutes."""
    file = folder / "cuebook.toml"
    file.write_text(file.read_text().replace("[work]", "[work]\ninterval_s = 600\n"))
    return request.getfixturevalue("postgres_url")


def run_statement(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


def one_value(url: str, query: str) -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query).fetchone()
        return row and row[0]


@pytest.mark.parametrize("folder", ["postgresql"], indirect=True)
@pytest.mark.slow
async def test_a_write_wakes_a_worker_on_another_machine(folder: Path, on_postgres: str) -> None:
    async with Cuebook.open(folder) as cue, Cuebook.open(folder) as other, JobWorker(cue, concurrency=1):
        await until(lambda: _value(on_postgres, "SELECT count(*) > 0 FROM cuebook_queue.procrastinate_workers"))
        await until(lambda: _value(on_postgres, "SELECT count(*) = 0 FROM cuebook_queue.procrastinate_jobs"))
        await asyncio.sleep(1.0)
        await fill(other, 1)
        await until(lambda: _is_settled(other))


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["postgresql"], indirect=True)
async def test_without_the_queue_work_is_done_later(folder: Path, on_postgres: str) -> None:
    file = folder / "cuebook.toml"
    file.write_text(file.read_text().replace("interval_s = 600", "interval_s = 1"))
    async with Cuebook.open(folder) as cue, Cuebook.open(folder) as other, JobWorker(cue, concurrency=2):
        await until(lambda: _value(on_postgres, "SELECT count(*) > 0 FROM cuebook_queue.procrastinate_workers"))
        for name, what in (("table", "TABLE cuebook_queue.procrastinate_jobs"), ("all", "SCHEMA cuebook_queue")):
            await asyncio.to_thread(run_statement, on_postgres, f"DROP {what} CASCADE")  # the queue's sessions go on
            await fill(other, 2, prefix=name)
            await other.ask(Ask("What is in my locker?", name, user="ann"))
            await until(lambda: _is_settled(other))
        assert (await asyncio.to_thread(upgrade, on_postgres))[1]
        assert one_value(on_postgres, "SELECT to_regclass('cuebook_queue.procrastinate_jobs') IS NOT NULL")


async def _value(url: str, query: str) -> object:
    return await asyncio.to_thread(one_value, url, query)


class SlowModel:
    """A model server. It answers with an empty summary, or never while `hangs` is true."""

    def __init__(self) -> None:
        self.hangs = True
        self.calls = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        body = await reader.readexactly(int(length[1]) if length else 0)
        self.calls += 1
        try:
            if self.hangs:
                await reader.read()  # until the caller is gone
                return
            kinds = ("facts", "preferences", "people", "projects", "decisions", "open_loops", "todo", "tags")
            memory: dict[str, list[str]] = {kind: [] for kind in kinds}
            content = json.dumps({"summary_markdown": "They talked about lockers.", "memory_json": memory})
            answer = whole(content)
            kind, data = b"application/json", json.dumps(answer).encode()
            if b'"stream":true' in body.replace(b" ", b""):
                kind = b"text/event-stream"
                data = chunk({"content": content}) + chunk({}, finish="stop") + b"data: [DONE]\n\n"
            size = b"content-length: %d\r\n" % len(data)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: " + kind + b"\r\n" + size + b"\r\n" + data)
            await writer.drain()
        finally:
            writer.close()


@pytest.mark.slow
async def test_the_claims_of_a_killed_worker_are_taken_over(folder: Path) -> None:
    model = SlowModel()
    server = await asyncio.start_server(model, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    file = folder / "cuebook.toml"
    file.write_text(
        file.read_text().replace("[work]", '[work]\nmodel = "model"')
        + f'[model]\nprovider = "openai"\nname = "m"\nbase_url = "http://127.0.0.1:{port}/v1"\n'
    )
    async with server, Cuebook.open(folder) as cue:
        await fill(cue, 12)
        with worker_process(folder, "--concurrency", "8") as (process, _):
            await until(lambda: _are(model, 8))
            process.kill()
            await asyncio.to_thread(process.wait)
        model.hangs = False
        killed = time.monotonic()
        with worker_process(folder, "--concurrency", "8") as (process, _):
            await until(lambda: _is_settled(cue), within_s=120)  # their leases take 30 s
            took = time.monotonic() - killed
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 60) == 0
        print(f"all work done {took:.1f} s after the kill")  # noqa: T201
        assert [mark > 0 for mark in (await cue.conversations.marks()).values()] == [True] * 12


async def _are(model: SlowModel, calls: int) -> bool:
    return model.calls >= calls


@pytest.mark.slow
async def test_a_suspended_worker_overwrites_nothing(folder: Path) -> None:
    file = folder / "cuebook.toml"
    file.write_text(file.read_text().replace("[work]", "[work]\nlease_s = 2"))
    async with Cuebook.open(folder) as cue:
        await fill(cue, 1)
        with worker_process(folder, "--queues", "compaction", CUEBOOK_FAILPOINT="compact.made:stop") as (zombie, _):
            await until(lambda: _is_suspended(zombie.pid))
            with worker_process(folder):
                await until(lambda: _is_settled(cue))
            before = await cue.services.store.summary(Scope(), "c0")
            zombie.send_signal(signal.SIGCONT)
            await asyncio.sleep(2.0)
            zombie.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(zombie.wait, 60) == 0
        assert await cue.services.store.summary(Scope(), "c0") == before
        assert await cue.settle(timeout=30) == {}


async def _is_suspended(pid: int) -> bool:
    return " T " in await asyncio.to_thread(Path(f"/proc/{pid}/stat").read_text)


@pytest.mark.slow
async def test_a_tenant_with_little_work_does_not_wait_for_a_busy_one(folder: Path) -> None:
    async with Cuebook.open(folder) as cue:
        busy, quiet = cue.of("busy"), cue.of("quiet")
        await fill(busy, 40)
        await fill(quiet, 1, posts=38)
        async with JobWorker(cue, concurrency=2, queues=["compaction"]):
            await until(lambda: _is_summarized(quiet))
            summarized = [mark > 0 for mark in (await busy.conversations.marks()).values()]
            assert summarized.count(False) > 10
            await until(lambda: _is_summarized(busy))


async def _is_summarized(cue: Cuebook) -> bool:
    return all((await cue.conversations.marks()).values())
