"""Test of a server that a partition of the network cuts off from PostgreSQL: another one goes on with its turn."""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from load import Load
from psycopg.conninfo import conninfo_to_dict

from cuebook.errors import LeaseLost
from cuebook.storage.store import open_store
from storage.contract.turns import NOW, answer, begin, end
from storage.makers import draft


class Network:
    """The network between a server and PostgreSQL. While it is cut, it holds all bytes back; `url` goes through it."""

    def __init__(self, url: str) -> None:
        self._parts = conninfo_to_dict(url)
        self._whole = asyncio.Event()
        self._whole.set()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="cuebook-net-")
        folder = self._folder.name
        self._server = await asyncio.start_unix_server(self._connect, Path(folder, ".s.PGSQL.5432"))
        self.url = f"postgresql://{self._parts['user']}@/{self._parts['dbname']}?host={folder}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.mend(drop=True)
        self._server.close()
        self._folder.cleanup()

    def cut(self) -> None:
        self._whole.clear()

    def mend(self, *, drop: bool = False) -> None:
        """Let bytes pass again, or drop all connections."""
        if drop:
            for writer in self._writers:
                writer.close()
            self._writers.clear()
        self._whole.set()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = str(self._parts["host"]), int(self._parts.get("port") or 5432)
        if host.startswith("/"):
            there = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        else:
            there = await asyncio.open_connection(host, port)
        self._writers += [writer, there[1]]
        await asyncio.gather(self._pass(reader, there[1]), self._pass(there[0], writer), return_exceptions=True)

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while some := await source.read(1 << 16):
            await self._whole.wait()
            target.write(some)
            await target.drain()
        target.close()


async def test_a_server_that_was_cut_off_loses_its_turn_and_no_write(
    postgres_url: str, record_fault: Callable[..., None]
) -> None:
    async with Network(postgres_url) as network:
        other = await asyncio.to_thread(open_store, postgres_url)
        server = await asyncio.to_thread(open_store, network.url)
        lease = await begin(server, draft("q", "ask"))
        load = Load(server)
        async with load.running():
            await load.wait_for(60)
            network.cut()
            assert await other.expire(now=NOW + 31) == 1
            later = await begin(other, draft("q2", "ask again"), now=NOW + 40)
            network.mend()
            with pytest.raises(LeaseLost):
                await end(server, lease, answer("late"))
            await load.wait_for(60)
            network.cut()
            assert await end(other, later, answer("a2")) == 3
            network.mend(drop=True)
            await load.wait_for(60)
        record_fault("partition of a server", await load.check(), runs=2, database="postgresql")
        assert [post.id for post in await other.posts(lease.scope, "c")] == ["q", "q2", "a2"]
        await server.aclose()
        await other.aclose()
