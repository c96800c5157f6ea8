"""Scripted answers of the Anthropic Messages API, selected by the request's `model`."""

import json
from typing import Any

USAGE = {
    "input_tokens": 20,
    "cache_read_input_tokens": 100,
    "cache_creation_input_tokens": 3,
    "output_tokens": 1,
    "service_tier": "standard",
}
OVERLOADED = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}'
BAD = b'{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: too many"}}'
#: The thinking block and the tool calls of a scripted answer.
THINKING = {"type": "thinking", "thinking": "The user wants the weather. I ask.", "signature": "c2lnbmVk"}
CALLS = [
    {"type": "tool_use", "id": "toolu_a", "name": "weather", "input": {"city": "Oslo", "days": [1, 2]}},
    {"type": "tool_use", "id": "toolu_b", "name": "weather", "input": {}},
]


def content_of(fields: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the content blocks of an answer."""
    last = fields["messages"][-1]["content"]
    results = [block for block in last if block.get("type") == "tool_result"] if isinstance(last, list) else []
    if "tools" in fields and not results:
        thoughts = [THINKING, {"type": "redacted_thinking", "data": "AAAA"}] if "thinking" in fields else []
        return [*thoughts, {"type": "text", "text": "Let me look."}, *CALLS]
    if fields["model"] == "two-texts":
        return [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    return [{"type": "text", "text": f"Grüße, {len(fields['messages'])} messages."}]


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, ensure_ascii=False)}\n\n".encode()


def whole(fields: dict[str, Any], *, started: bool = False) -> dict[str, Any]:
    content = content_of(fields)
    stop = "tool_use" if content[-1]["type"] == "tool_use" else "end_turn"
    return {
        "id": "msg_01", "type": "message", "role": "assistant", "model": fields["model"],
        "content": [] if started else content, "stop_reason": None if started else stop, "stop_sequence": None,
        "usage": USAGE if started else {**USAGE, "output_tokens": 12},
    }  # fmt: skip


def stream(fields: dict[str, Any]) -> list[bytes]:
    """Return an answer as stream events: text, JSON and signatures in pieces, with a ping."""
    pieces = [event("message_start", message=whole(fields, started=True)), event("ping")]
    for n, block in enumerate(content_of(fields)):
        begun: dict[str, Any] = dict(block)
        deltas: list[dict[str, Any]] = []
        if block["type"] == "text":
            text, begun["text"] = block["text"], ""
            deltas = [{"type": "text_delta", "text": text[at : at + 5]} for at in range(0, len(text), 5)]
        elif block["type"] == "thinking":
            begun |= {"thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"][at : at + 9]} for at in range(0, 34, 9)]
            deltas += [{"type": "signature_delta", "signature": block["signature"]}]
        elif block["type"] == "tool_use":
            begun["input"], given = {}, json.dumps(block["input"])
            cut = [given[at : at + 7] for at in range(0, len(given), 7)] if block["input"] else []
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *cut]]
        pieces.append(event("content_block_start", index=n, content_block=begun))
        pieces += [event("content_block_delta", index=n, delta=delta) for delta in deltas]
        pieces.append(event("content_block_stop", index=n))
    stop = whole(fields)["stop_reason"]
    pieces.append(
        event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": 12})
    )
    return [*pieces, event("message_stop")]


async def answer_messages(request: Any, head: Any, say: Any) -> None:
    """Answer a request below `/v1/messages`."""
    if request.path == "/v1/messages/count_tokens":
        await head(200)
        await say(b'{"input_tokens":  14}', last=True)
        return
    if request.path == "/v1/messages/batches":
        await head(200)
        batch = {"id": "batch_1", "type": "message_batch", "processing_status": "in_progress"}
        await say(json.dumps(batch).encode(), last=True)
        return
    fields = request.fields
    model = fields["model"]
    if model == "overloaded":
        await head(529, retry_after="3")
        await say(OVERLOADED, last=True)
    elif model == "bad":
        await head(400)
        await say(BAD, last=True)
    elif not fields.get("stream"):
        await head(200)
        await say(json.dumps(whole(fields), ensure_ascii=False).encode(), last=True)
    else:
        await head(200, "text/event-stream; charset=utf-8")
        for n, piece in enumerate(stream(fields)):
            if model == "half" and n == 5:
                return  # cut the connection before the end of the stream
            if model == "failing" and n == 5:
                await say(event("error", error={"type": "overloaded_error", "message": "Overloaded"}))
                break
            for at in range(0, len(piece), 11 if model == "torn" else len(piece)):
                await say(piece[at : at + 11] if model == "torn" else piece)
        await say(b"", last=True)
