"""Tests of memory analysis and the optimizer over HTTP, on the command line and in Python."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import CommandRunner
from shared_app import app_of

from cuebook import BlockingCuebook, Cuebook, NotFound

PAGE = "The ferry to Vlieland leaves at 9:45 from the old pier, and the next one two hours later at 11:45."
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "ok", "id": "m0"},
    {"role": "assistant", "content": PAGE, "id": "m1"},
    {"role": "user", "content": "The upload FAILED: https://example.com/x is important, says the error.", "id": "m2"},
    {"role": "assistant", "content": "I shall look at the logs of the server first.", "id": "m3"},
    {"role": "user", "content": "And what about the ferry, when does it leave?", "id": "m4"},
    {"role": "assistant", "content": PAGE, "id": "m5"},
    *({"role": ("user", "assistant")[n % 2], "content": f"Plain sentence number {n}.", "id": f"m{n}"} for n in (6, 7)),
]
#: Enough messages to push the first ones out of the full window.
MORE: list[dict[str, Any]] = [
    {"role": ("user", "assistant")[n % 2], "content": f"Sentence {n} of a long talk.", "id": f"n{n}"} for n in range(40)
]


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server whose optimizer runs only on request."""
    async with Cuebook.open(worker=False) as cue:
        transport = httpx.ASGITransport(app_of(cue))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http_client:
            yield http_client


async def store(client: httpx.AsyncClient, messages: list[dict[str, Any]], name: str = "c1", user: str = "") -> None:
    body = {"messages": messages} | ({"userId": user} if user else {})
    answer = await client.post(f"/api/conversations/{name}/posts", json=body)
    assert answer.status_code == 201, answer.text


async def test_analyze_suggests_actions_for_a_conversation(client: httpx.AsyncClient) -> None:
    await store(client, MESSAGES)
    answer = await client.post("/learning/memory/analyze", json={"conversationId": "c1"})
    assert answer.status_code == 200
    result = answer.json()
    assert list(result) == [
        "totalEntries", "relevantEntries", "redundantEntries", "suggestedActions", "tokenUsage",
    ]  # fmt: skip
    assert (result["totalEntries"], result["relevantEntries"], result["redundantEntries"]) == (8, 7, 1)
    assert result["suggestedActions"] == [
        {"type": "compress", "postId": "m0", "reason": "relevance 0.20 < 0.30"},
        {"type": "compress", "postId": "m1", "reason": "repeated by a newer post"},
        {"type": "promote", "postId": "m2", "reason": "relevance 1.00 and key facts"},
    ]
    assert result["tokenUsage"] > 0
    second = (await client.post("/learning/memory/analyze", json={"conversationId": "c1"})).json()
    assert second == result  # analysis changes nothing
    assert (await client.post("/learning/memory/analyze", json={"conversationId": "c2"})).status_code == 404
    assert (await client.post("/learning/memory/analyze", json={})).status_code == 400


async def test_analyze_uses_only_posts_of_the_active_branch(client: httpx.AsyncClient) -> None:
    await store(client, MESSAGES)
    await client.post("/learning/memory/analyze", json={"conversationId": "c1"})
    await client.put("/api/conversations/c1/head", json={"postId": "m3"})
    result = (await client.post("/learning/memory/analyze", json={"conversationId": "c1"})).json()
    assert (result["totalEntries"], result["redundantEntries"]) == (4, 0)


