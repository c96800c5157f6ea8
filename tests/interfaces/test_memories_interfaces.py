"""Tests of memories across conversations over HTTP and on the command line."""

import json
import re

import httpx
import pytest
from commands import CommandRunner, cuebook
from shared_app import app_of

from cuebook import Config, Cuebook
from cuebook.config import ConfigSections, MemoryConfig, StoreConfig

BASE = "http://127.0.0.1"


@pytest.fixture
async def client():
    settings = ConfigSections(store=StoreConfig(url=":memory:"), memory=MemoryConfig(user=True))
    async with Cuebook.open(Config(settings=settings)) as cue:
        transport = httpx.ASGITransport(app_of(cue))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as http_client:
            yield http_client


async def chat(client, message, conversation, user="ann", **more):
    body = {"message": message, "conversationId": conversation, "userId": user, **more}
    answer = await client.post("/api/chat", json=body)
    assert answer.status_code == 200, answer.text
    assert (await client.post("/api/settle", json={})).status_code == 200
    return answer.json()


async def test_user_memories_are_listed_corrected_and_exported(client):
    await chat(client, "I am allergic to nuts.", "c1")
    [memory] = (await client.get("/api/memories?userId=ann")).json()["items"]
    assert (memory["text"], memory["scope"], memory["userId"]) == ("I am allergic to nuts.", "user", "ann")
    assert memory["sources"][0]["conversationId"] == "c1"
    one = await client.get(f"/api/memories/{memory['id']}?userId=ann")
    assert one.json() == memory
    assert (await client.get(f"/api/memories/{memory['id']}?userId=bob")).status_code == 404
    body = {"text": "I am allergic to hazelnuts.", "userId": "bob"}
    assert (await client.patch(f"/api/memories/{memory['id']}", json=body)).status_code == 404
    fixed = await client.patch(f"/api/memories/{memory['id']}", json=body | {"userId": "ann", "erase": True})
    assert (fixed.status_code, fixed.json()["confidence"]) == (200, 1.0)
    items = (await client.get("/api/memories/export?userId=ann")).json()["items"]
    assert [each["text"] for each in items] == ["I am allergic to hazelnuts."]
    hits = await client.post("/api/memories/search", json={"query": "allergic?", "userId": "ann", "scopes": ["user"]})
    assert hits.json()["hits"][0]["kind"] in {"item", "post"}
    assert "hazelnuts" in json.dumps(hits.json())


async def test_memory_without_a_model_shows_date_and_no_empty_name(client):
    await chat(client, "I am allergic to nuts.", "c1")
    result = (await chat(client, "What am I allergic to?", "c2"))["text"]
    assert "] I am allergic to nuts. (post-" in result
    assert "] :" not in result


async def test_request_sets_the_policy_and_invalid_ones_are_rejected(client):
    answer = await chat(client, "I live in Oslo.", "c1", memoryControl={"longTermMemory": {"enabled": False}})
    assert answer["metadata"]["longTermMemoryPolicy"]["enabled"] is False
    assert (await client.get("/api/memories?userId=ann")).json() == {"items": []}
    wrong = {"longTermMemory": {"scopes": {"galaxy": True}}}
    body = {"message": "x", "conversationId": "c2", "memoryControl": wrong}
    refused = await client.post("/api/chat", json=body)
    assert refused.status_code == 400
    assert "unknown field 'galaxy'" in refused.text


async def test_memories_are_paginated_and_odd_queries_work(client):
    for n in range(5):
        answer = await client.post(
            "/learning/knowledge", json={"category": "domain", "key": f"k{n}", "value": f"v{n}", "userId": "ann"}
        )
        assert answer.status_code == 201
        entry = answer.json()
        assert (entry["key"], entry["value"], entry["userId"]) == (f"k{n}", f"v{n}", "ann")
        assert (entry["confidence"], entry["usageCount"]) == (0.5, 1)
    page = (await client.get("/api/memories?userId=ann&limit=2")).json()
    rest = (await client.get(f"/api/memories?userId=ann&limit=10&cursor={page['next']}")).json()
    assert [each["key"] for each in (*page["items"], *rest["items"])] == [f"k{n}" for n in range(5)]
    items = (await client.get("/learning/knowledge?userId=ann&q=v3")).json()["items"]
    assert [(each["key"], each["value"]) for each in items] == [("k3", "v3")]
    used = await client.post(f"/learning/knowledge/{items[0]['id']}/use?userId=ann")
    assert used.json() == items[0] | {"confidence": 0.55, "usageCount": 2, "lastUsedAt": used.json()["lastUsedAt"]}
    for path in (
        "/api/memories?category=nonsense",
        "/api/memories?cursor=nonsense",
        "/api/memories?limit=0",
        "/api/memories?personaId=helper",
    ):
        assert (await client.get(path)).status_code == 400, path
    for query in ("x" * 100_000, "?!;.,", '"key" OR NEAR(a b) *', "scope : p1"):
        response = await client.post("/api/memories/search", json={"query": query, "userId": "ann"})
        assert response.status_code == 200, query[:20]
    wrong = {"category": "domain", "key": "k", "value": "v", "confidence": 7}
    assert (await client.post("/learning/knowledge", json=wrong)).status_code == 400
    assert (
        await client.post("/learning/knowledge", json=wrong | {"confidence": 1, "category": "x"})
    ).status_code == 400


