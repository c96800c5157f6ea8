"""A provider's state passes through the proxy: compaction, signed thinking, and memory tools of Anthropic's wire."""

import json
from typing import Any

import pytest
from turn_helpers import NAME, cue_on

from cuebook.app.cuebook import RelayCall
from cuebook.testing.upstream import EVENTS, Answer, ScriptedUpstream

#: An answer with all kinds of state, not in the usual order of blocks.
BLOCKS: list[dict[str, Any]] = [
    {"type": "compaction", "content": "The user plans a trip.", "encrypted_content": "ZW5j"},
    {"type": "thinking", "thinking": "First thought.", "signature": "c2lnMQ=="},
    {"type": "text", "text": "I look it up."},
    {"type": "thinking", "thinking": "Second thought.", "signature": "c2lnMg=="},
    {"type": "redacted_thinking", "data": "AAAA"},
    {"type": "tool_use", "id": "toolu_1", "name": "memory", "input": {"command": "view", "path": "/memories"}},
]
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "No files."}]}
FIELDS = {
    "model": "claude-opus-5", "max_tokens": 9, "tools": [{"type": "memory_20250818", "name": "memory"}],
    "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}, {"type": "compact_20260112"}]},
}  # fmt: skip
EDITS = {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 2, "cleared_input_tokens": 9}]}


def whole(blocks: list[dict[str, Any]]) -> Answer:
    stop = "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"
    answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": blocks}
    answer |= {"stop_reason": stop, "context_management": EDITS, "usage": {"input_tokens": 1, "output_tokens": 1}}
    return Answer(pieces=(json.dumps(answer).encode(),))


def streamed(blocks: list[dict[str, Any]]) -> Answer:
    """Return an answer as a stream whose state comes in deltas."""
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "msg_1", "model": "m", "content": []}}]
    for n, block in enumerate(blocks):
        kind, begun, deltas = block["type"], dict(block), list[dict[str, Any]]()
        if kind == "compaction":
            begun = {"type": kind, "content": None}
            deltas = [{"type": "compaction_delta", **{name: block[name] for name in ("content", "encrypted_content")}}]
        elif kind == "thinking":
            begun |= {"thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
            deltas += [{"type": "signature_delta", "signature": block["signature"]}]
        elif kind == "tool_use":
            begun["input"] = {}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        events.append({"type": "content_block_start", "index": n, "content_block": begun})
        events += [{"type": "content_block_delta", "index": n, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": n})
    stop = "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"
    events.append({"type": "message_delta", "delta": {"stop_reason": stop}, "context_management": EDITS})
    events.append({"type": "message_stop"})
    pieces = [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events]
    return Answer(pieces=pieces, headers={"content-type": EVENTS})


@pytest.mark.parametrize("kept", [False, True], ids=["resent", "server"])
@pytest.mark.parametrize("answer", [whole, streamed])
async def test_anthropic_state_is_unchanged_in_both_directions(tmp_path, answer, kept):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream) as cue:
        history: list[dict[str, Any]] = []
        new = [{"role": "user", "content": "Plan my trip."}]
        for blocks in (BLOCKS, [{"type": "text", "text": "Done."}], [{"type": "text", "text": "Bye."}]):
            history += new
            body = json.dumps(FIELDS | {"messages": new if kept else history, "stream": answer is streamed}).encode()
            reply = answer(blocks)
            upstream.say(reply)
            call = RelayCall(body=body, headers={}, conversation=NAME, server_history=kept)
            pieces = [piece async for piece in cue.message(call)]
            assert b"".join(pieces[1:]) == b"".join(reply.pieces)
            assert kept or upstream.requests[-1].body == body
            sent = upstream.sent()
            assert [as_blocks(each) for each in sent["messages"]] == [as_blocks(each) for each in history]
            assert {name: sent[name] for name in FIELDS} == FIELDS
            history.append({"role": "assistant", "content": blocks})
            new = [RESULT] if blocks is BLOCKS else [{"role": "user", "content": "Thanks."}]


def as_blocks(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with a text as its block."""
    content = message["content"]
    return message | {"content": [{"type": "text", "text": content}] if isinstance(content, str) else content}
