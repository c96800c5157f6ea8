"""PostgreSQL benchmark: turns compared with SQLite, two server processes with one, and the memories of many owners."""

import asyncio
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from bench.measure import AsyncRound, Figure, Run, Sample, compared, interleave_async, shown
from bench.memory_rows import MODEL, fill, vectors
from bench.peers import install
from bench.random_text import TextGenerator
from bench.stores import drafts
from bench.turn_process import AT_ONCE, project, questions
from cuebook import Ask, Cuebook
from cuebook.app.setup import embedded_postgres
from cuebook.interfaces.store import Batch, MemoryQuery
from cuebook.records.memory import Dense, Place, Scope
from cuebook.storage.database.postgres import upgrade
from cuebook.storage.database.postgres_key import stored_key
from cuebook.storage.database.transaction import Transaction
from cuebook.storage.search import SearchCache
from cuebook.storage.store import Store, open_store
from cuebook.storage.vectors import scope_of_place

_TURNS = 8  # of each conversation
_PER_PROCESS = 80
#: The simulated network and database: seconds of a message, seconds of a commit, cores.
_NETWORK = {"trip": 0.000_3, "commit": 0.002, "cores": 16}


def scale(run: Run) -> Iterator[Figure]:
    """Measure on CUEBOOK_DATABASE_URL, or on a server that is started for the run."""
    os.environ.setdefault("CUEBOOK_KEY_SECRET", secrets.token_hex(32))
    with _server(os.environ.pop("CUEBOOK_DATABASE_URL", "")) as server:
        with _database(server) as url:
            figures, app = asyncio.run(_turns(run, url))
            yield from figures
            figures, database = _processes(run, url)
            yield from figures
        if run.peers:
            yield from _simulated(run, {"app": app, "database": database, "messages": 33, **_NETWORK})
        with _database(server) as url:
            yield from asyncio.run(_memories(run, url))


@contextmanager
def _server(url: str) -> Iterator[str]:
    """Yield the URL of a server: the given one, or one in a folder that its own user may enter."""
    if url:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="cuebook-bench-") as folder:
        Path(folder).chmod(0o755)
        try:
            yield embedded_postgres.start(Path(folder) / "data").url or ""
        finally:
            embedded_postgres.stop(Path(folder) / "data")


@contextmanager
def _database(server: str) -> Iterator[str]:
    """Yield the URL of a new database with empty tables and a key."""
    name = f"bench{secrets.token_hex(6)}"
    url = urlsplit(server)._replace(path=f"/{name}").geturl()
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        upgrade(url)
        stored_key(url, os.environ["CUEBOOK_KEY_SECRET"], new=secrets.token_bytes(32))
        yield url
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


# ---- turns ----------------------------------------------------------------------------------------------------------


async def _turns(run: Run, url: str) -> tuple[list[Figure], float]:
    """Compare turns, appends and windows of one client with those on SQLite. Return also the CPU of a turn."""
    cpu: dict[str, list[float]] = {}
    async with _projects(url, str(run.disk / "scale.db")) as cues:
        sides = {
            f"{what} on {name}": do
            for name, cue in cues.items()
            for what, do in _one_client(cue, cpu.setdefault(name, [])).items()
        }
        took = await interleave_async(run.rounds(20), sides)
    figures = [
        compared(what, took[f"{what} on PostgreSQL"], "on SQLite", took[f"{what} on SQLite"], bar=3)
        for what in ("a turn", "append a post", "read and plan a window")
    ]
    spent = {name: Sample(tuple(each[1:])) for name, each in cpu.items()}
    figures.append(compared("a turn, CPU of the process", spent["PostgreSQL"], "on SQLite", spent["SQLite"]))
    return figures, spent["PostgreSQL"].median


@asynccontextmanager
async def _projects(url: str, path: str) -> AsyncIterator[dict[str, Cuebook]]:
    with tempfile.TemporaryDirectory() as folder:
        async with project(url, folder) as one, project(path, folder) as other:
            yield {"PostgreSQL": one, "SQLite": other}


def _one_client(cue: Cuebook, cpu: list[float]) -> dict[str, AsyncRound]:
    """Return rounds that give the median seconds of turns, appends and windows; each round has a new conversation."""
    store, texts, numbers = cue.services.store, questions(), count()

    async def turns() -> float:
        took, spent, conversation = [], [], f"turns{next(numbers)}"
        for _ in range(_TURNS):
            began, used = time.perf_counter(), time.process_time()
            await cue.ask(Ask(next(texts), conversation))
            took.append(time.perf_counter() - began)
            spent.append(time.process_time() - used)
        cpu.append(statistics.median(spent))
        return statistics.median(took)

    async def appends() -> float:
        conversation, took = f"posts{next(numbers)}", []
        for number, draft in enumerate(drafts(_TURNS, 23, prefix=secrets.token_hex(4))):
            batch = Batch(conversation=conversation, drafts=(draft,), now=draft.created_at, begins=number == 0)
            took.append(await _seconds(store.append(Scope(), batch)))
        return statistics.median(took)

    async def windows() -> float:
        ask = Ask(next(texts), "turns0")
        return statistics.median([await _seconds(cue.assemble(ask)) for _ in range(_TURNS)])

    return {"a turn": turns, "append a post": appends, "read and plan a window": windows}


