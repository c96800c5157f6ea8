"""Test of a server that a partition of the network cuts off from PostgreSQL: another one goes on with its turn."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from load import Load
from psycopg.conninfo import conninfo_to_dict

from cuebook import Ask, Chunk, Cuebook
from cuebook.config import build
from cuebook.errors import BackendError, LeaseLost
from cuebook.storage.database.postgres_key import stored_key
from cuebook.storage.store import open_store
from cuebook.testing.doubles import Script, ScriptedModel
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

    async def stop(self) -> None:
        """Drop all connections, and refuse new ones until `restart`."""
        self._server.close()
        self.mend(drop=True)

    async def restart(self, *, after_s: float) -> None:
        await asyncio.sleep(after_s)
        self._server = await asyncio.start_unix_server(self._connect, Path(self._folder.name, ".s.PGSQL.5432"))

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


TEXT = "The ferry leaves from pier 4."


@pytest.fixture
async def network(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Network]:
    monkeypatch.setenv("CUEBOOK_KEY_SECRET", "secret")
    await asyncio.to_thread(stored_key, postgres_url, "secret", new=bytes(32))
    async with Network(postgres_url) as between:
        yield between


def cue_over(network: Network, *, lease_s: float) -> Cuebook:
    """Return a Cuebook whose model answers in a second, over a network to its database."""
    settings: dict[str, Any] = {"store.url": network.url, "work.lease_s": lease_s, "work.interval_s": 0.5}
    return Cuebook.open(build(arguments=settings), model=ScriptedModel(Script(text=TEXT, size=4, delay=0.1)))


async def chunks_of_an_outage(cue: Cuebook, network: Network) -> AsyncIterator[Chunk]:
    """Stream an answer. The network stops after its first piece."""
    async for chunk in cue.stream(Ask("Where does the ferry leave?", "c", user="ann")):
        yield chunk
        if chunk.type == "text_delta" and chunk.text == TEXT[:4]:
            await network.stop()


async def test_an_outage_in_an_answer_only_delays_its_end(network: Network) -> None:
    async with cue_over(network, lease_s=60) as cue, asyncio.TaskGroup() as tasks:
        async for chunk in chunks_of_an_outage(cue, network):
            if chunk.text == TEXT[-1]:
                tasks.create_task(network.restart(after_s=3))
        assert chunk.type == "final_response"
        assert [post.message for post in await cue.conversations.posts("c", user="ann")][1:] == [TEXT]


async def test_an_answer_is_stored_after_a_long_outage_whose_stream_ended_with_an_error(network: Network) -> None:
    received: list[Chunk] = []
    async with cue_over(network, lease_s=2) as cue:
        with pytest.raises(BackendError, match="The answer is stored once it does"):  # noqa: PT012  # a stream raises late
            async for chunk in chunks_of_an_outage(cue, network):
                received.append(chunk)  # noqa: PERF401  # it raises
        assert "".join(each.text for each in received) == TEXT
        await network.restart(after_s=1)
        [ending] = cue.services.caches.late_ends
        await ending
        assert (await cue.turns.get("c", 1, user="ann")).state == "finished"
        assert [post.message for post in await cue.conversations.posts("c", user="ann")][1:] == [TEXT]


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
