"""Tests of the permissions of written files: exports and pulled memories are readable by their owner only."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import CommandRunner, write_messages

from cuebook.app.files import write_whole


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Let new files be readable by everyone by default."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_every_export_is_readable_by_its_owner_only(here: CommandRunner, tmp_path: Path) -> None:
    talk = write_messages(tmp_path, ("user", "I moved to Bergen."), ("assistant", "Noted."))
    here("conversation", "import", talk, "--user", "ann")
    here("memory", "add", "Lives in Bergen.", "--user", "ann")
    out = tmp_path / "out"
    out.mkdir()
    here("conversation", "export", "--all", "--output", str(out / "all.jsonl"))
    here("conversation", "export", "--all", "--markdown", "--output", str(out / "markdown"))
    here("memory", "export", "--user", "ann", "--output", str(out / "memories.json"))
    here("memory", "export", "--user", "ann", "--everything", "--output", str(out / "ann.zip"))
    here("memory", "pull", str(out / "memories"), "--user", "ann")
    here("audit", "export", "--output", str(out / "audit.jsonl"))
    here("prompt", "export", "--output", str(out / "prompts.json"))
    here("backup", str(out / "x.backup"))
    written = {str(each.relative_to(out)): mode_of(each) for each in out.rglob("*") if each.is_file()}
    assert len(written) == 8
    assert {name for name, mode in written.items() if mode != 0o600} == set()


def test_files_of_a_project_and_existing_files_keep_their_permissions(tmp_path: Path) -> None:
    write_whole(tmp_path / "prompt.md", ["x"], private=False)
    assert mode_of(tmp_path / "prompt.md") == 0o644
    for mode in (0o600, 0o640, 0o644):
        (tmp_path / "old.json").touch()
        (tmp_path / "old.json").chmod(mode)
        write_whole(tmp_path / "old.json", ["y"])
        assert mode_of(tmp_path / "old.json") == mode
