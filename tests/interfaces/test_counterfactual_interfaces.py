"""Tests of what-if replays of a turn over HTTP and on the command line."""

from collections.abc import AsyncIterator

import httpx
import pytest
from commands import CommandRunner
from shared_app import app_of

from cuebook import Ask, Cuebook
from cuebook.app.setup.project_files import load_config
from cuebook.config import build
from cuebook.testing import ScriptedModel

ROUTE = "/api/conversations/c/turns/1/replay"


async def ask_with_memory(cue: Cuebook) -> str:
    """Store a memory in one conversation, use it in another, and return the ID of the memory."""
    await cue.ask(Ask("I am allergic to shrimp.", "before", user="mara"))
    await cue.settle()
    reply = await cue.ask(Ask("What am I allergic to?", "c", user="mara"))
    assert reply.window is not None
    [source] = [each.source for each in reply.window.blocks if each.source.startswith("memory:")]
    return source.removeprefix("memory:")


@pytest.fixture
async def cue() -> AsyncIterator[Cuebook]:
    model = ScriptedModel(default="Noted.")
    async with Cuebook.open(
        build(arguments={"store.url": ":memory:", "memory.user": True}), model=model, worker=False
    ) as instance:
        yield instance


@pytest.fixture
async def client(cue: Cuebook) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app_of(cue))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http_client:
        yield http_client


async def test_what_if_replay_over_http(cue: Cuebook, client: httpx.AsyncClient) -> None:
    memory = await ask_with_memory(cue)
    plain = (await client.post(ROUTE, json={})).json()
    assert plain == (await client.get(ROUTE)).json()
    result = (await client.post(ROUTE, json={"without": [memory], "userId": "mara"})).json()
    assert result["verdict"] == "identical"
    other = result["counterfactual"]
    assert [each["source"] for each in other["leftOut"]] == [f"memory:{memory}"]
    assert (other["letIn"], other["changed"], other["reproduced"]) == ([], [], True)
    tokens = other["tokens"]
    assert tokens["change"] == tokens["after"] - tokens["before"] < 0
    assert tokens["before"] == plain["window"]["tokens"]
    assert (other["answer"], other["refused"]) == (None, None)
    answer = (await client.post(ROUTE, json={"asOf": "1990-01-01", "ask": True})).json()
    assert answer["counterfactual"]["answer"] == "Noted."
    assert (await client.get("/api/conversations/c")).json()["turns"] == 1


@pytest.mark.parametrize(
    ("body", "status", "where"),
    [
        ({"without": ["0123456789abcdef"]}, 400, "without"),
        ({"withPrompt": ["persona/none"]}, 404, ""),
        ({"withPrompt": ["../x"]}, 400, "withPrompt"),
        ({"asOf": "soon"}, 400, "asOf"),
        ({"asOf": 7}, 404, ""),
        ({"without": ["x"] * 101}, 400, "without"),
    ],
)
async def test_bad_input_is_rejected(
    cue: Cuebook, client: httpx.AsyncClient, body: dict[str, object], status: int, where: str
) -> None:
    await ask_with_memory(cue)
    answer = await client.post(ROUTE, json=body)
    assert answer.status_code == status, answer.text
    if where:
        assert where in answer.text


@pytest.mark.slow
async def test_what_if_replay_on_the_command_line(here: CommandRunner) -> None:
    settings = {"memory.user": True}
    async with Cuebook.open(load_config(here.folder, environment={}, arguments=settings), worker=False) as cue:
        memory = await ask_with_memory(cue)
        transport = httpx.ASGITransport(app_of(cue))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answer = (await client.post(ROUTE, json={"without": [memory]})).json()
    replay = ("turn", "replay", "c", "1")
    assert here(*replay) == "identical\n"
    assert here.json(*replay, "--without", memory) == answer
    drawn = here(*replay, "--without", memory)
    assert f"memory:{memory}" in drawn
    assert "left out:" in drawn
    same = here(*replay, "--with", "prompt=persona/helper")
    assert "the prompt would have been the same" in same
    assert "before" in here(*replay, "--as-of", "1")
    assert "no model is configured" in here(*replay, "--as-of", "1", "--ask", code=1)
    assert "is not a prompt version. Use prompt=" in here(*replay, "--with", "persona=x", code=2)
