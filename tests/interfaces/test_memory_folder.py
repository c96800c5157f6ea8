"""Tests of a watched folder of memory files: both sides are kept equal, and an erasure removes the files' texts."""

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import CommandRunner

from cuebook import BlockingCuebook, Cuebook
from cuebook.app.memories.file_text import merged, parse

ANN = "user/ann/user_preference.md"


def opened(project: Path, folder: str = "memories") -> Cuebook:
    (project / "cuebook.toml").write_text('[store]\nurl = "cue.db"\n')
    return Cuebook.open(project, arguments={"memory.folder": folder}, worker=False)


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")


def bytes_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


async def test_both_sides_are_kept_equal(tmp_path: Path) -> None:
    file = tmp_path / "memories" / ANN
    async with opened(tmp_path) as cue:
        tea = await cue.memory.add("Prefers tea.", user="ann")
        assert await cue.settle() == {}
        assert "\nPrefers tea.\n" in file.read_text()
        edit(file, "\nPrefers tea.", "\nPrefers coffee.")
        with file.open("a") as opened_file:
            opened_file.write("\n<!-- memory new -->\nLives in Bergen.\n")
        assert await cue.settle() == {}
        assert [each.text for each in await cue.memory.history(tea.id)] == ["Prefers coffee.", "Prefers tea."]
        assert {each.text for each in await cue.memory.list(user="ann")} == {"Prefers coffee.", "Lives in Bergen."}
        assert await cue.memory.status() == []
        await cue.memory.add("Prefers trains.", user="bob")
        await cue.memory.update(tea.id, "Prefers water.")
        assert await cue.settle() == {}
        assert "\nPrefers water.\n" in file.read_text()
        assert "Prefers trains." in (tmp_path / "memories/user/bob/user_preference.md").read_text()
        before = {each: each.stat().st_mtime_ns for each in (tmp_path / "memories").rglob("*.md")}
        assert not await cue.services.memory_folder.is_due(hurry=True)
        assert before == {each: each.stat().st_mtime_ns for each in (tmp_path / "memories").rglob("*.md")}


async def test_a_file_that_may_be_half_written_waits(tmp_path: Path) -> None:
    file = tmp_path / "memories" / ANN
    async with opened(tmp_path) as cue:
        tea = await cue.memory.add("Prefers tea.", user="ann")
        await cue.settle()
        text, part = "Prefers tea.", "Pref"
        edit(file, f"\n{text}", f"\n{part}")
        while await cue.work():
            assert time.time() - file.stat().st_mtime > 1, "a busy machine found the file when it was no longer new"
            text, part = part, f"{part}e"
            edit(file, f"\n{text}", f"\n{part}")
        assert (await cue.memory.get(tea.id)).text == text
        assert f"\n{part}\n" in file.read_text()
        os.utime(file, (time.time() - 5, time.time() - 5))
        assert await cue.work() > 0
        assert (await cue.memory.get(tea.id)).text == part


async def test_a_conflict_gets_both_texts_and_the_newest_of_the_database(tmp_path: Path) -> None:
    file = tmp_path / "memories" / ANN
    async with opened(tmp_path) as cue:
        tea = await cue.memory.add("Prefers tea.", user="ann")
        await cue.settle()
        edit(file, "\nPrefers tea.", "\nPrefers coffee.")
        for text in ("Prefers water.", "Prefers milk."):
            await cue.memory.update(tea.id, text)
            await cue.settle()
            marked = f"<<<<<<< file\nPrefers coffee.\n=======\n{text}\n>>>>>>> database"
            assert marked in file.read_text()
            assert (await cue.memory.get(tea.id)).text == text
        assert [each.state for each in await cue.memory.status()] == ["conflict"]
        edit(file, marked, "Prefers coffee with milk.")
        await cue.settle()
        texts = [each.text for each in await cue.memory.history(tea.id)]
        assert texts == ["Prefers coffee with milk.", "Prefers milk.", "Prefers water.", "Prefers tea."]


async def test_an_invalid_file_changes_nothing_and_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cuebook.memory_files")
    folder = tmp_path / "memories"
    async with opened(tmp_path) as cue:
        tea = await cue.memory.add("Prefers tea.", user="ann")
        await cue.memory.add("The printer is on floor 3.")
        await cue.settle()
        broken = (folder / ANN).read_text().replace("memories:", "memories: [").replace("tea", "poison")
        (folder / ANN).write_text(broken)
        (folder / "README.md").write_text("Ours.")
        (folder / "user/notes.md").write_text("Not a memory file.")
        edit(folder / "project/domain.md", "\nThe printer is on floor 3.", "\nThe printer is on floor 4.")
        await cue.settle()
        await cue.settle()
        assert (folder / ANN).read_text() == broken
        assert (await cue.memory.get(tea.id)).text == "Prefers tea."
        assert "The printer is on floor 4." in {each.text for each in await cue.memory.list()}
        [found] = await cue.memory.status()
        assert (found.state, found.file) == ("invalid", ANN)
        assert found.text.startswith(f"{ANN}: invalid front matter (line ")
        warned = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
        assert warned == [found.text]
        assert "poison" not in caplog.text
        edit(folder / ANN, "memories: [", "memories:")
        await cue.settle()
        assert (await cue.memory.get(tea.id)).text == "Prefers poison."
        assert f"{ANN}: valid again." in caplog.text