async def test_stats_and_budget_are_reported(client: httpx.AsyncClient) -> None:
    await store(client, MESSAGES, user="ann")
    await store(client, MESSAGES[:3], "c2", user="bob")
    stats = (await client.get("/learning/memory/stats")).json()
    posts = {"short_term": 11, "long_term": 0, "cross_session": 0}
    assert stats == {"total": 11, "byType": posts, "compressed": 0}
    assert (await client.get("/learning/memory/stats?userId=bob")).json()["total"] == 3
    assert (await client.get("/learning/memory/stats?userId=ann&conversationId=c1")).json()["total"] == 8
    assert (await client.get("/learning/memory/stats?userId=ann&conversationId=c2")).status_code == 404
    empty = (await client.get("/learning/memory/budget")).json()
    assert (empty["used"], empty["remaining"], empty["shouldCompress"]) == (0, empty["budget"], False)
    assert empty["config"] == {
        "maxContextTokens": 200_000, "systemPromptTokens": 5_000, "responseReserveTokens": 4_096,
        "maxShortTermTokens": 190_000, "fullMessageWindow": 30, "compressionTriggerRatio": 0.7,
    }  # fmt: skip
    result = (await client.get("/learning/memory/budget?conversationId=c1&userId=ann")).json()
    judged = (await client.post("/learning/memory/analyze", json={"conversationId": "c1", "userId": "ann"})).json()
    assert result["used"] == judged["tokenUsage"] == result["budget"] - result["remaining"]
    assert (await client.get("/learning/memory/budget?conversation=c1")).status_code == 400


async def test_optimizer_run_is_reported_in_status_and_history(client: httpx.AsyncClient) -> None:
    before = (await client.get("/learning/optimizer/status")).json()
    parameters = {
        "compressionTrigger": 0.7, "fullMessageWindow": 30, "minRelevance": 0.3, "targetUsageRatio": 0.65,
    }  # fmt: skip
    assert before == {
        "totalOptimizations": 0, "totalTokensSaved": 0, "avgSavingsPerRun": 0, "currentParameters": parameters,
    }  # fmt: skip
    await store(client, [*MESSAGES, *MORE])
    made = (await client.post("/learning/optimizer/run", json={"conversationId": "c1"})).json()
    assert made["conversationId"] == "c1"
    assert (made["entriesCompressed"], made["entriesDropped"], made["entriesPromoted"]) == (0, 0, 1)
    assert (made["fullMessageWindow"], made["compressionTriggerRatio"], made["minRelevanceScore"]) == (31, 0.725, 0.275)
    assert made["tokensBefore"] >= made["tokensAfter"]
    second = (await client.post("/learning/optimizer/run", json={"conversationId": "c1"})).json()
    assert (second["entriesCompressed"], second["entriesPromoted"]) == (0, 0)  # each post is processed once
    status = (await client.get("/learning/optimizer/status")).json()
    assert status["totalOptimizations"] == 2
    assert status["currentParameters"]["fullMessageWindow"] == 32
    history = (await client.get("/learning/optimizer/history?limit=1")).json()
    assert (history["items"], bool(history["next"])) == ([second], True)
    assert len((await client.get("/learning/optimizer/history?conversationId=c1")).json()["items"]) == 2
    assert (await client.get("/learning/optimizer/history?conversationId=no")).status_code == 404
    assert (await client.get("/learning/optimizer/history?limit=501")).status_code == 400


async def test_repeated_run_with_the_same_key_returns_the_first_answer(client: httpx.AsyncClient) -> None:
    await store(client, [*MESSAGES, *MORE])
    body, headers = {"conversationId": "c1"}, {"Idempotency-Key": "run-1"}
    first = await client.post("/learning/optimizer/run", json=body, headers=headers)
    second = await client.post("/learning/optimizer/run", json=body, headers=headers)
    assert (first.status_code, second.status_code, second.json()) == (200, 200, first.json())
    assert (await client.get("/learning/optimizer/status")).json()["totalOptimizations"] == 1
    other = await client.post("/learning/optimizer/run", json={}, headers=headers)
    assert (other.status_code, "Idempotency-Key" in other.json()["detail"]) == (422, True)