@pytest.mark.slow
def test_operator_lists_corrects_and_exports_memories(here: CommandRunner) -> None:
    project = here.folder / "cuebook.toml"
    project.write_text(project.read_text().replace("[memory]", "[memory]\nuser = true"))
    result = "I live in Oslo. I am allergic to nuts.\n"
    assert cuebook("chat", "--conversation", "c1", "--user", "ann", cwd=here.folder, stdin=result).returncode == 0
    here("settle")
    output = here("memory", "list", "--user", "ann")
    assert "allergic" in output
    items = here.json("memory", "list", "--user", "ann")["items"]
    [nuts] = [each["id"] for each in items if "nuts" in each["text"]]
    assert nuts in output, "The table must show the whole ID."
    assert here("memory", "list", "--user", "ann", "--as-of", "2020-01-31") == "no memories at that time\n"
    assert nuts in here("memory", "list", "--user", "ann", "--as-of", "2999-01-31")
    assert here("memory", "list", "c1", "--as-of", "2020-01-31") == "no memories at that time\n"
    corrected = here("memory", "correct", nuts, "I am allergic to hazelnuts.", "--user", "ann")
    assert "\nI am allergic to hazelnuts.\n" in corrected
    assert nuts in corrected, "A corrected memory keeps its ID."
    assert "Unknown memory" in here("memory", "correct", "0000000000000000", "x", "--user", "ann", code=1)
    assert "hazelnuts" in json.dumps(here.json("memory", "export", "--user", "ann"))
    assert "Run `cuebook settle`" in here("memory", "list", "--user", "bob")
    (here.folder / "cuebook.toml").write_text("")
    assert "Set `user = true`" in here("memory", "list", "--user", "bob")
    refused = here("memory", "search", "x", "--as-of", "yesterday", code=2)
    assert "'yesterday' is not a date. Use YYYY-MM-DD (UTC)" in refused
    assert "Value error" not in refused
    assert "user's item" in here("memory", "search", "allergic hazelnuts", "--user", "ann", "--explain")


@pytest.mark.slow
def test_knowledge_is_stored_listed_used_and_decays(here: CommandRunner) -> None:
    assert here("knowledge", "put", "domain", "api.rate", "100 a minute").endswith("confidence 0.50 after 1 use\n")
    assert here("knowledge", "put", "domain", "api.rate", "100 a minute").endswith("confidence 0.60 after 2 uses\n")
    [result] = here.json("knowledge", "list", "--search", "rate")["items"]
    assert here("knowledge", "use", result["id"]).endswith("domain api.rate: confidence 0.65 after 3 uses\n")
    assert "Unknown knowledge 'nope'. List the entries" in here("knowledge", "use", "nope", code=1)
    assert here("knowledge", "decay", "--as-of", "2026-01-01") == "lowered the confidence of 0 facts, deleted 0\n"
    assert here("knowledge", "decay", "--as-of", "2100-01-01") == "lowered the confidence of 0 facts, deleted 1\n"
    assert "no knowledge yet" in here("knowledge", "list")
    assert "unknown category 'x'" in here("knowledge", "put", "x", "k", "v", code=1)
    here("knowledge", "put", "domain", "api.rate", "9 a minute", "--user", "ann")
    [shown, *_] = here("memory", "search", "rate", "--user", "ann").splitlines()
    assert re.fullmatch(r"1\. \S+ user's knowledge \w+ · \d\.\d\d", shown), "Handwritten knowledge has no sources."
