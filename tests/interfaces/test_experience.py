"""Tests of experiences: project files, `cuebook experience`, /api/experiences and their use in a turn."""

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import CommandRunner
from shared_app import app_of

from cuebook import Ask, BlockingCuebook, Cuebook
from cuebook.config import build
from cuebook.testing.doubles import ScriptedModel

ASKED = "Which of these two laptops should I buy?"


def write(folder: Path, name: str, text: str | bytes) -> Path:
    file = folder / "experience" / f"handcrafted_exp_{name}.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


# ---- the command line


def test_experiences_of_a_new_project_are_listed(here: CommandRunner) -> None:
    output = here("experience", "list")
    assert all(name in output for name in ("corrections", "decisions", "plans"))
    items = here.json("experience", "list", "--role", "helper")["items"]
    assert [each["exp_id"] for each in items] == ["corrections", "decisions", "plans"]
    assert items[1]["who"] == ["helper"]
    assert items[1]["file"] == "experience/handcrafted_exp_decisions.yaml"
    assert "experiences" in here("doctor")


@pytest.mark.parametrize(
    ("query", "chosen"),
    [
        ("I have to decide between several options for the flat", ["decisions"]),
        ("Help us to plan a trip with several stops", ["plans"]),
        ("No, that's a mistake, please correct the answer", ["corrections"]),
        ("What is the capital of Mongolia?", []),
        ("Good morning!", []),
    ],
)
def test_dry_run_explains_the_selection_for_a_query(here: CommandRunner, query: str, chosen: list[str]) -> None:
    result = here.json("experience", "test", query)
    assert [each["exp_id"] for each in result["items"] if each["chosen"]] == chosen
    assert all(each["reason"] for each in result["items"])
    assert result["by"] == "words"
    assert (result["role"], len(result["items"])) == ("helper", 3)
    summary = f"selected by words: {', '.join(chosen) or 'none'} of 3 candidates for helper"
    assert here("experience", "test", query).startswith(summary)


def test_turn_shows_its_experiences_and_the_reason(here: CommandRunner) -> None:
    with BlockingCuebook.open(here.folder, worker=False) as cue:
        cue.ask(Ask("I have to decide between several options", "c1"))
    output = here("turn", "show", "c1", "1")
    assert "experience:decisions" in output
    assert "experiences: decisions (" in output
    assert "of 3 offered, by words" in output
    assert here.json("turn", "show", "c1", "1")["metadata"]["experiences"] == ["decisions"]


ODD: dict[str, tuple[str | bytes, str]] = {
    "list": ("- a\n- b\n", "expected `key: value` lines"),
    "scalar": ("just text\n", "expected `key: value` lines"),
    "empty": ("", "exp_id: missing"),
    "noid": ("when: a\nwhat: b\n", "exp_id: missing"),
    "broken": ("exp_id: [a\n", "line "),
    "tag": ("exp_id: !!python/object/apply:os.system [ls]\nwhen: a\nwhat: b\n", "tags (`!…`) are not supported"),
    "alias": ("exp_id: &a x\nwhen: *a\nwhat: b\n", "anchors and aliases"),
    "twice": ("exp_id: a\nexp_id: b\nwhen: a\nwhat: b\n", "is a duplicate of"),
    "latin": (b"exp_id: caf\xe9\nwhen: a\nwhat: b\n", "not UTF-8"),
    "large": ("exp_id: a\nwhen: a\nwhat: " + "x" * 300_000, "exceeds"),
    "who": ("exp_id: a\nwho: {b: c}\nwhen: a\nwhat: b\n", "who: expected"),
    "stranger": ("exp_id: a\nwho: planer\nwhen: a\nwhat: b\n", "unknown persona or role 'planer'"),
    "taken": ("exp_id: plans\nwhen: a\nwhat: b\n", "is already used by experience/handcrafted_exp_plans.yaml"),
    "meant": ("exp_id: a\nwhenn: a\nwhat: b\n", "when: missing. State when the experience helps."),
    "keys": ("exp_id: a\nwhen: a\nwhat: b\npriority: 3\n", "priority: unknown, ignored"),
}


