"""Tests of real connections: disconnecting clients, concurrent keys, full queues and a stopping server."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from upstream import Upstream

from conftest import Live, config
from cuebook import Cuebook
from cuebook.errors import BackendError, InvalidInput
from cuebook.interfaces import ModelRequest, Piece
from cuebook.server.app import listen, serve
from cuebook.testing.doubles import Script, ScriptedModel
from cuebook.testing.upstream import HttpReply, ScriptedUpstream
from scripted_answers import streamed


def wait_until(what: Callable[[], Any], *, within_s: float = 60.0) -> Any:
    end = time.monotonic() + within_s
    while not (value := what()):
        assert time.monotonic() < end, "The condition did not become true in time."
        time.sleep(0.02)
    return value


def turn(live: Live, conversation: str, n: int = 1) -> dict[str, Any]:
    answer = httpx.get(f"{live.url}/api/conversations/{conversation}/turns/{n}")
    return answer.json() if answer.status_code == 200 else {}


def request_head(live: Live, path: str, body: bytes, **headers: str) -> bytes:
    """Return the head of a POST request for a client that disconnects early."""
    lines = {"Host": f"127.0.0.1:{live.port}", "Content-Type": "application/json", "Content-Length": str(len(body))}
    fields = "".join(f"{name}: {value}\r\n" for name, value in (lines | headers).items())
    return f"POST {path} HTTP/1.1\r\n{fields}\r\n".encode()


def test_tcp_nodelay_is_set() -> None:
    for listening in listen("127.0.0.1", 0):
        with listening, socket.create_connection(listening.getsockname()), listening.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_disconnect_during_a_stream_ends_turn_and_upstream_call(relayed: Live, upstream: Upstream) -> None:
    body = {"model": "stuck", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    with httpx.Client() as client:
        url = f"{relayed.url}/c/c1/v1/chat/completions"
        with client.stream("POST", url, json=body, timeout=60) as answer:
            pieces = answer.iter_raw()
            got = b""
            while b"from" not in got:
                got += next(pieces)
    shown = wait_until(lambda: (result := turn(relayed, "c1")).get("state") == "interrupted" and result)
    assert shown["reply"] == "Grüße from"
    wait_until(lambda: upstream.last.gone_after)


def test_disconnect_before_the_first_byte_ends_the_turn(relayed: Live, upstream: Upstream) -> None:
    for streams in (True, False):
        body = {"model": "never", "stream": streams, "messages": [{"role": "user", "content": "Hi"}]}
        name = f"c{streams}"
        upstream.received.clear()
        payload = json.dumps(body).encode()
        with socket.create_connection(("127.0.0.1", relayed.port)) as leaving:
            leaving.sendall(request_head(relayed, f"/c/{name}/v1/chat/completions", payload) + payload)
            wait_until(lambda: upstream.received)
        wait_until(lambda name=name: turn(relayed, name).get("state") == "interrupted")
        wait_until(lambda: upstream.last.gone_after)


def test_disconnect_ends_a_pass_through_answer_at_once(serve_live: Callable[..., Live]) -> None:
    upstream = ScriptedUpstream(default=HttpReply(pieces=[b"one", *[b"more"] * 1500], delay=0.2))
    live = serve_live(upstream=upstream)
    with httpx.stream("GET", f"{live.url}/v1/files/f/content", timeout=60) as answer:
        assert next(answer.iter_raw()) == b"one"
    wait_until(lambda: upstream.closed)  # the whole answer would take minutes


@pytest.mark.slow
def test_client_that_reads_nothing_ends_its_turn(serve_live: Callable[..., Live]) -> None:
    live = serve_live(model=ScriptedModel(default=Script(text="word " * 2_000_000, size=100_000)))
    live.ask_cue(lambda: _shorten_patience(live))
    body = b'{"message": "Hi", "conversationId": "c1", "stream": true}'
    with socket.create_connection(("127.0.0.1", live.port)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(request_head(live, "/api/chat", body) + body)
        wait_until(lambda: turn(live, "c1").get("state") == "interrupted")


async def _shorten_patience(live: Live) -> None:
    live.server.config.app.state.running.patience_s = 0.2  # type: ignore[union-attr]


def test_stream_is_forwarded_live_for_any_content_type_case(serve_live: Callable[..., Live]) -> None:
    answer_script = streamed("Hello there.", size=1)
    upstream = ScriptedUpstream(
        HttpReply(pieces=answer_script.pieces, headers={"content-type": "Text/Event-Stream"}, delay=0.2)
    )
    live = serve_live(upstream=upstream)
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    with httpx.stream("POST", f"{live.url}/v1/chat/completions", json=body, timeout=60) as answer:
        assert answer_script.pieces[-1] not in next(answer.iter_raw()), (
            "The first event must arrive before the last one."
        )
        assert "content-length" not in answer.headers


def test_chat_ends_on_disconnect_unless_it_has_a_key(serve_live: Callable[..., Live]) -> None:
    endless = Script(text="Slowly said.", size=4, delay=60.0)
    model = ScriptedModel(endless, endless, default=Script(text="Slowly said.", size=4, delay=0.3))
    live = serve_live(model=model)
    for n, (name, more, headers, state) in enumerate(
        (
            ("a", {}, {}, "interrupted"),
            ("b", {"stream": True}, {}, "interrupted"),
            ("c", {}, {"Idempotency-Key": "k"}, "finished"),
            ("d", {"stream": True}, {"Idempotency-Key": "k2"}, "finished"),
        )
    ):
        payload = json.dumps({"message": "Hi", "conversationId": name} | more).encode()
        with socket.create_connection(("127.0.0.1", live.port)) as leaving:
            leaving.sendall(request_head(live, "/api/chat", payload, **headers) + payload)
            wait_until(lambda n=n: len(model.requests) > n)
        wait_until(lambda name=name, state=state: turn(live, name).get("state") == state)
    second = httpx.post(
        f"{live.url}/api/chat", json={"message": "Hi", "conversationId": "c"}, headers={"Idempotency-Key": "k"}
    )
    assert (second.status_code, second.json()["text"]) == (200, "Slowly said.")
    assert len(model.requests) == 4


def test_concurrent_requests_with_one_key_make_one_turn(
    serve_live: Callable[..., Live], closing: Callable[[Any], Any]
) -> None:
    model = ScriptedModel(default=Script(text="Once.", delay=0.2))
    live = serve_live(model=model)
    client = closing(httpx.Client(base_url=live.url))

    def ask(n: int) -> httpx.Response:
        body = {"message": "Hi", "userId": "ann"} | ({"conversationId": "c1"} if n < 20 else {})
        return client.post("/api/chat", json=body, headers={"Idempotency-Key": f"k{n < 20}"})

    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(ask, range(40)))
    assert {each.status_code for each in answers} == {200}
    assert {each.json()["turn"] for each in answers} == {1}
    assert len({each.json()["conversationId"] for each in answers}) == 2
    assert len(model.requests) == 2

    def store(_: int) -> dict[str, int]:
        body = {"posts": [{"sendFrom": "ann", "message": "Hi"}]}
        answer = client.post("/api/conversations/p1/posts", json=body, headers={"Idempotency-Key": "p"})
        assert answer.status_code == 201, answer.text
        return answer.json()

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(store, range(20))) == [{"stored": 1, "lastSeq": 1}] * 20


class Waiting(ScriptedModel):
    """A model that answers when it may `proceed`."""

    proceed = threading.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
        await asyncio.to_thread(self.proceed.wait, 60)
        async for piece in super().stream(request):
            yield piece


def test_full_queue_returns_429(serve_live: Callable[..., Live], closing: Callable[[Any], Any]) -> None:
    model = Waiting(default="Ok.")
    live = serve_live(config(line=3), model=model)
    client = closing(httpx.Client(base_url=live.url))
    answers: list[httpx.Response] = []

    def ask(_: int) -> None:
        answers.append(client.post("/api/chat", json={"message": "Hi", "conversationId": "c1"}))

    with ThreadPoolExecutor(12) as pool:
        asking = [pool.submit(ask, n) for n in range(12)]
        wait_until(lambda: len(answers) == 8)  # one turn runs and three wait
        model.proceed.set()
        for each in asking:
            each.result()
    assert [each.status_code for each in answers] == [429] * 8 + [200] * 4
    assert all(int(each.headers["retry-after"]) >= 1 for each in answers[:8])
    assert sorted(each.json()["turn"] for each in answers[8:]) == [1, 2, 3, 4]


def test_stopping_server_stores_the_partial_answer(relayed: Live, upstream: Upstream, tmp_path: Path) -> None:
    cut: list[object] = []

    def read_stream() -> None:
        body = {"model": "stuck", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
        try:
            with httpx.stream("POST", f"{relayed.url}/c/c1/v1/chat/completions", json=body, timeout=60) as answer:
                cut.extend(answer.iter_raw())
        except httpx.RemoteProtocolError as error:
            cut.append(error)

    listener = threading.Thread(target=read_stream)
    listener.start()
    wait_until(lambda: b"from" in b"".join(each for each in cut if isinstance(each, bytes)))
    states: list[str] = []
    close = relayed.cue.aclose

    async def record_state_and_close() -> None:
        states.append((await relayed.cue.turns.get("c1", 1)).state)
        await close()

    relayed.cue.aclose = record_state_and_close  # type: ignore[method-assign]
    relayed.stop()
    listener.join(60)
    assert isinstance(cut[-1], httpx.RemoteProtocolError)
    assert states == ["interrupted"]


def test_a_live_view_does_not_delay_the_stop(serve_live: Callable[..., Live]) -> None:
    live = serve_live(stop_timeout_s=60)
    with httpx.stream("GET", f"{live.url}/page/live", timeout=60) as view:
        events = view.iter_text()
        assert "watching" in next(events)
        began = time.monotonic()
        live.stop()
        assert time.monotonic() - began < 30
        with suppress(httpx.RemoteProtocolError):
            assert "".join(events).strip() in ("", ": quiet")


PROGRAM = """
import sys
from cuebook.config import Config, ConfigSections, ServerConfig, StoreConfig
from cuebook.server.app import serve
from cuebook import Cuebook
from cuebook.testing.doubles import Script, ScriptedModel
server = ServerConfig(stop_timeout_s=float(sys.argv[2]))
config = Config(settings=ConfigSections(store=StoreConfig(url=sys.argv[1]), server=server))
model = ScriptedModel("Hello.", default=Script(text="Hello there.", size=6, delay=float(sys.argv[3])))
serve(Cuebook.open(config, model=model), port=0, started=lambda url: print(url, flush=True))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.slow
def test_serve_stops_cleanly_on_a_signal(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(tmp_path / "cuebook.db"), "0.5", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = process.stdout.readline().strip()
        assert httpx.get(f"{url}/healthz").status_code == 200
        assert httpx.post(f"{url}/api/chat", json={"message": "Hi", "conversationId": "c1"}).status_code == 200
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as idle:
            idle.sendall(b"GET /healthz HTTP/1.1\r\n")  # an incomplete request does not delay the stop
            time.sleep(0.2)
            os.kill(process.pid, number)
            assert process.wait(60) == 0
        assert process.stderr.read() == ""


def refuses(url: str) -> bool:
    """Return whether a stopping server accepts no connection."""
    try:
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))).close()
    except ConnectionRefusedError:
        return True
    return False


