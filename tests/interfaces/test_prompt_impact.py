"""Tests of the impact report of a prompt change on the command line, over HTTP and in Python."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import CommandRunner

from conftest import Live
from cuebook import Ask, BlockingCuebook, Cuebook
from cuebook.app.setup.project_files import load_config
from cuebook.testing import ScriptedModel

ID = "persona/ferry"
FILE = "prompts/default/persona/ferry.md"
LONG = "Be kind, and tell what you know of harbours. " * 12


@pytest.fixture
def used_project(here: CommandRunner) -> CommandRunner:
    """A project with twelve turns in a small window that used_project the first version of a persona prompt."""
    (here.folder / "personas" / "ferry.json").write_text(json.dumps({"id": "ferry", "name": "Ada"}))
    here("prompt", "new", ID, "--text", "You are $agent_name.", "--param", "agent_name")
    record_turns(here.folder)
    return here


def record_turns(folder: Path) -> None:
    config = load_config(folder, environment={})
    with BlockingCuebook.open(config, worker=False, model=ScriptedModel(default="Noted.")) as cue:
        for at in range(12):
            text = f"Ferry {at} leaves at {at} o'clock. " + "The sea is calm and the crew is in a good mood. " * 2
            cue.ask(Ask(text, "c", persona="ferry", user="ann", token_budget=500))


@pytest.mark.slow
def test_diff_measures_an_edited_file_before_it_is_pushed(used_project: CommandRunner) -> None:
    file = used_project.folder / FILE
    file.write_text(file.read_text().replace("You are", f"{LONG}You are"))
    output = used_project("prompt", "diff", ID)
    assert f"{ID} main:1 → {FILE}\n" in output
    assert "-You are $agent_name.\n" in output
    line = next(line for line in output.splitlines() if line.startswith("impact: "))
    result = used_project.json("prompt", "diff", ID)
    assert line == f"impact: {result['impact']['summary']}"
    assert (result["a"], result["b"], result["file"]) == (1, None, FILE)
    impact = result["impact"]
    assert (impact["turns"], impact["reproduced"]) == (12, 12)
    assert impact["leftOut"][0]["kind"] == "post"
    named = impact["leftOut"][0]["at"]
    assert named[0] == {"conversationId": "c", "turn": 12}
    assert len(named) == impact["leftOut"][0]["turns"]
    assert line.startswith(f"impact: +{impact['tokens']['change']} tokens; leaves out ")
    assert used_project.json("prompt", "show", ID)["version"] == 2, "The next command must push the file."
    assert used_project.json("prompt", "diff", ID, "1", "2")["impact"] == impact
    second = used_project.json("prompt", "diff", ID)
    assert (second["a"], second["b"], second["impact"]) == (1, 2, impact)
    back = used_project.json("prompt", "diff", ID, "2", "1")["impact"]
    assert [{**each} for each in back["letIn"]] == impact["leftOut"]
    assert "; lets in " in back["summary"]


@pytest.mark.slow
def test_turns_option_limits_the_measured_turns(used_project: CommandRunner) -> None:
    used_project("prompt", "new", ID, "--text", f"{LONG}You are $agent_name.")
    assert used_project.json("prompt", "diff", ID, "--turns", "3")["impact"]["turns"] == 3
    assert "impact" not in used_project.json("prompt", "diff", ID, "--turns", "0")
    assert "in use" not in used_project("prompt", "diff", ID, "--turns", "0")
    assert "must be at most 200" in used_project("prompt", "diff", ID, "--turns", "201", code=2)


@pytest.mark.slow
def test_diff_reports_only_errors_in_the_prompts_own_file(used_project: CommandRunner) -> None:
    used_project("prompt", "new", ID, "--text", "You are $agent_name!")
    (used_project.folder / "prompts" / "odd.md").write_text("")
    assert "\n+You are $agent_name!\n" in used_project("prompt", "diff", ID)
    (used_project.folder / FILE).write_text("")
    assert used_project("prompt", "diff", ID, code=1) == f"cuebook: {FILE}: empty. Write its text, or delete it.\n"


@pytest.mark.slow
def test_http_and_python_report_the_same_impact(used_project: CommandRunner, serve_live: Callable[..., Live]) -> None:
    used_project("prompt", "new", ID, "--text", f"{LONG}You are $agent_name.")
    result: dict[str, Any] = used_project.json("prompt", "diff", ID, "1", "2")
    config = load_config(used_project.folder, environment={})
    with BlockingCuebook.open(config, worker=False) as cue:
        measured = cue.prompts.diff(ID, 1).impact
        assert (measured.turns, measured.summary) == (12, result["impact"]["summary"])
        assert cue.prompts.edited(ID, cue.prompts.get(ID)) is None
        assert measured.share == pytest.approx(result["impact"]["share"], abs=1e-4)
        assert cue.prompts.diff(ID, 1, user="ann").impact.left_out == measured.left_out
        assert not any(each.at for each in cue.prompts.diff(ID, 1, user="bob").impact.left_out), (
            "Bob must not see turns of ann."
        )
    live = serve_live(config)
    with httpx.Client(base_url=live.url) as client:
        route = f"/api/prompts/{ID.replace('/', '~')}/diff?a=1"
        assert client.get(route).json() == result
        assert client.get(f"{route}&b=2&turns=5").json()["impact"]["turns"] == 5
        assert "impact" not in client.get(f"{route}&turns=0").json()
        for odd in ("-1", "201", "x", "1.5"):
            answer = client.get(f"{route}&turns={odd}")
            assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")


@pytest.mark.slow
async def test_impact_report_does_not_change_recorded_turns(used_project: CommandRunner) -> None:
    async with Cuebook.open(load_config(used_project.folder, environment={}), worker=False) as cue:
        await cue.prompts.save(ID, {"body": f"{LONG}You are $agent_name."})
        before = (await cue.turns.replay("c", 12)).digest
        await cue.prompts.diff(ID, 1)
        assert (await cue.turns.replay("c", 12)).digest == before
        reply = await cue.ask(Ask("And now?", "c", persona="ferry", user="ann", token_budget=500))
        assert reply.turn == 13
        assert (await cue.turns.replay("c", 13)).verdict == "identical"
