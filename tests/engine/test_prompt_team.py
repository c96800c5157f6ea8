"""Tests of two databases that share a repository of prompt files: history, labels and conflicts."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cuebook import Cuebook
from cuebook.records.memory import Scope
from cuebook.testing import FrozenClock

KIND = "---\ncuebook: 1\nname: persona/kind\ndescription: kind\n---\nI am kind.\n"


@asynccontextmanager
async def cue_in(project: Path, *, day: int) -> AsyncIterator[Cuebook]:
    """Open a project's database on a given day."""
    settings = {"store.synchronous": "OFF"}
    clock = FrozenClock(day * 86_400.0)
    async with Cuebook.open(project, arguments=settings, worker=False, clock=clock) as cue:
        yield cue


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """Create a project with a prompt."""
    project = tmp_path / "ours"
    (project / "prompts/default/persona").mkdir(parents=True)
    (project / "cuebook.toml").write_text("")
    (project / "prompts/default/persona/kind.md").write_text(KIND)
    return project


def copy_files(source: Path, target: Path) -> None:
    """Copy the other project's files, as git does."""
    target.mkdir(exist_ok=True)
    (target / "cuebook.toml").write_text("")
    shutil.rmtree(target / "prompts", ignore_errors=True)
    shutil.copytree(source / "prompts", target / "prompts")


def files(project: Path) -> dict[str, bytes]:
    root = project / "prompts"
    return {each.relative_to(root).as_posix(): each.read_bytes() for each in root.rglob("*") if each.is_file()}


async def write(cue: Cuebook, text: str) -> None:
    await cue.prompts.save("persona/kind", {"body": text}, author="ann")
    await cue.prompts.pull()


async def test_opening_a_clone_changes_no_file(ours: Path, tmp_path: Path) -> None:
    async with cue_in(ours, day=1000) as cue:
        await write(cue, "I am very kind.")
        await cue.prompts.fork("persona/kind", "trial")
        await cue.prompts.label("persona/kind", "production", version=1)
        await cue.prompts.pull()
    theirs = tmp_path / "theirs"
    copy_files(ours, theirs)
    cloned = files(theirs)
    async with cue_in(theirs, day=2000) as cue:
        assert await cue.prompts.drift() == []
        written = [each.created_at for each in await cue.prompts.versions("persona/kind", branch="main")]
        assert [int(each // 86_400) for each in written] == [1000, 1000]
    assert files(theirs) == cloned


async def test_importing_keeps_numbers_dates_and_label(ours: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    async with cue_in(ours, day=1000):
        pass
    copy_files(ours, theirs)
    async with cue_in(theirs, day=1001):
        pass
    async with cue_in(ours, day=1002) as cue:
        await write(cue, "I am very kind.")
        await write(cue, "I am ever so kind.")
        await cue.prompts.label("persona/kind", "production")
        await cue.prompts.pull()
    copy_files(ours, theirs)
    pulled = files(theirs)
    async with cue_in(theirs, day=1003) as cue:
        versions = await cue.services.prompts.versions(Scope(), "persona/kind")
        assert [(each.number, each.sections["body"]) for each in versions] == [
            (1, "I am kind."),
            (2, "I am very kind."),
            (3, "I am ever so kind."),
        ]
        family = await cue.prompts.family("persona/kind")
        assert [(each.name, each.number) for each in family.labels] == [("production", 3)]
        assert await cue.prompts.drift() == []
        assert await cue.prompts.push() == []
    assert files(theirs) == pulled


async def test_an_unrelated_history_is_not_imported(ours: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    async with cue_in(ours, day=1000):
        pass
    copy_files(ours, theirs)
    async with cue_in(theirs, day=1001) as cue:
        await write(cue, "I am rude.")
    async with cue_in(ours, day=1002) as cue:
        await write(cue, "I am very kind.")
        await write(cue, "I am ever so kind.")
    copy_files(ours, theirs)
    async with cue_in(theirs, day=1003) as cue:
        texts = [each.sections["body"] for each in await cue.services.prompts.versions(Scope(), "persona/kind")]
        assert texts == ["I am kind.", "I am rude.", "I am ever so kind."]
        assert await cue.prompts.drift() == []


async def test_a_local_edit_has_todays_date(ours: Path) -> None:
    async with cue_in(ours, day=1000):
        pass
    (ours / "prompts/default/persona/kind.md").write_text(KIND.replace("kind.\n", "kinder.\n"))
    async with cue_in(ours, day=1005) as cue:
        versions = await cue.prompts.versions("persona/kind")
    assert [int(each.created_at // 86_400) for each in versions] == [1000, 1005]


async def test_a_label_moved_only_by_the_other_side_is_reported(ours: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    async with cue_in(ours, day=1000) as cue:
        await write(cue, "I am very kind.")
    copy_files(ours, theirs)
    async with cue_in(theirs, day=1001):
        pass
    async with cue_in(ours, day=1002) as cue:
        await cue.prompts.label("persona/kind", "production", version=1)
        await cue.prompts.pull()
    copy_files(ours, theirs)
    async with cue_in(theirs, day=1003) as cue:
        [difference] = await cue.prompts.drift()
        assert difference.message.startswith(
            "prompts/registry.json: persona/kind: label production: main:1 in the registry, none in the database."
        )
        await cue.prompts.label("persona/kind", "production", version=1)
        assert await cue.prompts.drift() == []


async def test_a_rollback_made_by_the_other_side_is_applied(ours: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    async with cue_in(ours, day=1000) as cue:
        await write(cue, "I am very kind.")
    copy_files(ours, theirs)
    async with cue_in(theirs, day=1001):
        pass
    async with cue_in(ours, day=1002) as cue:
        await cue.prompts.roll_back("persona/kind", reason="too kind")
        await cue.prompts.pull()
    copy_files(ours, theirs)
    async with cue_in(theirs, day=1003) as cue:
        assert (await cue.prompts.get("persona/kind")).number == 1
        assert await cue.prompts.drift() == []
