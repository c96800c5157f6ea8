"""Tests of limits per API key, of the number of connections, and of requests that arrive too slowly."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from api_keys import Keyed
from upstream import Upstream
from uvicorn.server import ServerState

from conftest import Live, config
from cuebook import Cuebook
from cuebook.config import ServerConfig
from cuebook.engine.core.token_limit import AnswerMeter
from cuebook.errors import Busy
from cuebook.server.concurrency_limits import KeyRates
from cuebook.server.connections import Connection
from cuebook.testing.doubles import FrozenClock

pytestmark = pytest.mark.anyio
ASKED = {"model": "big", "messages": [{"role": "user", "content": "hi"}]}
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


async def test_tokens_of_a_key_are_limited_for_a_day_on_all_servers(tmp_path: Path, upstream: Upstream) -> None:
    clock, where = FrozenClock(), config(store=str(tmp_path / "c.db"), upstream=upstream.url, tokens_per_day=22)
    async with AsyncExitStack() as stack:
        cues = [await stack.enter_async_context(Cuebook.open(where, clock=clock, worker=False)) for _ in "ab"]
        first, second = map(Keyed, cues)
        token = (await cues[0].keys.new("editor", user="ann")).token
        bob = await first.client_as("editor", user="bob")
        here, there = first.client(token), second.client(token)
        for client, body in ((here, ASKED), (there, ASKED | {"stream": True})):
            assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
        assert sorted(each.tokens_today for each in (await cues[1].keys.list()).items) == [0, 22]
        for client in (here, there):
            refused = await client.post("/v1/chat/completions", json=ASKED)
            assert (refused.status_code, refused.json()["error"]["type"]) == (429, "rate_limit_error")
            assert int(refused.headers["retry-after"]) == 86_400 - clock.now() % 86_400
        assert (await here.post("/v1/embeddings", json={"input": "a"})).status_code == 429
        assert (await here.post("/api/chat", json={"message": "hi", "conversationId": "c1"})).status_code == 429
        assert (await here.get("/api/conversations")).status_code == 200
        assert (await here.get("/v1/models")).status_code == 200
        assert (await bob.post("/v1/chat/completions", json=ASKED)).status_code == 200
        clock.set(clock.now() + 86_400)
        assert (await here.post("/v1/chat/completions", json=ASKED)).status_code == 200
        for each in (first, second):
            await each.aclose()


@pytest.mark.parametrize(
    ("path", "status", "chunks", "tokens"),
    [
        ("/embeddings", 200, [b'{"usage": {"prompt_tokens": 8, "total_tok', b'ens": 8}}'], 8),
        ("/responses", 200, [b'data: {"usage":{"input_tokens":5,"output_tokens":1', b"2}}"], 17),
        (
            "/messages",
            200,
            [b'{"usage":{"input_tokens":5}}', b'{"text":"\\"output_tokens\\":9"}', b'"output_tokens":2'],
            7,
        ),
        ("/chat/completions", 200, [b"unknown"], 101),  # an estimate of 400 bytes and the answer
        ("/chat/completions", 503, [b"unknown"], 0),
        ("/messages/count_tokens", 200, [b'{"input_tokens":5}'], 0),
        ("/moderations", 200, [b"{}"], 0),
    ],
)
def test_tokens_of_a_passed_on_answer(path: str, status: int, chunks: list[bytes], tokens: int) -> None:
    meter = AnswerMeter(path, 400)
    for each in chunks:
        meter.add(each)
    assert meter.tokens(status) == tokens


def test_health_is_answered_beside_many_half_sent_requests() -> None:
    live = Live(Cuebook.open(config(connections=20), worker=False))
    with ExitStack() as stack:
        stack.callback(live.stop)
        for _ in range(60):
            opened = stack.enter_context(socket.create_connection(("127.0.0.1", live.port)))
            opened.sendall(b"GET /healthz HTT")
        assert httpx.get(f"{live.url}/healthz").json() == {"status": "alive"}


def test_a_request_with_two_lengths_is_refused_and_its_connection_closed(serve_live: Any) -> None:
    live = serve_live()
    second = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    head = b"POST /api/chat HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", live.port), timeout=10) as opened:
        opened.sendall(head % (live.port, 5 + len(second)) + b"0\r\n\r\n" + second)
        answer = b""
        while piece := opened.recv(4096):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1, "The second request must not be answered."
    assert b"Content-Length and Transfer-Encoding" in answer


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
