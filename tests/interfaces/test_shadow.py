"""Tests of shadow mode: traffic passes unchanged, and the prompt that would have been sent is recorded."""

import asyncio
import gzip
import json
import re
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest
from commands import CommandRunner

from conftest import Live, config
from cuebook.cli.commands.serve import compare_profiles, print_banner
from cuebook.config import Config, ConfigSections, StoreConfig, UpstreamConfig
from cuebook.records.answer import to_wire

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


def shadow(url: str, store: str = ":memory:") -> Config:
    return Config(
        settings=ConfigSections(
            store=StoreConfig(url=store, synchronous="OFF"), upstream=UpstreamConfig(url=url, shadow=True)
        )
    )


class Recorder:
    """A raw socket server that records each request and sends prepared answers."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.answers: list[list[bytes]] = []
        self.models = b""  # the list that Cuebook gets, when it asks
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with closing(connection):
                request = read_request(connection)
                if request.startswith(b"GET /v1/models ") and b"user-agent: cuebook" in request.lower():
                    connection.sendall(whole(self.models, status="200 OK" if self.models else "404 Not Found")[0])
                    continue
                self.requests.append(request)
                for piece in self.answers.pop(0):
                    connection.sendall(piece)

    def close(self) -> None:
        """End the thread before its socket's number is reused: a system call that restarts would use the new socket."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join(60)
        self._listening.close()


def read_request(connection: socket.socket) -> bytes:
    got = b""
    while b"\r\n\r\n" not in got:
        got += connection.recv(65536)
    head, _, body = got.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def say(url: str, path: str, body: bytes, *headers: str, method: str = "POST") -> bytes:
    """Send a request over a new socket. Return all received bytes."""
    host, _, port = url.removeprefix("http://").partition("/")[0].partition(":")
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}:{port}", "Connection: close", f"Content-Length: {len(body)}"]
    with closing(socket.create_connection((host, int(port)))) as connection:
        connection.sendall("\r\n".join([*lines, *headers, "", ""]).encode("latin-1") + body)
        got = b""
        while piece := connection.recv(65536):
            got += piece
    return got


def split(message: bytes) -> tuple[bytes, list[bytes], bytes]:
    """Return the first line, the end-to-end headers, and the body with its chunks joined."""
    head, _, body = message.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    named = [(line.partition(b":")[0].lower(), line.partition(b":")[2].strip()) for line in lines]
    if (b"transfer-encoding", b"chunked") in named:
        body = join_chunks(body)
    hop = (b"connection", b"transfer-encoding", b"host", b"date", b"keep-alive")
    return first, sorted(name + b": " + value for name, value in named if name not in hop), body


def join_chunks(body: bytes) -> bytes:
    whole = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        count = int(size, 16)
        whole, body = whole + rest[:count], rest[count + 2 :]
        if not count:
            break
    return whole


def whole(body: bytes, *headers: str, status: str = "200 OK") -> list[bytes]:
    # The recorder closes each connection. Without this header, a reused connection would sometimes fail.
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    return ["\r\n".join(lines).encode("latin-1") + body]


def chunked(*pieces: bytes, headers: tuple[str, ...] = ("Content-Type: text/event-stream",)) -> list[bytes]:
    head = "\r\n".join(["HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "Connection: close", *headers, "", ""]).encode(
        "latin-1"
    )
    return [head, *(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces), b"0\r\n\r\n"]


def chat(*said: str, **more: Any) -> bytes:
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(said)]
    return json.dumps({"model": "gpt-5.2", "messages": messages, **more}).encode()


def reply(text: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"id": "c1", "choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}).encode()


def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return (
        b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).encode() + b"\n\n"
    )


