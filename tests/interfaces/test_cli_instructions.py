"""What models behind the replies are told, and what is wrong with prompts, as `cuebook doctor` shows it."""

import json
import sqlite3
from contextlib import closing

import pytest
from commands import Here

FILE = "prompts/system/memory_compactor_v2_json.md"


def looked(here: Here, *, code: int = 0) -> tuple[str, str]:
    [check] = [each for each in here.json("doctor", code=code)["checks"] if each["name"] == "prompts"]
    return check["state"], check["found"]


def test_doctor_tells_which_prompt_the_compactor_is_told(here: Here) -> None:
    assert looked(here) == ("ok", "background jobs use system/memory_compactor_v2_json")
    (here.folder / FILE).unlink()
    assert looked(here)[0] == "ok", "the built-in stands for it"


def test_doctor_warns_of_an_instruction_that_cannot_be_said(here: Here) -> None:
    (here.folder / FILE).write_text("---\ninput:\n  schema:\n    nobody_knows: string\n---\nFor $nobody_knows.\n")
    state, found = looked(here)
    assert (state, "Missing parameter: 'nobody_knows'" in found) == ("warn", True)
    here("prompt", "list")  # takes it over
    assert looked(here)[0] == "warn"


def test_doctor_fails_on_a_key_that_names_no_prompt(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_COMPACTION_PROMPT_KEY", "nowhere")
    state, found = looked(here, code=1)
    assert state == "fail"
    assert found == (
        "environment MEMORY_COMPACTION_PROMPT_KEY: unknown prompt 'nowhere'. Create prompts/system/nowhere.md, "
        "or omit the key."
    )
    monkeypatch.delenv("MEMORY_COMPACTION_PROMPT_KEY")
    file = here.folder / "config/metaprompt-presets.json"
    document = json.loads(file.read_text())
    document["presets"][0]["addonPromptKeys"] = ["_meta/gone"]
    file.write_text(json.dumps(document))
    state, found = looked(here, code=1)
    assert (state, "presets[0].addonPromptKeys[0]" in found) == ("fail", True)


def test_the_templates_prompts_have_the_bytes_that_cuebook_writes(here: Here) -> None:
    folder = here.folder / "prompts"
    files = {file.relative_to(folder).with_suffix("").as_posix(): file.read_text() for file in folder.rglob("*.md")}
    assert len(files) >= 7
    assert {slug: here("prompt", "show", slug, "--file") for slug in files} == files


def test_doctor_names_a_version_that_was_changed_in_the_database(here: Here) -> None:
    here("prompt", "new", "p", "--text", "Be kind.")
    assert looked(here)[0] == "ok"
    with closing(sqlite3.connect(here.folder / ".cuebook/cuebook.db")) as database, database:
        database.execute(
            "UPDATE prompt_version SET body = replace(CAST(body AS TEXT), 'Be kind', 'Be rude') WHERE slug = 'p'"
        )
    state, found = looked(here, code=1)
    assert (state, found) == ("fail", "p@main:1: the text does not match its digest; the database was altered")


def test_doctor_names_a_file_that_holds_up_every_push(here: Here) -> None:
    (here.folder / "prompts/default/half.md").write_text("---\nname: half\n")
    state, found = looked(here)
    assert (state, found.startswith("prompts/default/half.md: line 1: the front matter")) == ("warn", True)
