"""Property test of the translation from chat completion chunks to Anthropic's stream, for any chunks a server sends."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cuebook.wire.anthropic_answers import Grown, MessageTelling, events_of, grow
from cuebook.wire.chat_stream import Events

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["index", "id", "function", "name",
        "arguments", "content", "cached_tokens", "type"]), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
DELTA = st.fixed_dictionaries({}, optional={"content": JSON, "refusal": JSON, "tool_calls": JSON})
CHOICE = st.fixed_dictionaries({"delta": DELTA | JSON}, optional={"index": JSON, "finish_reason": JSON})
CHUNK = st.fixed_dictionaries({}, optional={
    "choices": st.lists(CHOICE | JSON, max_size=2) | JSON, "usage": JSON, "model": JSON,
})  # fmt: skip


def read(stream: bytes) -> Grown:
    grown, events = Grown(), Events()
    for line in stream.splitlines(keepends=True):
        grow(grown, events.read(line))
    return grown


@given(st.lists(CHUNK, max_size=5))
def test_any_chunks_become_one_anthropic_message(chunks: list[dict[str, Any]]) -> None:
    telling = MessageTelling("msg_1", model="m", tokens=7)
    stream = telling.begin() + b"".join(map(telling.take, chunks)) + telling.end()
    message = telling.message
    grown = read(stream)
    assert grown.done
    assert grown.stop == message["stop_reason"]
    assert [each["type"] for each in grown.content] == [each["type"] for each in message["content"]]
    assert "".join(each.get("text", "") for each in grown.content) == "".join(
        each.get("text", "") for each in message["content"]
    )
    again = read(b"".join(events_of(message)))
    assert again.content == message["content"]
    json.dumps(message)
