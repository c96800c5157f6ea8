"""Tests of the OpenAI chat proxy between a real client and a scripted upstream."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest
from upstream import Upstream

from conftest import Live, config
from cuebook.testing.doubles import ScriptedModel

MESSAGES = [{"role": "user", "content": "Hello “you” \u202e!"}]


@pytest.fixture
def client(relayed: Live) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=relayed.url, timeout=60) as http_client:
        yield http_client


def request_body(**more: Any) -> dict[str, Any]:
    return {"model": "plain", "messages": MESSAGES} | more


# ---- requests


def test_request_fields_are_forwarded_unchanged(client: httpx.Client, upstream: Upstream) -> None:
    body = (
        b'{"model": "plain",  "messages": [{"role": "user", "content": "Hi"}], "temperature": 0.70,'
        b' "seed": 12345678901234567890,'
        b' "tools": [{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": [1e-3, null]}}}],'
        b' "tool_choice": "auto", "parallel_tool_calls": false, "response_format": {"type": "json_object"}, "n": 1,'
        b' "logit_bias": {"50256": -100}, "user": "ann",'
        b' "not_known_yet": {"deep": ["\xc3\xbc", "\\u00fc", "\\ud83d\\ude00"]}}'
    )
    headers = {
        "Authorization": "Bearer sk-theirs",
        "X-Title": "My app",
        "X-Conversation-Id": "c1",
        "OpenAI-Beta": "x=1",
    }
    answer = client.post("/v1/chat/completions?api-version=2&x=%20y", content=body, headers=headers)
    assert answer.status_code == 200
    sent, got = json.loads(body), upstream.last.fields
    assert {**got, "messages": None} == {**sent, "messages": None}
    assert list(got) == list(sent)
    assert got["messages"] == sent["messages"]
    for piece in (b"0.70", b"12345678901234567890", b"1e-3", b'["\xc3\xbc", "\\u00fc", "\\ud83d\\ude00"]'):
        assert piece in upstream.last.body
    assert upstream.last.query == "api-version=2&x=%20y"
    assert upstream.last.headers["authorization"] == "Bearer sk-theirs"
    assert (upstream.last.headers["x-title"], upstream.last.headers["openai-beta"]) == ("My app", "x=1")
    assert not {"x-conversation-id", "x-user-id", "idempotency-key"} & set(upstream.last.headers)


def test_images_and_unknown_parts_are_forwarded(client: httpx.Client, upstream: Upstream) -> None:
    content = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
        {"type": "hologram", "hologram": {"deep": [1.50]}},
    ]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content, "odd": True}]
    client.post("/v1/chat/completions", json=request_body(messages=messages))
    got = upstream.last.fields["messages"]
    assert got[0]["content"].endswith("Be brief.")
    assert got[-1] == messages[-1]


# ---- answers


@pytest.mark.parametrize("model", ["plain", "logprobs", "two", "tools", "limited", "garbage"])
def test_plain_answer_is_forwarded_unchanged(client: httpx.Client, upstream: Upstream, model: str) -> None:
    answer = client.post("/v1/chat/completions", json=request_body(model=model, n=2 if model == "two" else 1))
    assert answer.content == upstream.last.answer
    assert answer.status_code == (429 if model == "limited" else 200)
    assert answer.headers["x-request-id"] == "req_123"
    assert answer.headers["content-length"] == str(len(answer.content))
    assert answer.headers["x-conversation-id"]
    assert answer.headers["x-cuebook-turn"] == "1"
    if model == "limited":
        assert answer.headers["retry-after"] == "7"


@pytest.mark.parametrize("model", ["plain", "torn", "two", "tools"])
def test_stream_is_forwarded_unchanged(client: httpx.Client, upstream: Upstream, model: str) -> None:
    with client.stream("POST", "/v1/chat/completions", json=request_body(model=model, stream=True)) as answer:
        got = b"".join(answer.iter_raw())
    assert got == upstream.last.answer
    assert got.endswith(b"data: [DONE]\n\n")
    turn = client.get(f"/api/conversations/{answer.headers['x-conversation-id']}/turns/1").json()
    if model in ("plain", "torn"):
        assert (turn["state"], turn["reply"]) == ("finished", "Grüße from upstream.")
    if model == "tools":
        assert turn["state"] == "running"


def test_stream_pieces_are_forwarded_at_once(client: httpx.Client, upstream: Upstream) -> None:
    with client.stream("POST", "/v1/chat/completions", json=request_body(model="slow", stream=True)) as answer:
        first, *rest = answer.iter_raw()
    assert b"[DONE]" not in first
    assert b"[DONE]" in b"".join(rest)


def test_interrupted_upstream_stream_is_interrupted_for_the_client(client: httpx.Client, upstream: Upstream) -> None:
    got: list[bytes] = []
    with client.stream("POST", "/v1/chat/completions", json=request_body(model="half", stream=True)) as answer:
        conversation = answer.headers["x-conversation-id"]
        with pytest.raises(httpx.RemoteProtocolError):
            got.extend(answer.iter_raw())  # keeps what came before the cut
    assert b"".join(got) == upstream.last.answer
    turn = client.get(f"/api/conversations/{conversation}/turns/1").json()
    assert (turn["state"], turn["reply"]) == ("interrupted", "Grüße from")


def test_invalid_answer_fails_the_turn(client: httpx.Client, upstream: Upstream) -> None:
    for model in ("garbage", "limited"):
        answer = client.post("/v1/chat/completions", json=request_body(model=model))
        turn = client.get(f"/api/conversations/{answer.headers['x-conversation-id']}/turns/1").json()
        assert turn["state"] == "failed"


def test_unreachable_upstream_returns_502(serve_live: Callable[..., Live]) -> None:
    live = serve_live(config(upstream="http://127.0.0.1:9/v1"))
    answer = httpx.post(f"{live.url}/v1/chat/completions", json=request_body(), headers={"X-Conversation-Id": "c1"})
    assert answer.status_code == 502
    assert "127.0.0.1:9" in answer.json()["error"]["message"]
    assert [each["id"] for each in httpx.get(f"{live.url}/v1/models").json()["data"]] == ["assistant"]
    assert httpx.post(f"{live.url}/v1/embeddings", json={}).status_code == 502
    turn = httpx.get(f"{live.url}/api/conversations/c1/turns/1").json()
    assert (turn["state"], turn["query"]) == ("failed", MESSAGES[0]["content"])


# ---- conversation and user


@pytest.mark.parametrize(
    ("path", "headers", "more", "conversation", "user"),
    [
        ("/v1", {"X-Conversation-Id": "h1", "X-User-Id": "ann"}, {}, "h1", "ann"),
        ("/v1", {}, {"metadata": {"conversation_id": "m1"}, "user": "bob"}, "m1", "bob"),
        ("/c/p1/v1", {"X-Conversation-Id": "h2"}, {"metadata": {"conversation_id": "m2"}}, "p1", None),
        ("/u/cy/v1", {"X-Conversation-Id": "h3", "X-User-Id": "ann"}, {"user": "bob"}, "h3", "cy"),
        ("/c/p2/u/dee/v1", {}, {}, "p2", "dee"),
        ("/u/eve/c/team~p3/v1", {}, {}, "team/p3", "eve"),
        ("/c/team%2Fp4/v1", {}, {"safety_identifier": "fay"}, "team/p4", "fay"),
    ],
)
def test_conversation_and_user_follow_the_precedence_order(  # noqa: PLR0917 - one table
    client: httpx.Client, path: str, headers: dict[str, str], more: dict[str, Any], conversation: str, user: str | None
) -> None:
    answer = client.post(f"{path}/chat/completions", json=request_body(**more), headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-conversation-id"] == conversation
    result = client.get(f"/api/conversations/{conversation.replace('/', '~')}").json()
    assert (result["id"], result["userId"]) == (conversation, user)
    assert [each["id"] for each in client.get(f"{path}/models").json()["data"]] == ["assistant", "big"]


def test_server_history_sends_the_stored_posts(client: httpx.Client, upstream: Upstream) -> None:
    for text in ("one", "two"):
        headers = {"X-Conversation-Id": "c1", "X-History": "server"}
        client.post(
            "/v1/chat/completions", json=request_body(messages=[{"role": "user", "content": text}]), headers=headers
        )
    assert [each["content"] for each in upstream.last.fields["messages"]][::2] == ["one", "two"]
    refused = client.post("/v1/chat/completions", json=request_body(), headers={"X-History": "none"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "X-History")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b'{"model": "plain"}', "messages"),
        (b'{"messages": []}', "messages"),
        (b'{"messages": "Hi"}', "messages"),
        (b'{"messages": [{"role": "user", "content": "a\\u0000"}]}', "messages[0].content"),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "messages[0].content"),
        (b'{"messages": [{"role": "wizard", "content": "x"}]}', "messages[0].role"),
        (b'{"messages": [{"role": "user", "content": 5}]}', "messages[0].content"),
        (b'{"messages": [5]}', "messages[0]"),
        (b'{"messages": [{"role": "user", "content": ' + b"[" * 80 + b"]" * 80 + b"}]}", "body"),
    ],
)
def test_invalid_requests_get_openai_errors(client: httpx.Client, upstream: Upstream, body: bytes, param: str) -> None:
    answer = client.post("/v1/chat/completions", content=body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error"), error
    assert upstream.received == []
    assert client.get("/api/conversations").json() == {"items": []}


# ---- other endpoints


def test_models_are_merged_and_other_endpoints_pass_through(client: httpx.Client, upstream: Upstream) -> None:
    listed = client.get("/v1/models", headers={"Authorization": "Bearer k"}).json()
    assert [each["id"] for each in listed["data"]] == ["assistant", "big"]
    assert listed["data"][1]["extra"] is True
    assert upstream.last.headers["authorization"] == "Bearer k"
    assert client.get("/v1/models/assistant").json()["owned_by"] == "cuebook"
    body = b'{"input": "x",  "model": "e"}'
    answer = client.post("/v1/embeddings?a=1", content=body, headers={"content-type": "application/json"})
    assert answer.content == upstream.last.answer == b'{"object": "list",  "data": [{"embedding": [0.10, 1e-3]}]}'
    assert (upstream.last.body, upstream.last.query) == (body, "a=1")
    speech = client.post("/c/x/v1/audio/speech", content=b"\x00\xff not json")
    assert (speech.content, speech.headers["content-type"]) == (b"\x00\x01\xff\xfe", "audio/mpeg")
    assert upstream.last.body == b"\x00\xff not json"
    for method, path in (("DELETE", "/v1/models/ft:x"), ("GET", "/v1/chat/completions"), ("GET", "/v1/files/a%2Fb")):
        answer = client.request(method, path)
        assert (answer.status_code, answer.content) == (404, upstream.last.answer)
        assert (upstream.last.method, upstream.last.path) == (method, path)


# ---- the official client


def test_openai_client_works(relayed: Live, upstream: Upstream) -> None:
    with openai.OpenAI(base_url=f"{relayed.url}/c/talk/v1", api_key="sk-x", max_retries=0) as client:
        history: list[Any] = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
        raw = client.chat.completions.with_raw_response.create(model="plain", messages=history)
        answer = raw.parse()
        assert answer.choices[0].message.content
        assert answer.usage is not None
        assert raw.headers["x-conversation-id"] == "talk"
        history += [
            {"role": "assistant", "content": answer.choices[0].message.content},
            {"role": "user", "content": "Go on"},
        ]
        text = ""
        with client.chat.completions.create(model="plain", messages=history, stream=True) as stream:
            for event in stream:
                text += event.choices[0].delta.content or ""
        assert text == "Grüße from upstream."
        assert upstream.last.fields["messages"] == history
        assert {each.id for each in client.models.list()} == {"assistant", "big"}
        with pytest.raises(openai.RateLimitError):
            client.chat.completions.create(model="limited", messages=history)
        with pytest.raises(openai.BadRequestError, match="messages"):
            client.chat.completions.create(model="plain", messages=[])
    items = httpx.get(f"{relayed.url}/api/conversations/talk/turns").json()["items"]
    assert [each["state"] for each in items] == ["finished", "finished", "failed"]


@pytest.mark.parametrize("streams", [False, True])
def test_tool_loop_is_one_turn(relayed: Live, upstream: Upstream, streams: bool) -> None:
    with openai.OpenAI(base_url=f"{relayed.url}/c/tools/v1", api_key="sk-x", max_retries=0) as client:
        tools: Any = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
        history: list[Any] = [{"role": "user", "content": "Weather in Oslo and Rome?"}]
        if streams:
            with client.chat.completions.stream(model="tools", messages=history, tools=tools) as stream:
                message = stream.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(model="tools", messages=history, tools=tools).choices[0].message
        calls = message.tool_calls or []
        assert [call.function.arguments for call in calls] == ['{"city": "Oslo"}', '{"city": "Rome"}']
        history.append(message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
        history += [
            {"role": "tool", "tool_call_id": call.id, "content": f"{n} degrees"} for n, call in enumerate(calls)
        ]
        final = client.chat.completions.create(model="tools", messages=history, tools=tools)
        assert final.choices[0].message.content
        sent = upstream.last.fields["messages"]
        assert [each["role"] for each in sent] == ["user", "assistant", "tool", "tool"]
        assert [each["tool_call_id"] for each in sent[2:]] == ["call_a", "call_b"]
    turns = httpx.get(f"{relayed.url}/api/conversations/tools/turns").json()["items"]
    assert [(each["state"], len(each["steps"])) for each in turns] == [("finished", 2)]
    result = httpx.get(f"{relayed.url}/api/conversations/tools/turns/1").json()
    assert all(block["text"] for block in result["window"]["blocks"])
    [calls] = [block["text"] for block in result["window"]["blocks"] if block["role"] == "assistant"]
    assert calls == 'weather({"city": "Oslo"})\nweather({"city": "Rome"})'
    posts = httpx.get(f"{relayed.url}/api/conversations/tools/posts").json()["items"]
    assert [(each["sendFrom"], each["sendTo"]) for each in posts] == [
        ("user", "assistant"), ("assistant", "user"), ("tool", "assistant"), ("tool", "assistant"),
        ("assistant", "user"),
    ]  # fmt: skip


def test_configured_model_answers_without_an_upstream(serve_live: Callable[..., Live]) -> None:
    live = serve_live(model=ScriptedModel("Ay", "Bee"))
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="x", max_retries=0) as client:
        assert client.chat.completions.create(model="any", messages=MESSAGES).choices[0].message.content == "Ay"
        with client.chat.completions.create(model="any", messages=MESSAGES, stream=True) as stream:
            assert "".join(each.choices[0].delta.content or "" for each in stream) == "Bee"
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="e", input="x")


def test_client_retries_stay_in_one_conversation(relayed: Live, upstream: Upstream) -> None:
    """OpenAI's client retries by itself. Without an ID and an answer, only its header marks a retry."""
    with openai.OpenAI(base_url=f"{relayed.url}/v1", api_key="x") as client:
        said: list[Any] = [{"role": "user", "content": "hi"}]
        answer = client.chat.completions.create(model="restarting", messages=said)
        second = client.chat.completions.create(model="restarting", messages=said)
    assert [request.fields["messages"][-1]["content"] for request in upstream.received] == ["hi"] * 4
    assert answer.choices[0].message.content == second.choices[0].message.content
    items = httpx.get(f"{relayed.url}/api/conversations").json()["items"]
    assert len(items) == 2, "A request that is not a retry starts another conversation."
    turns = [
        httpx.get(f"{relayed.url}/api/conversations/{each['id']}/turns?allAttempts=true").json()["items"]
        for each in items
    ]
    assert sorted([turn["state"] for turn in each] for each in turns) == [
        ["failed", "failed", "finished"],
        ["finished"],
    ]