def test_invalid_files_are_reported_and_others_still_load(here: CommandRunner) -> None:
    for name, (text, _) in ODD.items():
        content = text if isinstance(text, bytes) else text.replace("exp_id: a\n", f"exp_id: z{name}\n")
        write(here.folder, f"z{name}", content)
    result = here.json("experience", "list", code=1)
    assert len(result["items"]) >= 3
    problems = {problem.partition(":")[0]: problem for problem in result["problems"]}
    assert len(problems) == len(result["problems"]) == len(ODD)
    for name, (_, problem) in ODD.items():
        assert problem in problems[f"experience/handcrafted_exp_z{name}.yaml"]
    assert "! " in here("experience", "list", code=1)
    assert "handcrafted_exp_z" in here("doctor")


def test_file_with_another_name_is_reported_as_ignored(here: CommandRunner) -> None:
    for name in ("refunds.yaml", "exp_learned.yaml", "raw_exp_1.yaml", "notes.txt"):
        (here.folder / "experience" / name).write_text("exp_id: a\nwhen: a\nwhat: b\n")
    problem = "experience/refunds.yaml: ignored. Experiences are named handcrafted_exp_NAME.yaml."
    assert here.json("experience", "list", code=1)["problems"] == [problem]
    assert problem in here("doctor")


def test_non_regular_files_are_reported(here: CommandRunner) -> None:
    (here.folder / "experience" / "handcrafted_exp_zfolder.yaml").mkdir()
    (here.folder / "experience" / "handcrafted_exp_zlink.yaml").symlink_to("nowhere")
    os.mkfifo(here.folder / "experience" / "handcrafted_exp_zpipe.yaml")
    problems = here.json("experience", "list", code=1)["problems"]
    assert [problem.split(":")[0][-12:] for problem in problems] == ["zfolder.yaml", "p_zlink.yaml", "p_zpipe.yaml"]


def test_file_name_that_is_not_utf8_is_listed_escaped(here: CommandRunner) -> None:
    name = os.fsdecode(b"handcrafted_exp_\xff.yaml")
    (here.folder / "experience" / name).write_text("exp_id: odd\nwhen: a\nwhat: b\n")
    items = here.json("experience", "list")["items"]
    assert [each["file"] for each in items if each["exp_id"] == "odd"] == ["experience/handcrafted_exp_\\xff.yaml"]


def test_taskweaver_and_legacy_files_load(here: CommandRunner) -> None:
    write(
        here.folder,
        "taskweaver",
        "exp_id: file-validation\nwho:\n  - helper\nwhen: |\n  Use when user requests file operations or "
        "FileNotFoundError occurred.\nwhat: |\n  Always check os.path.exists() before reading files.\n",
    )
    write(here.folder, "legacy", "exp_id: 007\nexperience_text: |-\n  Reading a pickle file runs its code.\n")
    items = {each["exp_id"]: each for each in here.json("experience", "list")["items"]}
    assert items["file-validation"]["what"] == "Always check os.path.exists() before reading files."
    assert items["007"]["when"] == items["007"]["what"] == "Reading a pickle file runs its code."


def test_errors_explain_the_remedy(here: CommandRunner) -> None:
    assert "unknown persona or role 'nobody'" in here("experience", "list", "--role", "nobody", code=1)
    assert "unknown persona or role 'nobody'" in here("experience", "test", ASKED, "--role", "nobody", code=1)
    assert "no words to compare" in here("experience", "test", "  ", code=1)
    (here.folder / "cuebook.toml").write_text('[experience]\nselection = "off"\n')
    assert "Experiences are disabled" in here("experience", "test", ASKED, code=1)
    assert '"off"' in here("experience", "list", code=1)
    for file in (here.folder / "experience").iterdir():
        file.unlink()
    (here.folder / "cuebook.toml").write_text("")
    assert "no experiences" in here("experience", "list")


