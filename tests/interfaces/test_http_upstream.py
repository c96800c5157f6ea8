"""Tests of the HTTP upstream client: stream parsing, headers and URLs; no data leaks between callers."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cuebook import Ask, Cuebook
from cuebook.app.cuebook import RelayCall
from cuebook.config import Config, ConfigSections, ModelConfig, StoreConfig, build
from cuebook.errors import InvalidInput, UpstreamError
from cuebook.interfaces import ModelRequest, Piece, RelayRequest
from cuebook.providers.openai import HttpUpstream, OpenAIModel, certificates, shown_url
from scripted_answers import DONE, EVENTS, event

HELLO = [event({"role": "assistant", "content": "hel"}), event({"content": "lo"}), event({}, finish="stop"), DONE]
REQUEST = ModelRequest(messages=(b'{"role":"user","content":"hi"}',))


class Server:
    """Answers each request with the same bytes and records the request headers."""

    def __init__(self, body: bytes, kind: str, *more: str) -> None:
        fields = [f"content-type: {kind}", f"content-length: {len(body)}", "connection: close", *more]
        self._answer = "\r\n".join(["HTTP/1.1 200 OK", *fields, "", ""]).encode("latin-1") + body
        self.heads: list[str] = []
        self.port = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower())
        writer.write(self._answer)
        await writer.drain()
        writer.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@asynccontextmanager
async def serving(body: bytes = b"{}", kind: str = "application/json", *more: str) -> AsyncIterator[Server]:
    server = Server(body, kind, *more)
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield server


async def pieces_of(server: Server) -> list[Piece]:
    model = OpenAIModel("m", HttpUpstream(server.url))
    try:
        return [piece async for piece in model.stream(REQUEST)]
    finally:
        await model.aclose()


async def relayed(upstream: HttpUpstream, headers: dict[str, str] | None = None) -> dict[str, str]:
    answer = await upstream.send(RelayRequest(method="GET", path="/models", headers=headers or {}, body=b""))
    assert b"".join([chunk async for chunk in answer.chunks()]) == b"{}"
    await answer.aclose()
    return dict(answer.headers)


def test_only_clients_of_https_load_certificates():
    assert certificates("https://127.0.0.1/v1") is True
    empty = certificates("HTTP://127.0.0.1/v1")
    assert (empty.get_ca_certs(), empty.verify_mode, empty.check_hostname) == ([], ssl.CERT_REQUIRED, True)


async def test_a_connection_can_be_used_once():
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        await reader.read(1)  # closes the connection when a second request arrives
        writer.close()

    listening = await asyncio.start_server(once, "127.0.0.1", 0)
    async with listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
        kept, single = HttpUpstream(url), HttpUpstream(url, idle=0)
        await relayed(kept)
        with pytest.raises(UpstreamError, match="disconnected without sending a response"):
            await relayed(kept)
        await relayed(single)
        await relayed(single)
        await kept.aclose()
        await single.aclose()


# ---- headers


async def test_cookies_are_not_shared_between_callers():
    async with serving(b"{}", "application/json", "set-cookie: session=anns; path=/", "x-id: 7") as server:
        upstream = HttpUpstream(server.url)
        headers = await relayed(upstream)
        await relayed(upstream, {"Cookie": "own=1"})
        await upstream.aclose()
    assert headers["x-id"] == "7"
    assert "set-cookie" not in headers
    assert not any("cookie" in head for head in server.heads)


@pytest.mark.parametrize(
    ("key", "settings", "sent"),
    [
        ("sk-own", {}, "sk-own"),
        ("sk-own", {"upstream.forward_auth": True}, "placeholder"),
        ("sk-own", {"upstream.forward_auth": False}, "sk-own"),
        ("", {}, "placeholder"),
        ("", {"upstream.forward_auth": False}, None),
    ],
)
async def test_configured_key_replaces_the_client_key_unless_forwarded(monkeypatch, key, settings, sent):
    monkeypatch.setenv("OWN_KEY", key)
    async with serving(json.dumps({"choices": [{"message": {"content": "hi"}}]}).encode()) as server:
        arguments = {"store.url": ":memory:", "upstream.url": server.url, "upstream.api_key_env": "OWN_KEY", **settings}
        async with Cuebook.open(build(arguments=arguments), worker=False) as cue:
            body = b'{"messages": [{"role": "user", "content": "hi"}]}'
            call = RelayCall(body=body, headers={"Authorization": "Bearer placeholder"}, conversation="c")
            assert [piece async for piece in cue.relay(call)]
            request = RelayRequest(method="GET", path="/models", headers=dict(call.headers), body=b"")
            assert [piece async for piece in cue.pass_through(request)]
    for head in server.heads:
        results = [line for line in head.splitlines() if line.startswith("authorization:")]
        assert results == ([f"authorization: bearer {sent}"] if sent else [])


async def test_connection_headers_are_not_forwarded():
    async with serving() as server:
        upstream = HttpUpstream(server.url)
        await relayed(upstream, {"Connection": "close, X-Hop", "X-Hop": "1", "X-End": "2"})
        await upstream.aclose()
    assert "x-hop" not in server.heads[0]
    assert "x-end: 2" in server.heads[0]


# ---- addresses


async def test_url_password_is_used_and_never_shown():
    async with serving() as server:
        upstream = HttpUpstream(f"http://ann:hunter2@127.0.0.1:{server.port}/v1/")
        await relayed(upstream)
        assert upstream.base_url == server.url
        await upstream.aclose()
    assert "authorization: basic yw5uomh1bnrlcji=" in server.heads[0]
    gone = HttpUpstream("http://ann:hunter2@127.0.0.1:1/v1")
    with pytest.raises(UpstreamError) as refused:
        await relayed(gone)
    assert "hunter2" not in str(refused.value)
    await gone.aclose()


@pytest.mark.parametrize("url", ["http://", "http://[::1", "ftp://host/v1", "host/v1", "http://host:port/v1", ""])
def test_invalid_url_is_rejected_at_startup(url):
    with pytest.raises(InvalidInput, match="is not a valid URL"):
        HttpUpstream(url)


def test_invalid_url_error_hides_the_password():
    with pytest.raises(InvalidInput) as refused:
        shown_url("http://ann:hunter2@host:port/v1")
    assert "hunter2" not in str(refused.value)
    assert "host:port" in str(refused.value)


# ---- answers of a model


@pytest.mark.parametrize(
    "body",
    [
        b"".join(HELLO),
        b"".join(HELLO[:3]).rstrip(b"\n"),
        b"\xef\xbb\xbf" + b"".join(HELLO).replace(b"\n", b"\r"),
        b": ping\n\nevent: ping\ndata: {}\n\ndata: pong\n\n" + b"".join(HELLO),
        b"".join(HELLO).replace(b'"content": "lo"', b'"content":\ndata: "lo"'),
    ],
    ids=["plain", "no last line end", "mark and carriage returns", "pings", "two lines"],
)
@pytest.mark.parametrize("kind", [EVENTS, "Text/Event-Stream"])
async def test_model_stream_is_parsed_in_every_standard_form(body, kind):
    async with serving(body, kind) as server:
        pieces = await pieces_of(server)
    assert "".join(piece.text for piece in pieces) == "hello"
    assert pieces[-1].finish == "stop"


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (b'data: {"error": "overloaded"}\n\n', EVENTS, "reports: overloaded"),
        (b'data: {"error": {"message": "odd"}}\n\n', EVENTS, "reports: odd"),
        (b"".join(HELLO[:2]), EVENTS, "ended early"),
        (b"data: " + b"[" * 100_000 + b"\n\n", EVENTS, "ended early"),
        (b"[" * 100_000, "application/json", "no JSON object"),
        (b"\xff\xfe", "application/json", "no JSON object"),
        (b"[]", "application/json", "no JSON object"),
    ],
)
async def test_invalid_model_answer_is_an_error(body, kind, expected):
    async with serving(body, kind) as server:
        with pytest.raises(UpstreamError, match=expected):
            await pieces_of(server)


@pytest.mark.parametrize("count", ["12", 12.5, True, -1, None, 10**30, [1]])
async def test_invalid_token_count_is_ignored(tmp_path, count):
    answer = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
    body = json.dumps(answer | {"usage": {"prompt_tokens": count, "completion_tokens": 3}}).encode()
    async with serving(body) as server:
        settings = ConfigSections(
            store=StoreConfig(url=str(tmp_path / "cuebook.db"), synchronous="OFF"),
            model=ModelConfig(provider="openai", name="m", base_url=server.url),
        )
        async with Cuebook.open(Config(settings), worker=False) as cue:
            for text in ("one", "two"):
                assert (await cue.ask(Ask(text, "c"))).text == "hi"
            [usage] = {turn.steps[0].usage for turn in await cue.turns.list("c")}
    assert (usage.input, usage.output) == (None, 3)
