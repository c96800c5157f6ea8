"""Tests of memory utility (leave-one-out) on the command line and over HTTP: cost, limits and pruning."""

import asyncio

import httpx
import pytest
from commands import CommandRunner

from cuebook import Ask, Cuebook
from cuebook.app.setup.project_files import load_config
from cuebook.errors import Busy
from cuebook.server.concurrency_limits import WAITING, Measures
from cuebook.testing import ScriptedModel


async def record_turns(here: CommandRunner, turns: int = 10) -> None:
    arguments = {"memory.user": True}
    config = load_config(here.folder, environment={}, arguments=arguments)
    model = ScriptedModel(default="A pumpkin soup without walnuts.")
    async with Cuebook.open(config, model=model, worker=False) as cue:
        for number, fact in enumerate(("I am allergic to walnuts.", "I live in Oslo.")):
            await cue.ask(Ask(fact, f"before-{number}", user="ann"))
            await cue.settle()
        for number in range(turns):
            await cue.ask(Ask("What shall I cook in Oslo today?", f"meal-{number}", user="ann"))


@pytest.mark.slow
def test_utility_is_reported_and_useless_memories_are_pruned(here: CommandRunner) -> None:
    asyncio.run(record_turns(here))
    result = here.json("eval", "--leave-one-out")
    assert (result["by"], result["calls"], result["turns"], result["receipt"]) == ("words", 0, 11, None)
    useful, useless = result["items"]
    assert (useful["text"], useful["prune"]) == ("I am allergic to walnuts.", False)
    assert useful["utility"] > 0.3
    assert (useless["text"], useless["utility"], useless["prune"]) == ("I live in Oslo.", 0, True)
    assert {each["conversationId"] for each in useless["turns"]} == {f"meal-{number}" for number in range(10)}
    drawn = here("eval", "--leave-one-out")
    for part in ("2 memories in 11 turns", "meal-9 turn 1: 0.00", "use --prune to forget it:", useless["memoryId"]):
        assert part in drawn
    assert "1 memory in 1 turn" in here("eval", "--leave-one-out", "before-1")
    assert "Nothing was forgotten" in here("eval", "--leave-one-out", "--prune", code=1)
    result = here.json("eval", "--leave-one-out", "--prune", "--yes")
    assert result["receipt"]["counts"]["memories"] == 1
    assert here("memory", "receipt", "verify", result["receipt"]["id"], "--about", useless["memoryId"]).startswith("ok")
    assert [each["text"] for each in here.json("eval", "--leave-one-out")["items"]] == ["I am allergic to walnuts."]
    assert "forgotten" not in here("eval", "--leave-one-out", "--prune", "--yes"), "No memory is left to prune."


def test_wrong_options_are_rejected_and_estimates_need_no_model(here: CommandRunner) -> None:
    asyncio.run(record_turns(here, turns=0))
    error = "Unknown conversation 'nowhere'"
    assert error in here("eval", "--leave-one-out", "nowhere", code=1)
    assert "--leave-one-out" in here("eval", "--prune", code=2)
    assert "--leave-one-out" in here("eval", "--estimate", code=2)
    assert here("eval", "--leave-one-out", "--estimate") == "no model calls\n"
    assert here.json("eval", "--leave-one-out", "--estimate")["calls"] == 0
    assert "a.json: cannot be read" in here("eval", "a.json", "b.json", code=1)


async def test_model_calls_per_request_are_limited(client: httpx.AsyncClient) -> None:
    refused = await client.post("/api/memories/utility", json={"budget": 201})
    assert (refused.status_code, refused.json()["where"]) == (400, "budget")
    assert "201 calls exceed server.max_calls (200)" in refused.json()["detail"]
    result = (await client.post("/api/memories/utility", json={"budget": 200, "estimate": True})).json()
    assert (result["by"], result["items"], result["calls"]) == ("model", [], 0)
    assert result["cost"] == {
        "model": "scripted", "turns": 0, "calls": 0, "promptTokens": 0, "answerTokens": 0, "costs": {},
    }  # fmt: skip


async def test_one_measurement_runs_at_a_time_and_few_wait() -> None:
    measures, order = Measures(), list[int]()

    async def measured(number: int) -> None:
        async with measures.hold("a measure"):
            order.append(number)
            await asyncio.sleep(0)

    async with measures.hold("a measure"), measures.hold("another"):
        waiting = [asyncio.create_task(measured(number)) for number in range(WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="already waiting for a measure"):
            await measured(WAITING)
        assert order == []
    await asyncio.gather(*waiting)
    assert order == list(range(WAITING))
