"""Anthropic's wire on its way through: what goes up, which markers it gets, and whose keys go where."""

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
from cuebook.engine.proxy.messages import marked
from cuebook.interfaces.model import RelayRequest
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


def test_it_passes_byte_for_byte(relayed: Live, upstream: Upstream) -> None:
    answer = httpx.post(f"{relayed.url}/v1/messages?beta=true", content=BODY, headers=HEADERS)
    assert upstream.last.body == BODY  # whether its host reads markers is not known
    assert upstream.last.query == "beta=true"
    assert answer.content == upstream.last.answer
    sent = upstream.last.headers
    assert {name: sent[name] for name in HEADERS} == HEADERS
    assert "authorization" not in sent
    counted = httpx.post(f"{relayed.url}/v1/messages/count_tokens", content=BODY, headers=HEADERS)
    assert counted.content == b'{"input_tokens":  14}'
    assert upstream.last.body == BODY


def test_markers_stand_behind_what_stays(upstream: Upstream, serve_live: Callable[..., Live]) -> None:
    settings = {"upstream.url": upstream.url, "upstream.breakpoints": "on", "upstream.messages": "pass"}
    live = serve_live(build(arguments={"store.url": ":memory:", **settings}))
    httpx.post(f"{live.url}/v1/messages", content=BODY, headers=HEADERS)
    sent, given = json.loads(upstream.last.body), json.loads(BODY)
    assert list(sent) == list(given)
    assert sent["system"] == [{"type": "text", "text": "Be brief.", **MARK}]
    assert sent["messages"] == [
        user([{"type": "text", "text": "One", **MARK}]),
        given["messages"][1],
        user([{"type": "text", "text": "Two", **MARK}]),
    ]
    for piece in (b"0.70", b"[1e-3]", b'{"role": "assistant",  "content": [{"type": "text", "text": "\\u00fc"}]}'):
        assert piece in upstream.last.body
    httpx.post(f"{live.url}/v1/messages/count_tokens", content=BODY, headers=HEADERS)
    assert upstream.last.body == BODY


def test_tools_are_marked_where_no_system_text_stands_behind_them() -> None:
    found = marks(tools=[TOOL, TOOL], messages=[user("One")])
    assert found["tools"] == [TOOL, {**TOOL, **MARK}]
    assert found["messages"] == [user([{"type": "text", "text": "One", **MARK}])]
    both = marks(tools=[TOOL], system=[{"type": "text", "text": "A"}, {"type": "text", "text": "B"}])
    assert both["tools"] == [TOOL]
    assert both["system"] == [{"type": "text", "text": "A"}, {"type": "text", "text": "B", **MARK}]


def test_at_most_three_markers_and_the_newest_two_turns() -> None:
    history = [user("1"), {"role": "assistant", "content": "a"}, user("2"), {"role": "assistant", "content": "b"}]
    result = {"type": "tool_result", "tool_use_id": "t", "content": "ok"}
    found = marks(system="S", tools=[TOOL], messages=[*history, user([result])])
    assert json.dumps(found).count("cache_control") == 3
    assert found["messages"][0] == history[0]
    assert found["messages"][-1] == user([{**result, **MARK}])


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
def test_what_cannot_be_marked_or_is_marked_stays_as_it_is(body: Any) -> None:
    raw = json.dumps(body, indent=1).encode()
    assert with_cache_marks(raw) == raw


def test_markers_go_to_the_provider_itself_unless_the_settings_say_otherwise() -> None:
    long = BODY.replace(b"Be brief.", b"Be brief. " * 60)  # shorter than a model caches, it is not marked
    request = RelayRequest(method="POST", path="/messages", headers={}, body=long)
    short = msgspec.structs.replace(request, body=BODY)
    theirs, other = HttpUpstream("https://api.anthropic.com/v1"), HttpUpstream("https://gateway.example/v1")
    for breakpoints, upstream, placed in (
        ("auto", theirs, True), ("auto", other, False), ("off", theirs, False), ("on", other, True),
    ):  # fmt: skip
        desk: Any = SimpleNamespace(breakpoints=breakpoints, cache_rule=None)
        assert (marked(desk, upstream, request).body != long) == placed
        assert not placed or breakpoints == "on" or marked(desk, upstream, short).body == BODY
    hour: Any = SimpleNamespace(breakpoints="auto", cache_rule=rule_named("anthropic-1h"))
    assert b'{"type":"ephemeral","ttl":"1h"}' in marked(hour, theirs, request).body


# ---- keys


#: A variable that is set while a test runs.
SET = "PYTEST_CURRENT_TEST"


def test_a_key_of_ours_goes_up_as_anthropic_reads_it(upstream: Upstream, serve_live: Callable[..., Live]) -> None:
    arguments = {"store.url": ":memory:", "upstream.url": upstream.url, "upstream.api_key_env": SET}
    live = serve_live(build(arguments=arguments))
    httpx.post(f"{live.url}/v1/messages", content=BODY, headers=HEADERS)
    assert upstream.last.headers["x-api-key"] == os.environ[SET]
    assert "authorization" not in upstream.last.headers


def test_a_key_of_cuebook_is_understood_and_goes_nowhere(upstream: Upstream, serve_live: Callable[..., Live]) -> None:
    live = serve_live(config(upstream=upstream.url))
    made = live.ask_cue(lambda: live.cue.keys.new("editor", user="ann"))
    answer = httpx.post(f"{live.url}/v1/messages", content=BODY, headers=HEADERS | {"x-api-key": made.token})
    assert answer.status_code == 200
    assert "x-api-key" not in upstream.last.headers
    upstream.received.clear()
    refused = httpx.post(f"{live.url}/v1/messages", content=BODY, headers=HEADERS)
    assert refused.status_code == 401
    assert not upstream.received
