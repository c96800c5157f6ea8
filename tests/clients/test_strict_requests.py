"""Tests of the strict upstream: it refuses what providers refuse."""

import pytest

from clients.strict_requests import problem_of

USER = {"role": "user", "content": "Hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "found"}
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]}
USED = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "found"}]}
MARKED = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}
ITEM = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([USER, CALLING, RESULT], ""),
        *(([{"role": "assistant", "content": "Hi", name: None}], f"messages[0]: unknown fields {name}")
          for name in ("annotations", "audio", "reasoning_content", "refusal")),
        ([{**USER, "cache_control": {}}], "messages[0]: unknown fields cache_control"),
        ([{"role": "user", "content": [MARKED]}], "messages[0].content: unknown fields cache_control"),
        ([CALLING, USER], "messages[1]: calls without results: c1"),
        ([CALLING], "messages: calls without results: c1"),
        ([RESULT], "messages[0]: result without its call"),
        ([{"role": "assistant", "content": None}], "messages[0]: no content"),
        ([{"role": "robot", "content": "Hi"}], "messages[0]: unknown role 'robot'"),
    ],
)  # fmt: skip
def test_chat_requests(messages, problem):
    assert problem_of("chat", {"model": "m", "messages": messages}) == problem


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([USER, USE, USED], ""),
        ([USE, USER], "messages[1]: calls ['t1'], results []"),
        ([USED], "messages[0]: calls [], results ['t1']"),
        ([{"role": "user", "content": [MARKED] * 5}], "request: more than 4 cache marks"),
        ([{"role": "user", "content": [MARKED] * 4}], ""),
        ([{**USER, "id": "msg_1"}], "messages[0]: unknown fields id"),
        ([{"role": "user", "content": [{"type": "text", "text": ""}]}], "messages[0]: empty text"),
    ],
)
def test_messages_requests(messages, problem):
    assert problem_of("messages", {"model": "m", "max_tokens": 9, "messages": messages}) == problem


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ("Hi", ""),
        ([ITEM], "input: calls without results: c1"),
        ([{"type": "function_call_output", "call_id": "c1", "output": "found"}], "input[0]: result without its call"),
        ([{**USER, "reasoning_content": "x"}], "input[0]: unknown fields reasoning_content"),
        ([{"type": "banana"}], "input[0]: unknown type 'banana'"),
    ],
)
def test_responses_requests(items, problem):
    assert problem_of("responses", {"model": "m", "input": items}) == problem


def test_unknown_fields_of_a_request_are_refused():
    assert problem_of("chat", {"messages": [USER], "x": 1}) == "request: unknown fields x"
    resent = {"role": "assistant", "content": "Hi", "reasoning_content": "x"}
    assert not problem_of("chat", {"messages": [resent]}, resent=["reasoning_content"])
