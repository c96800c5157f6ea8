"""Tests of conversation sessions, shared entries and text compression over HTTP."""

from typing import Any

import httpx
import pytest

from cuebook import Cuebook

FACTS = [f"I live in town number {n}. We decided to paint wall {n} blue." for n in range(8)]


@pytest.fixture
async def seeded_client(client: httpx.AsyncClient) -> httpx.AsyncClient:
    posts: list[dict[str, Any]] = []
    for n, fact in enumerate(FACTS):
        posts.append({"id": f"q{n}", "sendFrom": "ann", "message": fact})
        note = {"type": "shared_memory_entry", "content": "", "extra": {
            "type": "plan" if n % 2 else "schema", "scope": "conversation", "content": f"note {n}", "id": f"sme-{n}",
        }}  # fmt: skip
        posts.append({"id": f"a{n}", "sendFrom": f"role{n}", "message": "Noted.", "attachments": [note]})
    stored = await client.post("/api/conversations/c1/posts", json={"posts": posts, "userId": "ann"})
    assert stored.status_code == 201
    return client


async def get(client: httpx.AsyncClient, place: str, **params: Any) -> Any:
    answer = await client.get(f"/api/conversations/c1/{place}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def compress(client: httpx.AsyncClient, key: str = "", **body: Any) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    body = {"olderThan": "q4", "summary": "They paint walls."} | body
    return await client.post("/api/conversations/c1/compress", json=body, headers=headers)


async def test_session_has_the_summary_and_later_posts(seeded_client: httpx.AsyncClient) -> None:
    before = (await get(seeded_client, "session"))["items"]
    assert [each["content"] for each in before][:2] == [FACTS[0], "Noted."]
    assert set(before[0]) == {"role", "content", "timestamp", "tokenCount", "isCompressed"}
    made = await compress(seeded_client)
    assert made.status_code == 201, made.text
    assert (made.json()["summary"]["summaryText"], made.json()["summary"]["summaryUptoSeq"]) == ("They paint walls.", 8)
    session = (await get(seeded_client, "session"))["items"]
    assert (session[0]["role"], session[0]["content"]) == ("system", "[CONTEXT SUMMARY]\nThey paint walls.")
    assert session[1:] == before[8:]
    everything = (await get(seeded_client, "session", includeCompressed=True))["items"]
    assert [each["isCompressed"] for each in everything] == [False] + [True] * 8 + [False] * 8
    assert len((await get(seeded_client, "posts"))["items"]) == 16
    pages = [await get(seeded_client, "session", limit=5)]
    pages.append(await get(seeded_client, "session", limit=5, cursor=pages[0]["next"]))
    assert pages[0]["items"] + pages[1]["items"] == session
    assert "next" not in pages[1]
    await compress(seeded_client, olderThan="q6")
    stale = await seeded_client.get("/api/conversations/c1/session", params={"cursor": pages[0]["next"]})
    assert (stale.status_code, stale.json()["where"]) == (400, "cursor")


async def test_idempotency_key_creates_a_summary_once(seeded_client: httpx.AsyncClient) -> None:
    first, second = await compress(seeded_client, "k1"), await compress(seeded_client, "k1")
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    assert first.json()["summary"]["version"] == 1
    other = await compress(seeded_client, "k1", summary="Another.")
    assert (other.status_code, other.json()["type"]) == (422, "urn:cuebook:problem:idempotency-key-reused")


@pytest.mark.parametrize(
    ("body", "status", "where"),
    [
        ({"olderThan": "nobody"}, 404, None),
        ({"olderThan": "q0"}, 400, "olderThan"),
        ({"olderThan": ""}, 400, "olderThan"),
        ({"summary": ""}, 400, "summary"),
        ({"summary": "  "}, 400, "summary"),
        ({"summary": 5}, 400, "summary"),
        ({"userId": "bob"}, 404, None),
        ({"surplus": 1}, 400, "surplus"),
    ],
)
async def test_invalid_compression_is_rejected(
    seeded_client: httpx.AsyncClient, body: dict[str, Any], status: int, where: str | None
) -> None:
    answer = await compress(seeded_client, **body)
    assert (answer.status_code, answer.json().get("where")) == (status, where), answer.text
    assert (await get(seeded_client, "summary"))["summary"] is None


async def test_shared_entries_are_filtered_and_paginated(seeded_client: httpx.AsyncClient) -> None:
    result = (await get(seeded_client, "shared-entries"))["items"]
    assert result[1] == {
        "id": "sme-1", "type": "plan", "scope": "conversation", "content": "note 1", "sendFrom": "role1",
    }  # fmt: skip
    assert len(result) == 8
    plans = (await get(seeded_client, "shared-entries", type="plan", includeFailed=True))["items"]
    assert [each["content"] for each in plans] == ["note 1", "note 3", "note 5", "note 7"]
    page = await get(seeded_client, "shared-entries", limit=6)
    rest = await get(seeded_client, "shared-entries", cursor=page["next"])
    assert page["items"] + rest["items"] == result
    for place in ("session", "shared-entries"):
        assert (await seeded_client.get(f"/api/conversations/c1/{place}?userId=bob")).status_code == 404
        assert (await seeded_client.get(f"/api/conversations/nowhere/{place}")).status_code == 404


async def test_compressed_text_keeps_every_fact(client: httpx.AsyncClient, cue: Cuebook) -> None:
    text = "First line.\n" + "and so on, and so on. " * 40 + "\nSee https://example.com/a at 10.0.0.7.\nLast line."
    for source in (text, "short", "", text * 40):
        answer = await client.post("/learning/memory/compress", json={"text": source})
        assert answer.status_code == 200
        made = await cue.memory.compress(source)
        assert answer.json() == {
            "text": made.text, "tokensBefore": made.tokens_before, "tokensAfter": made.tokens_after,
        }  # fmt: skip
    made = (await client.post("/learning/memory/compress", json={"text": text})).json()
    assert made["tokensAfter"] < made["tokensBefore"]
    for fact in ("First line.", "Last line.", "https://example.com/a", "10.0.0.7"):
        assert fact in made["text"]
    refused = await client.post("/learning/memory/compress", json={"text": "x\x00"})
    assert (refused.status_code, refused.json()["where"]) == (400, "text")


async def test_digest_summarizes_the_newest_posts(seeded_client: httpx.AsyncClient) -> None:
    answer = await seeded_client.post(
        "/learning/memory/digest", json={"conversationId": "c1", "userId": "ann", "last": 4}
    )
    assert answer.status_code == 200
    assert answer.json()["text"].startswith("[Summary of 4 messages]")
    for body, status in (
        ({"conversationId": "nowhere"}, 404),
        ({"conversationId": "c1", "userId": "bob"}, 404),
        ({"conversationId": "c1", "last": 0}, 400),
        ({}, 400),
    ):
        assert (await seeded_client.post("/learning/memory/digest", json=body)).status_code == status, body