async def test_run_without_a_conversation_processes_changed_ones(client: httpx.AsyncClient) -> None:
    for name in ("c1", "c2"):
        await store(client, [*MESSAGES, *MORE[:4]], name, user="ann")
    await store(client, [*MESSAGES, *MORE[:4]], "c3", user="bob")
    made = (await client.post("/learning/optimizer/run", json={"userId": "ann"})).json()
    assert made["conversationId"] is None
    assert made["tokensBefore"] > 0
    assert (await client.get("/learning/optimizer/status?userId=ann")).json()["totalOptimizations"] == 2
    assert (await client.get("/learning/optimizer/status?userId=bob")).json()["totalOptimizations"] == 0
    rest = (await client.post("/learning/optimizer/run")).json()
    assert rest["conversationId"] == "c3"
    nothing = (await client.post("/learning/optimizer/run")).json()
    assert (nothing["conversationId"], nothing["tokensBefore"]) == (None, 0)
    assert (
        await client.post("/learning/optimizer/run", json={"userId": "ann", "conversationId": "c3"})
    ).status_code == 404


@pytest.mark.slow
def test_analysis_and_optimizer_on_the_command_line(here: CommandRunner, tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text(json.dumps([*MESSAGES, *MORE]))
    here("conversation", "import", str(tmp_path / "talk.json"), "--conversation", "c1")
    result = here.json("memory", "analyze", "c1")
    assert result["totalEntries"] == 48
    output = here("memory", "analyze", "c1")
    assert "48 posts" in output
    assert "repeated by a newer post" in output
    assert here.json("memory", "stats")["byType"]["short_term"] == 48
    assert "short-term (posts)" in here("memory", "stats", "c1")
    assert here.json("memory", "budget", "c1")["used"] == result["tokenUsage"]
    assert "of 190,000 tokens" in here("memory", "budget")
    assert "when a conversation with at least ten posts changes" in here("optimizer", "history")
    made = here.json("optimizer", "run", "c1")
    assert made["conversationId"] == "c1"
    assert here.json("optimizer", "history") == {"items": [made]}
    assert "c1" in here("optimizer", "run", "c1")
    assert here.json("optimizer", "status", "c1")["totalOptimizations"] == 2
    assert "kept verbatim 32 posts" in here("optimizer", "status")
    assert "Unknown conversation 'c9'" in here("optimizer", "run", "c9", code=1)
    (here.folder / "cuebook.toml").write_text("[optimizer]\nenabled = false\n")
    assert "The optimizer is disabled." in here("optimizer", "run", "c1", code=1)


async def test_run_without_changes_explains_the_reason(client: httpx.AsyncClient) -> None:
    await store(client, MESSAGES)
    made = (await client.post("/learning/optimizer/run", json={"conversationId": "c1"})).json()
    assert made["untuned"] == "conversation 'c1' has 8 of the 10 posts required"
    assert (await client.get("/learning/optimizer/history")).json()["items"] == []
    made = (await client.post("/learning/optimizer/run")).json()
    assert made["untuned"] == "no conversation of 10 posts or more changed since its last run"
    await store(client, MORE[:2])
    made = (await client.post("/learning/optimizer/run", json={"conversationId": "c1"})).json()
    assert "untuned" not in made
    assert (await client.get("/learning/optimizer/history")).json()["items"] == [made]


def test_run_without_changes_prints_one_line(here: CommandRunner, tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text(json.dumps(MESSAGES))
    here("conversation", "import", str(tmp_path / "talk.json"), "--conversation", "c1")
    assert here("optimizer", "run", "c1") == "no parameter changed: conversation 'c1' has 8 of the 10 posts required\n"
    assert here("optimizer", "run").startswith("no parameter changed: no conversation of 10 posts or more changed")


def test_analysis_and_optimizer_in_python() -> None:
    with BlockingCuebook.open(worker=False) as cue:
        cue.append("c1", [*MESSAGES, *MORE])
        assert cue.memory.analyze("c1").suggested_actions[0].post_id == "m0"
        assert cue.memory.stats().by_type.short_term == 48
        assert cue.memory.budget("c1").config.full_message_window == 30
        assert cue.optimizer.run("c1").full_message_window == 31
        assert cue.optimizer.status().total_optimizations == 1
        assert len(cue.optimizer.history()) == 1
        with pytest.raises(NotFound, match="c9"):
            cue.memory.analyze("c9")
