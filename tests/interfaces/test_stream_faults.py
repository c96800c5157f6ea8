"""Tests of streams whose conversation is deleted: they end with an error event of their API."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest
from messages_upstream import stream
from upstream import Upstream

from conftest import Live, config
from cuebook.testing.doubles import Script, ScriptedModel
from cuebook.testing.upstream import HttpReply, ScriptedUpstream
from scripted_answers import EVENTS, event, output_text, streamed_response

MESSAGES: list[Any] = [{"role": "user", "content": "Hi"}]
ERROR = "Conversation 'c1' was deleted while turn 1 was running. Nothing was stored."


def delete_conversation(live: Live) -> None:
    assert httpx.delete(f"{live.url}/api/conversations/c1").status_code in (200, 202, 204)


def test_openai_stream_raises_when_its_conversation_is_deleted(
    upstream: Upstream, serve_live: Callable[..., Live]
) -> None:
    live = serve_live(config(upstream=upstream.url))
    with openai.OpenAI(base_url=f"{live.url}/c/c1/v1", api_key="x", max_retries=0) as client:
        chunks = client.chat.completions.create(model="slow", messages=MESSAGES, stream=True)
        got: list[Any] = [next(chunks), next(chunks)]
        delete_conversation(live)
        with pytest.raises(openai.APIError, match=ERROR):
            got.extend(chunks)
    assert "".join(each.choices[0].delta.content or "" for each in got if each.choices).startswith("Grüße")
    assert httpx.get(f"{live.url}/api/conversations/c1").status_code == 404


@pytest.mark.parametrize("cut", [b"", b"data: {"], ids=["between events", "in a line"])
def test_error_event_is_complete_and_without_done(serve_live: Callable[..., Live], cut: bytes) -> None:
    pieces = [event({"content": "One"}), event({"content": " two"}), event({"content": " three"}), cut]
    live = serve_live(upstream=ScriptedUpstream(HttpReply(pieces=pieces, headers={"content-type": EVENTS}, delay=0.3)))
    raw = b""
    url = f"{live.url}/c/c1/v1/chat/completions"
    with httpx.stream("POST", url, json={"model": "m", "messages": MESSAGES, "stream": True}, timeout=60) as answer:
        for piece in answer.iter_raw():
            if not raw:
                delete_conversation(live)
            raw += piece
    assert b"[DONE]" not in raw
    [last] = [line for line in raw.splitlines() if b'"error"' in line]
    error = json.loads(last.removeprefix(b"data: "))["error"]
    assert (error["message"], error["type"], error["code"]) == (ERROR, "invalid_request_error", "conflict")
    assert raw.endswith(b"\n\ndata: " + last.removeprefix(b"data: ") + b"\n\n")


def test_responses_stream_of_an_upstream_ends_with_an_error_event(serve_live: Callable[..., Live]) -> None:
    pieces = streamed_response("resp_1", output_text("One two three."), done=False).pieces
    slow = HttpReply(pieces=pieces, headers={"content-type": EVENTS}, delay=0.5)
    live = serve_live(config(responses="native"), upstream=ScriptedUpstream(slow))
    with openai.OpenAI(base_url=f"{live.url}/c/c1/v1", api_key="x", max_retries=0) as client:
        events = client.responses.create(model="m", input="Hi", stream=True)
        got: list[Any] = [next(events)]
        delete_conversation(live)
        got.extend(events)
    assert (got[-1].type, got[-1].message) == ("error", ERROR)


def test_anthropic_stream_ends_with_an_error_event(
    serve_live: Callable[..., Live], anthropic_of: Callable[..., anthropic.Anthropic]
) -> None:
    pieces = stream({"model": "m", "messages": MESSAGES})
    live = serve_live(upstream=ScriptedUpstream(HttpReply(pieces=pieces, headers={"content-type": EVENTS}, delay=0.5)))
    client = anthropic_of(live, "/c/c1")
    with client.messages.create(model="m", max_tokens=9, messages=MESSAGES, stream=True) as events:
        got = [next(events)]
        delete_conversation(live)
        with pytest.raises(anthropic.APIStatusError, match=ERROR):
            got.extend(events)
    assert "message_stop" not in [each.type for each in got]


def test_chat_stream_ends_with_an_error_event(serve_live: Callable[..., Live]) -> None:
    live = serve_live(model=ScriptedModel(default=Script(text="One two three four five six.", delay=0.2)))
    events: list[str] = []

    def lines(answer: httpx.Response) -> Iterator[str]:
        for line in answer.iter_lines():
            if line.startswith("event: METADATA"):
                delete_conversation(live)
            yield line

    body = {"message": "Hi", "conversationId": "c1", "stream": True}
    with httpx.stream("POST", f"{live.url}/api/chat", json=body, timeout=60) as answer:
        events = [line for line in lines(answer) if line]
    assert events[-2] == "event: error"
    assert json.loads(events[-1].removeprefix("data: "))["detail"] == ERROR
    assert "event: final_response" not in events
