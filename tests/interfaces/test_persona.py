"""Tests of personas on the command line and over HTTP: list, show, check, create and reload."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from api_keys import served
from commands import CommandRunner

from conftest import Live
from cuebook.app.setup.project_files import load_config
from cuebook.testing.doubles import ScriptedModel

SECRET = "sk-proj-" + "a1B2" * 12
BROKEN = {
    "id": "broken",
    "sentimentTracking": {"enabled": True, "historyWindow": 0},
    "metaPrompts": [{"id": "m", "trigger": {"type": "turn_interval", "intervalTurns": 0}, "promptTemplate": "?"}],
}


def write(folder: Path, name: str, document: object) -> Path:
    file = folder / "personas" / name
    file.write_text(document if isinstance(document, str) else json.dumps(document), "utf-8")
    return file


def table_of(here: CommandRunner, *arguments: str) -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in here.json("persona", "list", *arguments)["items"]}


# ---- built-in personas


def test_builtin_personas_are_valid(here: CommandRunner) -> None:
    shown = table_of(here)
    assert {name: each["file"] for name, each in shown.items()} == {
        "companion": "personas/companion.json",
        "engineer": "personas/engineer.yaml",
        "helper": "personas/helper.json",
        "tutor": "personas/tutor.json",
    }
    assert [name for name, each in shown.items() if each["default"]] == ["helper"]
    assert "4 files, 0 errors, 0 warnings" in here("persona", "check", "--strict")
    triggers = {each["trigger"]["type"] for one in shown.values() for each in one["metaPrompts"]}
    assert triggers == {"turn_interval", "event_based", "manual"}
    assert {name for name, each in shown.items() if each["sentimentTracking"]["enabled"]} == {
        "companion", "engineer", "tutor",
    }  # fmt: skip


@pytest.mark.parametrize("persona", ["helper", "tutor", "engineer", "companion"])
def test_each_builtin_persona_answers(project: Path, serve_live: Callable[..., Live], persona: str) -> None:
    live = serve_live(load_config(project), model=ScriptedModel(default="Hello."))
    answer = httpx.post(f"{live.url}/api/assemble", json={"message": "Hi", "conversationId": "c", "personaId": persona})
    window = answer.json()["window"]
    assert f"You are {persona.title()}" in json.dumps(window["blocks"])
    assert not window["dropped"]


# ---- the command line


def test_list_shows_the_default_persona_and_tracking(here: CommandRunner) -> None:
    lines = here("persona", "list").splitlines()
    assert next(line for line in lines if line.startswith("helper *"))
    tutor = next(line for line in lines if line.startswith("tutor"))
    assert "lexicon" in tutor
    assert "3 presets" in tutor
    assert table_of(here)["tutor"]["profile"] == "tutor"
    assert table_of(here)["helper"]["profile"] == "off"
    assert table_of(here, "--mode", "diary")["helper"]["profile"] == "basic"
    assert table_of(here, "--mode", "diary")["helper"]["sentimentTracking"]["presets"] == [
        "frustration_recovery",
        "confusion_clarification",
    ]


def test_invalid_persona_file_is_listed_with_its_errors(here: CommandRunner) -> None:
    write(here.folder, "broken.json", BROKEN)
    output = here("persona", "list")
    assert "personas/broken.json" in output
    assert "historyWindow: expected a whole number" in output
    [broken] = here.json("persona", "list")["broken"]
    assert (broken["file"], len(broken["faults"])) == ("personas/broken.json", 2)


def test_show_prints_every_part_of_a_persona(here: CommandRunner) -> None:
    output = here("persona", "show", "engineer")
    for part in (
        "engineer · Engineer 1.0.0 · role engineer",
        "prompt init: agent_init",
        "Prefer the plain solution.",
        "sentiment: on",
        "frustrationThreshold: -0.35",
        "gmi_frustration_recovery (preset): on user_frustrated; Wins a frustrated user back.",
        "root_cause: on error_threshold_exceeded; Asks what the errors have in common.",
        "retrospective: on request",
    ):
        assert part in output
    assert "every 8 turns" in here("persona", "show", "tutor")
    helper = here("persona", "show", "helper")
    assert "sentiment: off, profile off" in helper
    assert "system prompt, used if there is no prompt persona/helper:" in helper
    companion = {each["id"]: each for each in here.json("persona", "show", "companion")["metaPrompts"]}
    assert [name for name, each in companion.items() if each["own"]] == ["gmi_self_trait_adjustment", "quiet_day"]
    assert companion["gmi_self_trait_adjustment"]["promptKey"] == "gmi_self_trait_adjustment"
    assert companion["gmi_frustration_recovery"]["description"] == "Wins a frustrated user back."
    write(here.folder, "nameless.yaml", "")
    assert here.json("persona", "show", "assistant")["file"] == ""
    assert "Unknown persona 'tuter'. Available: assistant, companion, engineer, helper, tutor." in here(
        "persona", "show", "tuter", code=1
    )


def test_check_lists_every_error_and_exits_1(here: CommandRunner) -> None:
    write(here.folder, "broken.json", BROKEN)
    output = here("persona", "check", code=1)
    assert "sentimentTracking.historyWindow: expected a whole number from 1 to 1,000, got 0" in output
    assert "metaPrompts[0].trigger.intervalTurns: expected a whole number from 1 to 10,000, got 0" in output
    assert "5 files, 2 errors, 0 warnings" in output
    result = here.json("persona", "check", code=1)
    assert not result["ok"]
    assert [len(each["faults"]) for each in result["files"]] == [2, 0, 0, 0, 0]
    doctor_output = here("doctor", code=1)
    assert "personas/broken.json: sentimentTracking.historyWindow: expected a whole number" in doctor_output
    assert "(1 more; list them with `cuebook persona check`)" in doctor_output


def test_ineffective_setting_is_a_warning(here: CommandRunner) -> None:
    odd = {"id": "odd", "metaPrompts": [{"id": "gmi_error_recovery"}]}
    file = write(here.folder, "odd.json", odd)
    output = here("persona", "check", str(file))
    assert "metaPrompts[0].trigger: no event fires while sentimentTracking is off. Switch it on." in output
    assert "1 file, 0 errors, 1 warning" in here("persona", "check", str(file), "--strict", code=1)
    assert "no event fires while sentimentTracking is off" in here("doctor")


def test_missing_prompt_is_a_warning(here: CommandRunner) -> None:
    named = {"id": "odd", "prompts": {"init": "agent_intro"}, "metaPrompts": [{"id": "m", "promptKey": "none/such"}]}
    write(here.folder, "odd.json", named)
    output = here("persona", "check")
    assert "prompts.init: unknown prompt 'agent_intro'; did you mean 'agent_init'?" in output
    assert "metaPrompts[0].promptKey: unknown prompt 'none/such'; write it as prompts/default/none/such.md" in (output)


def test_check_accepts_a_file_outside_the_project(tmp_path: Path, here: CommandRunner) -> None:
    file = tmp_path / "draft.yaml"
    file.write_text("id: draft\nsentimentTracking: tutor\n")
    assert "draft 1.0.0" in here("persona", "check", str(file))
    file.write_text("id: draft\nsentimentTracking: tuter\n")
    assert "sentimentTracking: unknown profile 'tuter'. Did you mean 'tutor'?" in here(
        "persona", "check", str(file), code=1
    )
    assert f"File not found: '{tmp_path}/none.json'" in here("persona", "check", str(tmp_path / "none.json"), code=1)
    (tmp_path / "draft.txt").write_text("")
    assert "Its name must end with .json, .yaml, .yml" in here("persona", "check", str(tmp_path / "draft.txt"), code=1)


@pytest.mark.parametrize(("like", "ending"), [("tutor", "json"), ("engineer", "yaml"), (None, "json")])
def test_new_persona_is_a_copy_of_a_builtin_one(here: CommandRunner, like: str | None, ending: str) -> None:
    output = here("persona", "new", "night-shift", *(("--from", like) if like else ()))
    assert output == f"wrote {here.folder}/personas/night-shift.{ending}\n"
    made = here.json("persona", "show", "night-shift")
    model = here.json("persona", "show", like or "helper")
    assert made["name"] == "Night Shift"
    own = ("id", "name", "default", "file")
    assert {key: value for key, value in made.items() if key not in own} == {
        key: value for key, value in model.items() if key not in own
    }
    assert "0 errors" in here("persona", "check")
    assert "Persona 'night-shift' already exists" in here("persona", "new", "night-shift", code=1)


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".x", "a b", "x" * 81, "ä"])
def test_new_persona_id_must_be_a_valid_file_name(here: CommandRunner, name: str) -> None:
    assert "Invalid persona id" in here("persona", "new", name, code=1)
    assert "Unknown built-in persona 'x'. Available: companion, engineer, helper, tutor" in here(
        "persona", "new", "mine", "--from", "x", code=1
    )


# ---- HTTP


def test_edited_persona_applies_from_the_next_turn(project: Path, serve_live: Callable[..., Live]) -> None:
    live = serve_live(load_config(project), model=ScriptedModel(default="Hello."))

    def front(n: int, **asked: Any) -> str:
        body = {"message": "Hi", "conversationId": "c", "personaId": "ada", **asked}
        assert httpx.post(f"{live.url}/api/chat", json=body).status_code == 200
        result = httpx.get(f"{live.url}/api/conversations/c/turns/{n}").json()
        return next(block["text"] for block in result["window"]["blocks"] if block["kind"] == "persona")

    unknown = httpx.post(f"{live.url}/api/chat", json={"message": "Hi", "conversationId": "c", "personaId": "ada"})
    assert unknown.status_code == 404
    file = write(project, "ada.yaml", "id: ada\nbaseSystemPrompt: You are Ada.\n")
    assert front(1) == "You are Ada."
    assert "ada" in {each["id"] for each in httpx.get(f"{live.url}/v1/models").json()["data"]}
    write(project, "ada.yaml", "id: ada\nbaseSystemPrompt: You are Eva.\nsentimentTracking: tutor\n")
    result = httpx.get(f"{live.url}/api/personas/ada").json()
    assert (result["baseSystemPrompt"], result["profile"]) == ("You are Eva.", "tutor")
    assert front(2) == "You are Eva."
    write(project, "key.json", {"id": "key", "baseSystemPrompt": f"The key is {SECRET}."})
    assert SECRET not in httpx.get(f"{live.url}/api/personas/key").text
    (project / "personas/key.json").unlink()
    write(project, "ada.yaml", "id: ada\nbaseSystemPrompt: [")
    assert front(3) == "You are Eva."
    file.unlink()
    gone = httpx.get(f"{live.url}/api/personas/ada")
    assert (gone.status_code, gone.json()["detail"]) == (
        404,
        "Unknown persona 'ada'. Available: assistant, companion, engineer, helper, tutor.",
    )


def test_persona_list_omits_prompt_texts(project: Path, serve_live: Callable[..., Live]) -> None:
    live = serve_live(load_config(project), model=ScriptedModel())
    listed = httpx.get(f"{live.url}/api/personas").json()["items"]
    assert [each["id"] for each in listed] == ["assistant", "companion", "engineer", "helper", "tutor"]
    assert not any("baseSystemPrompt" in each for each in listed)
    tutor = listed[-1]
    assert [each["id"] for each in tutor["metaPrompts"] if not each["own"]] == [
        "gmi_frustration_recovery",
        "gmi_confusion_clarification",
        "gmi_satisfaction_reinforcement",
    ]
    assert tutor["metaPrompts"][-1] == {
        "id": "lesson_review",
        "own": True,
        "description": "Looks back at the lesson.",
        "trigger": {"type": "turn_interval", "intervalTurns": 8},
        "promptKey": "lesson_review",
    }
    [helper] = [each for each in httpx.get(f"{live.url}/api/personas?mode=tutor").json()["items"] if each["default"]]
    assert (helper["profile"], helper["sentimentTracking"]["consecutiveTurnsForTrigger"]) == ("tutor", 1)
    assert httpx.get(f"{live.url}/api/personas?mood=x").status_code == 400


async def test_personas_require_at_least_a_viewer_key() -> None:
    async with served() as keyed:
        viewer = await keyed.client_as("viewer", "ann")
        for address in ("/api/personas", "/api/personas/assistant"):
            assert (await viewer.get(address)).status_code == 200
            assert (await keyed.client().get(address)).status_code == 401
