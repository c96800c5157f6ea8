"""Tests of an import of a bundle killed by SIGKILL: all versions are stored or none, and a second import ends it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from project import Project

from cuebook import Cuebook
from cuebook.records.memory import Scope

BUNDLE_PROCESS = Path(__file__).with_name("bundle_process.py")
PROMPTS, VERSIONS = 5, 3


async def stored(cue: Cuebook) -> list[str]:
    """Return the texts of all versions."""
    versions = [await cue.services.prompts.versions(Scope(), f"prompt/{number}") for number in range(PROMPTS)]
    return sorted(each.sections["body"] for some in versions for each in some)


@pytest.mark.parametrize(("failpoint", "happened"), [("commit.before:kill", False), ("commit.after:kill", True)])
async def test_a_killed_import_stores_all_or_nothing(
    project: Project, failpoint: str, record_fault: Callable[..., None], *, happened: bool
) -> None:
    source = Project(project.folder / "source")
    (source.folder / "personas").mkdir(parents=True)
    (source.folder / "personas/guide.json").write_text('{"id": "guide", "name": "Gil"}')
    async with source.open() as cue:
        for number in range(PROMPTS):
            for version in range(VERSIONS):
                await cue.prompts.save(f"prompt/{number}", {"body": f"Text {version} of {number}."})
        made = await cue.prompt_sync.bundle(project.folder / "team.bundle")
        texts = await stored(cue)
    assert len(texts) == PROMPTS * VERSIONS
    await asyncio.to_thread(project.run_until_killed, BUNDLE_PROCESS, failpoint, made.file, made.fingerprint)
    async with project.open() as cue:
        after = await stored(cue)
        assert after == (texts if happened else [])
        await cue.prompt_sync.unbundle(made.file, trust=made.fingerprint)
        assert await stored(cue) == texts
        assert (project.folder / "personas/guide.json").is_file()
        assert (await cue.audit.verify()).ok
        doubled = len(after) - len(set(after))
        record_fault("kill -9 in an import of a bundle", {"acknowledged": len(texts), "doubled": doubled})
    assert project.audit() == []
