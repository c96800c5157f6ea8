"""Tests of memories as Markdown files: pull, push and status are three-way merges that discard no edit."""

from pathlib import Path

import pytest
from commands import CommandRunner

from cuebook import BlockingCuebook
from cuebook.app.memories.file_text import FileChange

ANN = "user/ann/user_preference.md"


def states(changes: list[FileChange]) -> list[tuple[str, str]]:
    return [(each.state, each.text) for each in changes]


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")


def test_files_hold_memories_by_owner_and_category(tmp_path: Path) -> None:
    with BlockingCuebook.open() as cue:
        tea = cue.memory.add("Prefers tea.\n\nNo milk.", user="ann")
        cue.memory.add("The printer is on floor 3.")
        cue.memory.add("Odd owner.", user="../bob")
        assert [each.state for each in cue.memory.pull(tmp_path)] == ["added"] * 3
        names = {file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*.md")}
        assert names == {ANN, "project/domain.md", "user/%2E%2E%2Fbob/user_preference.md"}
        text = (tmp_path / ANN).read_text("utf-8")
        assert f"- id: {tea.id}" in text
        assert f"since: '{tea.valid_from}'" in text
        assert f"<!-- memory {tea.id} -->\nPrefers tea.\n\nNo milk.\n" in text
        before = (tmp_path / ANN).stat().st_mtime_ns
        assert cue.memory.pull(tmp_path) == cue.memory.status(tmp_path) == []
        assert (tmp_path / ANN).stat().st_mtime_ns == before


def test_push_stores_edits_as_corrections_with_history_and_adds_new_texts(tmp_path: Path) -> None:
    with BlockingCuebook.open() as cue:
        tea = cue.memory.add("Prefers tea.", user="ann")
        cue.memory.pull(tmp_path)
        edit(tmp_path / ANN, "Prefers tea.", "Prefers coffee.")
        with (tmp_path / ANN).open("a") as file:
            file.write("\n<!-- memory new -->\nLives in Bergen.\n")
        assert states(cue.memory.status(tmp_path)) == [("edited", "Prefers coffee."), ("new", "Lives in Bergen.")]
        assert states(cue.memory.pull(tmp_path)) == [], "a pull keeps edits"
        done, refused = cue.memory.push(tmp_path)
        assert (states(done), refused) == ([("edited", "Prefers coffee."), ("new", "Lives in Bergen.")], [])
        assert [each.text for each in cue.memory.history(tea.id)] == ["Prefers coffee.", "Prefers tea."]
        assert {each.text for each in cue.memory.list(user="ann")} == {"Prefers coffee.", "Lives in Bergen."}
        assert cue.memory.status(tmp_path) == []
        assert cue.memory.push(tmp_path) == ([], [])
        assert "memory new" not in (tmp_path / ANN).read_text("utf-8")


def test_edits_on_both_sides_are_a_conflict_until_resolved(tmp_path: Path) -> None:
    with BlockingCuebook.open() as cue:
        tea = cue.memory.add("Prefers tea.", user="ann")
        cue.memory.pull(tmp_path)
        cue.memory.update(tea.id, "Prefers water.")
        assert states(cue.memory.status(tmp_path)) == [("changed", "Prefers tea.")]
        edit(tmp_path / ANN, "\nPrefers tea.", "\nPrefers coffee.")
        done, refused = cue.memory.push(tmp_path)
        assert done == []
        assert refused == [f"{ANN}: memory {tea.id}: changed in the database too. Edit it and push again."]
        marked = "<<<<<<< file\nPrefers coffee.\n=======\nPrefers water.\n>>>>>>> database"
        assert marked in (tmp_path / ANN).read_text("utf-8")
        assert cue.memory.push(tmp_path)[1] != [], "markers are not stored"
        assert (tmp_path / ANN).read_text("utf-8").count("<<<<<<<") == 1
        edit(tmp_path / ANN, marked, "Prefers coffee and water.")
        assert states(cue.memory.push(tmp_path)[0]) == [("edited", "Prefers coffee and water.")]
        assert cue.memory.get(tea.id).text == "Prefers coffee and water."


def test_edit_of_a_forgotten_memory_is_a_conflict_and_a_removed_text_stays_stored(tmp_path: Path) -> None:
    with BlockingCuebook.open() as cue:
        tea, home = (cue.memory.add(text, user="ann") for text in ("Prefers tea.", "Lives in Bergen."))
        cue.memory.pull(tmp_path)
        edit(tmp_path / ANN, "\nPrefers tea.", "\nPrefers coffee.")
        edit(tmp_path / ANN, f"<!-- memory {home.id} -->\nLives in Bergen.\n", "")
        cue.memory.delete(tea.id)
        assert states(cue.memory.status(tmp_path)) == [("conflict", "Prefers coffee."), ("removed", "Lives in Bergen.")]
        done, refused = cue.memory.push(tmp_path)
        assert (done, len(refused)) == ([], 1)
        assert "Prefers coffee." in (tmp_path / ANN).read_text("utf-8")
        assert [each.text for each in cue.memory.list(user="ann")] == ["Lives in Bergen."]
        cue.memory.forget(user="ann")
        (tmp_path / ANN).unlink()
        assert cue.memory.pull(tmp_path) == []
        assert not (tmp_path / ANN).exists()


def test_text_that_looks_like_the_mark_of_another_memory_changes_nothing(tmp_path: Path) -> None:
    with BlockingCuebook.open() as cue:
        tea = cue.memory.add("Prefers tea.", user="ann")
        odd = cue.memory.add(
            f"Odd:\n<!-- memory {tea.id} -->\nPrefers poison.\n\\<!-- memory new -->\nx\r\ny", user="ann"
        )
        cue.memory.pull(tmp_path)
        assert cue.memory.status(tmp_path) == []
        edit(tmp_path / ANN, "poison", "cocoa")
        assert [each.memory for each in cue.memory.push(tmp_path)[0]] == [odd.id]
        assert cue.memory.get(tea.id).text == "Prefers tea."
        assert f"\n<!-- memory {tea.id} -->\nPrefers cocoa.\n\\<!-- memory new -->\nx\ny" in cue.memory.get(odd.id).text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no front matter", "no front matter. Restore"),
        ("---\n: [\n---\n", "invalid front matter"),
        ("---\nowner: x\n---\n", "invalid front matter ('category' is missing)"),
        ("---\nowner: x\ncategory: y\n---\n" + "<!-- memory 0123456789abcdef -->\nx\n" * 2, "stands in it twice"),
    ],
)
def test_damaged_file_is_named_and_left_as_it_is(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / ANN
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with BlockingCuebook.open() as cue:
        tea = cue.memory.add("Prefers tea.", user="ann")
        floor = cue.memory.add("The printer is on floor 3.")
        [found, other] = cue.memory.pull(tmp_path)
        assert (other.state, other.file) == ("invalid", ANN)
        assert other.text.startswith(f"{ANN}: ")
        assert expected in other.text
        assert (found.state, found.memory) == ("added", floor.id), "the other files are written"
        assert cue.memory.push(tmp_path) == ([], [other.text])
        assert cue.memory.status(tmp_path) == [other]
        assert cue.memory.get(tea.id).text == "Prefers tea."
    assert file.read_text() == text


@pytest.mark.slow
def test_commands_pull_push_and_status(here: CommandRunner, tmp_path: Path) -> None:
    folder = str(tmp_path / "memories")
    here("memory", "add", "Prefers tea.", "--user", "ann")
    here("memory", "add", "Prefers beer.", "--user", "bob")
    assert here("memory", "pull", folder, "--user", "ann").startswith(f"added     {ANN} ")
    assert not (tmp_path / "memories/user/bob").exists()
    edit(tmp_path / "memories" / ANN, "\nPrefers tea.", "\nPrefers coffee.")
    assert here("memory", "status", folder, "--user", "ann").startswith("edited ")
    assert here.json("memory", "push", folder, "--user", "ann")["items"][0]["text"] == "Prefers coffee."
    assert here("memory", "status", folder, "--user", "ann") == "up to date\n"
    [item] = here.json("memory", "list", "--user", "ann")["items"]
    here("memory", "correct", item["id"], "Prefers water.")
    edit(tmp_path / "memories" / ANN, "\nPrefers coffee.", "\nPrefers milk.")
    assert "refused" in here("memory", "push", folder, "--user", "ann", code=1)
    assert "conflict" in here("memory", "pull", folder, "--user", "ann", code=1)
