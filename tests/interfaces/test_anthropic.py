"""Tests of pass-through requests to the Anthropic API: bodies and API keys."""

import os
from collections.abc import Callable

import httpx
from upstream import Upstream

from conftest import Live, config
from cuebook.config import build

HEADERS = {"x-api-key": "sk-ant-theirs", "anthropic-version": "2023-06-01", "anthropic-beta": "x-1"}
BODY = (
    b'{"model": "claude-opus-5",  "max_tokens": 10, "temperature": 0.70, "stream": true, "system": "Be brief.",'
    b' "messages": [{"role": "user",  "content": "One"}, {"role": "assistant",  "content": [{"type": "text", "text":'
    b' "\\u00fc"}]}, {"role": "user", "content": [{"type": "text", "text": "Two"}]}], "odd": [1e-3]}'
)


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