STREAM = (
    event({"role": "assistant", "content": "Grü"}),
    event({"content": "ße"}),
    event({}, "stop"),
    b"data: [DONE]\n\n",
)
CHAT = "/v1/chat/completions"
ODD = (
    "X-Odd: caf\xe9  two",
    "OpenAI-Beta: a=1, b=2",
    "Idempotency-Key: k1",
    "User-Agent: mine/1",
    "Authorization: Bearer sk",
)
CORPUS: dict[str, tuple[str, bytes, tuple[str, ...], list[bytes]]] = {
    "plain": (CHAT, b' {"messages":[{"role":"user","content":"hi"}], "x":1.50}', (), whole(reply("ho"), "Odd: \xe9")),
    "headers": (CHAT, chat("hi"), ODD, whole(reply("ho"), "X-Request-Id: 7", "Server: theirs", "Retry-After: 1")),
    "query": (f"{CHAT}?api-version=2%20b&x=", chat("hi"), (), whole(reply("ho"))),
    "stream": (CHAT, chat("hi", stream=True), ("Accept: text/event-stream",), chunked(*STREAM)),
    "torn": (CHAT, chat("hi", stream=True), (), chunked(*(bytes([byte]) for byte in b"".join(STREAM)))),
    "error": (CHAT, chat("hi"), (), whole(b'{"error":{"message":"slow down"}}', status="429 Too Many Requests")),
    "fault": (CHAT, chat("hi"), (), whole(b"<html>oops", "Content-Type: text/html", status="503 Service Unavailable")),
    "tools": (
        CHAT,
        chat("hi", tools=TOOLS, stream=True),
        (),
        chunked(event({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "weather", "arguments": "{}"}}]})),
    ),
    "image": (
        CHAT,
        json.dumps({"messages": [{"role": "user", "content": [IMAGE]}]}).encode(),
        (),
        whole(reply("a dot")),
    ),
    "packed answer": (
        CHAT,
        chat("hi"),
        ("Accept-Encoding: gzip, deflate",),
        whole(gzip.compress(reply("packed")), "Content-Encoding: gzip", "Content-Type: application/json"),
    ),
    "packed request": (CHAT, gzip.compress(chat("packed")), ("Content-Encoding: gzip",), whole(reply("ho"))),
    "large": (CHAT, chat("x" * 1_000_000), (), whole(reply("y" * 1_000_000))),
    "no JSON": (CHAT, b"\xff\x00 not json", (), whole(b'{"error":{}}', status="400 Bad Request")),
    "empty": (CHAT, b"", (), whole(b'{"error":{}}', status="400 Bad Request")),
    "deep": (CHAT, b"[" * 5000, (), whole(b"{}")),
    "wrong": (CHAT, b'{"messages": "none"}', (), whole(b"{}", status="400 Bad Request")),
    "others": ("/v1/embeddings", b'{"input": "a"}', (), whole(b'{"data":  []}')),
    "binary": ("/v1/audio/speech", b"{}", (), chunked(b"\x00\x01", b"\xff", headers=("Content-Type: audio/mpeg",))),
}  # fmt: skip


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    server = Recorder()
    yield server
    server.close()


def test_shadow_traffic_is_unchanged(recorder: Recorder, serve_live: Callable[..., Live]) -> None:
    live = serve_live(shadow(recorder.url))
    for name, (path, body, headers, answer) in CORPUS.items():
        recorder.answers, recorder.requests = [answer, answer], []
        direct = say(recorder.url, path, body, *headers)
        through = say(live.url, path, body, *headers, "X-Conversation-Id: ours", "Cookie: ours")
        sent, passed = map(split, recorder.requests)
        assert passed == sent, name
        (_, fields, content), (_, expected, whole) = split(through), split(direct)
        if not any(each.startswith(b"x-request-id: ") for each in expected):  # then it is ours
            fields = [each for each in fields if not each.startswith(b"x-request-id: ")]
        assert (fields, content) == (expected, whole), name
        assert split(through)[0].split()[1] == split(direct)[0].split()[1], name


def test_path_names_the_conversation_and_models_come_from_upstream(
    recorder: Recorder, serve_live: Callable[..., Live]
) -> None:
    live = serve_live(shadow(recorder.url))
    recorder.answers = [whole(reply("Hello Ann.")), whole(b'{"data": ["theirs"]}')]
    say(live.url, "/c/trip/u/ann/v1/chat/completions", chat("I am Ann."), "X-Cuebook-Note: ours")
    listed = say(live.url, "/v1/models", b"", method="GET")
    assert split(listed)[2] == b'{"data": ["theirs"]}'
    assert recorder.requests[0].startswith(b"POST /v1/chat/completions HTTP")
    assert b"cuebook" not in recorder.requests[0].lower()
    live.ask_cue(live.cue.settle)
    turn = to_wire(live.ask_cue(lambda: live.cue.turns.show("trip", 1, user="ann")))
    assert (turn["query"], turn["reply"], turn["replay"]) == ("I am Ann.", "Hello Ann.", "identical")
    assert turn["metadata"]["shadow"]["1"]["model"] == "gpt-5.2"
    assert turn["window"]["tokens"] > 0


