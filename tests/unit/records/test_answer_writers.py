"""Property tests of the translation from chat completion chunks to the other wires, for any chunks a server sends."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cuebook.wire.anthropic_answers import MessagesReader, MessagesWriter, write_events
from cuebook.wire.chat_answers import ChatReader
from cuebook.wire.responses_answers import ResponsesReader, ResponsesWriter

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


# ---- Responses

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9)
CALL = st.fixed_dictionaries({"id": TEXT, "function": st.fixed_dictionaries({"name": TEXT, "arguments": TEXT})})
DELTA = TEXT.map(lambda text: {"content": text}) | st.lists(CALL, max_size=3).map(
    lambda calls: {"tool_calls": [{"index": n, "type": "function", **call} for n, call in enumerate(calls)]}
)


def response_writer() -> ResponsesWriter:
    return ResponsesWriter("resp_1", conversation="c1", created=7, model="m", echo={})


def read_response(stream: bytes) -> ResponsesReader:
    reader = ResponsesReader()
    for line in stream.splitlines(keepends=True):
        reader.read_line(line)
    return reader


@given(st.lists(CHUNK, max_size=5))
def test_any_chunks_become_one_response(chunks: list[dict[str, Any]]) -> None:
    response = response_writer()
    stream = response.begin() + b"".join(map(response.take, chunks)) + response.end()
    document = json.loads(json.dumps(response.document()))
    reader = read_response(stream)
    assert reader.answer.done
    assert document["status"] in ("completed", "incomplete")
    whole = ResponsesReader()
    whole.read_body(json.dumps(document).encode())
    assert reader.message() == whole.message()


@given(DELTA)
def test_a_response_has_the_content_of_its_chat_completion(message: dict[str, Any]) -> None:
    chunk = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    chat, response = ChatReader(), response_writer()
    chat.add_document(chunk)
    response.take(chunk, "message")
    reader = read_response(response.begin() + response.end())
    expected = json.loads(chat.message() or b"{}")
    if expected.get("content") or expected.get("tool_calls"):
        assert json.loads(reader.message() or b"{}").items() >= expected.items()


def test_a_stream_that_ends_early_says_so() -> None:
    response = response_writer()
    response.take({"choices": [{"index": 0, "delta": {"content": "Half"}}]})
    reader = read_response(response.close())
    assert reader.answer.error == "The answer ended early. The text received so far is stored."
    assert json.loads(reader.message() or b"{}")["content"] == "Half"
