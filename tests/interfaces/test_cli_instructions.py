"""Tests of the prompt checks of `cuebook doctor`: the instructions of background jobs and damaged prompts."""

import json
import sqlite3
from contextlib import closing

import pytest
from commands import CommandRunner

FILE = "prompts/system/memory_compactor_v2_json.md"


def prompt_check(here: CommandRunner, *, code: int = 0) -> tuple[str, str]:
    [check] = [each for each in here.json("doctor", code=code)["checks"] if each["name"] == "prompts"]
    return check["state"], check["found"]


def test_doctor_names_the_prompt_of_background_jobs(here: CommandRunner) -> None:
    assert prompt_check(here) == ("ok", "background jobs use system/memory_compactor_v2_json")
    (here.folder / FILE).unlink()
    assert prompt_check(here)[0] == "ok", "The built-in prompt must replace the missing file."


def test_doctor_warns_of_a_prompt_that_cannot_be_rendered(here: CommandRunner) -> None:
    (here.folder / FILE).write_text("---\ninput:\n  schema:\n    nobody_knows: string\n---\nFor $nobody_knows.\n")
    state, result = prompt_check(here)
    assert (state, "Missing parameter: 'nobody_knows'" in result) == ("warn", True)
    here("prompt", "list")  # stores the file's text as a version
    assert prompt_check(here)[0] == "warn"


def test_doctor_fails_on_an_unknown_prompt_key(here: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_COMPACTION_PROMPT_KEY", "nowhere")
    state, result = prompt_check(here, code=1)
    assert state == "fail"
    assert result == (
        "environment MEMORY_COMPACTION_PROMPT_KEY: unknown prompt 'nowhere'. Create prompts/system/nowhere.md, "
        "or omit the key."
    )
    monkeypatch.delenv("MEMORY_COMPACTION_PROMPT_KEY")
    file = here.folder / "config/metaprompt-presets.json"
    document = json.loads(file.read_text())
    document["presets"][0]["addonPromptKeys"] = ["_meta/gone"]
    file.write_text(json.dumps(document))
    state, result = prompt_check(here, code=1)
    assert (state, "presets[0].addonPromptKeys[0]" in result) == ("fail", True)


@pytest.mark.slow
def test_template_prompt_files_match_the_exported_text(here: CommandRunner) -> None:
    folder = here.folder / "prompts"
    files = {file.relative_to(folder).with_suffix("").as_posix(): file.read_text() for file in folder.rglob("*.md")}
    assert len(files) >= 7
    assert {slug: here("prompt", "show", slug, "--file") for slug in files} == files


def test_doctor_names_a_prompt_version_altered_in_the_database(here: CommandRunner) -> None:
    here("prompt", "new", "p", "--text", "Be kind.")
    assert prompt_check(here)[0] == "ok"
    with closing(sqlite3.connect(here.folder / ".cuebook/cuebook.db")) as database, database:
        database.execute(
            "UPDATE prompt_version SET body = CAST(replace(CAST(body AS TEXT), 'Be kind', 'Be rude') AS BLOB)"
        )
    state, result = prompt_check(here, code=1)
    assert (state, result) == ("fail", "p@main:1: the text does not match its digest; the database was altered")


def test_doctor_names_a_prompt_file_that_blocks_every_push(here: CommandRunner) -> None:
    (here.folder / "prompts/default/half.md").write_text("---\nname: half\n")
    state, result = prompt_check(here)
    assert (state, result.startswith("prompts/default/half.md: line 1: the front matter")) == ("warn", True)
