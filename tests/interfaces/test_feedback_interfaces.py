"""What is said of a turn, over HTTP, on the command line and in Python: it teaches, and bad input is told."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from api_keys import Keyed, served
from commands import Here
from shared_app import app_of

from cuebook import Ask, BlockingCuebook, Conflict, Cuebook, InvalidInput
from cuebook.app.setup.project_files import load_config
from cuebook.records.memory import Scope
from cuebook.testing import ScriptedModel


@pytest.fixture
async def cue() -> AsyncIterator[Cuebook]:
    model = ScriptedModel(default="Noted.")
    async with Cuebook.open(model=model, worker=False) as opened:
        await opened.prompts.save("persona/assistant", {"body": "Be kind."})
        await opened.ask(Ask("hello", "c", user="ann"))
        yield opened


@pytest.fixture
async def client(cue: Cuebook) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app_of(cue))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as opened:
        yield opened


ROUTE = "/api/conversations/c/turns/1/feedback"


async def weight(cue: Cuebook, slug: str = "persona/assistant") -> tuple[float, int]:
    [branch] = (await cue.prompts.family(slug)).branches
    return round(branch.weight, 6), branch.observations


async def test_a_thumb_teaches_the_prompt_that_spoke(cue: Cuebook, client: httpx.AsyncClient) -> None:
    answer = await client.post(ROUTE, json={"thumb": "up", "comment": "short and right", "userId": "ann"})
    assert answer.status_code == 200
    said = answer.json()
    assert said | {"at": ""} == {
        "by": "feedback", "at": "", "score": 0.8, "sentiment": 1.0, "corrections": None, "outcome": "unknown",
        "reasons": [], "nextTurn": None, "userId": "ann", "comment": "short and right", "pending": False,
        "taught": [{"promptId": "persona/assistant", "branch": "main", "version": 1, "counted": True}],
    }  # fmt: skip
    assert await weight(cue) == (0.53, 1)
    shown = (await client.get("/api/conversations/c/turns/1")).json()
    assert shown["observation"] == said


async def test_the_newer_word_stands_and_corrects_what_was_learnt(cue: Cuebook, client: httpx.AsyncClient) -> None:
    for body, learnt in (
        ({"thumb": "up"}, 0.53),
        ({"score": 0.5, "outcome": "failure", "corrections": 2}, 0.45 + 0.1 * (0.25 + 0.24)),
        ({"thumb": "down"}, 0.48),
    ):
        assert (await client.post(ROUTE, json=body)).status_code == 200
        assert await weight(cue) == (pytest.approx(learnt), 1)
    seen = await cue.desk.prompts.observations(Scope(), "persona/assistant")
    assert [(each.score, each.sentiment, each.turn, each.user) for each in seen] == [(0.3, 0.0, 1, "ann")]


async def test_a_key_is_answered_once(cue: Cuebook, client: httpx.AsyncClient) -> None:
    key = {"idempotency-key": "one"}
    first = await client.post(ROUTE, json={"thumb": "up"}, headers=key)
    assert (await client.post(ROUTE, json={"thumb": "up"}, headers=key)).json() == first.json()
    assert (await client.post(ROUTE, json={"thumb": "down"}, headers=key)).status_code == 422
    assert await weight(cue) == (0.53, 1)
    found = await cue.desk.store.outcomes.get(Scope(), "c", 1)
    assert found is not None
    assert found.revision == 1


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
async def test_what_cannot_be_is_refused_by_name(client: httpx.AsyncClient, body: dict[str, Any], where: str) -> None:
    answer = await client.post(ROUTE, json=body)
    assert answer.status_code == 400
    assert where in json.dumps(answer.json())
    assert (await client.get("/api/conversations/c/turns/1")).json()["observation"]["by"] is None


async def test_a_turn_that_is_not_there_or_anothers_is_not_found(client: httpx.AsyncClient) -> None:
    for path in ("c/turns/2", "c/turns/0", "c/turns/99999999999", "nobody/turns/1"):
        answer = await client.post(f"/api/conversations/{path}/feedback", json={"thumb": "up"})
        assert answer.status_code == 404, path
    assert (await client.post(ROUTE, json={"thumb": "up", "userId": "eve"})).status_code == 404


async def test_secrets_in_a_comment_are_replaced(client: httpx.AsyncClient) -> None:
    secret = "ghp_" + "a1B2" * 9
    said = (await client.post(ROUTE, json={"thumb": "down", "comment": f"it printed {secret}"})).json()
    assert secret not in said["comment"]
    assert "[[secret:" in said["comment"]


async def test_a_turn_without_a_prompt_of_the_book_keeps_its_word(cue: Cuebook, client: httpx.AsyncClient) -> None:
    await cue.append("plain", [{"role": "user", "content": "hi"}])
    async with Cuebook.open(model=ScriptedModel(default="Hi."), worker=False) as other:
        await other.ask(Ask("hello", "c"))
        shown = await other.turns.show("c", 1)
        assert shown["observation"] == {"by": None, "reason": "this turn used no managed prompt"}
        known = await other.turns.feedback("c", 1, score=0.25)
        assert (known.due, known.taught, known.outcome.sentiment) == (False, (), 0.25)
        assert (await other.turns.show("c", 1))["observation"]["sentiment"] == 0.25


async def test_who_may_say_how_a_turn_was() -> None:
    async with served(model=ScriptedModel(default="Noted."), worker=False) as server:
        await _with_keys(server)


async def _with_keys(server: Keyed) -> None:
    ann, eve = await server.holder("editor", "ann"), await server.holder("editor", "eve")
    viewer = await server.holder("viewer", "ann")
    await ann.post("/api/chat", json={"message": "hello", "conversationId": "c"})
    assert (await viewer.post(ROUTE, json={"thumb": "up"})).status_code == 403
    assert (await eve.post(ROUTE, json={"thumb": "up"})).status_code == 404
    assert (await ann.post(ROUTE, json={"thumb": "up", "userId": "eve"})).status_code == 403
    assert (await ann.post(ROUTE, json={"thumb": "up"})).json()["userId"] == "ann"
    assert (await server.client().post(ROUTE, json={"thumb": "up"})).status_code == 401


async def test_the_command_line_says_what_it_taught(here: Here) -> None:
    async with Cuebook.open(load_config(here.folder, environment={}), worker=False) as cue:
        await cue.ask(Ask("hello", "c"))
    assert "feedback: none recorded; no message follows it yet" in here("turn", "show", "c", "1")
    said = here("turn", "feedback", "c", "1", "--good", "--comment", "to the point")
    lines = said.splitlines()
    assert lines[:2] == ["feedback: 0.800 given: sentiment 1.00, outcome unknown", "comment: to the point"]
    assert "learned by: default/persona/helper@main:1" in lines[2:]
    shown = here("turn", "show", "c", "1")
    assert said in shown
    told = here.json("turn", "feedback", "c", "1", "--score", "0.2", "--outcome", "partial", "--corrections", "1")
    assert told["score"] == pytest.approx(0.5 * 0.2 + 0.3 * 0.9 + 0.2 * 0.5)
    assert here.json("turn", "show", "c", "1")["observation"] == told
    assert "Use only one" in here("turn", "feedback", "c", "1", "--good", "--bad", code=1)
    assert "score: missing." in here("turn", "feedback", "c", "1", code=1)
    assert "Unknown turn 4" in here("turn", "feedback", "c", "4", "--bad", code=1)


def test_a_blocking_book_says_it_too() -> None:
    with BlockingCuebook.open(model=ScriptedModel(default="Noted."), worker=False) as cue:
        cue.ask(Ask("hello", "c"))
        assert cue.turns.feedback("c", 1, thumb="down").outcome.score == 0.3
        assert cue.feedback("c", 1, thumb="up").outcome.score == 0.8
        for said, fault in (
            ({"thumb": "left"}, "thumb"),
            ({"score": float("nan")}, "score"),
            ({"corrections": 1.5}, "corrections"),
            ({"score": 0.5, "comment": 7}, "comment"),
        ):
            with pytest.raises(InvalidInput, match=fault):
                cue.turns.feedback("c", 1, **said)


async def test_a_turn_that_is_being_answered_waits() -> None:
    model = ScriptedModel(default="Noted.")
    async with Cuebook.open(model=model, worker=False) as cue:
        chunks = cue.stream(Ask("hello", "c"))
        await anext(chunks)
        with pytest.raises(Conflict, match="is still running"):
            await cue.turns.feedback("c", 1, thumb="up")
        await chunks.aclose()
