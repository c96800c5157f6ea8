"""Tests of limits per API key, of the number of connections, and of requests that arrive too slowly."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Any

import httpx
import pytest
import uvicorn
from api_keys import Keyed
from uvicorn.server import ServerState

from conftest import Live, config
from cuebook import Cuebook
from cuebook.config import ServerConfig
from cuebook.errors import Busy
from cuebook.server.concurrency_limits import KeyRates
from cuebook.server.connections import Connection

pytestmark = pytest.mark.anyio
HEAD = b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 50000\r\n\r\n"


def test_bucket_of_a_key_refills_within_a_minute() -> None:
    now = [0.0]
    rates = KeyRates(ServerConfig(requests_per_minute=2, bytes_per_minute=600), clock=lambda: now[0])
    rates.admit("a")
    rates.admit("a")
    with pytest.raises(Busy) as refused:
        rates.admit("a")
    assert refused.value.retry_after == pytest.approx(30.0)
    rates.admit("b")
    now[0] = 30.0
    rates.charge("a", 900)
    with pytest.raises(Busy, match="bytes_per_minute allows 600") as refused:
        rates.admit("a")
    assert refused.value.retry_after == pytest.approx(30.1)
    for _ in range(9):
        rates.admit("")
    now[0] = 61.0
    rates.admit("a")


async def test_requests_of_a_key_are_limited() -> None:
    async with Cuebook.open(config(requests_per_minute=3, bytes_per_minute=2_000), worker=False) as cue:
        keyed = Keyed(cue)
        ann, bob = [await keyed.client_as("editor", user=name) for name in ("ann", "bob")]
        statuses = [(await ann.get("/api/conversations")).status_code for _ in range(4)]
        refused = await ann.get("/api/conversations")
        assert statuses == [200, 200, 200, 429]
        assert 1 <= int(refused.headers["retry-after"]) <= 20
        assert "server.requests_per_minute allows 3" in refused.json()["detail"]
        assert (await ann.get("/healthz")).status_code == 200
        large = {"posts": [{"sendFrom": "bob", "message": "x" * 2_000}]}
        assert (await bob.post("/api/conversations/c1/posts", json=large)).status_code == 201
        refused = await bob.post("/v1/chat/completions", json={"messages": []})
        assert (refused.status_code, refused.json()["error"]["type"]) == (429, "rate_limit_error")
        await keyed.aclose()


def test_health_is_answered_beside_many_half_sent_requests() -> None:
    live = Live(Cuebook.open(config(connections=20), worker=False))
    with ExitStack() as stack:
        stack.callback(live.stop)
        for _ in range(60):
            opened = stack.enter_context(socket.create_connection(("127.0.0.1", live.port)))
            opened.sendall(b"GET /healthz HTT")
        assert httpx.get(f"{live.url}/healthz").json() == {"status": "alive"}


class Heard(Connection):
    """A connection that counts all its bytes."""

    heard = 0

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.heard += len(data)


@asynccontextmanager
async def served() -> AsyncIterator[tuple[ServerState, int]]:
    """Serve an app that reads each request to its end."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    settings, state = uvicorn.Config(app, log_config=None, lifespan="off"), ServerState()
    settings.load()
    make = partial(Heard, config=settings, server_state=state, app_state={}, most=10)
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    try:
        yield state, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for each in list(state.connections):
            each.transport.abort()


@pytest.mark.parametrize(
    ("sent", "after_s", "status"),
    [
        (b"GET / HT", 9, b""),
        (b"GET / HT", 11, b"HTTP/1.1 408"),
        (HEAD + b"x" * 100, 9, b""),
        (HEAD + b"x" * 100, 11, b"HTTP/1.1 408"),
        (HEAD + b"x" * 20_000, 11, b""),
        (HEAD + b"x" * 20_000, 30, b"HTTP/1.1 408"),
        (HEAD + b"x" * 50_000, 99, b"HTTP/1.1 200"),
    ],
)
async def test_a_request_that_arrives_too_slowly_is_ended(sent: bytes, after_s: float, status: bytes) -> None:
    async with served() as (state, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        answer = b""
        if status == b"HTTP/1.1 200":
            answer = await reader.readuntil(b"\r\n\r\n")
        while not state.connections or not all(each.heard == len(sent) for each in state.connections):  # noqa: ASYNC110
            await asyncio.sleep(0)
        for each in list(state.connections):
            each.drop_if_slow(asyncio.get_running_loop().time() + after_s)
        if status == b"HTTP/1.1 408":
            answer = await reader.read()
            assert not state.connections
        assert answer.startswith(status)
        assert bool(state.connections) == (status != b"HTTP/1.1 408")
        writer.close()
