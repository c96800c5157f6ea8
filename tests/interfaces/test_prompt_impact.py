"""What a change of a prompt costs, as the command line, HTTP and a blocking book tell it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import Here

from conftest import Live
from cuebook import Ask, BlockingCuebook, Cuebook
from cuebook.app.setup.project_files import load_config
from cuebook.testing import ScriptedModel

ID = "persona/ferry"
FILE = "prompts/default/persona/ferry.md"
LONG = "Be kind, and tell what you know of harbours. " * 12


@pytest.fixture
def used(here: Here) -> Here:
    """A project whose persona spoke in twelve turns of a small window, under the first of two versions."""
    (here.folder / "personas" / "ferry.json").write_text(json.dumps({"id": "ferry", "name": "Ada"}))
    here("prompt", "new", ID, "--text", "You are $agent_name.", "--param", "agent_name")
    talk(here.folder)
    return here


def talk(folder: Path) -> None:
    config = load_config(folder, environment={})
    with BlockingCuebook.open(config, worker=False, model=ScriptedModel(default="Noted.")) as cue:
        for at in range(12):
            text = f"Ferry {at} leaves at {at} o'clock. " + "The sea is calm and the crew is in a good mood. " * 2
            cue.ask(Ask(text, "c", persona="ferry", user="ann", token_budget=500))


def test_a_file_that_was_edited_is_compared_before_it_is_stored(used: Here) -> None:
    file = used.folder / FILE
    file.write_text(file.read_text().replace("You are", f"{LONG}You are"))
    shown = used("prompt", "diff", ID)
    assert f"{ID} main:1 → {FILE}\n" in shown
    assert "-You are $agent_name.\n" in shown
    line = next(line for line in shown.splitlines() if line.startswith("impact: "))
    found = used.json("prompt", "diff", ID)
    assert line == f"impact: {found['impact']['summary']}"
    assert (found["a"], found["b"], found["file"]) == (1, None, FILE)
    impact = found["impact"]
    assert (impact["turns"], impact["reproduced"]) == (12, 12)
    assert impact["leftOut"][0]["kind"] == "post"
    named = impact["leftOut"][0]["at"]
    assert named[0] == {"conversationId": "c", "turn": 12}
    assert len(named) == impact["leftOut"][0]["turns"]
    assert line.startswith(f"impact: +{impact['tokens']['change']} tokens; leaves out ")
    assert used.json("prompt", "show", ID)["version"] == 2, "the next command pushes it"
    assert used.json("prompt", "diff", ID, "1", "2")["impact"] == impact
    again = used.json("prompt", "diff", ID)
    assert (again["a"], again["b"], again["impact"]) == (1, 2, impact)
    back = used.json("prompt", "diff", ID, "2", "1")["impact"]
    assert [{**each} for each in back["letIn"]] == impact["leftOut"]
    assert "; lets in " in back["summary"]


def test_how_many_turns_are_measured_is_said(used: Here) -> None:
    used("prompt", "new", ID, "--text", f"{LONG}You are $agent_name.")
    assert used.json("prompt", "diff", ID, "--turns", "3")["impact"]["turns"] == 3
    assert "impact" not in used.json("prompt", "diff", ID, "--turns", "0")
    assert "in use" not in used("prompt", "diff", ID, "--turns", "0")
    assert "less than or equal to 200" in used("prompt", "diff", ID, "--turns", "201", code=2)


def test_an_odd_file_of_the_prompt_is_named_and_others_are_nobodys_business(used: Here) -> None:
    used("prompt", "new", ID, "--text", "You are $agent_name!")
    (used.folder / "prompts" / "odd.md").write_text("")
    assert "\n+You are $agent_name!\n" in used("prompt", "diff", ID)
    (used.folder / FILE).write_text("")
    assert used("prompt", "diff", ID, code=1) == f"cuebook: {FILE}: empty. Write its text, or delete it.\n"


def test_http_and_a_blocking_book_tell_the_same(used: Here, serve_live: Callable[..., Live]) -> None:
    used("prompt", "new", ID, "--text", f"{LONG}You are $agent_name.")
    told: dict[str, Any] = used.json("prompt", "diff", ID, "1", "2")
    config = load_config(used.folder, environment={})
    with BlockingCuebook.open(config, worker=False) as cue:
        found = cue.prompts.impact(ID, 1)
        assert (found.turns, found.summary) == (12, told["impact"]["summary"])
        assert cue.prompt_files.edited(ID, "main") is None
        assert found.share == pytest.approx(told["impact"]["share"], abs=1e-4)
        assert cue.prompts.impact(ID, 1, user="ann").left_out == found.left_out
        assert not any(each.at for each in cue.prompts.impact(ID, 1, user="bob").left_out), "they are another's"
    live = serve_live(config)
    with httpx.Client(base_url=live.url) as client:
        route = f"/api/prompts/{ID.replace('/', '~')}/diff?a=1"
        assert client.get(route).json() == told
        assert client.get(f"{route}&b=2&turns=5").json()["impact"]["turns"] == 5
        assert "impact" not in client.get(f"{route}&turns=0").json()
        for odd in ("-1", "201", "x", "1.5"):
            answer = client.get(f"{route}&turns={odd}")
            assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")


async def test_a_turn_that_runs_meanwhile_is_not_disturbed(used: Here) -> None:
    async with Cuebook.open(load_config(used.folder, environment={}), worker=False) as cue:
        await cue.prompts.save(ID, {"body": f"{LONG}You are $agent_name."})
        before = (await cue.turns.replay("c", 12)).digest
        await cue.prompts.impact(ID, 1)
        assert (await cue.turns.replay("c", 12)).digest == before
        reply = await cue.ask(Ask("And now?", "c", persona="ferry", user="ann", token_budget=500))
        assert reply.turn == 13
        assert (await cue.turns.replay("c", 13)).verdict == "identical"