async def _seconds(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


# ---- processes ------------------------------------------------------------------------------------------------------


class _Process:
    """A process that runs turns."""

    def __init__(self, url: str) -> None:
        command = [sys.executable, "-m", "bench.turn_process", url]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.read()

    def start(self, turns: int) -> None:
        """Let it run some turns."""
        print(turns, file=self._child.stdin, flush=True)

    def read(self) -> list[float]:
        """Wait for its turns, and return their wall and CPU seconds."""
        line = self._child.stdout.readline() if self._child.stdout else ""
        return [] if line.strip() == "ready" else [float(each) for each in line.split()]

    def close(self) -> None:
        """End it."""
        self._child.communicate()


def _processes(run: Run, url: str) -> tuple[list[Figure], float]:
    """Compare two processes with one, each with some conversations. Return also the CPU of the database for a turn."""
    processes = [_Process(url), _Process(url)]
    rates: dict[int, list[float]] = {1: [], 2: []}
    cpu: dict[int, list[float]] = {1: [], 2: []}
    database = []
    for number in range(run.rounds(10) + 1):
        for many in (1, 2) if number % 2 else (2, 1):
            before, began = _children_cpu(url), time.perf_counter()
            for each in processes[:many]:
                each.start(_PER_PROCESS)
            spent = sum(each.read()[1] for each in processes[:many])
            rates[many].append(time.perf_counter() - began)
            cpu[many].append(spent / (many * _PER_PROCESS))
            database.append((_children_cpu(url) - before) / (many * _PER_PROCESS))
    for each in processes:
        each.close()
    one, two = (Sample(tuple(seconds / many / _PER_PROCESS for seconds in rates[many][1:])) for many in (1, 2))
    both = [Sample(tuple(each[1:])) for each in cpu.values()]
    spent_there = statistics.median(database[2:])
    note = f"{AT_ONCE} conversations each; the server of the database uses {shown(spent_there)} CPU"
    return [
        compared("a turn, two processes", two, "one process", one, note=note),
        compared("CPU of a turn, two processes", both[1], "one process", both[0]),
    ], spent_there


def _children_cpu(url: str) -> float:
    """Return the CPU seconds of a local server's processes for this database, 0 if they cannot be read."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database()").fetchall()
    schedules = (Path(f"/proc/{pid}/schedstat") for (pid,) in rows)
    return sum(int(each.read_text().split()[0]) for each in schedules if each.exists()) / 1e9


def _simulated(run: Run, times: dict[str, float]) -> Iterator[Figure]:
    """Simulate many servers on one database from the times of this run."""
    python = install(run.disk / "simpy", "simpy")
    program = str(Path(__file__).with_name("peer_simpy.py"))
    if python is None:
        yield Figure("servers, simulated", "SimPy cannot be installed")
        return
    done = subprocess.run([python, program, json.dumps(times)], capture_output=True, text=True, check=True)
    for servers, rate, seconds in json.loads(done.stdout):
        yield Figure(f"{servers:,} servers, simulated", f"{rate:,.0f}/s", note=f"turns; a turn takes {shown(seconds)}")


# ---- memories -------------------------------------------------------------------------------------------------------


async def _memories(run: Run, url: str) -> list[Figure]:
    """Search the memories of a small and of a large owner among those of many."""
    import numpy as np

    large, owners = (20_000, 80) if run.quick else (100_000, 900)
    fill(url, [large, *[1_000] * owners])
    store, dice = open_store(url), np.random.default_rng(11)
    same: list[bool] = []
    figures = []
    sizes = {"u1": 1_000, "u0": large}
    for owner, held in sizes.items():
        for what, clear, words in (("warm", False, True), ("new process", True, True), ("vectors only", False, False)):
            took = list[float]()
            for _ in range(run.rounds(20) if held == 1_000 else 6):
                if clear:
                    store.cache.matrices, store.cache.words = SearchCache().matrices, SearchCache().words
                vector = vectors(dice, 1)[0]
                dense = Dense(MODEL, vector.tobytes(), 0.5)
                text = f"What do you know about {' and '.join(TextGenerator(len(took)).rare(3))}?" if words else ""
                query, place = MemoryQuery(text=text, dense=dense), Place("user", owner)
                took.append(await _seconds(store.memories.find(Scope(), [place], query)))
            if what == "warm":
                same.append(await _exact(store, owner, held, dense))
            name = f"{held:,} memories among {large + 1_000 * owners:,}, {what}"
            bar = 0.010 if held == 1_000 else 0.100
            median = statistics.median(took[1:])
            figures.append(Figure(name, shown(median), "target", median / bar, bar=1))
    figures.append(Figure("the ten closest are those of an exact search", str(all(same))))
    await store.aclose()
    return figures


async def _exact(store: Store, owner: str, held: int, dense: Dense) -> bool:
    """Return whether a search finds the ten vectors with the highest product."""
    import numpy as np

    scope = scope_of_place(Place("user", owner))

    def look(transaction: Transaction) -> tuple[list[int], list[bytes]]:
        within = transaction.within(Scope())
        close: Any = store.cache.matrices.close(within, scope, dense)
        rows = within.run("vector_behind", scope=scope, model=MODEL, after=0)
        return close.best(10, [(1, held)]), [body for _, body in rows]

    found, bodies = await store.database.read(look)
    products = np.frombuffer(b"".join(bodies), "<f4").reshape(held, -1) @ np.frombuffer(dense.vector, "<f4")
    return set(found) == {int(each) + 1 for each in np.argsort(-products)[:10]}