def test_the_budget_in_shadow_mode_is_that_of_the_upstreams_list(
    recorder: Recorder, serve_live: Callable[..., Live]
) -> None:
    recorder.models = b'{"data": [{"id": "gpt-5.2", "context_length": 9000}]}'
    recorder.answers = [whole(reply("Hello.")), whole(reply("Hello."))]
    live = serve_live(shadow(recorder.url))
    say(live.url, "/c/trip/v1/chat/completions", chat("I am Ann."))
    while not live.cue.services.caches.listed_contexts:
        time.sleep(0.01)
    say(live.url, "/c/other/v1/chat/completions", chat("I am Bob."))
    live.ask_cue(live.cue.settle)
    context = live.ask_cue(lambda: live.cue.turns.show("other", 1)).metadata["window"]["context"]
    assert (context["tokens"], context["source"]) == (9_000, "upstream")


def test_openai_client_continues_its_conversation_in_shadow_mode(
    upstream: Any, serve_live: Callable[..., Live], openai_of: Callable[..., openai.OpenAI]
) -> None:
    live = serve_live(shadow(upstream.url))
    client = openai_of(live)
    history: list[Any] = [{"role": "user", "content": "My name is Ann."}]
    said = client.chat.completions.create(model="m", messages=history).choices[0].message.content
    history += [{"role": "assistant", "content": said}, {"role": "user", "content": "What is it?"}]
    pieces = client.chat.completions.create(model="m", messages=history, stream=True)
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    assert text == "Grüße from upstream."
    live.ask_cue(live.cue.settle)
    [conversation] = live.ask_cue(live.cue.conversations.list).items
    assert to_wire(live.ask_cue(lambda: live.cue.turns.show(conversation.id, 2)))["reply"] == text


def test_interrupted_stream_is_forwarded_and_partly_stored(recorder: Recorder, serve_live: Callable[..., Live]) -> None:
    live = serve_live(shadow(recorder.url))
    recorder.answers = [chunked(*STREAM[:2])[:-1]]
    got = say(live.url, "/c/cut/v1/chat/completions", chat("hi", stream=True))
    assert STREAM[1] in got
    assert not got.endswith(b"0\r\n\r\n")
    live.ask_cue(live.cue.settle)
    turn = to_wire(live.ask_cue(lambda: live.cue.turns.show("cut", 1)))
    assert (turn["state"], turn["reply"]) == ("interrupted", "Grüße")


def test_unreachable_upstream_returns_502_and_the_turn_fails(serve_live: Callable[..., Live]) -> None:
    live = serve_live(shadow("http://127.0.0.1:9/v1"))
    assert b" 502 " in say(live.url, "/c/away/v1/chat/completions", chat("hi"))
    live.ask_cue(live.cue.settle)
    assert to_wire(live.ask_cue(lambda: live.cue.turns.show("away", 1)))["state"] == "failed"


async def test_live_mode_continues_conversations_of_shadow_mode(
    recorder: Recorder, tmp_path: Path, serve_live: Callable[..., Live]
) -> None:
    store = str(tmp_path / "cuebook.db")
    live = serve_live(shadow(recorder.url, store))
    recorder.answers = [whole(reply("Noted.")), whole(reply("Nuts."))]
    say(live.url, "/c/trip/v1/chat/completions", chat("I am allergic to nuts."))
    await asyncio.to_thread(live.stop)  # pending calls are stored first
    after = serve_live(config(store=store, upstream=recorder.url))
    body = chat("I am allergic to nuts.", "Noted.", "What am I allergic to?")
    await asyncio.to_thread(say, after.url, "/c/trip/v1/chat/completions", body)
    shown = to_wire(await asyncio.to_thread(after.ask_cue, lambda: after.cue.turns.show("trip", 2)))
    assert "shadow" not in shown["metadata"]
    assert shown["reply"] == "Nuts."
    texts = [block["text"] for block in shown["window"]["blocks"]]
    assert texts == ["I am allergic to nuts.", "Noted.", "What am I allergic to?"]


