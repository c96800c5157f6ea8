"""Server programs of the benchmarks: scripted upstreams, a bare relay, a bare reader, and Cuebook itself.

`python -m bench.servers KIND ARGUMENT...` prints its address, then answers each input line with the CPU seconds that it
has used.
"""

import asyncio
import socket
import sys
import threading
import time
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cache
from importlib.resources import files
from typing import Any

import httpx2
import msgspec
import uvicorn

from cuebook.config import Config, ConfigSections, EmbedderConfig, StoreConfig, UpstreamConfig
from cuebook.records.memory import Scope
from cuebook.server.app import serve
from cuebook.storage.store import sqlite_store

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

#: Events as OpenAI sends them, including unrequested fields.
_EVENT = (
    'data: {"id":"chatcmpl-CZ1","object":"chat.completion.chunk","created":1700000000,"model":"gpt-5.2",'
    '"service_tier":"default","system_fingerprint":"fp_4f1c","choices":[{"index":0,"delta":{%s},"logprobs":null,'
    '"finish_reason":%s}],"obfuscation":"x8Q2"}\n\n'
)
_STREAM = [(b"content-type", b"text/event-stream; charset=utf-8")]


class Asked(msgspec.Struct):
    """The request fields of the scripted upstream: number of events, and microseconds between them."""

    max_tokens: int = 1
    seed: int = 0


async def upstream(scope: Message, receive: Receive, send: Send) -> None:
    """Answer a chat completion with the requested number of events."""
    asked = msgspec.json.decode(await _body(receive), type=Asked)
    await send({"type": "http.response.start", "status": 200, "headers": _STREAM})
    await _event(send, _EVENT % ('"role":"assistant","content":""', "null"))
    for number in range(asked.max_tokens):
        if asked.seed:
            await asyncio.sleep(asked.seed / 1e6)
        await _event(send, _EVENT % (f'"content":" word{number % 97}"', "null"))
    await _event(send, _EVENT % ("", '"stop"') + "data: [DONE]\n\n")
    await send({"type": "http.response.body", "body": b""})
    _ = scope


class Question(msgspec.Struct):
    """The request fields of the scripted provider."""

    messages: list[msgspec.Raw]
    stream: bool = False


#: Words of each answer of the scripted provider, and seconds before each of them in a stream.
ANSWER_WORDS, _ANSWER_PACE_S = 40, 0.001


async def provider(scope: Message, receive: Receive, send: Send) -> None:
    """Answer a chat completion with words of the demo conversation, chosen by the last message."""
    body = await _body(receive)
    if scope["path"] != "/v1/chat/completions":
        await _whole(send, 404, {"error": {"message": "Unknown path."}})
        return
    question, words = msgspec.json.decode(body, type=Question), _words()
    start = zlib.crc32(question.messages[-1])
    answer = [f" {words[(start + number) % len(words)]}" for number in range(ANSWER_WORDS)]
    if not question.stream:
        await _whole(send, 200, _completion("".join(answer)))
        return
    await send({"type": "http.response.start", "status": 200, "headers": _STREAM})
    await _event(send, _EVENT % ('"role":"assistant","content":""', "null"))
    for word in answer:
        await asyncio.sleep(_ANSWER_PACE_S)
        await _event(send, _EVENT % (f'"content":{msgspec.json.encode(word).decode()}', "null"))
    await _event(send, _EVENT % ("", '"stop"') + "data: [DONE]\n\n")
    await send({"type": "http.response.body", "body": b""})


@cache
def spoken(*, by_user: bool) -> list[str]:
    """Return the posts of the demo conversation by its user, or by its assistant."""
    said = msgspec.json.decode(files("cuebook.app.demo").joinpath("data/conversation.json").read_bytes())
    return [post["message"] for post in said["posts"] if (post["sendFrom"] == said["user"]) == by_user]


@cache
def _words() -> list[str]:
    return " ".join(spoken(by_user=False)).split()


def _completion(text: str) -> object:
    message: object = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
    return {
        "id": "chatcmpl-CZ1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "gpt-5.2",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1_000, "completion_tokens": 40, "total_tokens": 1_040},
    }


async def _whole(send: Send, status: int, answer: object) -> None:
    body = msgspec.json.encode(answer)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _event(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


def bare_relay(base_url: str) -> App:
    """Return a minimal relay between a client and its upstream: bytes in, bytes out."""
    client = httpx2.AsyncClient(timeout=60, trust_env=False)

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        async with client.stream("POST", base_url + "/chat/completions", content=body, headers=headers) as answer:
            await send({"type": "http.response.start", "status": answer.status_code, "headers": _STREAM})
            async for chunk in answer.aiter_raw():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        _ = scope

    return app


def bare_reader(path: str) -> App:
    """Return a minimal server for the store: the same read, with the records as JSON."""
    store = sqlite_store(path)
    encode = msgspec.json.Encoder().encode

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        conversation, last = scope["path"].split("/")[3], int(scope["query_string"].partition(b"=")[2])
        body = encode(await store.posts(Scope(), conversation, last=last))
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        _ = receive

    return app


def main() -> None:
    """Serve until the input ends."""
    kind, *arguments = sys.argv[1:]
    threading.Thread(target=_tell, daemon=True).start()
    if kind in ("cuebook", "embedding", "shadow"):
        path, url = arguments
        settings = ConfigSections(
            store=StoreConfig(url=path),
            upstream=UpstreamConfig(url=url, shadow=kind == "shadow"),
            embedder=EmbedderConfig(provider="minilm" if kind == "embedding" else "none"),
        )
        serve(Config(settings=settings), port=0, started=lambda address: print(address, flush=True))
        return
    apps = {"upstream": upstream, "provider": provider}
    app = apps.get(kind) or (bare_relay(*arguments) if kind == "relay" else bare_reader(*arguments))
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    listening.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
    )  # like providers' servers: no event waits for an ACK
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
    server.run(sockets=[listening])


def _tell() -> None:
    for _ in sys.stdin:
        print(time.process_time(), flush=True)


if __name__ == "__main__":
    main()
