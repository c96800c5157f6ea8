"""Tests of every route under /api in one process: requests, answers and refusals."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from shared_app import app_of

from conftest import BASE, config
from cuebook import Ask, Cuebook
from cuebook.records.plain_text import plain
from cuebook.records.turn import title_of
from cuebook.testing.doubles import Script, ScriptedModel

POSTS = [
    {"id": "a", "sendFrom": "ann", "message": "I moved to Lisbon.", "timestamp": "2024-05-01T10:00:00Z"},
    {"id": "b", "sendFrom": "assistant", "sendTo": "ann", "message": "How do you like it?"},
]


async def store_posts(client: httpx.AsyncClient, conversation: str = "c1", **more: Any) -> httpx.Response:
    return await client.post(f"/api/conversations/{conversation}/posts", json={"posts": POSTS, "userId": "ann"} | more)


def events(text: str) -> list[tuple[str, dict[str, Any]]]:
    results = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        results.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return results


async def test_chat_returns_one_json_answer(client: httpx.AsyncClient) -> None:
    answer = await client.post("/api/chat", json={"message": "Hi", "conversationId": "c1", "userId": "ann"})
    assert answer.status_code == 200
    fields = answer.json()
    assert set(fields) == {"text", "textPlain", "conversationId", "turn", "metadata"}
    assert (fields["text"], fields["conversationId"], fields["turn"]) == ("Hello there.", "c1", 1)


async def test_chat_without_a_conversation_creates_one(client: httpx.AsyncClient) -> None:
    first, second = [(await client.post("/api/chat", json={"message": "Hi"})).json() for _ in range(2)]
    assert first["conversationId"]
    assert first["conversationId"] != second["conversationId"]
    assert (await client.get(f"/api/conversations/{first['conversationId']}")).status_code == 200


@pytest.mark.parametrize("how", ["field", "header"])
async def test_chat_streams_events_in_order(client: httpx.AsyncClient, model: ScriptedModel, how: str) -> None:
    model.say(Script(text="Hello **you**", size=5))
    body: dict[str, Any] = {"message": "Hi", "conversationId": "c1"} | ({"stream": True} if how == "field" else {})
    headers = {"accept": "text/event-stream"} if how == "header" else {}
    answer = await client.post("/api/chat", json=body, headers=headers)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-conversation-id"] == "c1"
    result = events(answer.text)
    assert [name for name, _ in result] == [
        "METADATA_UPDATE",
        "text_delta",
        "text_delta",
        "text_delta",
        "final_response",
    ]
    assert "window" in result[0][1]["updates"]
    assert "".join(each["textDelta"] for name, each in result if name == "text_delta") == "Hello **you**"
    final = result[-1][1]
    assert set(final) == {"finalResponseText", "finalResponseTextPlain", "conversationId", "turn", "metadata"}
    assert (final["finalResponseText"], final["finalResponseTextPlain"]) == ("Hello **you**", plain("Hello **you**"))


async def test_stream_false_overrides_the_accept_header(client: httpx.AsyncClient) -> None:
    body = {"message": "Hi", "stream": False}
    answer = await client.post("/api/chat", json=body, headers={"accept": "text/event-stream"})
    assert answer.headers["content-type"] == "application/json"


async def test_error_during_a_stream_is_an_event(client: httpx.AsyncClient, model: ScriptedModel) -> None:
    from cuebook.errors import UpstreamError

    model.say(Script(text="Half of it", error=UpstreamError("the model broke", status=503)))
    answer = await client.post("/api/chat", json={"message": "Hi", "conversationId": "c1", "stream": True})
    name, problem = events(answer.text)[-1]
    assert (name, problem["status"], problem["detail"]) == ("error", 503, "the model broke")
    turn = (await client.get("/api/conversations/c1/turns/1")).json()
    assert (turn["state"], turn["reply"]) == ("failed", "Half of it")


async def test_assemble_returns_the_prompt_and_stores_nothing(client: httpx.AsyncClient, model: ScriptedModel) -> None:
    await store_posts(client)
    body = {"message": "Where do I live?", "conversationId": "c1", "userId": "ann", "tokenBudget": 4000}
    answer = await client.post("/api/assemble", json=body)
    assert answer.status_code == 200
    fields = answer.json()
    assert set(fields) == {"messages", "window", "metadata"}
    assert [each["role"] for each in fields["messages"]][-3:] == ["user", "assistant", "user"]
    assert {"tokens", "budget", "stablePrefixRatio", "blocks", "dropped"} <= set(fields["window"])
    assert {"kind", "source", "role", "tokens", "text"} <= set(fields["window"]["blocks"][0])
    assert fields["window"]["budget"] <= 4000
    assert model.requests == []
    assert (await client.get("/api/conversations/c1")).json()["lastSeq"] == 2


async def test_assemble_treats_an_unknown_conversation_as_empty(client: httpx.AsyncClient) -> None:
    answer = await client.post("/api/assemble", json={"message": "Hi"})
    assert answer.json()["messages"][-1] == {"role": "user", "content": "Hi"}
    assert (await client.get("/api/conversations")).json() == {"items": []}


async def test_posts_are_stored_once(client: httpx.AsyncClient) -> None:
    first = await store_posts(client)
    assert (first.status_code, first.json()) == (201, {"stored": 2, "lastSeq": 2})
    second = await store_posts(client)
    assert (second.status_code, second.json()) == (201, {"stored": 0, "lastSeq": 2})
    other = await store_posts(client, posts=[{"id": "a", "sendFrom": "ann", "message": "Something else."}])
    assert other.status_code == 409


async def test_posts_are_read_back(client: httpx.AsyncClient) -> None:
    await store_posts(client)
    results = (await client.get("/api/conversations/c1/posts", params={"userId": "ann"})).json()["items"]
    assert [(each["id"], each["seq"], each["parent"], each["role"]) for each in results] == [
        ("a", 1, None, "user"),
        ("b", 2, "a", "assistant"),
    ]
    assert results[0]["timestamp"] == "2024-05-01T10:00:00.000Z"
    assert (await client.get("/api/conversations/c1/posts?last=1")).json()["items"][0]["id"] == "b"
    listed = [(await client.get("/api/conversations", params={"q": q})).json()["items"] for q in ("C1", "tulips")]
    assert [[each["id"] for each in items] for items in listed] == [["c1"], []]


async def test_message_precedes_its_attachments(client: httpx.AsyncClient) -> None:
    plan = {"type": "plan", "content": "1. rest"}
    messages = [
        {"sendFrom": "ann", "message": "What now?"},
        {"sendFrom": "assistant", "message": "So:", "attachments": [plan]},
    ]
    assert (await store_posts(client, posts=messages)).status_code == 201
    secret = {"type": "text", "content": "password=hunter2secret"}
    ask = {"message": "And then?", "conversationId": "c1", "userId": "ann", "attachments": [plan, secret]}
    result = (await client.post("/api/assemble", json=ask)).json()
    sent = result["messages"][-1]["content"]
    assert [each["text"] for each in sent] == ["And then?\n\n[plan] 1. rest", "password=hunter2secret"]
    results = [each["text"] for each in result["window"]["blocks"] if each["kind"] in {"post", "query"}]
    assert results[:2] == ["What now?", "So:\n\n[plan] 1. rest"]
    assert results[2].startswith("And then?\n\n[plan] 1. rest\npassword=[[secret:")
    second = {"id": "t", "sendFrom": "ann", "message": "One", "attachments": [{"type": "text", "content": "x"}]}
    assert (await store_posts(client, posts=[second])).status_code == 201
    other = [second | {"message": "Two"}]
    assert (await store_posts(client, posts=other)).status_code == 409  # its message differs from the stored one


async def test_unknown_attachments_and_parts_are_kept(client: httpx.AsyncClient) -> None:
    posts = [
        {
            "sendFrom": "ann",
            "message": "Look",
            "attachments": [{"type": "hologram", "content": "(o)", "extra": {"x": 1}}],
        },
        {"sendFrom": "ann", "parts": [{"type": "text", "content": "Only text"}]},
        {
            "sendFrom": "ann",
            "parts": [{"type": "image_url", "content": "http://x/y.png"}, {"type": "text", "content": "B"}],
        },
        {"sendFrom": "assistant", "attachments": [{"type": "plan", "content": "1. rest"}]},
    ]
    assert (await store_posts(client, posts=posts)).json() == {"stored": 4, "lastSeq": 4}
    items = (await client.get("/api/conversations/c1/posts")).json()["items"]
    assert items[0]["attachments"] == [
        {"type": "opaque", "content": "(o)", "extra": {"originalType": "hologram", "extra": {"x": 1}}}
    ]
    assert (items[1]["message"], items[1]["attachments"]) == ("Only text", [])
    assert (items[2]["message"], len(items[2]["attachments"])) == ("B", 2)
    assert all(each["id"] for each in items)


async def test_recipient_defaults_are_the_same_for_every_route(client: httpx.AsyncClient) -> None:
    posts = [{"sendFrom": name, "message": "x"} for name in ("ann", "assistant", "tool", "system")]
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}]
    messages.append({"role": "tool", "content": "x", "tool_call_id": "1"})
    await store_posts(client, "c1", posts=[*posts, {"sendFrom": "ann", "sendTo": "bob", "message": "x"}])
    await client.post("/api/conversations/c2/posts", json={"messages": messages})
    await client.post("/api/chat", json={"message": "Hi", "conversationId": "c3"})
    recipients = {}
    for name in ("c1", "c2", "c3"):
        items = (await client.get(f"/api/conversations/{name}/posts")).json()["items"]
        recipients[name] = [each["sendTo"] for each in items]
    assert recipients == {
        "c1": ["assistant", "user", "assistant", "", "bob"],
        "c2": ["assistant", "user", "assistant"],
        "c3": ["assistant", "user"],
    }


async def test_every_block_has_a_text(client: httpx.AsyncClient) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "find", "arguments": '{"q": "tea"}'}}
    parts = [
        {"type": "image_url", "image_url": {"url": url}} for url in ("https://x.y/a.png", "data:image/png;base64,AA")
    ]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "green"},
        {"role": "assistant", "content": None, "function_call": {"name": "old", "arguments": "{}"}},
        {"role": "function", "name": "old", "content": "done"},
    ]
    await client.post("/api/conversations/c1/posts", json={"messages": messages})
    plan = {"sendFrom": "assistant", "attachments": [{"type": "plan", "content": "1. rest"}]}
    await client.post("/api/conversations/c1/posts", json={"posts": [plan]})
    body = {"message": "And?", "conversationId": "c1"}
    window = (await client.post("/api/assemble", json=body)).json()["window"]
    texts = [block["text"] for block in window["blocks"] if block["source"].startswith("post:")]
    assert texts[:-1] == [
        "[image_url] https://x.y/a.png\n[image_url]", 'find({"q": "tea"})', "green", "old({})", "done",
        "[plan] 1. rest",
    ]  # fmt: skip
    await client.post("/api/chat", json=body)
    turn = (await client.get("/api/conversations/c1/turns/1")).json()
    assert [block["text"] for block in turn["window"]["blocks"]] == [block["text"] for block in window["blocks"]]
    assert turn["replay"] == "identical"
    attached = [{"type": "image_url", "content": "https://x.y/b.png"}]
    await client.post("/api/chat", json={"message": "", "conversationId": "c1", "attachments": attached})
    assert (await client.get("/api/conversations/c1/turns/2")).json()["query"] == "[image_url] https://x.y/b.png"


async def test_openai_messages_are_stored(client: httpx.AsyncClient) -> None:
    messages = [
        {"id": "m1", "role": "user", "content": "Hi", "name": "ann", "timestamp": "2024-05-01T10:00:00+02:00"},
        {"role": "assistant", "content": "Hello"},
    ]
    answer = await client.post("/api/conversations/c1/posts", json={"messages": messages})
    assert (answer.status_code, answer.json()) == (201, {"stored": 2, "lastSeq": 2})
    items = (await client.get("/api/conversations/c1/posts")).json()["items"]
    assert (items[0]["id"], items[0]["sendFrom"], items[0]["timestamp"]) == ("m1", "ann", "2024-05-01T08:00:00.000Z")


async def test_parent_creates_a_branch_and_head_can_move(client: httpx.AsyncClient) -> None:
    await store_posts(client)
    branch = [{"id": "b2", "sendFrom": "assistant", "message": "Warm there!", "parent": "a"}]
    assert (await store_posts(client, posts=branch)).status_code == 201
    path = (await client.get("/api/conversations/c1/posts")).json()["items"]
    assert [each["id"] for each in path] == ["a", "b2"]
    every = (await client.get("/api/conversations/c1/posts?branches=all")).json()["items"]
    assert [each["id"] for each in every] == ["a", "b", "b2"]
    moved = await client.put("/api/conversations/c1/head", json={"postId": "b"})
    assert (moved.status_code, moved.json()["head"]) == (200, "b")
    assert (await client.put("/api/conversations/c1/head", json={"postId": "zzz"})).status_code == 404


async def test_page_shows_all_branches(client: httpx.AsyncClient) -> None:
    await store_posts(client)
    branch = [{"id": "b2", "sendFrom": "assistant", "message": "Warm there!", "parent": "a"}]
    await store_posts(client, posts=branch)
    first = (await client.get("/api/conversations/c1/posts")).json()["items"][0]["message"]
    page = (await client.get("/page/conversations/c1?branches=all")).text
    assert page.count("side branch") == 1
    assert 'after <a href="#post-1">#1</a>' in page
    assert "on all 2 branches" in page
    assert "side branch" not in (await client.get("/page/conversations/c1")).text
    assert (await client.get("/api/conversations/c1/posts?branches=some")).status_code == 400
    listed = (await client.get("/api/conversations")).json()["items"][0]
    assert listed["title"] == (await client.get("/api/conversations/c1")).json()["title"] == first


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("", ""),
        ("  When does\nit leave? ", "When does it leave?"),
        ("word " * 20, "word " * 10 + "word…"),
        ("字" * 80, "字" * 59 + "…"),
    ],
)
def test_title_is_the_start_of_the_first_message(said: str, title: str) -> None:
    assert title_of(said) == title


async def test_empty_parent_adds_a_second_root(client: httpx.AsyncClient) -> None:
    await store_posts(client)
    anew = [{"id": "a2", "sendFrom": "ann", "message": "I moved to Porto.", "parent": ""}]
    assert (await store_posts(client, posts=anew)).json() == {"stored": 1, "lastSeq": 3}
    every = (await client.get("/api/conversations/c1/posts?branches=all")).json()["items"]
    assert [(each["id"], each["parent"]) for each in every] == [("a", None), ("b", "a"), ("a2", None)]
    assert [each["id"] for each in (await client.get("/api/conversations/c1/posts")).json()["items"]] == ["a2"]


async def test_conversations_are_paginated(client: httpx.AsyncClient) -> None:
    for n in range(5):
        await store_posts(client, f"c{n}")
    first = (await client.get("/api/conversations?limit=3")).json()
    assert [each["id"] for each in first["items"]] == ["c4", "c3", "c2"]
    second = (await client.get("/api/conversations", params={"limit": 3, "cursor": first["next"]})).json()
    assert [each["id"] for each in second["items"]] == ["c1", "c0"]
    assert "next" not in second
    assert (await client.get("/api/conversations?userId=bob")).json()["items"] == []


async def test_conversation_of_another_user_is_not_found(client: httpx.AsyncClient) -> None:
    await store_posts(client)
    assert (await client.get("/api/conversations/c1?userId=ann")).status_code == 200
    assert (await client.get("/api/conversations/c1", headers={"X-User-Id": "ann"})).status_code == 200
    for place in ("", "/posts", "/rounds", "/turns", "/turns/1", "/summary", "/items"):
        assert (await client.get(f"/api/conversations/c1{place}?userId=bob")).status_code == 404
    assert (await client.delete("/api/conversations/c1", headers={"X-User-Id": "bob"})).status_code == 404


async def test_rounds_group_the_posts_of_the_active_branch(client: httpx.AsyncClient) -> None:
    await store_posts(client)
    rounds = (await client.get("/api/conversations/c1/rounds")).json()["items"]
    assert [(each["userQuery"], len(each["posts"])) for each in rounds] == [("I moved to Lisbon.", 2)]
    assert rounds[0]["posts"][1]["parent"] == "a"
    for query in ("role=assistant", "includeFailed=false", "role=ann&includeFailed=true"):
        assert (await client.get(f"/api/conversations/c1/rounds?{query}")).status_code == 200


async def test_turns_are_shown_and_replayed(client: httpx.AsyncClient) -> None:
    for text in ("Hi", "And?"):
        await client.post("/api/chat", json={"message": text, "conversationId": "c1"})
    listed = (await client.get("/api/conversations/c1/turns")).json()["items"]
    assert [each["turn"] for each in listed] == [1, 2]
    turn = (await client.get("/api/conversations/c1/turns/2")).json()
    assert (turn["turn"], turn["state"], turn["query"], turn["reply"]) == (2, "finished", "And?", "Hello there.")
    assert {"window", "metadata", "createdAt"} <= set(turn)
    replay = (await client.get("/api/conversations/c1/turns/2/replay")).json()
    assert (replay["verdict"], replay["window"]["blocks"][-1]["text"]) == ("identical", "And?")
    for n in ("3", "0", "-1", str(2**70), "x", "1.5"):
        assert (await client.get(f"/api/conversations/c1/turns/{n}")).status_code == 404, n
    assert (await client.get("/api/conversations/c1/turns/1?step=9")).status_code == 404


async def test_short_conversation_has_items_but_no_summary(client: httpx.AsyncClient) -> None:
    await store_posts(client)
    assert (await client.get("/api/conversations/c1/summary")).json() == {"summary": None}
    items = (await client.get("/api/conversations/c1/items?ended=true")).json()["items"]
    assert all(item["sources"] for item in items)


async def test_deleted_conversation_is_not_found(client: httpx.AsyncClient) -> None:
    await store_posts(client)
    gone = await client.delete("/api/conversations/c1")
    assert gone.status_code == 200
    assert gone.json()["deleted"]["posts"] == 2
    for method, place in (("GET", ""), ("DELETE", ""), ("GET", "/posts"), ("GET", "/turns/1")):
        assert (await client.request(method, f"/api/conversations/c1{place}")).status_code == 404


async def test_search_finds_new_posts(client: httpx.AsyncClient) -> None:
    await store_posts(client)
    answer = await client.post(
        "/api/memories/search", json={"query": "Lisbon", "conversationId": "c1", "userId": "ann"}
    )
    assert answer.status_code == 200
    hit = answer.json()["hits"][0]
    assert {"memoryId", "kind", "text", "score", "scope", "sources", "tokens", "timestamp"} <= set(hit)
    assert hit["sources"] == ["a"]
    everywhere = {
        "query": "Lisbon",
        "scopes": ["user"],
        "userId": "ann",
        "limit": 3,
        "tokenBudget": 100,
        "personaId": "x",
    }
    assert (await client.post("/api/memories/search", json=everywhere)).json()["hits"]
    unknown = {"query": "Lisbon", "conversationId": "nowhere"}
    assert (await client.post("/api/memories/search", json=unknown)).json() == {"hits": []}


async def test_settle_reports_no_pending_jobs(client: httpx.AsyncClient) -> None:
    await store_posts(client)
    for body in (b"", b"{}", b'{"conversationId": "c1", "timeout": 5}'):
        answer = await client.post("/api/settle", content=body)
        assert (answer.status_code, answer.json()) == (200, {"due": {}})


async def test_health_and_readiness(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).json() == {"status": "alive"}
    ready = (await client.get("/readyz")).json()
    assert (ready["status"], ready["model"], ready["store"]["posts"]) == ("ready", "scripted", 0)
    assert ready["store"]["file"] == ":memory:"
    head = await client.head("/healthz")
    assert head.status_code == 200


async def test_readiness_shows_the_file_name_without_its_path(tmp_path: Path) -> None:
    async with Cuebook.open(config(store=str(tmp_path / "my.db"))) as cue:
        transport = httpx.ASGITransport(app_of(cue))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
            answer = await client.get("/readyz")
    assert answer.json()["store"]["file"] == "my.db"
    assert str(tmp_path) not in answer.text


async def test_ids_can_contain_any_character(client: httpx.AsyncClient) -> None:
    from urllib.parse import quote

    for name in ("team/2024/q1", "ünï ☃", "a?b#c", "100%", "a+b", "..", "v1", "posts", "a~b", "x\ny"):
        made = {"message": "Hi", "conversationId": name}
        assert (await client.post("/api/chat", json=made)).json()["conversationId"] == name
        path_id = quote(name, safe="").replace("~", "%7E").replace("..", "%2E%2E")
        if name == "..":
            continue  # clients resolve ".." before they send the request
        assert (await client.get(f"/api/conversations/{path_id}")).json()["id"] == name, name
    assert (await client.get("/api/conversations/team~2024~q1")).json()["id"] == "team/2024/q1"


async def test_readiness_fails_with_the_store(client: httpx.AsyncClient, cue: Cuebook) -> None:
    await cue.services.store.aclose()
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"


async def test_idempotency_keys_work_for_posts_and_chat(client: httpx.AsyncClient, model: ScriptedModel) -> None:
    key = {"Idempotency-Key": "k1"}
    body = {"posts": [{"sendFrom": "ann", "message": "Once"}]}
    first, second = [await client.post("/api/conversations/c1/posts", json=body, headers=key) for _ in range(2)]
    assert (first.json(), second.json()) == ({"stored": 1, "lastSeq": 1},) * 2
    other = {"posts": [{"sendFrom": "ann", "message": "Twice"}]}
    reused = await client.post("/api/conversations/c1/posts", json=other, headers=key)
    assert (reused.status_code, reused.json()["type"]) == (422, "urn:cuebook:problem:idempotency-key-reused")
    key = {"Idempotency-Key": "k2"}
    answers = [await client.post("/api/chat", json={"message": "Hi"}, headers=key) for _ in range(2)]
    assert answers[0].json()["conversationId"] == answers[1].json()["conversationId"]
    assert [each.json()["turn"] for each in answers] == [1, 1]
    assert len(model.requests) == 1
    assert (await client.post("/api/chat", json={"message": "Ho"}, headers=key)).status_code == 422
    long = await client.post("/api/chat", json={"message": "Hi"}, headers={"Idempotency-Key": "k" * 300})
    assert long.status_code == 400


async def test_pages_load_no_external_resources(client: httpx.AsyncClient) -> None:
    for path in ("/", "/schema"):
        answer = await client.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert re.findall(r"<script(?! type=\"module\" src=\"/page/static/)", answer.text) == []
        assert re.findall(r"(?:src|href)=\"(?!/|#)", answer.text) == []
    document = (await client.get("/schema/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    assert "/api/conversations/{conversation}/posts" in document["paths"]


async def test_answer_without_a_model_names_the_missing_setting() -> None:
    """An upstream only answers under /v1, so the advice differs when one is configured."""
    for settings, advice in (
        ({}, "Set [model] or --upstream to get an answer."),
        (
            {"upstream.url": "http://127.0.0.1:9/v1"},
            "Set [model] to get an answer here; the upstream answers under /v1.",
        ),
    ):
        async with Cuebook.open(arguments=settings, worker=False) as cue:
            assert (await cue.ask(Ask("Hello?", "c1"))).text.endswith(advice)
