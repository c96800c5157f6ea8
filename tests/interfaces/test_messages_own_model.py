"""Tests of Anthropic's client library with the configured model or an OpenAI-compatible server."""

from collections.abc import Callable
from typing import Any

import anthropic
import httpx
import pytest
from upstream import Upstream

from conftest import Live, config
from cuebook.config import build
from cuebook.records.answer import to_wire
from cuebook.testing.doubles import Script, ScriptedModel

TOOLS: list[Any] = [{"name": "weather", "description": "Of a city", "input_schema": {"type": "object"}}]
IMAGE: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
BRIEF = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
REMINDER: Any = {"type": "text", "text": "<system-reminder>The to-do list is empty.</system-reminder>"}


@pytest.fixture
def chat_live(upstream: Upstream, serve_live: Callable[..., Live]) -> Live:
    settings = {"store.url": ":memory:", "upstream.url": upstream.url, "upstream.messages": "chat"}
    return serve_live(build(arguments=settings))


def client_of(live: Live, place: str = "", **more: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=f"{live.url}{place}", api_key="sk-theirs", max_retries=0, **more)


def user(content: Any) -> Any:
    return {"role": "user", "content": content}


def ask(client: anthropic.Anthropic, *, stream: bool, **asked: Any) -> Any:
    body: dict[str, Any] = {"model": "claude-opus-5", "max_tokens": 99} | asked
    if not stream:
        return client.messages.create(**body)
    with client.messages.stream(**body) as events:
        return events.get_final_message()


both = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@both
def test_configured_model_answers_without_an_upstream(serve_live: Callable[..., Live], *, stream: bool) -> None:
    model = ScriptedModel("Noted.", Script(text="It leaves at 9:45."))
    live = serve_live(config(), model=model)
    with client_of(live, "/c/trip/u/ann") as client:
        history = [user([{"type": "text", "text": "The ferry leaves at 9:45."}, REMINDER])]
        first = ask(client, stream=stream, messages=history, system="Be brief.", tools=TOOLS)
        history += [{"role": "assistant", "content": [each.to_dict() for each in first.content]}, user("When?")]
        second = ask(client, stream=stream, messages=history, system="Be brief.")
        assert [each.type for each in second.content] == ["text"]
        assert (second.content[0].text, second.stop_reason) == ("It leaves at 9:45.", "end_turn")
        assert second.usage.input_tokens > 0 < second.usage.output_tokens
        counted = client.messages.count_tokens(model="m", messages=history, tools=TOOLS, system="Be brief.")
        assert counted.input_tokens > client.messages.count_tokens(model="m", messages=history).input_tokens > 10
    [conversation] = live.ask_cue(lambda: live.cue.conversations.list(user="ann")).items
    assert conversation.turns == 2
    turn = to_wire(live.ask_cue(lambda: live.cue.turns.show("trip", 2, user="ann")))
    assert (turn["query"], turn["reply"], turn["state"]) == ("When?", "It leaves at 9:45.", "finished")
    assert b"system_reminder" not in b"".join(model.requests[0].messages)
    assert b"The to-do list is empty." in b"".join(model.requests[0].messages)


def test_repeated_key_replays_and_dropped_fields_are_named(serve_live: Callable[..., Live]) -> None:
    live = serve_live(config(), model=ScriptedModel("Once."))
    body: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [user("Hi")], "tools": TOOLS}
    with client_of(live, default_headers={"Idempotency-Key": "k"}) as client:
        raw = client.messages.with_raw_response.create(**body, thinking={"type": "enabled", "budget_tokens": 1024})
        assert raw.headers["x-cuebook-left-out"] == "thinking, tools"
        first = raw.parse()
        body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        assert ask(client, stream=False, **body) == first
        second = ask(client, stream=True, **body)
        assert (second.id, second.content[0].text, second.usage) == (first.id, "Once.", first.usage)
        with pytest.raises(anthropic.UnprocessableEntityError, match="was used with a different request"):
            ask(client, stream=False, **body | {"max_tokens": 10})