async def states(store: Path) -> list[str]:
    async with Cuebook.open(config(store=str(store)), worker=False) as cue:
        return [each.state for each in await cue.turns.list("c1")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("timeout_s", "signals", "delay_s", "state"),
    [(60, 1, 1, "finished"), (0.2, 1, 4, "interrupted"), (60, 2, 4, "interrupted")],
)
def test_turn_of_a_stopped_server_is_finished_or_interrupted(
    tmp_path: Path, timeout_s: float, signals: int, delay_s: float, state: str
) -> None:
    store = tmp_path / "cuebook.db"
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(store), str(timeout_s), str(delay_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = process.stdout.readline().strip()
        chat = {"message": "Hi", "conversationId": "c1", "stream": True}
        httpx.post(f"{url}/api/chat", json=chat)
        with (
            suppress(httpx.RemoteProtocolError),
            httpx.stream("POST", f"{url}/api/chat", json=chat, timeout=60) as said,
        ):
            for piece in said.iter_text():
                if "text_delta" in piece:
                    while signals:
                        signals -= 1
                        process.send_signal(signal.SIGINT)
                        wait_until(lambda: refuses(url))  # it has handled the signal
        assert process.wait(60) == 0
        assert process.stderr.read() == ""
    assert asyncio.run(states(store)) == ["finished", state]


def test_body_over_the_limit_is_answered_during_the_upload(serve_live: Callable[..., Live]) -> None:
    live = serve_live()

    def pieces() -> Iterator[bytes]:
        for _ in range(160):
            yield b" " * 65536

    for content in (b" " * (9 * 1024 * 1024), pieces()):
        with httpx.Client(base_url=live.url) as client:
            answer = client.post("/api/chat", content=content)
            assert (answer.status_code, answer.json()["status"]) == (413, 413)
            assert client.get("/api/conversations").json() == {"items": []}


def test_public_address_without_keys_is_refused() -> None:
    for host in ("0.0.0.0", "::", "8.8.8.8", "192.0.2.7"):  # noqa: S104 - refused
        with pytest.raises(InvalidInput, match="keys") as refused:
            serve(config(), host=host, port=0)
        assert refused.value.where == "server.host"
        assert host in str(refused.value)


def test_port_in_use_is_a_clear_error() -> None:
    first = listen("127.0.0.1", 0)
    port = first[0].getsockname()[1]
    with pytest.raises(BackendError, match=f"Port {port} is already in use"):
        serve(config(), host="127.0.0.1", port=port)
    first[0].close()


def test_slow_and_malformed_requests_are_handled(serve_live: Callable[..., Live]) -> None:
    live = serve_live()
    body = b'{"message": "Hi"}'
    head = f"POST /api/chat HTTP/1.1\r\nHost: 127.0.0.1:{live.port}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", live.port)) as client:
        for byte in head + body:
            client.sendall(bytes([byte]))
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
    with socket.create_connection(("127.0.0.1", live.port)) as client:
        client.sendall(head + body[:5])  # disconnect in the middle of the body
    for broken in (b"GET\r\n\r\n", b"POST /api/chat HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", b"\x16\x03\x01\x02\x00"):
        with socket.create_connection(("127.0.0.1", live.port)) as client:
            client.sendall(broken)
            client.shutdown(socket.SHUT_WR)
            assert client.recv(65536)[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 403", b"")
    assert httpx.get(f"{live.url}/api/conversations").json()["items"][0]["turns"] == 1


def test_importing_cuebook_loads_no_server_package() -> None:
    code = "import sys, cuebook; print([each for each in ('litestar', 'uvicorn', 'httpx2') if each in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
