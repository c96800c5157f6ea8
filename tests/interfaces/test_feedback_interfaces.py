"""Tests of turn feedback over HTTP, on the command line and in Python."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from api_keys import Keyed, served
from commands import CommandRunner
from shared_app import app_of

from cuebook import Ask, BlockingCuebook, Conflict, Cuebook, InvalidInput
from cuebook.app.setup.project_files import load_config
from cuebook.records.answer import to_wire
from cuebook.records.memory import Scope
from cuebook.testing import ScriptedModel


@pytest.fixture
async def cue() -> AsyncIterator[Cuebook]:
    model = ScriptedModel(default="Noted.")
    async with Cuebook.open(model=model, worker=False) as instance:
        await instance.prompts.save("persona/assistant", {"body": "Be kind."})
        await instance.ask(Ask("hello", "c", user="ann"))
        yield instance


@pytest.fixture
async def client(cue: Cuebook) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app_of(cue))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http_client:
        yield http_client


ROUTE = "/api/conversations/c/turns/1/feedback"


async def weight(cue: Cuebook, slug: str = "persona/assistant") -> tuple[float, int]:
    [branch] = (await cue.prompts.family(slug)).branches
    return round(branch.weight, 6), branch.observations


async def test_thumb_updates_the_weight_of_the_used_prompt(cue: Cuebook, client: httpx.AsyncClient) -> None:
    answer = await client.post(ROUTE, json={"thumb": "up", "comment": "short and right", "userId": "ann"})
    assert answer.status_code == 200
    result = answer.json()
    assert result | {"at": ""} == {
        "by": "feedback", "at": "", "score": 0.8, "sentiment": 1.0, "corrections": None, "outcome": "unknown",
        "reasons": [], "nextTurn": None, "userId": "ann", "comment": "short and right", "pending": False,
        "taught": [{"promptId": "persona/assistant", "branch": "main", "version": 1, "counted": True}],
    }  # fmt: skip
    assert await weight(cue) == (0.53, 1)
    report = (await client.get("/api/conversations/c/turns/1")).json()
    assert report["observation"] == result


async def test_newer_feedback_replaces_the_older_one(cue: Cuebook, client: httpx.AsyncClient) -> None:
    for body, weight_after in (
        ({"thumb": "up"}, 0.53),
        ({"score": 0.5, "outcome": "failure", "corrections": 2}, 0.45 + 0.1 * (0.25 + 0.24)),
        ({"thumb": "down"}, 0.48),
    ):
        assert (await client.post(ROUTE, json=body)).status_code == 200
        assert await weight(cue) == (pytest.approx(weight_after), 1)
    seen = await cue.services.prompts.observations(Scope(), "persona/assistant")
    assert [(each.score, each.sentiment, each.turn, each.user) for each in seen] == [(0.3, 0.0, 1, "ann")]


async def test_idempotency_key_records_feedback_once(cue: Cuebook, client: httpx.AsyncClient) -> None:
    key = {"idempotency-key": "one"}
    first = await client.post(ROUTE, json={"thumb": "up"}, headers=key)
    assert (await client.post(ROUTE, json={"thumb": "up"}, headers=key)).json() == first.json()
    assert (await client.post(ROUTE, json={"thumb": "down"}, headers=key)).status_code == 422
    assert await weight(cue) == (0.53, 1)
    result = await cue.services.store.outcomes.get(Scope(), "c", 1)
    assert result is not None
    assert result.revision == 1


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "score"),
        ({"comment": "hm"}, "score"),
        ({"outcome": "unknown"}, "score"),
        ({"score": 1.5}, "score"),
        ({"score": 1, "thumb": "up"}, "score"),
        ({"thumb": "sideways"}, "thumb"),
        ({"outcome": "great"}, "outcome"),
        ({"thumb": "up", "comment": "x" * 2_001}, "comment"),
    ],
)
async def test_invalid_feedback_error_names_the_field(
    client: httpx.AsyncClient, body: dict[str, Any], where: str
) -> None:
    answer = await client.post(ROUTE, json=body)
    assert answer.status_code == 400
    assert where in json.dumps(answer.json())
    assert (await client.get("/api/conversations/c/turns/1")).json()["observation"]["by"] is None


async def test_unknown_or_foreign_turn_is_not_found(client: httpx.AsyncClient) -> None:
    for path in ("c/turns/2", "c/turns/0", "c/turns/99999999999", "nobody/turns/1"):
        answer = await client.post(f"/api/conversations/{path}/feedback", json={"thumb": "up"})
        assert answer.status_code == 404, path
    assert (await client.post(ROUTE, json={"thumb": "up", "userId": "eve"})).status_code == 404


async def test_secrets_in_a_comment_are_masked(client: httpx.AsyncClient) -> None:
    secret = "ghp_" + "a1B2" * 9
    result = (await client.post(ROUTE, json={"thumb": "down", "comment": f"it printed {secret}"})).json()
    assert secret not in result["comment"]
    assert "[[secret:" in result["comment"]


async def test_turn_without_a_managed_prompt_stores_feedback(cue: Cuebook, client: httpx.AsyncClient) -> None:
    await cue.append("plain", [{"role": "user", "content": "hi"}])
    async with Cuebook.open(model=ScriptedModel(default="Hi."), worker=False) as other:
        await other.ask(Ask("hello", "c"))
        shown = to_wire(await other.turns.show("c", 1))
        assert shown["observation"] == {"by": None, "reason": "this turn used no managed prompt"}
        known = await other.turns.feedback("c", 1, score=0.25)
        assert (known.due, known.taught, known.sentiment) == (False, (), 0.25)
        assert to_wire(await other.turns.show("c", 1))["observation"]["sentiment"] == 0.25


async def test_feedback_requires_write_access_to_the_turn() -> None:
    async with served(model=ScriptedModel(default="Noted."), worker=False) as server:
        await check_feedback_access(server)


async def check_feedback_access(server: Keyed) -> None:
    ann, eve = await server.client_as("editor", "ann"), await server.client_as("editor", "eve")
    viewer = await server.client_as("viewer", "ann")
    await ann.post("/api/chat", json={"message": "hello", "conversationId": "c"})
    assert (await viewer.post(ROUTE, json={"thumb": "up"})).status_code == 403
    assert (await eve.post(ROUTE, json={"thumb": "up"})).status_code == 404
    assert (await ann.post(ROUTE, json={"thumb": "up", "userId": "eve"})).status_code == 403
    assert (await ann.post(ROUTE, json={"thumb": "up"})).json()["userId"] == "ann"
    assert (await server.client().post(ROUTE, json={"thumb": "up"})).status_code == 401


@pytest.mark.slow
async def test_feedback_command_shows_what_it_changed(here: CommandRunner) -> None:
    async with Cuebook.open(load_config(here.folder, environment={}), worker=False) as cue:
        await cue.ask(Ask("hello", "c"))
    assert "feedback: none recorded; no message follows it yet" in here("turn", "show", "c", "1")
    output = here("turn", "feedback", "c", "1", "--good", "--comment", "to the point")
    lines = output.splitlines()
    assert lines[:2] == ["feedback: 0.800 given: sentiment 1.00, outcome unknown", "comment: to the point"]
    assert "learned by: default/persona/helper@main:1" in lines[2:]
    text = here("turn", "show", "c", "1")
    assert output in text
    result = here.json("turn", "feedback", "c", "1", "--score", "0.2", "--outcome", "partial", "--corrections", "1")
    assert result["score"] == pytest.approx(0.5 * 0.2 + 0.3 * 0.9 + 0.2 * 0.5)
    assert here.json("turn", "show", "c", "1")["observation"] == result
    assert "cannot be combined" in here("turn", "feedback", "c", "1", "--good", "--bad", code=1)
    assert "score: missing." in here("turn", "feedback", "c", "1", code=1)
    assert "Unknown turn 4" in here("turn", "feedback", "c", "4", "--bad", code=1)


def test_blocking_api_records_feedback() -> None:
    with BlockingCuebook.open(model=ScriptedModel(default="Noted."), worker=False) as cue:
        cue.ask(Ask("hello", "c"))
        assert cue.turns.feedback("c", 1, thumb="down").score == 0.3
        assert cue.feedback("c", 1, thumb="up").score == 0.8
        for fields, fault in (
            ({"thumb": "left"}, "thumb"),
            ({"score": float("nan")}, "score"),
            ({"corrections": 1.5}, "corrections"),
            ({"score": 0.5, "comment": 7}, "comment"),
        ):
            with pytest.raises(InvalidInput, match=fault):
                cue.turns.feedback("c", 1, **fields)


async def test_feedback_on_a_running_turn_is_rejected() -> None:
    model = ScriptedModel(default="Noted.")
    async with Cuebook.open(model=model, worker=False) as cue:
        chunks = cue.stream(Ask("hello", "c"))
        await anext(chunks)
        with pytest.raises(Conflict, match="is still running"):
            await cue.turns.feedback("c", 1, thumb="up")
        await chunks.aclose()
