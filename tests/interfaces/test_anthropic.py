"""Tests of pass-through requests to the Anthropic API: cache markers and API keys."""

import json
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest
from upstream import Upstream

from conftest import Live, config
from cuebook.config import build
from cuebook.engine.proxy.messages_wire import with_marks
from cuebook.interfaces import RelayRequest
from cuebook.providers.openai import HttpUpstream
from cuebook.window.anchors import with_cache_marks
from cuebook.window.cache import rule_named

MARK = {"cache_control": {"type": "ephemeral"}}
TOOL = {"name": "f", "input_schema": {"type": "object"}}
HEADERS = {"x-api-key": "sk-ant-theirs", "anthropic-version": "2023-06-01", "anthropic-beta": "x-1"}
BODY = (
    b'{"model": "claude-opus-5",  "max_tokens": 10, "temperature": 0.70, "stream": true, "system": "Be brief.",'
    b' "messages": [{"role": "user",  "content": "One"}, {"role": "assistant",  "content": [{"type": "text", "text":'
    b' "\\u00fc"}]}, {"role": "user", "content": [{"type": "text", "text": "Two"}]}], "odd": [1e-3]}'
)


def marks(**fields: Any) -> dict[str, Any]:
    return json.loads(with_cache_marks(json.dumps({"model": "m", "messages": []} | fields).encode()))


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_request_and_answer_pass_through_unchanged(relayed: Live, upstream: Upstream) -> None:
    answer = httpx.post(f"{relayed.url}/v1/messages?beta=true", content=BODY, headers=HEADERS)
    assert upstream.last.body == BODY  # The upstream host might not support cache markers.
    assert upstream.last.query == "beta=true"
    assert answer.content == upstream.last.answer
    sent = upstream.last.headers
    assert {name: sent[name] for name in HEADERS} == HEADERS
    assert "authorization" not in sent
    counted = httpx.post(f"{relayed.url}/v1/messages/count_tokens", content=BODY, headers=HEADERS)
    assert counted.content == b'{"input_tokens":  14}'
    assert upstream.last.body == BODY


def test_cache_markers_follow_the_stable_content(upstream: Upstream, serve_live: Callable[..., Live]) -> None:
    settings = {"upstream.url": upstream.url, "upstream.breakpoints": "on", "upstream.messages": "pass"}
    live = serve_live(build(arguments={"store.url": ":memory:", **settings}))
    httpx.post(f"{live.url}/v1/messages", content=BODY, headers=HEADERS)
    sent, original = json.loads(upstream.last.body), json.loads(BODY)
    assert list(sent) == list(original)
    assert sent["system"] == [{"type": "text", "text": "Be brief.", **MARK}]
    assert sent["messages"] == [
        user([{"type": "text", "text": "One", **MARK}]),
        original["messages"][1],
        user([{"type": "text", "text": "Two", **MARK}]),
    ]
    for piece in (b"0.70", b"[1e-3]", b'{"role": "assistant",  "content": [{"type": "text", "text": "\\u00fc"}]}'):
        assert piece in upstream.last.body
    httpx.post(f"{live.url}/v1/messages/count_tokens", content=BODY, headers=HEADERS)
    assert upstream.last.body == BODY


def test_last_tool_is_marked_without_a_system_text() -> None:
    result = marks(tools=[TOOL, TOOL], messages=[user("One")])
    assert result["tools"] == [TOOL, {**TOOL, **MARK}]
    assert result["messages"] == [user([{"type": "text", "text": "One", **MARK}])]
    both = marks(tools=[TOOL], system=[{"type": "text", "text": "A"}, {"type": "text", "text": "B"}])
    assert both["tools"] == [TOOL]
    assert both["system"] == [{"type": "text", "text": "A"}, {"type": "text", "text": "B", **MARK}]


def test_at_most_three_markers_cover_the_newest_two_turns() -> None:
    history = [user("1"), {"role": "assistant", "content": "a"}, user("2"), {"role": "assistant", "content": "b"}]
    result = {"type": "tool_result", "tool_use_id": "t", "content": "ok"}
    match = marks(system="S", tools=[TOOL], messages=[*history, user([result])])
    assert json.dumps(match).count("cache_control") == 3
    assert match["messages"][0] == history[0]
    assert match["messages"][-1] == user([{**result, **MARK}])


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [user("A lone question")]},
        {
            "messages": [user([{"type": "text", "text": "x", **MARK}]), {"role": "assistant", "content": "y"}],
            "system": "S",
        },
        {"messages": [], "system": "S", "cache_control": {"type": "ephemeral"}},
        {"messages": [user(""), {"role": "assistant", "content": "y"}, user([{"type": "text", "text": " "}])]},
        {"messages": "no list", "system": ""},
        {"messages": [1], "system": "S"},
        {"messages": [], "system": 7, "tools": {}},
        ["no object"],
    ],
)
def test_unmarkable_or_already_marked_body_is_unchanged(body: Any) -> None:
    raw = json.dumps(body, indent=1).encode()
    assert with_cache_marks(raw) == raw


def test_breakpoints_setting_selects_the_hosts_that_get_markers() -> None:
    # A shorter text is below the model's cache minimum and is not marked.
    long = BODY.replace(b"Be brief.", b"Be brief. " * 60)
    request = RelayRequest(method="POST", path="/messages", headers={}, body=long)
    short = msgspec.structs.replace(request, body=BODY)
    theirs, other = HttpUpstream("https://api.anthropic.com/v1"), HttpUpstream("https://gateway.example/v1")
    for breakpoints, upstream, placed in (
        ("auto", theirs, True), ("auto", other, False), ("off", theirs, False), ("on", other, True),
    ):  # fmt: skip
        settings: Any = SimpleNamespace(breakpoints=breakpoints, cache_rule=None)
        assert (with_marks(settings, upstream.base_url, request).body != long) == placed
        assert not placed or breakpoints == "on" or with_marks(settings, upstream.base_url, short).body == BODY
    an_hour: Any = SimpleNamespace(breakpoints="auto", cache_rule=rule_named("anthropic-1h"))
    assert b'{"type":"ephemeral","ttl":"1h"}' in with_marks(an_hour, theirs.base_url, request).body


# ---- keys


#: An environment variable that pytest sets during each test.
SET = "PYTEST_CURRENT_TEST"


def test_configured_upstream_key_is_sent_as_x_api_key(upstream: Upstream, serve_live: Callable[..., Live]) -> None:
    arguments = {"store.url": ":memory:", "upstream.url": upstream.url, "upstream.api_key_env": SET}
    live = serve_live(build(arguments=arguments))
    httpx.post(f"{live.url}/v1/messages", content=BODY, headers=HEADERS)
    assert upstream.last.headers["x-api-key"] == os.environ[SET]
    assert "authorization" not in upstream.last.headers


def test_cuebook_key_is_accepted_and_not_forwarded(upstream: Upstream, serve_live: Callable[..., Live]) -> None:
    live = serve_live(config(upstream=upstream.url))
    made = live.ask_cue(lambda: live.cue.keys.new("editor", user="ann"))
    answer = httpx.post(f"{live.url}/v1/messages", content=BODY, headers=HEADERS | {"x-api-key": made.token})
    assert answer.status_code == 200
    assert "x-api-key" not in upstream.last.headers
    upstream.received.clear()
    refused = httpx.post(f"{live.url}/v1/messages", content=BODY, headers=HEADERS)
    assert refused.status_code == 401
    assert not upstream.received