@both
def test_openai_compatible_server_is_called_with_tools(chat_live: Live, upstream: Upstream, *, stream: bool) -> None:
    with client_of(chat_live, "/c/trip") as client:
        history = [user([{"type": "text", "text": "What is the weather?"}, IMAGE])]
        request: dict[str, Any] = {"model": "tools", "tools": TOOLS, "system": [BRIEF], "stop_sequences": ["END"]}
        called = ask(client, stream=stream, messages=history, **request, tool_choice={"type": "any"})
        sent = upstream.last.fields
        assert upstream.last.path == "/v1/chat/completions"
        assert (upstream.last.headers["authorization"], sent["tool_choice"]) == ("Bearer sk-theirs", "required")
        assert [name for name in upstream.last.headers if name.startswith(("anthropic", "x-api-key"))] == []
        function = {"name": "weather", "description": "Of a city", "parameters": {"type": "object"}}
        assert (sent["tools"], sent["stop"]) == ([{"type": "function", "function": function}], ["END"])
        assert sent["max_tokens"] == 99
        assert sent["messages"][0] == {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
        assert sent["messages"][-1]["content"][-1] == PICTURE
        assert [(each.id, each.name, each.input) for each in called.content] == [
            ("call_a", "weather", {"city": "Oslo"}), ("call_b", "weather", {"city": "Rome"}),
        ]  # fmt: skip
        assert called.stop_reason == "tool_use"
        results = [
            {"type": "tool_result", "tool_use_id": "call_a", "content": [IMAGE], "is_error": True},
            {"type": "tool_result", "tool_use_id": "call_b", "content": [{"type": "text", "text": "Sun."}]},
        ]
        history += [{"role": "assistant", "content": [each.to_dict() for each in called.content]}]
        answer = ask(client, stream=stream, messages=[*history, user([*results, REMINDER])], **request | {"model": "m"})
        assert answer.stop_reason == "end_turn"
        assert answer.content[0].text
        assert (answer.usage.input_tokens, answer.usage.output_tokens) == (7, 5 if stream else 3)
        roles = [(each["role"], each.get("content")) for each in upstream.last.fields["messages"][-4:]]
        assert roles[1:] == [
            ("tool", "Error: "),
            ("tool", "Sun.\n\n<system-reminder>The to-do list is empty.</system-reminder>"),
            ("user", [PICTURE]),
        ]
    turn = to_wire(chat_live.ask_cue(lambda: chat_live.cue.turns.show("trip", 1)))
    assert (turn["state"], len(turn["steps"])) == ("finished", 2)
    posts = chat_live.ask_cue(lambda: chat_live.cue.conversations.posts("trip"))
    assert [post.role for post in posts] == ["user", "assistant", "tool", "tool", "assistant"]


def test_configured_server_is_called_with_tools_and_its_key(
    upstream: Upstream, serve_live: Callable[..., Live]
) -> None:
    settings = {"model.provider": "openai", "model.base_url": upstream.url, "model.name": "tools"}
    live = serve_live(
        build(arguments={"store.url": ":memory:", **settings, "model.api_key_env": "PYTEST_CURRENT_TEST"})
    )
    with client_of(live) as client:
        called = ask(client, stream=True, messages=[user("What is the weather?")], tools=TOOLS)
    assert (called.stop_reason, called.content[0].input) == ("tool_use", {"city": "Oslo"})
    assert upstream.last.fields["model"] == "tools"
    assert "test_configured_server" in upstream.last.headers["authorization"]
    assert "sk-theirs" not in str(upstream.last.headers)


def test_errors_have_the_anthropic_format(chat_live: Live) -> None:
    with client_of(chat_live) as client:
        with pytest.raises(anthropic.RateLimitError, match="slow down") as limited:
            ask(client, stream=False, model="limited", messages=[user("Hi")])
        assert limited.value.response.headers["retry-after"] == "7"
        search: Any = [{"type": "web_search_20250305", "name": "web_search"}]
        with pytest.raises(anthropic.BadRequestError, match="only Anthropic runs it"):
            ask(client, stream=False, messages=[user("Hi")], tools=search)
        with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\]\.content"):
            ask(client, stream=False, messages=[user(7)])


def test_conversation_continues_over_the_openai_api(chat_live: Live, upstream: Upstream) -> None:
    with client_of(chat_live, "/c/trip") as client:
        ask(client, stream=False, model="m", messages=[user([{"type": "text", "text": "Hi"}, REMINDER])])
    body = {"model": "m", "messages": [user("And now?")]}
    answer = httpx.post(f"{chat_live.url}/c/trip/v1/chat/completions", json=body, headers={"x-history": "server"})
    assert answer.status_code == 200
    user_messages = [each for each in upstream.last.fields["messages"] if each["role"] == "user"]
    assert user_messages[0]["content"] == [{"type": "text", "text": "Hi"}, REMINDER]  # no part of an unknown type
