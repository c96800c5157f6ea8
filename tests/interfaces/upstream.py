"""A scripted OpenAI server for tests. The request's `model` selects the answer; all requests are recorded."""

import asyncio
import json
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from messages_upstream import answer_messages

from threaded_server import ThreadedServer, body_of

NEVER_S = 60.0


@dataclass
class Received:
    """A received request and the bytes of its answer."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    sent: list[bytes] = field(default_factory=list)
    gone_after: float | None = None  # seconds until the caller disconnected

    @property
    def fields(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def answer(self) -> bytes:
        return b"".join(self.sent)


def chunk(delta: dict[str, Any], *, finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish, "logprobs": None}
    event = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "scripted",
        "choices": [choice],
    }
    return b"data: " + json.dumps(event | more, ensure_ascii=False).encode() + b"\n\n"


def whole(*contents: str, **more: Any) -> dict[str, Any]:
    choices = [
        {"index": n, "message": {"role": "assistant", "content": each}, "finish_reason": "stop", "logprobs": None}
        for n, each in enumerate(contents)
    ]
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "scripted",
        "choices": choices, "usage": usage,
    } | more  # fmt: skip


DONE = b"data: [DONE]\n\n"
CALLS = [
    {"id": "call_a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}},
    {"id": "call_b", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}},
]


def tool_stream() -> list[bytes]:
    return [
        chunk({"role": "assistant", "content": None}),
        chunk(
            {
                "tool_calls": [
                    {"index": 0, "id": "call_a", "type": "function", "function": {"name": "weather", "arguments": ""}}
                ]
            }
        ),
        chunk(
            {
                "tool_calls": [
                    {"index": 1, "id": "call_b", "type": "function", "function": {"name": "weather", "arguments": ""}}
                ]
            }
        ),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"city": '}}]}),
        chunk({"tool_calls": [{"index": 1, "function": {"arguments": '{"city": "Rome"}'}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '"Oslo"}'}}]}),
        chunk({}, finish="tool_calls"),
        DONE,
    ]


class Upstream:
    """The server. `received` lists the requests of clients, `background` those of Cuebook itself."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.background: list[Received] = []
        self.url = ""
        self._server: ThreadedServer | None = None

    def start(self) -> None:
        self._server = ThreadedServer(self)
        self.url = f"{self._server.root}/v1"

    def stop(self) -> None:
        if self._server:
            self._server.stop()

    @property
    def last(self) -> Received:
        return self.received[-1]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = await body_of(receive)
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        request = Received(
            scope["method"], scope["raw_path"].decode(), scope["query_string"].decode(), headers, body
        )  # fmt: skip
        (self.background if headers.get("user-agent") == "cuebook" else self.received).append(request)
        answering = asyncio.ensure_future(self._answer(request, send))
        watching = asyncio.ensure_future(receive())
        began = time.monotonic()
        await asyncio.wait((answering, watching), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            request.gone_after = time.monotonic() - began
            answering.cancel()
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await answering

    async def _answer(self, request: Received, send: Any) -> None:
        async def head(status: int = 200, kind: str = "application/json", **more: str) -> None:
            headers = [(b"content-type", kind.encode()), (b"x-request-id", b"req_123")]
            headers += [(name.replace("_", "-").encode(), value.encode()) for name, value in more.items()]
            await send({"type": "http.response.start", "status": status, "headers": headers})

        async def say(piece: bytes, *, last: bool = False) -> None:
            request.sent.append(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": not last})

        if request.path != "/v1/chat/completions" or request.method != "POST":
            await self._other(request, head, say)
            return
        fields = request.fields
        model = fields.get("model", "")
        if model == "limited":
            await head(429, retry_after="7")
            await say(
                b'{"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}}', last=True
            )
        elif model == "restarting" and len(self.received) < 3:
            await head(503)
            await say(b'{"error": {"message": "starting", "type": "server_error"}}', last=True)
        elif model == "garbage":
            await head(200)
            await say(b"\xff\xfe<html>not json", last=True)
        elif model == "never":
            await asyncio.sleep(NEVER_S)
        elif model == "late":
            await asyncio.sleep(0.8)
            await head(200)
            await say(json.dumps(self._whole(model, fields)).encode(), last=True)
        elif fields.get("stream"):
            await head(200, "text/event-stream; charset=utf-8")
            await self._stream(model, fields, say)
        else:
            await head(200)
            await say(json.dumps(self._whole(model, fields), ensure_ascii=False).encode(), last=True)

    def _whole(self, model: str, fields: dict[str, Any]) -> dict[str, Any]:
        if model == "tools" and fields["messages"][-1]["role"] != "tool":
            answer = whole("")
            answer["choices"][0] |= {
                "message": {"role": "assistant", "content": None, "tool_calls": CALLS}, "finish_reason": "tool_calls",
            }  # fmt: skip
            return answer
        if model == "two":
            return whole("one", "two")
        if model == "logprobs":
            answer = whole("yes")
            answer["choices"][0]["logprobs"] = {
                "content": [{"token": "yes", "logprob": -0.1, "bytes": None, "top_logprobs": []}]
            }
            return answer | {"service_tier": "default", "x_unknown": {"kept": [1, 2.50]}}
        return whole(f"You said {len(fields['messages'])} messages — “{fields['messages'][-1].get('content')}”.")

    async def _stream(self, model: str, fields: dict[str, Any], say: Any) -> None:
        if model == "tools" and fields["messages"][-1]["role"] != "tool":
            pieces = tool_stream()
        elif model == "two":
            pieces = [
                chunk({"role": "assistant", "content": "one"}),
                chunk({"role": "assistant", "content": "two"}, index=1),
            ]
            pieces += [chunk({}, finish="stop"), chunk({}, finish="stop", index=1), DONE]
        else:
            words = [chunk({"content": word}) for word in ("Grüße", " from", " up", "stream", ".")]
            pieces = [b": a comment\n\n", chunk({"role": "assistant", "content": ""}), *words, chunk({}, finish="stop")]
            pieces += [chunk({}, usage={"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}), DONE]
        for n, piece in enumerate(pieces):
            if model == "half" and n == 4:
                return  # cut the connection before the end of the stream
            if model == "slow":
                await asyncio.sleep(0.2)
            if model == "stuck" and n == 4:
                await asyncio.sleep(NEVER_S)
            if model == "torn":  # cut anywhere, even inside a character
                for byte in range(0, len(piece), 7):
                    await say(piece[byte : byte + 7])
            else:
                await say(piece)
        await say(b"", last=True)

    async def _other(self, request: Received, head: Any, say: Any) -> None:
        if request.path == "/v1/models" and request.method == "GET":
            await head(200)
            models = [{"id": "big", "object": "model", "created": 5, "owned_by": "them", "extra": True}]
            await say(json.dumps({"object": "list", "data": models}).encode(), last=True)
        elif request.path == "/v1/embeddings":
            await head(200)
            await say(b'{"object": "list",  "data": [{"embedding": [0.10, 1e-3]}]}', last=True)
        elif request.path.startswith("/v1/messages"):
            await answer_messages(request, head, say)
        elif request.path == "/v1/audio/speech":
            await head(200, "audio/mpeg")
            for piece in (b"\x00\x01", b"\xff\xfe"):
                await say(piece)
            await say(b"", last=True)
        else:
            await head(404)
            await say(b'{"error": {"message": "nothing here"}}', last=True)
