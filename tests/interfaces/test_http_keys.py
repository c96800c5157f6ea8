"""Tests of Idempotency-Key on the OpenAI API: a repeated request gets the stored answer."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from upstream import CALLS, Upstream

from conftest import Live, config
from cuebook.errors import UpstreamError
from cuebook.testing.doubles import ScriptedModel
from cuebook.testing.upstream import HttpReply, ScriptedUpstream
from scripted_answers import completion

MESSAGES = [{"role": "user", "content": "Hello you!"}]
KEY = {"Idempotency-Key": "k1"}
CHAT = "/v1/chat/completions"


@pytest.fixture
def client(relayed: Live) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=relayed.url, timeout=60) as http_client:
        yield http_client


def request_body(**more: Any) -> dict[str, Any]:
    return {"model": "plain", "messages": MESSAGES} | more


def location(answer: httpx.Response) -> tuple[str, str, str]:
    return (
        answer.headers["x-conversation-id"],
        answer.headers["x-cuebook-turn"],
        answer.headers["content-type"].partition(";")[0],
    )


def events(text: str) -> list[dict[str, Any]]:
    assert text.endswith("data: [DONE]\n\n")
    return [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n")[:-2] if line.startswith("data: ")]


@pytest.mark.parametrize("model", ["plain", "two", "tools"])
def test_repeated_request_is_answered_once(client: httpx.Client, upstream: Upstream, model: str) -> None:
    body = request_body(model=model, n=2 if model == "two" else 1, user="ann")
    first, second = [client.post(CHAT, json=body, headers=KEY) for _ in range(2)]
    assert (first.status_code, second.status_code) == (200, 200)
    assert location(first) == location(second)
    assert second.json() == first.json()
    assert len(upstream.received) == 1
    assert len(client.get(f"/api/conversations/{location(first)[0]}/turns").json()["items"]) == 1


@pytest.mark.parametrize("model", ["plain", "two", "tools"])
def test_repeated_stream_is_replayed_as_a_stream(client: httpx.Client, upstream: Upstream, model: str) -> None:
    body = request_body(model=model, stream=True, n=2, stream_options={"include_usage": True})
    first, second = [client.post(CHAT, json=body, headers=KEY) for _ in range(2)]
    assert location(first) == location(second)
    assert len(upstream.received) == 1

    def summary(answer: httpx.Response) -> Any:
        choices = [each["choices"][0] for each in events(answer.text) if each["choices"]]
        spoken = "".join(each["delta"].get("content") or "" for each in choices)
        calls: dict[int, str] = {}
        for call in (call for each in choices for call in each["delta"].get("tool_calls", ())):
            calls[call["index"]] = calls.get(call["index"], "") + call["function"]["arguments"]
        usage = [each["usage"] for each in events(answer.text) if each.get("usage")]
        ids = {(each["id"], each["model"], each["object"]) for each in events(answer.text)}
        ends = {each["index"]: each["finish_reason"] for each in choices if each["finish_reason"]}
        return spoken, calls, ends, usage, ids

    assert summary(second) == summary(first)


def test_streamed_and_plain_requests_share_a_key(client: httpx.Client, upstream: Upstream) -> None:
    first = client.post(CHAT, json=request_body(), headers=KEY).json()
    streamed = events(client.post(CHAT, json=request_body(stream=True), headers=KEY).text)
    assert streamed[0]["choices"][0]["delta"] == first["choices"][0]["message"]
    assert len(upstream.received) == 1


def test_openai_client_reads_a_replayed_answer(relayed: Live, upstream: Upstream) -> None:
    with openai.OpenAI(base_url=f"{relayed.url}/c/talk/v1", api_key="x", max_retries=0) as client:
        texts, messages = [], []
        for _ in range(2):
            with client.chat.completions.stream(model="plain", messages=MESSAGES, extra_headers=KEY) as stream:
                texts.append(stream.get_final_completion().choices[0].message.content)
            other = {"Idempotency-Key": "k2"}
            with client.chat.completions.stream(model="tools", messages=MESSAGES, extra_headers=other) as stream:
                messages.append(stream.get_final_completion().choices[0])
    assert texts == ["Grüße from upstream."] * 2
    assert [each.finish_reason for each in messages] == ["tool_calls"] * 2
    for each in messages:
        assert [call.id for call in each.message.tool_calls or []] == [call["id"] for call in CALLS]
    assert len(upstream.received) == 2


def test_another_request_with_the_same_key_is_rejected(client: httpx.Client, upstream: Upstream) -> None:
    assert client.post(CHAT, json=request_body(), headers=KEY).status_code == 200
    others: list[tuple[str, dict[str, Any]]] = [
        (CHAT, request_body(messages=[{"role": "user", "content": "Other"}])),
        (CHAT, request_body(temperature=0.5)),
        ("/c/elsewhere/v1/chat/completions", request_body()),
    ]
    for path, body in others:
        answer = client.post(path, json=body, headers=KEY)
        error = answer.json()["error"]
        assert answer.status_code == 422
        assert (error["type"], error["param"], error["code"]) == (
            "invalid_request_error", "Idempotency-Key", "idempotency_key_reused",
        )  # fmt: skip
    posts = client.post("/api/conversations/c1/posts", json={"messages": MESSAGES}, headers=KEY)
    assert (posts.status_code, posts.json()["where"]) == (422, "Idempotency-Key")
    long = client.post(CHAT, json=request_body(), headers={"Idempotency-Key": "k" * 256})
    assert (long.status_code, long.json()["error"]["param"]) == (400, "Idempotency-Key")
    assert len(upstream.received) == 1


def test_idempotency_keys_are_separate_per_user(client: httpx.Client, upstream: Upstream) -> None:
    names = {
        client.post(f"/u/{user}{CHAT}", json=request_body(), headers=KEY).headers["x-conversation-id"]
        for user in "abab"
    }
    assert (len(names), len(upstream.received)) == (2, 2)


def test_concurrent_requests_with_one_key_make_one_turn(client: httpx.Client, upstream: Upstream) -> None:
    def ask(n: int) -> httpx.Response:
        path = CHAT if n % 2 else f"/c/c1{CHAT}"
        body = request_body(model="slow", stream=n % 4 < 2)
        return client.post(path, json=body, headers={"Idempotency-Key": f"k{n % 2}"})

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(16)))
    assert {each.status_code for each in answers} == {200}
    assert {each.headers["x-cuebook-turn"] for each in answers} == {"1"}
    assert len({each.headers["x-conversation-id"] for each in answers}) == 2
    assert len(upstream.received) == 2


def test_each_step_of_a_tool_loop_has_its_own_key(client: httpx.Client, upstream: Upstream) -> None:
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "mild"} for call in CALLS]
    calls = {"role": "assistant", "content": None, "tool_calls": CALLS}
    bodies = [request_body(model="tools"), request_body(model="tools", messages=[*MESSAGES, calls, *results])]
    answers = [
        client.post(f"/c/t1{CHAT}", json=body, headers={"Idempotency-Key": f"step-{n}"}).json()
        for _ in range(2)
        for n, body in enumerate(bodies)
    ]
    assert (answers[2]["choices"], answers[3]) == (answers[0]["choices"], answers[1])
    assert [each["choices"][0]["finish_reason"] for each in answers] == ["tool_calls", "stop"] * 2
    assert len(upstream.received) == 2
    [turn] = client.get("/api/conversations/t1/turns").json()["items"]
    assert (turn["state"], len(turn["steps"])) == ("finished", 2)


def test_failed_request_can_be_repeated(serve_live: Callable[..., Live]) -> None:
    upstream = ScriptedUpstream()
    live = serve_live(upstream=upstream)
    error = b'{"error": {"message": "slow down"}}'
    upstream.say(HttpReply(status=429, headers={"content-type": "application/json"}, pieces=[error]))
    upstream.say(completion("Here I am."))
    url, body = f"{live.url}/c/c1{CHAT}", request_body()
    answers = [httpx.post(url, json=body, headers=KEY) for _ in range(3)]
    assert [each.status_code for each in answers] == [429, 200, 200]
    assert [each.headers["x-cuebook-turn"] for each in answers] == ["1", "2", "2"]
    assert [each.json()["choices"][0]["message"]["content"] for each in answers[1:]] == ["Here I am."] * 2
    posts = httpx.get(f"{live.url}/api/conversations/c1/posts?branches=all").json()["items"]
    assert [each["message"] for each in posts] == ["Hello you!", "Here I am."]


@pytest.mark.parametrize("stream", [True, False])
def test_disconnected_client_can_repeat_its_request(client: httpx.Client, upstream: Upstream, stream: bool) -> None:
    url, body = f"/c/c1{CHAT}", request_body(model="slow", stream=stream)
    if stream:
        with client.stream("POST", url, json=body, headers=KEY) as answer:
            next(answer.iter_raw())
    else:
        with pytest.raises(httpx.ReadTimeout):
            client.post(url, json=body | {"model": "late"}, headers=KEY, timeout=httpx.Timeout(60, read=0.2))
    second = client.post(url, json=body | ({} if stream else {"model": "late"}), headers=KEY)
    assert second.status_code == 200
    assert len(upstream.received) == 1
    assert client.get("/api/conversations/c1/turns/1").json()["state"] == "finished"
    assert ("Grüße from upstream." if stream else "You said 1 messages") in second.text


def test_replayed_answers_without_id_get_distinct_ids(serve_live: Callable[..., Live]) -> None:
    body = b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}]}'
    upstream = ScriptedUpstream(default=HttpReply(pieces=[body]))
    live = serve_live(upstream=upstream)
    ids = []
    for name in "abab":
        headers = {"Idempotency-Key": name}
        ids.append(httpx.post(f"{live.url}/c/{name}{CHAT}", json=request_body(), headers=headers).json().get("id"))
    assert ids[:2] == [None, None]
    assert len(set(ids[2:])) == 2
    assert None not in ids[2:]


def test_messages_of_a_broken_answer_are_stored_once(serve_live: Callable[..., Live]) -> None:
    event = b'data: {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "At"}}]}\n\n'
    broken = HttpReply(pieces=[event], headers={"content-type": "text/event-stream"}, error=UpstreamError("gone"))
    upstream = ScriptedUpstream(broken, completion("At 9:45."))
    live = serve_live(upstream=upstream)
    body = {"model": "m", "messages": [*MESSAGES, {"role": "user", "content": "When does it leave?"}]}
    headers = KEY | {"X-History": "server"}
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.post(f"{live.url}{CHAT}", json=body | {"stream": True}, headers=headers)
    answer = [httpx.post(f"{live.url}{CHAT}", json=body, headers=headers) for _ in range(2)][-1]
    assert answer.json()["choices"][0]["message"]["content"] == "At 9:45."
    assert [json.loads(request.body)["messages"] for request in upstream.requests] == [body["messages"]] * 2
    assert len(httpx.get(f"{live.url}/api/conversations").json()["items"]) == 1
    posts = httpx.get(f"{live.url}/api/conversations/{answer.headers['x-conversation-id']}/posts").json()["items"]
    assert [each["message"] for each in posts] == [*(each["content"] for each in body["messages"]), "At 9:45."]


def test_answers_of_the_configured_model_are_replayed(serve_live: Callable[..., Live]) -> None:
    model = ScriptedModel("Ay", "Bee")
    live = serve_live(config(), model=model)
    url = f"{live.url}{CHAT}"
    first, second = [httpx.post(url, json=request_body(), headers=KEY) for _ in range(2)]
    assert second.json() == first.json()
    streams = [
        httpx.post(url, json=request_body(stream=True), headers={"Idempotency-Key": "k2"}).text for _ in range(2)
    ]
    texts = ["".join(each["choices"][0]["delta"].get("content", "") for each in events(text)) for text in streams]
    assert texts == ["Bee", "Bee"]
    assert {each["id"] for text in streams for each in events(text)} == {events(streams[0])[0]["id"]}
    assert len(model.requests) == 2
