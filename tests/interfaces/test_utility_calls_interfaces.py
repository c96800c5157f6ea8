"""Tests of utility calls on the three wires, in shadow mode, and in the lists of HTTP and the inspector."""

from collections.abc import Callable
from typing import Any

import anthropic
import httpx
import openai
import pytest
from upstream import Upstream

from conftest import Live
from cuebook.config import build

SCHEMA = {"type": "object"}


def listed(live: Live, *, utility: bool) -> list[str]:
    """Return the listed ids, which the API and the inspector agree on."""
    items = httpx.get(f"{live.url}/api/conversations", params={"utility": utility}).json()["items"]
    page = httpx.get(f"{live.url}/page/conversations", params={"utility": int(utility)}).text
    ids: list[str] = [each["id"] for each in items]
    assert all(f"/page/conversations/{each}" in page for each in ids)
    return ids


def chat(url: str, **fields: Any) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
        client.chat.completions.create(
            model="plain", **{"messages": [{"role": "user", "content": "Name it."}], **fields}
        )


def respond(url: str, **fields: Any) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
        client.responses.create(model="plain", input="Name it.", **fields)


def message(url: str, **fields: Any) -> None:
    with anthropic.Anthropic(base_url=url, api_key="x", max_retries=0) as client:
        messages: Any = [{"role": "user", "content": "Name it."}]
        client.messages.create(**{"model": "claude-opus-5", "max_tokens": 500, "messages": messages, **fields})


@pytest.mark.parametrize(
    ("send", "fields"),
    [
        (chat, {"max_tokens": 5}),
        (chat, {"extra_headers": {"X-Cuebook-Utility": "1"}}),
        (respond, {"max_output_tokens": 16}),
        (respond, {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}}),
        (respond, {"instructions": "You are a memory summarization system that …"}),
        (message, {"max_tokens": 5}),
        (message, {"extra_body": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}}),
        (message, {"system": "You are a Personal Information Organizer, …"}),
    ],
)
def test_each_wire_recognizes_utility_calls(relayed: Live, send: Callable[..., None], fields: dict[str, Any]) -> None:
    send(relayed.url, **fields)
    [name] = listed(relayed, utility=True)
    assert listed(relayed, utility=False) == []
    assert httpx.get(f"{relayed.url}/api/conversations/{name}/turns/1").status_code == 200


@pytest.mark.parametrize("send", [chat, respond, message])
def test_ordinary_calls_of_each_wire_are_conversations(relayed: Live, send: Callable[..., None]) -> None:
    send(relayed.url)
    assert (len(listed(relayed, utility=False)), listed(relayed, utility=True)) == (1, [])


def test_the_header_is_checked_and_not_forwarded(relayed: Live, upstream: Upstream) -> None:
    body = {"model": "plain", "messages": [{"role": "user", "content": "Name it."}]}
    answer = httpx.post(f"{relayed.url}/v1/chat/completions", json=body, headers={"X-Cuebook-Utility": "yes"})
    assert (answer.status_code, "Available: 0, 1" in answer.text) == (400, True)
    httpx.post(f"{relayed.url}/v1/chat/completions", json=body, headers={"X-Cuebook-Utility": "1"})
    assert "x-cuebook-utility" not in upstream.last.headers


def test_shadow_mode_lists_utility_calls_apart(serve_live: Callable[..., Live], upstream: Upstream) -> None:
    live = serve_live(build(arguments={"store.url": ":memory:", "upstream.url": upstream.url, "upstream.shadow": True}))
    chat(live.url, max_tokens=5)
    live.ask_cue(live.cue.settle)
    assert (listed(live, utility=False), len(listed(live, utility=True))) == ([], 1)
