"""PostgreSQL dies under load: no acknowledged write is lost or stored twice, and writes go on with the next server."""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from cuebook.app.setup.embedded_postgres import package, start, status, stop
from cuebook.errors import BackendError, Conflict
from cuebook.records.memory import Scope
from cuebook.storage.database.postgres import upgrade
from cuebook.storage.store import Store, open_store
from storage.contract.posts import say
from storage.history import losses
from storage.makers import draft

WRITERS = 6
SCOPE = Scope(user="ann")
#: The system user of a server that root starts.
USER = "pgserver" if os.geteuid() == 0 else None


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="cuebook-postgres-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


class Load:
    """Writers that append posts one after the other, and repeat a post that was not acknowledged."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stopped = False
        self.acknowledged: list[tuple[str, str]] = []
        self.errors: list[BackendError] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        writers = [asyncio.create_task(self._write(f"c{number}")) for number in range(WRITERS)]
        try:
            yield
        finally:
            self._stopped = True
            await asyncio.gather(*writers)

    async def wait_for(self, more: int) -> None:
        """Wait until so many more posts were acknowledged."""
        goal = len(self.acknowledged) + more
        async with asyncio.timeout(90):
            while len(self.acknowledged) < goal:  # noqa: ASYNC110  # many writers
                await asyncio.sleep(0.05)

    async def _write(self, conversation: str) -> None:
        number = 0
        while not self._stopped:
            name = f"{conversation}-{number}"
            try:
                await say(self._store, conversation, draft(name, "apples"), scope=SCOPE)
            except BackendError as error:
                self.errors.append(error)
                await asyncio.sleep(0.1)
                continue  # it may be stored: the same post again
            except Conflict:  # it was stored, although the acknowledgment was lost
                pass
            self.acknowledged.append((conversation, name))
            number += 1

    async def check(self) -> Counter[str]:
        """Check that each acknowledged post is stored once, and that failures said to try again. Return the counts."""
        counts = Counter(acknowledged=len(self.acknowledged))
        for number in range(WRITERS):
            conversation = f"c{number}"
            posts = await self._store.posts(SCOPE, conversation, path=False)
            counts += losses(posts, [name for place, name in self.acknowledged if place == conversation])
        assert counts == Counter(acknowledged=len(self.acknowledged))
        assert all(error.retryable for error in self.errors)
        return counts


async def test_a_restart_loses_nothing(folder: Path, record_fault: Callable[..., None]) -> None:
    url = (await asyncio.to_thread(start, folder / "data")).url
    assert url is not None
    await asyncio.to_thread(upgrade, url)
    store = await asyncio.to_thread(open_store, url)
    load = Load(store)
    async with load.running():
        for _ in range(2):
            await load.wait_for(60)
            pid = status(folder / "data").pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            async with asyncio.timeout(30):
                while status(folder / "data").running:  # noqa: ASYNC110  # another process
                    await asyncio.sleep(0.1)
            await asyncio.to_thread(start, folder / "data")
        await load.wait_for(60)
    record_fault("kill -9 of PostgreSQL", await load.check(), runs=2, database="postgresql")
    await store.aclose()
    await asyncio.to_thread(stop, folder / "data")


def run(*command: str) -> None:
    """Run a program of PostgreSQL as the user of its servers."""
    binaries = Path(package().__file__).parent / "pginstall18" / "bin"
    subprocess.run([str(binaries / command[0]), *command[1:]], check=True, user=USER, stdout=subprocess.DEVNULL)


def replica_of(folder: Path, data: Path) -> None:
    """Start a replica, and let the primary wait for it with each commit."""
    host = str(data)
    data.parent.joinpath("replica").mkdir()
    if USER:
        shutil.chown(folder / "replica", USER)
    (folder / "replica").chmod(0o700)
    run(
        "pg_basebackup", "-h", host, "-U", "postgres", "-D", str(folder / "replica"), "-R", "-X", "stream", "-c", "fast"
    )
    (folder / "replica/.s.PGSQL.5432.lock").unlink()  # of the primary
    run(
        "pg_ctl",
        "-w",
        "-D",
        str(folder / "replica"),
        "-o",
        f'-h "" -k {folder / "replica"}',
        "-l",
        str(folder / "replica/log"),
        "start",
    )
    with psycopg.connect(f"postgresql://postgres@/postgres?host={host}", autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        connection.execute("SELECT pg_reload_conf()")


async def test_a_promoted_replica_has_every_acknowledged_write(folder: Path, record_fault: Callable[..., None]) -> None:
    data = folder / "data"
    url = (await asyncio.to_thread(start, data)).url
    assert url is not None
    await asyncio.to_thread(upgrade, url)
    await asyncio.to_thread(replica_of, folder, data)
    both = f"postgresql://postgres@/cuebook?host={data},{folder / 'replica'}&target_session_attrs=read-write"
    store = await asyncio.to_thread(open_store, both)
    load = Load(store)
    async with load.running():
        await load.wait_for(100)
        pid = status(data).pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(run, "pg_ctl", "-w", "-D", str(folder / "replica"), "promote")
        with psycopg.connect(
            f"postgresql://postgres@/postgres?host={folder / 'replica'}", autocommit=True
        ) as connection:
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")
        await load.wait_for(100)
    record_fault("loss of the primary server", await load.check(), database="postgresql")
    await store.aclose()
    await asyncio.to_thread(run, "pg_ctl", "-D", str(folder / "replica"), "-m", "immediate", "stop")
