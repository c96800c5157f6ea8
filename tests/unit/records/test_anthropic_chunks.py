"""Property test of the translation from chat completion chunks to Anthropic's stream, for any chunks a server sends."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cuebook.wire.anthropic_answers import MessagesReader, MessagesWriter, write_events

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


def read(stream: bytes) -> MessagesReader:
    reader = MessagesReader()
    for line in stream.splitlines(keepends=True):
        reader.read_line(line)
    return reader


@given(st.lists(CHUNK, max_size=5))
def test_any_chunks_become_one_anthropic_message(chunks: list[dict[str, Any]]) -> None:
    writer = MessagesWriter("msg_1", model="m", tokens=7)
    stream = writer.begin() + b"".join(map(writer.take, chunks)) + writer.end()
    message = writer.document()
    reader = read(stream)
    assert reader.answer.done
    assert reader.answer.finish == {0: message["stop_reason"]}
    assert [each["type"] for each in reader.content] == [each["type"] for each in message["content"]]
    assert "".join(each.get("text", "") for each in reader.content) == "".join(
        each.get("text", "") for each in message["content"]
    )
    again = read(b"".join(write_events(message)))
    assert again.content == message["content"]
    json.dumps(message)
