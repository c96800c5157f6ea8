"""PostgreSQL dies under load: no acknowledged write is lost or stored twice, and writes go on with the next server."""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from load import Load

from cuebook.app.setup.embedded_postgres import package, start, status, stop
from cuebook.storage.database.postgres import upgrade
from cuebook.storage.store import open_store

#: The system user of a server that root starts.
USER = "pgserver" if os.geteuid() == 0 else None


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="cuebook-postgres-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


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
