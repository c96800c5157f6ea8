"""Tests of the Anthropic Messages proxy with Anthropic's own client library."""

import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx
import pytest
from messages_upstream import BAD, CALLS, OVERLOADED, THINKING
from upstream import Upstream

from conftest import Live
from cuebook.config import build
from cuebook.records.answer import to_wire

TOOLS: list[Any] = [{"name": "weather", "description": "d", "input_schema": {"type": "object"}}]
IMAGE: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
MARK = {"cache_control": {"type": "ephemeral"}}
SYSTEM: list[Any] = [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind.", **MARK}]
REMINDER: Any = {"type": "text", "text": "<system-reminder>The to-do list is empty.</system-reminder>"}


@pytest.fixture
def start(upstream: Upstream, serve_live: Callable[..., Live]) -> Callable[..., Live]:
    def start_server(**more: Any) -> Live:
        settings = {"store.url": ":memory:", "upstream.url": upstream.url}
        return serve_live(build(arguments=settings | {name.replace("__", "."): value for name, value in more.items()}))

    return start_server


def show(live: Live, conversation: str, turn: int) -> dict[str, Any]:
    return to_wire(live.ask_cue(lambda: live.cue.turns.show(conversation, turn)))


def conversations(live: Live) -> list[Any]:
    return live.ask_cue(live.cue.conversations.list).items


def user(content: Any) -> Any:
    return {"role": "user", "content": content}


def run_tool_round(client: anthropic.Anthropic, *, stream: bool, thinking: bool = False, **more: Any) -> list[Any]:
    """Ask with tools and answer the tool calls. Return the whole history, which ends with the answer."""
    body: dict[str, Any] = {"model": "claude-opus-5", "max_tokens": 99, "tools": TOOLS, "system": SYSTEM, **more}
    if thinking:
        body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    history: list[Any] = [user([{"type": "text", "text": "What is the weather in Oslo?"}, IMAGE])]
    for _ in range(2):
        if stream:
            with client.messages.stream(messages=history, **body) as events:
                answer = events.get_final_message()
        else:
            answer = client.messages.create(messages=history, **body)
        history.append({"role": "assistant", "content": [block.to_dict() for block in answer.content]})
        if answer.stop_reason == "tool_use":
            results = [
                {"type": "tool_result", "tool_use_id": "toolu_a", "content": "Rain."},
                {"type": "tool_result", "tool_use_id": "toolu_b", "content": [IMAGE], "is_error": True},
            ]
            history.append(user([*results, REMINDER]))
    return history


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_tool_round_is_one_turn(
    start: Callable[..., Live],
    upstream: Upstream,
    anthropic_of: Callable[..., anthropic.Anthropic],
    *,
    stream: bool,
) -> None:
    live = start()
    history = run_tool_round(anthropic_of(live, "/c/trip/u/ann"), stream=stream, thinking=True)
    assert [block["type"] for block in history[1]["content"]] == [
        "thinking", "redacted_thinking", "text", "tool_use", "tool_use",
    ]  # fmt: skip
    assert upstream.last.path == "/v1/messages"
    assert upstream.last.headers["authorization"] == "Bearer sk-ant-theirs"
    assert upstream.last.fields["messages"] == history[:3]  # signatures, marks and reminders are unchanged
    assert upstream.last.fields["system"] == SYSTEM
    [conversation] = live.ask_cue(lambda: live.cue.conversations.list(user="ann")).items
    assert conversation.turns == 1
    turn = to_wire(live.ask_cue(lambda: live.cue.turns.show("trip", 1, user="ann")))
    assert (turn["query"], turn["reply"], turn["state"]) == (
        "What is the weather in Oslo?", "Grüße, 3 messages.", "finished",
    )  # fmt: skip
    assert [step["usage"] for step in turn["steps"]] == [
        {"input": 123, "output": 12, "cache_read": 100, "cache_write": 3}
    ] * 2
    assert "shadow" not in turn["metadata"]
    posts = live.ask_cue(lambda: live.cue.conversations.load("trip", user="ann")).posts
    assert [post.role for post in posts] == ["user", "assistant", "tool", "tool", "assistant"]
    assert posts[1].message == "Let me look."  # the message does not contain the thinking text
    thought = next(part for part in posts[1].parts if part.type == "reasoning")
    assert THINKING["signature"] in thought.content
    assert [call.extra["callId"] for call in posts[1].calls] == [call["id"] for call in CALLS]


def test_idempotency_key_returns_the_stored_answer(
    start: Callable[..., Live], upstream: Upstream, anthropic_of: Callable[..., anthropic.Anthropic]
) -> None:
    live = start()
    body: dict[str, Any] = {"model": "m", "max_tokens": 2048, "messages": [user("What is the weather?")]}
    body |= {"tools": TOOLS, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    with anthropic_of(live, default_headers={"Idempotency-Key": "k"}) as client:
        first = client.messages.create(**body)
        sent = len(upstream.received)
        second = client.messages.create(**body)
        assert (second.id, second.content, second.stop_reason) == (first.id, first.content, first.stop_reason)
        assert second.usage.cache_read_input_tokens == first.usage.cache_read_input_tokens == 100
        with client.messages.stream(**body) as events:
            streamed = events.get_final_message()
        assert [each.to_dict() for each in streamed.content] == [each.to_dict() for each in first.content]
        with pytest.raises(anthropic.UnprocessableEntityError):
            client.messages.create(**body | {"max_tokens": 4096})
    assert len(upstream.received) == sent
    assert "idempotency-key" not in upstream.last.headers
    [conversation] = conversations(live)
    assert conversation.turns == 1


def test_other_endpoints_pass_through(
    start: Callable[..., Live], upstream: Upstream, anthropic_of: Callable[..., anthropic.Anthropic]
) -> None:
    live = start()
    client = anthropic_of(live, default_headers={"anthropic-beta": "context-1m", "X-Cuebook-Key": "mine"})
    assert client.messages.count_tokens(model="m", messages=[user("Hi")]).input_tokens == 14
    params: Any = {"model": "m", "max_tokens": 9, "messages": [user("Hi")]}
    client.messages.batches.create(requests=[{"custom_id": "a", "params": params}])
    assert upstream.last.path == "/v1/messages/batches"
    sent = upstream.last.headers
    assert (sent["anthropic-beta"], sent["authorization"]) == ("context-1m", "Bearer sk-ant-theirs")
    assert not [name for name in sent if name.startswith("x-cuebook")]
    assert not conversations(live)


def test_provider_errors_are_forwarded_unchanged(
    start: Callable[..., Live], upstream: Upstream, anthropic_of: Callable[..., anthropic.Anthropic]
) -> None:
    live = start()
    client = anthropic_of(live, "/c/trip")
    body: dict[str, Any] = {"max_tokens": 9, "messages": [user("Hi")]}
    with pytest.raises(anthropic.APIStatusError) as overloaded:
        client.messages.create(model="overloaded", **body)
    assert (overloaded.value.status_code, overloaded.value.response.content) == (529, OVERLOADED)
    assert overloaded.value.response.headers["retry-after"] == "3"
    with pytest.raises(anthropic.BadRequestError) as bad:
        client.messages.create(model="bad", **body)
    assert bad.value.response.content == BAD
    with pytest.raises(anthropic.APIStatusError), client.messages.stream(model="failing", **body) as events:
        events.get_final_message()
    with (
        pytest.raises(Exception, match=r"peer closed|incomplete"),
        client.messages.stream(model="half", **body) as cut,
    ):
        cut.get_final_message()
    assert [show(live, "trip", n)["state"] for n in (1, 2, 3, 4)] == ["failed", "failed", "failed", "interrupted"]
    assert show(live, "trip", 4)["reply"].startswith("Gr")
    upstream.received.clear()
    refused = httpx.post(f"{live.url}/v1/messages", json={**body, "model": "m"}, headers={"x-time-zone": "Nowhere"})
    assert refused.status_code == 400
    assert refused.json()["error"]["type"] == "invalid_request_error"
    assert not upstream.received


def test_history_is_recognized_by_its_content(
    start: Callable[..., Live], anthropic_of: Callable[..., anthropic.Anthropic]
) -> None:
    """The library resends blocks with nulls, moves markers, and writes its texts as strings."""
    live = start()
    client = anthropic_of(live)
    history = run_tool_round(client, stream=True, model="torn")
    history += [user("Thanks.")]
    history[1]["content"][0]["citations"] = None
    history[0]["content"][-1] = {**IMAGE, **MARK}
    answer = client.messages.create(model="two-texts", max_tokens=9, messages=history)
    assert [block.type for block in answer.content] == ["text", "text"]
    history += [{"role": "assistant", "content": [block.to_dict() for block in answer.content]}, user("And now?")]
    with client.messages.stream(model="m", max_tokens=9, messages=history) as events:
        said = events.get_final_text()
    [conversation] = conversations(live)
    assert (conversation.turns, said) == (3, "Grüße, 7 messages.")
    assert show(live, conversation.id, 3)["reply"] == said
    assert show(live, conversation.id, 2)["reply"] == "One.\nTwo."


@pytest.mark.parametrize(
    "body",
    [
        b"\xff no json",
        b'{"model": "m", "messages": [{"role": "user", "content": "a \\u0000 file"}]}',
        b'{"model": "m", "messages": [{"role": "system", "content": "of a beta"}, {"role": "user", "content": "Hi"}]}',
        b'{"model": "m",  "messages": []}',
        b'{"model": "m",  "messages": [{"role": "user", "content": 7}]}',
    ],
)
def test_unparsable_request_passes_without_being_stored(
    start: Callable[..., Live], upstream: Upstream, body: bytes
) -> None:
    live = start()
    httpx.post(f"{live.url}/v1/messages", content=body)
    assert upstream.last.body == body
    assert not conversations(live)


def test_shadow_mode_changes_nothing_and_records_usage(
    start: Callable[..., Live], upstream: Upstream, anthropic_of: Callable[..., anthropic.Anthropic]
) -> None:
    live = start(upstream__shadow=True, upstream__cache_rule="anthropic")
    run_tool_round(anthropic_of(live, "/c/trip"), stream=True, thinking=True)
    live.ask_cue(live.cue.settle)
    turn = show(live, "trip", 1)
    assert (turn["query"], turn["reply"]) == ("What is the weather in Oslo?", "Grüße, 3 messages.")
    entry = turn["metadata"]["shadow"]["2"]
    assert entry["model"] == "claude-opus-5"
    assert entry["clientTokens"] == entry["windowTokens"]  # the whole history fits
    report = live.ask_cue(live.cue.shadow.report)
    assert (report.calls, report.reported_tokens, report.reported_cached, report.parted_calls) == (2, 246, 200, 0)
    assert json.loads(upstream.last.body)["messages"][-1]["content"][-1] == REMINDER