def test_locked_database_does_not_delay_traffic(
    recorder: Recorder, tmp_path: Path, serve_live: Callable[..., Live]
) -> None:
    store = tmp_path / "cuebook.db"
    live = serve_live(shadow(recorder.url, str(store)))
    recorder.answers = [whole(reply(f"answer {n}")) for n in range(3)]
    with closing(sqlite3.connect(store, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # blocks all other writers
        for n in range(3):
            assert f"answer {n}".encode() in say(live.url, f"/c/c{n}/v1/chat/completions", chat("hi"))
        other.execute("ROLLBACK")
    live.ask_cue(live.cue.settle)
    assert [live.ask_cue(partial(live.cue.turns.show, f"c{n}", 1)).reply for n in range(3)] == [
        "answer 0", "answer 1", "answer 2",
    ]  # fmt: skip


@pytest.mark.slow
def test_report_is_equal_over_http_and_on_the_command_line(
    recorder: Recorder, here: CommandRunner, serve_live: Callable[..., Live]
) -> None:
    assert here("shadow", "report").startswith("no calls recorded yet")
    live = serve_live(shadow(recorder.url, str(here.folder / ".cuebook" / "cuebook.db")))
    recorder.answers = [whole(reply("Hello."))]
    say(live.url, "/c/trip/v1/chat/completions", chat("Hi there."))
    live.ask_cue(live.cue.settle)
    status, _, body = split(say(live.url, "/api/shadow?conversationId=trip", b"", method="GET"))
    assert b" 200 " in status
    result = json.loads(body)
    assert (result["calls"], result["reportedTokens"], result["outputTokens"]) == (1, 9, 2)
    assert result["addedMsP95"] < 1000
    assert json.loads(here("shadow", "report", "--json")) == result
    output = here("shadow", "report")
    assert "1 call of 1 conversation" in output
    assert "gpt-5.2" in output
    assert "shadow mode: this prompt was not sent" in here("turn", "show", "trip", "1")


def test_report_names_the_profile_of_a_running_server(here: CommandRunner, serve_live: Callable[..., Live]) -> None:
    def profile() -> tuple[str, bool]:
        report = json.loads(here("shadow", "report", "--json"))
        return report["profile"], report["serving"]

    assert profile() == ("fit", False)
    live = serve_live(config(store=str(here.folder / ".cuebook" / "cuebook.db")))
    live.ask_cue(lambda: live.cue.shadow.use_profile("budget"))
    assert profile() == ("budget", True)
    live.ask_cue(lambda: live.cue.of("default").shadow.use_profile("standard"))  # with an API key
    assert profile() == ("standard", True)
    assert live.cue.shadow.profile == "standard", "background jobs use it too"
    live.stop()
    assert profile() == ("fit", False)


def test_serve_prints_its_profile_and_the_figures_of_stored_traffic(
    recorder: Recorder, here: CommandRunner, serve_live: Callable[..., Live], capsys: pytest.CaptureFixture[str]
) -> None:
    live = serve_live(shadow(recorder.url, str(here.folder / ".cuebook" / "cuebook.db")))
    recorder.answers = [whole(reply("Hello."))]
    say(live.url, "/c/trip/v1/chat/completions", chat("Hi there."))
    live.ask_cue(live.cue.settle)
    print_banner(live.cue, live.url, as_json=False)
    live.ask_cue(lambda: compare_profiles(live.cue))
    banner = capsys.readouterr().out
    assert "Profile          fit;" in banner
    [last] = banner.splitlines()[-1:]
    assert re.match(r"By profile, your newest call would use this share of the client's \d+ input tokens, with ", last)
    assert "with recalled memories: off 100% ($" in last
    share = f"{here.json('shadow', 'report')['replay']['profiles'][0]['costs']['USD']:.1e}"
    assert f"{float(last.split('$')[1].split(')')[0]):.1e}" == share, "equal to the report"


def test_shadow_mode_requires_an_upstream(here: CommandRunner) -> None:
    assert "upstream.shadow: shadow mode needs an upstream" in here("serve", "--shadow", code=1)
