"""Tests of a forget killed by SIGKILL at each step: it did not happen, or it completes after the restart."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from cuebook import Ask, Cuebook, Posted
from cuebook.config import build
from cuebook.testing import ScriptedModel

FORGET_PROCESS = Path(__file__).with_name("forget_process.py")
CANARY = "Zanzibarquokka"

#: Each failpoint, and whether the forget is durable by then.
FAILPOINTS = [
    ("forget.begin:kill", False),
    ("forget.stored:kill", False),
    ("commit.before:kill", False),
    ("commit.after:kill", True),
    ("forget.mirror:kill", True),
    ("forget.log:kill", True),
    ("commit.before:kill@2", True),
    ("commit.after:kill@2", True),
    ("forget.signed:kill", True),
]


def files_with_canary(folder: Path) -> set[str]:
    needle = CANARY.lower().encode()
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)) for file in files if needle in file.read_bytes().lower()}


def open_database(folder: Path, **options: object) -> Cuebook:
    config = build(arguments={"store.url": "cuebook.db"}, folder=str(folder))
    return Cuebook.open(config, model=ScriptedModel(default=f"{CANARY}!"), worker=False, **options)  # type: ignore[arg-type]


async def store_canary(folder: Path) -> None:
    """Store the canary in a database with a managed persona prompt, so that the audit and its mirror contain it."""
    (folder / "personas").mkdir()
    (folder / "personas" / "guide.json").write_text(
        '{"id": "guide", "name": "Gil", "prompts": {"persona": "persona/guide"}}'
    )
    async with open_database(folder) as cue:
        await cue.prompts.save("persona/guide", {"body": "You are a guide."})
        posts = [Posted(sender="ann", message=f"I keep {n} boats in {CANARY}.") for n in range(30)]
        await cue.append("c", posts, user="ann")
        await cue.append("other", [Posted(sender="bob", message="I like tea.")], user="bob")
        await cue.ask(Ask(f"How many boats in {CANARY}?", "c", user="ann", persona="guide"))
        await cue.settle()


def run_forget(folder: Path, failpoint: str, what: str = "user", name: str = "ann") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(FORGET_PROCESS), str(folder), what, name],
        env={**os.environ, "CUEBOOK_FAILPOINT": failpoint},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(("failpoint", "happened"), FAILPOINTS)
async def test_a_killed_forget_is_complete_after_the_restart(tmp_path: Path, failpoint: str, *, happened: bool) -> None:
    await store_canary(tmp_path)
    before = files_with_canary(tmp_path)
    assert {"cuebook.db", "logs/prompts_audit.jsonl"} <= before
    assert (await asyncio.to_thread(run_forget, tmp_path, failpoint)).returncode == -9
    async with open_database(tmp_path) as cue:
        await cue.settle()
        names = {each.id for each in (await cue.conversations.list()).items}
        receipts = await cue.memory.receipts()
        assert (await cue.audit.verify()).ok
        if not happened:
            assert names == {"c", "other"}
            assert receipts == []
            assert len(await cue.conversations.posts("c")) == 32
            receipts = [await cue.memory.forget(user="ann")]
        assert [each.state for each in receipts] == ["done"]
        assert cue.memory.verify_receipt(receipts[0], name="ann").ok
        assert files_with_canary(tmp_path) == set()
        assert {each.id for each in (await cue.conversations.list()).items} == {"other"}
        assert (await cue.audit.verify()).ok
        assert (await cue.audit.verify()).erased > 0
    assert files_with_canary(tmp_path) == set()
    with closing(sqlite3.connect(tmp_path / "cuebook.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
