"""Tests of the conversion between Anthropic messages and chat messages, in one piece and streamed."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from cuebook.engine.proxy.messages_wire import user_of
from cuebook.errors import InvalidInput
from cuebook.wire.anthropic_answers import MessagesReader
from cuebook.wire.anthropic_messages import convert_messages, read_reply, read_system, write_blocks
from cuebook.wire.chat_messages import digest, read_message

IMAGE = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
PDF = {
    "type": "document",
    "title": "a.pdf",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="},
}
SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {"b": [1, 2.5], "a": "ü"}}
REMINDER = {"type": "text", "text": "<system-reminder>\nToday is Friday.\n</system-reminder>"}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


def turned(*messages: Any) -> list[dict[str, Any]]:
    return [json.loads(each.chat) for each in convert_messages([raw(each) for each in messages])]


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


@pytest.mark.parametrize(
    ("blocks", "roles"),
    [
        ([RESULT, {**RESULT, "tool_use_id": "t2"}], ["tool", "tool"]),
        ([RESULT, REMINDER], ["tool"]),
        ([RESULT, text("And hurry."), REMINDER], ["tool", "user"]),
        ([text("Before."), RESULT], ["user", "tool"]),
        ([RESULT, REMINDER, {**RESULT, "tool_use_id": "t2"}, text("And hurry.")], ["tool", "tool", "user"]),
        ([], ["user"]),
        ([REMINDER, text("Hi")], ["user"]),
    ],
)
def test_a_user_message_splits_into_results_and_text(blocks: list[dict[str, Any]], roles: list[str]) -> None:
    assert [each["role"] for each in turned(user(*blocks))] == roles
    whole = convert_messages([raw(user(*blocks))])
    assert [json.loads(bytes(block)) for each in whole for block in each.blocks] == blocks  # no block is lost


def test_text_that_an_agent_program_adds_is_not_the_users() -> None:
    [asked] = turned(user(REMINDER, text("Which day is it?")))
    said = read_message(asked)
    assert said.message == "Which day is it?"
    assert "Friday" in said.parts[0].content


@pytest.mark.parametrize(
    "blocks",
    [
        [text("Hi"), IMAGE, PDF],
        [REMINDER, text("Hi")],
        [{**RESULT, "is_error": True}],
        [{**RESULT, "content": [text("a picture"), IMAGE]}],
        [{"type": "search_result", "source": "s", "title": "t", "content": [text("x")]}],
    ],
)
def test_a_parsed_message_is_written_back_unchanged(blocks: list[dict[str, Any]]) -> None:
    [told] = convert_messages([raw(user(*blocks))])
    assert write_blocks(told.chat) == ("user", blocks)


def test_a_reply_is_written_back_with_thinking_in_its_order() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    chat = read_reply([thought, text("I look."), SEARCH, USE])
    assert write_blocks(chat) == ("assistant", [thought, text("I look."), SEARCH, USE])
    mixed = [text("I look."), thought, USE, {"type": "compaction", "content": "c"}, {**thought, "signature": "Mg=="}]
    assert write_blocks(read_reply(mixed)) == ("assistant", mixed)
    said = read_message(chat)
    assert (said.message, [part.type for part in said.parts]) == ("I look.", ["reasoning", "opaque", "function"])


def test_a_resent_reply_is_recognized() -> None:
    """Anthropic's library writes null fields, drops thinking, sorts a call's input and adds cache markers."""
    chat = read_reply([{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, text("I look."), USE])
    again = [
        {**text("I look."), "citations": None, "cache_control": {"type": "ephemeral"}},
        {**USE, "input": {"a": "ü", "b": [1, 2.5]}, "caller": None},
    ]
    assert digest(read_message(chat)) == digest(read_message(turned({"role": "assistant", "content": again})[0]))


def test_chat_messages_of_other_programs_can_be_converted() -> None:
    legacy = {"id": "call 1", "type": "function", "function": {"name": "a.b", "arguments": "not json"}}
    asked = json.dumps({"role": "assistant", "content": None, "tool_calls": [legacy]}).encode()
    assert write_blocks(asked)[1] == [
        {"type": "tool_use", "id": "call 1", "name": "a_b", "input": {"input": "not json"}}
    ]
    named = b'{"role": "user", "name": "ann", "content": "Hi"}'
    assert write_blocks(named) == ("user", [text("ann:"), text("Hi")])
    assert write_blocks(b'{"role": "user", "content": " "}') == ("user", [])


@pytest.mark.parametrize("wrong", [7, {"role": "robot", "content": ""}, {"role": "user"}, user(7)])
def test_an_invalid_message_is_rejected(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match=r"messages\[1\]"):
        convert_messages([raw(user(text("Hi"))), raw(wrong)])
    assert read_system(raw([text(""), text("a")])) == [raw(text("a"))]


@pytest.mark.parametrize(
    ("given", "user_"),
    [
        ("ann", "ann"),
        ("user_ab12_account_c_session_d", "user_ab12_account_c"),
        ('{"device_id": "d", "account_uuid": "", "session_id": "s"}', "d"),
        ("{odd", "{odd"),
        (7, ""),
    ],
)
def test_a_session_id_is_not_taken_for_a_user(given: Any, user_: str) -> None:
    assert user_of({"metadata": raw({"user_id": given})}) == user_


KINDS = [
    "message_start", "message_delta", "message_stop", "content_block_start", "content_block_delta",
    "content_block_stop", "error", "ping", "of_next_year",
]  # fmt: skip
NAMES = [
    "type", "index", "text", "thinking", "signature", "partial_json", "citation", "id", "name", "input", "content",
    "stop_reason", "usage", "input_tokens", "tool_use", "message",
]  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.sampled_from(["text", "tool_use", "thinking"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=8,
)
events = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS)},
    optional=dict.fromkeys(("index", "message", "content_block", "delta", "usage", "error"), values),
)  # fmt: skip


@given(st.lists(events, max_size=6))
def test_any_stream_is_parsed_to_its_end(stream: list[dict[str, Any]]) -> None:
    reader = MessagesReader()
    for each in stream:
        assert isinstance(reader.read_line(b"data: " + json.dumps(each).encode() + b"\n"), str)
    message = reader.message()
    assert reader.answer.done == any(each["type"] == "message_stop" for each in stream)
    if message is not None:
        said = read_message(message)
        assert (said.role, digest(said)) == ("assistant", digest(read_message(message)))
        msgspec.json.encode(reader.answer.usage)


blocks = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image", "document"]) | values},
    optional=dict.fromkeys(("text", "id", "name", "input", "content", "tool_use_id", "source", "is_error"), values),
)


@given(st.lists(blocks, max_size=4), st.sampled_from(["user", "assistant"]))
def test_any_content_is_rejected_or_parsed_and_writable(content: list[dict[str, Any]], role: str) -> None:
    for each in convert_messages([raw({"role": role, "content": content})]):
        read_message(each.chat)
        json.dumps(write_blocks(each.chat))


@given(values)
def test_any_unstreamed_reply_is_parsed(body: Any) -> None:
    reader = MessagesReader()
    reader.read_body(json.dumps(body).encode())
    assert reader.message() is None or read_message(reader.message() or b"")
