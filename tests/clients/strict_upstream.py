"""A strict provider on a real socket: it speaks the three wires, answers by script and records every request.

Answers have the fields that providers add and strict providers reject in requests: refusal, annotations, reasoning.
"""

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from clients.scripted_answers import Reply, answer, read
from clients.strict_requests import problem_of
from scripted_answers import DONE, call
from threaded_server import ThreadedServer, body_of

WIRES = {"/v1/chat/completions": "chat", "/v1/responses": "responses", "/v1/messages": "messages"}
#: A long upstream context window, so that nothing is shortened.
CONTEXT = 200_000
#: The reasoning in each answer: a strict provider rejects it in requests of the chat wire.
REASONING = "The user asks about the harbor."


@dataclass
class Received:
    """A request of a model, and why it was refused ("" if it was answered)."""

    wire: str
    headers: dict[str, str]
    raw: bytes
    problem: str = ""

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


class StrictUpstream:
    """The server. `take` returns the requests since the last call and starts the count of answers again.

    `resent` are fields of answers that the current program resends, so that its provider has to accept them.
    """

    resent: Sequence[str] = ()

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.others: list[str] = []  # methods and paths of other requests
        self._stored: dict[str, list[Any]] = {}  # items up to an answer of Responses
        self._server = ThreadedServer(self)
        self.root, self.stop = self._server.root, self._server.stop

    def take(self) -> list[Received]:
        received, self.received, self._stored = self.received, [], {}
        return received

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        raw = await body_of(receive)
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        wire = WIRES.get(scope["path"]) if scope["method"] == "POST" else None
        status, kind, pieces = (
            self._answer(Received(wire, headers, raw)) if wire else self._other(scope["method"], scope["path"], raw)
        )
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _answer(self, request: Received) -> tuple[int, bytes, list[bytes]]:
        number = len(self.received)
        self.received.append(request)
        body = request.body
        earlier = self._stored.get(body.get("previous_response_id") or "", [])
        request.problem = problem_of(request.wire, body, resent=self.resent)
        if request.problem:
            error = {"type": "invalid_request_error", "message": request.problem}
            return 400, b"application/json", [_json({"type": "error", "error": error})]
        reply = answer(read(request.wire, body, earlier))
        render = {"chat": _chat, "responses": _responses, "messages": _messages}[request.wire]
        whole, events = render(reply, number, str(body["model"]))
        if request.wire == "responses":
            new = body["input"]
            new = [{"role": "user", "content": new}] if isinstance(new, str) else new
            self._stored[whole["id"]] = [*earlier, *new, *whole["output"]]
        if body.get("stream"):
            return 200, b"text/event-stream; charset=utf-8", list(events)
        return 200, b"application/json", [_json(whole)]

    def _other(self, method: str, path: str, raw: bytes) -> tuple[int, bytes, list[bytes]]:
        self.others.append(f"{method} {path}")
        answers: dict[str, Any] = {
            "/v1/models": {"object": "list", "data": [{"id": "m", "object": "model", "context_window": CONTEXT}]},
            "/v1/messages/count_tokens": {"input_tokens": 14},
        }
        if path == "/v1/embeddings":
            return 200, b"application/json", [_json(_embeddings(json.loads(raw)))]
        found = path in answers
        return 200 if found else 404, b"application/json", [_json(answers[path] if found else {"error": path})]


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _embeddings(body: dict[str, Any]) -> dict[str, Any]:
    """Return one-hot vectors, the same for the same text."""
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    size = body.get("dimensions") or 1536
    data = []
    for n, text in enumerate(texts):
        vector = [0.0] * size
        vector[zlib.crc32(str(text).encode()) % size] = 1.0
        data.append({"object": "embedding", "index": n, "embedding": vector})
    return {"object": "list", "data": data, "model": body["model"], "usage": {"prompt_tokens": 1, "total_tokens": 1}}


def _pieces(text: str) -> Iterator[str]:
    return (text[at : at + 8] for at in range(0, len(text), 8))


def _call_id(number: int) -> str:
    return f"call_{number:04}"


# ---- Answers of each wire: whole, and as events ---------------------------------------------------------------------