# ---- HTTP


async def test_http_routes_list_select_and_apply_experiences(tmp_path: Path) -> None:
    write(tmp_path, "a", "exp_id: choose\nwhen: The user asks which one to buy.\nwhat: Recommend one.\n")
    settings = build(arguments={"store.url": ":memory:"}, folder=str(tmp_path))
    async with Cuebook.open(settings, model=ScriptedModel(default="Noted.")) as cue:
        transport = httpx.ASGITransport(app_of(cue))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            listed = (await client.get("/api/experiences")).json()
            assert listed["items"][0] == {
                "exp_id": "choose", "who": [], "when": "The user asks which one to buy.", "what": "Recommend one.",
                "file": "experience/handcrafted_exp_a.yaml",
            }  # fmt: skip
            result = (await client.post("/api/experiences/select", json={"query": "which one should I buy?"})).json()
            assert [(each["exp_id"], each["chosen"]) for each in result["items"]] == [("choose", True)]
            assert (await client.get("/api/experiences", params={"role": "x"})).status_code == 404
            assert (await client.post("/api/experiences/select", json={"query": ""})).status_code == 400
            assert (await client.post("/api/experiences/select", json={"query": "a", "more": 1})).status_code == 400
            body = {"message": "which one should I buy?", "conversationId": "c"}
            answer: dict[str, Any] = (await client.post("/api/chat", json=body)).json()
            assert answer["metadata"]["experiences"] == ["choose"]
            window = (await client.post("/api/assemble", json=body)).json()["window"]
            assert [each["source"] for each in window["blocks"] if each["kind"] == "experience"] == [
                "experience:choose"
            ]


def test_model_selects_experiences(tmp_path: Path) -> None:
    write(tmp_path, "a", "exp_id: a\nwhen: One thing.\nwhat: Do it.\n")
    write(tmp_path, "b", "exp_id: b\nwhen: Another thing.\nwhat: Leave it.\n")
    model = ScriptedModel(default=json.dumps({"b": True, "a": False}))
    settings = build(arguments={"store.url": ":memory:", "experience.selection": "model"}, folder=str(tmp_path))
    with BlockingCuebook.open(settings, model=model) as cue:
        result = cue.experiences.select("one thing")
    assert result.by == "scripted"
    assert [(each.exp_id, each.chosen, each.reason) for each in result.items] == [
        ("b", True, "the model found it relevant"),
        ("a", False, "the model found it irrelevant"),
    ]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"experience.model": "quick", "model.provider": "openai", "model.name": "slow"}, "quick"),
        ({"experience.model": "quick", "upstream.url": "http://127.0.0.1:9/v1"}, "quick"),
        ({"experience.selection": "model", "model.provider": "openai", "model.name": "slow"}, "slow"),
        ({"model.provider": "openai", "model.name": "slow"}, None),
        (
            {
                "experience.model": "quick",
                "experience.selection": "similarity",
                "upstream.url": "http://127.0.0.1:9/v1",
            },
            None,
        ),
    ],
)
async def test_settings_determine_the_selecting_model(
    tmp_path: Path, settings: dict[str, Any], name: str | None
) -> None:
    async with Cuebook.open(build(arguments={"store.url": ":memory:"} | settings, folder=str(tmp_path))) as cue:
        chooses = cue.services.experience_model
        assert (chooses.name if chooses else None) == name


def test_model_without_a_server_is_rejected(here: CommandRunner) -> None:
    (here.folder / "cuebook.toml").write_text('[experience]\nmodel = "quick"\n')
    assert "experience.model: no server configured for 'quick'" in here("experience", "test", ASKED, code=1)
    assert "experience.model: no server configured for 'quick'" in here("doctor", code=1)