async def test_a_file_that_a_person_creates_is_pushed_if_its_path_is_right(tmp_path: Path) -> None:
    new = "---\nowner: user zoë\ncategory: domain\n---\n<!-- memory new -->\nLikes umlauts.\n"
    async with opened(tmp_path) as cue:
        await cue.settle()
        for name in ("user/zoë/domain.md", "user/b%6Fb/domain.md", "user/zoë/nonsense.md"):
            (tmp_path / "memories" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "memories" / name).write_text(new, "utf-8")
        await cue.settle()
        assert [(each.user_id, each.text) for each in await cue.memory.list()] == [("zoë", "Likes umlauts.")]
        assert {(each.state, each.file) for each in await cue.memory.status()} == {
            ("invalid", "user/b%6Fb/domain.md"), ("new", "user/zoë/nonsense.md")
        }  # fmt: skip


async def test_a_forget_of_a_user_removes_all_files_of_that_user(tmp_path: Path) -> None:
    folder = tmp_path / "memories"
    async with opened(tmp_path) as cue:
        await cue.memory.add("Prefers tea.", user="ann")
        await cue.memory.add("Prefers trains.", user="bob")
        await cue.settle()
        (folder / "user/ann/domain.md").write_text("broken: Ann is allergic to nuts")
        (folder / "user/ann/.domain.md.swp").write_text("Ann is allergic to nuts")
        with (folder / ANN).open("a") as file:
            file.write("\n<!-- memory new -->\nAnn lives in Bergen.\n")
        kept = (folder / "user/bob/user_preference.md").open("rb")
        held = (folder / ANN).open("rb")
        receipt = await cue.memory.forget(user="ann")
        assert receipt.state == "done"
        assert "memory files in" in receipt.remains
        assert not (folder / "user/ann").exists()
        assert b"Bergen" not in held.read(), "the bytes on the disk are overwritten"
        assert b"trains" in kept.read()
        held.close()
        kept.close()
        await cue.settle()
        assert not (folder / "user/ann").exists()
        await cue.memory.add("Prefers cocoa.", user="ann")
        await cue.settle()
        assert "Prefers cocoa." in (folder / ANN).read_text(), "the user may come back"
        assert b"Bergen" not in bytes_in(folder)


async def test_a_forget_removes_texts_from_files_that_stay_also_if_they_are_edited_or_invalid(tmp_path: Path) -> None:
    folder = tmp_path / "memories"
    async with opened(tmp_path) as cue:
        nuts, _ = [await cue.memory.add(text, user="ann") for text in ("Allergic to nuts.", "Prefers tea.")]
        floor = await cue.memory.add("The printer is on floor 3.")
        await cue.settle()
        edit(folder / ANN, "\nAllergic to nuts.", "\nAllergic to nuts and peas.")
        edit(folder / "project/domain.md", "memories:", "memories: [")
        await cue.memory.forget(memories=[nuts.id, floor.id])
        assert b"nuts" not in bytes_in(folder)
        assert b"floor" not in bytes_in(folder)
        assert nuts.id.encode() not in bytes_in(folder)
        await cue.settle()
        assert await cue.memory.status() == []
        assert b"Prefers tea." in bytes_in(folder)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes in folders")
async def test_a_pipe_in_the_folder_is_invalid_and_does_not_block(tmp_path: Path) -> None:
    folder = tmp_path / "memories"
    async with opened(tmp_path) as cue:
        tea = await cue.memory.add("Prefers tea.", user="ann")
        await cue.settle()
        os.mkfifo(folder / "user/ann/domain.md")
        [invalid] = await cue.memory.status()
        assert invalid.text.startswith("user/ann/domain.md: not a regular file.")
        await cue.settle()
        assert (await cue.memory.forget(memories=[tea.id])).state == "done"
        assert not (folder / ANN).exists()
        await cue.memory.forget(user="ann")
    assert not list(folder.rglob("*.md"))