def _chat(reply: Reply, number: int, model: str) -> tuple[dict[str, Any], Iterator[bytes]]:
    calls = [call(_call_id(number), reply.tool, reply.arguments)] if reply.tool else []
    usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    head = {"id": f"chatcmpl-{number}", "created": 1_700_000_000, "model": model, "system_fingerprint": "fp_1"}
    finish = "tool_calls" if calls else "stop"
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": None, "annotations": []}
    message["reasoning_content"] = REASONING
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}

    def events() -> Iterator[bytes]:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "", "refusal": None}]
        deltas += [{"reasoning_content": REASONING}, *({"content": piece} for piece in _pieces(reply.text))]
        deltas += [{"tool_calls": [{**each, "index": n}]} for n, each in enumerate(calls)]
        for n, delta in enumerate([*deltas, {}]):
            choice = {"index": 0, "delta": delta, "finish_reason": finish if n == len(deltas) else None}
            yield b"data: " + _json({**head, "object": "chat.completion.chunk", "choices": [choice]}) + b"\n\n"
        yield b"data: " + _json({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage}) + b"\n\n"
        yield DONE

    return whole, events()


def _responses(reply: Reply, number: int, model: str) -> tuple[dict[str, Any], Iterator[bytes]]:
    output: dict[str, Any]
    if reply.tool:
        output = {
            "type": "function_call", "id": f"fc_{number}", "call_id": _call_id(number), "name": reply.tool,
            "arguments": json.dumps(reply.arguments), "status": "completed",
        }  # fmt: skip
    else:
        part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        output = {
            "type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [part],
        }  # fmt: skip
    usage = {
        "input_tokens": 20, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 25,
    }  # fmt: skip
    whole = {
        "id": f"resp_{number}", "object": "response", "created_at": 1_700_000_000, "status": "completed",
        "model": model, "output": [output], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        "usage": usage, "error": None, "incomplete_details": None, "instructions": None, "metadata": {},
    }  # fmt: skip

    def events() -> Iterator[bytes]:
        place = {"output_index": 0, "item_id": output["id"]}
        begun = {**whole, "status": "in_progress", "output": [], "usage": None}
        steps: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
        if reply.tool:
            started = {**output, "arguments": "", "status": "in_progress"}
            steps += [
                {"type": "response.output_item.added", "output_index": 0, "item": started},
                {"type": "response.function_call_arguments.delta", **place, "delta": output["arguments"]},
                {
                    "type": "response.function_call_arguments.done", **place, "name": reply.tool,
                    "arguments": output["arguments"],
                },
            ]  # fmt: skip
        else:
            started = {**output, "content": [], "status": "in_progress"}
            at = {**place, "content_index": 0}
            steps += [
                {"type": "response.output_item.added", "output_index": 0, "item": started},
                {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
                *(
                    {"type": "response.output_text.delta", **at, "delta": p, "logprobs": []}
                    for p in _pieces(reply.text)
                ),
                {"type": "response.output_text.done", **at, "text": reply.text, "logprobs": []},
                {"type": "response.content_part.done", **at, "part": part},
            ]
        steps += [
            {"type": "response.output_item.done", "output_index": 0, "item": output},
            {"type": "response.completed", "response": whole},
        ]
        for n, step in enumerate(steps):
            yield _event({**step, "sequence_number": n})

    return whole, events()


def _messages(reply: Reply, number: int, model: str) -> tuple[dict[str, Any], Iterator[bytes]]:
    block: dict[str, Any] = {"type": "text", "text": reply.text}
    if reply.tool:
        block = {"type": "tool_use", "id": f"toolu_{number:04}", "name": reply.tool, "input": reply.arguments}
    stop = "tool_use" if reply.tool else "end_turn"
    usage = {
        "input_tokens": 20, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 5,
        "service_tier": "standard",
    }  # fmt: skip
    whole = {
        "id": f"msg_{number:04}", "type": "message", "role": "assistant", "model": model, "content": [block],
        "stop_reason": stop, "stop_sequence": None, "usage": usage,
    }  # fmt: skip

    def events() -> Iterator[bytes]:
        yield _event({"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}})
        yield _event({"type": "ping"})
        empty = {**block, "input": {}} if reply.tool else {**block, "text": ""}
        yield _event({"type": "content_block_start", "index": 0, "content_block": empty})
        kind, name, text = ("text_delta", "text", reply.text)
        if reply.tool:
            kind, name, text = ("input_json_delta", "partial_json", json.dumps(reply.arguments))
        for piece in _pieces(text):
            yield _event({"type": "content_block_delta", "index": 0, "delta": {"type": kind, name: piece}})
        yield _event({"type": "content_block_stop", "index": 0})
        delta = {"stop_reason": stop, "stop_sequence": None}
        yield _event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}})
        yield _event({"type": "message_stop"})

    return whole, events()


def _event(value: dict[str, Any]) -> bytes:
    return f"event: {value['type']}\n".encode() + b"data: " + _json(value) + b"\n\n"
