"""Tests of pipes and devices in place of files: no command and no server waits for another process to open them."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import CommandRunner, cuebook

from cuebook import Ask, BlockingCuebook, Cuebook
from cuebook.app.files import write_whole
from cuebook.config import build
from cuebook.providers.regular_files import read_regular
from cuebook.storage.database.holders import Holders, lock
from cuebook.testing.doubles import ScriptedModel

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes in folders"),
    pytest.mark.timeout(60),
]
MIRROR = "logs/prompts_audit.jsonl"


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "."])
def test_only_regular_files_are_read(tmp_path: Path, device: str) -> None:
    link = tmp_path / "link"
    link.symlink_to(device)
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(link)


@pytest.mark.parametrize(
    ("place", "arguments", "message"),
    [
        ("cuebook.toml", ["memory", "list"], "cuebook.toml: not a regular file."),
        ("config/metaprompt-presets.json", ["memory", "list"], "metaprompt-presets.json: not a regular file."),
        ("personas/x.yaml", ["prompt", "bundle", "x.bundle"], "personas/x.yaml: not a regular file."),
        (".cuebook/cuebook.db.key", ["memory", "list"], "cannot be read or created (not a regular file)"),
        ("x.backup", ["restore", "x.backup", "--into", "other"], "not a regular file: 'x.backup'"),
        ("x.json", ["conversation", "import", "x.json"], "x.json: not a regular file."),
        ("x.jsonl", ["audit", "verify", "--mirror", "x.jsonl"], "not a regular file: 'x.jsonl'"),
        (MIRROR, ["audit", "verify"], "prompts_audit.jsonl cannot be read (not a regular file)"),
        (MIRROR, ["audit", "mirror"], "cannot be read (not a regular file). Make it readable, or move it away"),
    ],
)
def test_a_pipe_in_place_of_a_file_is_named(
    here: CommandRunner, place: str, arguments: list[str], message: str
) -> None:
    here("memory", "add", "Lives in Bergen.", "--user", "ann")
    file = here.folder / place
    file.unlink(missing_ok=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(file)
    done = cuebook(*arguments, cwd=here.folder)
    assert done.returncode
    assert message in done.stdout + done.stderr


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_pipe_or_folder_in_place_of_a_holder_file_is_no_process(tmp_path: Path, make: Callable[[Path], None]) -> None:
    holders, other = Holders(tmp_path / "my.db"), tmp_path / "my.db-holder-x"
    make(other)
    descriptor = os.open(other, os.O_RDWR if make is os.mkfifo else os.O_RDONLY)
    lock(descriptor)
    assert holders.announced() == []
    assert not holders.has_others()
    holders.close()
    os.close(descriptor)


async def test_turns_and_erasures_work_beside_a_mirror_that_is_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    os.mkfifo(tmp_path / MIRROR)
    settings = build(arguments={"store.url": "x.db"}, folder=str(tmp_path))
    async with Cuebook.open(settings, model=ScriptedModel(default="Noted.")) as cue:
        assert (await cue.ask(Ask("I moved to Bergen.", conversation="trip", user="ann"))).text == "Noted."
        assert (await cue.memory.forget(user="ann")).counts["posts"] == 2
        assert "prompts_audit.jsonl cannot be read" in (await cue.audit.verify()).reason


def test_an_output_pipe_without_a_reader_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device or address"):
        write_whole(tmp_path / "pipe", ["x"])


async def test_an_output_pipe_gets_more_than_fits_into_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDWR)  # both, so that it has no end before the writer has opened it
    writing = asyncio.create_task(asyncio.to_thread(write_whole, tmp_path / "pipe", ["x" * 1_000_000]))
    with os.fdopen(reader, "rb") as file:
        received = await asyncio.to_thread(file.read, 1_000_000)
    await writing
    assert len(received) == 1_000_000


def test_a_pipe_is_no_project(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Exception, match="not a regular file"), BlockingCuebook.open(tmp_path / "pipe"):
        pass
