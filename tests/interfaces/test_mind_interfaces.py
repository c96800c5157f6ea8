"""Tests of the mood state of a conversation over HTTP and on the command line."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from commands import CommandRunner
from moody_persona import ANGRY, PERSONA
from shared_app import app_of

from cuebook import Ask, BlockingCuebook, Cuebook

SETTINGS = '[persona]\ndefault = "p"\n[store]\nsynchronous = "OFF"\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose only persona tracks sentiment."""
    folder = tmp_path / "project"
    (folder / "personas").mkdir(parents=True)
    (folder / "cuebook.toml").write_text(SETTINGS)
    (folder / "personas" / "p.json").write_text(json.dumps(PERSONA))
    return folder


@pytest.fixture
async def client(project: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with Cuebook.open(project, worker=False) as cue:
        transport = httpx.ASGITransport(app_of(cue))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http_client:
            yield http_client


async def test_mind_is_read_run_and_reset_over_http(client: httpx.AsyncClient) -> None:
    chat = await client.post("/api/chat", json={"conversationId": "c1", "message": ANGRY, "stream": False})
    assert chat.status_code == 200, chat.text
    await client.post("/api/settle", json={})
    result = (await client.get("/api/conversations/c1/mind")).json()
    assert {key: result[key] for key in ("conversationId", "mood", "userSkill", "taskComplexity", "turn", "due")} == {
        "conversationId": "c1", "mood": "empathetic", "userSkill": "intermediate", "taskComplexity": "simple",
        "turn": 1, "due": 0,
    }  # fmt: skip
    [made] = result["reflections"]
    [run] = made["runs"]
    assert (run["metaprompt"], run["trigger"], run["by"], run["outcome"]) == (
        "gmi_frustration_recovery", "event:user_frustrated", "rules", "moved",
    )  # fmt: skip
    assert run["changes"]["mood"] == ["neutral", "empathetic"]
    ran = await client.post("/api/conversations/c1/mind/run", json={"metaprompt": "own"})
    assert ran.status_code == 200
    assert ran.json()["reflections"][0]["runs"][0]["trigger"] == "manual"
    reset = await client.post("/api/conversations/c1/mind/reset", json={})
    assert reset.json()["mood"] == "neutral"
    assert len(reset.json()["reflections"]) == 3


async def test_unknown_conversation_or_metaprompt_is_rejected_over_http(client: httpx.AsyncClient) -> None:
    assert (await client.get("/api/conversations/none/mind")).status_code == 404
    await client.post("/api/chat", json={"conversationId": "c1", "message": "Hello there.", "stream": False})
    refused = await client.post("/api/conversations/c1/mind/run", json={"metaprompt": "nobody"})
    assert refused.status_code == 400
    assert "Unknown metaprompt 'nobody' of persona 'p'. Available: gmi_" in refused.json()["detail"]
    assert (await client.post("/api/conversations/c1/mind/run", json={})).status_code == 400
    assert (await client.get("/api/conversations/c1/mind?limit=0")).status_code == 400


def test_mind_commands_show_run_and_reset(here: CommandRunner, project: Path) -> None:
    with BlockingCuebook.open(project, worker=False) as cue:
        cue.ask(Ask(ANGRY, "c1"))
    assert "Run `cuebook settle`" in here("mind", "show", "c1")
    assert here("settle") == "completed the reflections of 1 turn\n"
    assert here("settle") == "no pending jobs\n"
    output = here("mind", "show", "c1")
    assert output.startswith("mood empathetic · user's skill intermediate · task simple (since turn 1)\n")
    assert "strategy: Say in one sentence" in output
    assert "reflection: gmi_frustration_recovery (event:user_frustrated) by rules: mood neutral → empathetic" in output
    assert here.json("mind", "show", "c1")["reflections"][0]["runs"][0]["by"] == "rules"
    assert here.json("mind", "run", "c1", "own")["reflections"][0]["runs"][0]["metaprompt"] == "own"
    state, *moved = here("mind", "reset", "c1").splitlines()
    assert state.startswith("mood neutral · user's skill intermediate · task moderate")
    [reset] = moved
    assert reset.endswith("reset by hand: mood empathetic → neutral, taskComplexity simple → moderate, strategy gone")
    assert "Unknown metaprompt 'nobody'" in here("mind", "run", "c1", "nobody", code=1)
    assert "none" in here("mind", "show", "none", code=1)