async def test_a_forget_erases_in_folders_that_were_watched_before_and_keeps_other_users_conflicts(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "memories"
    async with opened(tmp_path) as cue:
        tea, _ = [await cue.memory.add("Prefers tea.", user=user) for user in ("ann", "bob")]
        await cue.settle()
    with BlockingCuebook.open(tmp_path, worker=False) as other:
        other.memory.delete(tea.id)
        assert not (folder / ANN).exists()
        assert (folder / "user/bob/user_preference.md").exists()
        edit(folder / "user/bob/user_preference.md", "\nPrefers tea.", "\nPrefers rye bread.")
        other.memory.forget(user="ann")
        assert b"rye bread" in bytes_in(folder)
        assert "memories" in other.memory.forget(user="bob").remains
    assert not list(folder.rglob("*.md"))


async def test_two_processes_with_one_folder_and_two_folders_converge(tmp_path: Path) -> None:
    one = opened(tmp_path)
    two = opened(tmp_path)
    three = opened(tmp_path, "clone")
    async with one, two, three:
        tea = await one.memory.add("Prefers tea.", user="ann")
        for each in (one, two, three):
            await each.settle()
        edit(tmp_path / "memories" / ANN, "\nPrefers tea.", "\nPrefers coffee.")
        edit(tmp_path / "clone" / ANN, "\nPrefers tea.", "\nPrefers water.")
        for each in (two, three, one):
            await each.settle()
        assert [each.text for each in await one.memory.history(tea.id)] == ["Prefers coffee.", "Prefers tea."]
        clone = (tmp_path / "clone" / ANN).read_text()
        assert "<<<<<<< file\nPrefers water.\n=======\nPrefers coffee.\n>>>>>>> database" in clone
        await one.memory.forget(user="ann")
        for each in (two, three):
            await each.settle()
        assert bytes_in(tmp_path / "clone") == bytes_in(tmp_path / "memories") == b""


async def test_a_name_that_is_too_long_for_a_file_stops_no_other_file(tmp_path: Path) -> None:
    async with opened(tmp_path) as cue:
        await cue.memory.add("Prefers tea.", user="a" * 400)
        await cue.memory.add("Prefers tea.", user="ann")
        await cue.settle()
        assert (tmp_path / "memories" / ANN).exists()


def test_an_edit_during_a_synchronization_is_not_overwritten(tmp_path: Path) -> None:
    from cuebook.app.memories.files import _write

    file = tmp_path / "x.md"
    file.write_text("---\nowner: user ann\ncategory: c\n---\n\n<!-- memory 0123456789abcdef -->\nold\n")
    before = parse(file.read_text(), "x.md")
    after, _ = merged("x.md", before, {})
    file.write_text("an edit of the user")
    assert not _write(tmp_path, "x.md", before, after, {})
    assert file.read_text() == "an edit of the user"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Path]:
    """Run a server that watches the folder of a project; yield the project."""
    project = tmp_path / "project"
    cuebook = [sys.executable, "-m", "cuebook"]
    subprocess.run([*cuebook, "init", str(project)], check=True, capture_output=True)
    environment = os.environ | {"CUEBOOK_MEMORY_FOLDER": "memories", "CUEBOOK_WORK_INTERVAL_S": "0.2"}
    command = [*cuebook, "-C", str(project), "serve", "--port", "0"]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=environment) as process,
    ):
        yield project
        process.terminate()


@pytest.mark.slow
def test_a_running_server_watches_the_folder(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*arguments: str) -> dict[str, object]:
        command = [sys.executable, "-m", "cuebook", "-C", str(server), *arguments, "--json"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    def wait_for(what: object) -> None:
        until = time.monotonic() + 30
        while not what():  # type: ignore[operator]
            assert time.monotonic() < until
            time.sleep(0.1)

    monkeypatch.setenv("CUEBOOK_MEMORY_FOLDER", "memories")
    file = server / "memories" / ANN
    run("memory", "add", "Prefers tea.", "--user", "ann")
    wait_for(file.exists)
    edit(file, "\nPrefers tea.", "\nPrefers coffee.")
    wait_for(lambda: run("memory", "list", "--user", "ann")["items"][0]["text"] == "Prefers coffee.")  # type: ignore[index]
    assert run("memory", "status")["items"] == []
    run("memory", "forget", "--user", "ann", "--yes")
    assert not file.exists()


def test_commands_use_the_watched_folder(here: CommandRunner, project: Path) -> None:
    assert "memory.folder: not set" in here("memory", "status", code=1)
    edit(project / "cuebook.toml", '# folder = "" # folder of Markdown', 'folder = "memories" # folder of Markdown')
    here("memory", "add", "Prefers tea.", "--user", "ann")
    assert here("memory", "status").startswith("added ")
    assert here("memory", "pull").startswith("added ")
    (project / "memories" / ANN).write_text("")
    assert here("memory", "status", code=1).startswith(f"invalid   {ANN}: no front matter")
    assert "no front matter" in here("memory", "push", code=1)
