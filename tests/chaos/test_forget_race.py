"""Tests of a forget while another process answers, compacts and remembers: no forgotten data is written back."""

import asyncio
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from cuebook import Cuebook, Posted
from cuebook.config import build
from cuebook.testing import ScriptedModel
from storage.audit import audit

STREAMING_PROCESS = Path(__file__).with_name("streaming_process.py")
CANARY = "Zanzibarquokka"


def files_with_canary(folder: Path) -> set[str]:
    needle = CANARY.lower().encode()
    return {file.name for file in folder.rglob("*") if file.is_file() and needle in file.read_bytes().lower()}


@pytest.mark.parametrize(("owner", "pause"), [("ann", 0.0), ("ann", 0.3), ("ann", 0.7), ("bob", 0.1), ("bob", 0.5)])
async def test_another_process_writes_no_forgotten_data_back(tmp_path: Path, owner: str, pause: float) -> None:
    arguments = {"store.url": "cuebook.db", "memory.user": True}
    config = build(arguments=arguments, folder=str(tmp_path))
    async with Cuebook.open(config, model=ScriptedModel(default="Well."), worker=False) as cue:
        posts = [Posted(sender="ann", message=f"I keep {n} quails in my garden in {CANARY}.") for n in range(30)]
        await cue.append("c", posts, user=owner)
        await cue.append("other", [Posted(sender="bob", message="I like tea.")], user="bob")
        other = await asyncio.create_subprocess_exec(
            sys.executable, str(STREAMING_PROCESS), str(tmp_path), CANARY, owner, stdout=asyncio.subprocess.PIPE
        )
        while not (await other.stdout.readline()).startswith(b"speaks"):
            pass
        await asyncio.sleep(pause)
        receipt = await cue.memory.forget(user="ann")
        out, _ = await other.communicate()
        assert b"LeaseLost" in out
        assert other.returncode == 0
        await cue.settle()
        assert (await cue.memory.receipt(receipt.id)).state == "done"
        names = {each.id for each in (await cue.conversations.list()).items}
        assert names == ({"other"} if owner == "ann" else {"c", "other"})
        assert files_with_canary(tmp_path) == set()
        assert (await cue.memory.list(user="ann")).items == ()
    assert files_with_canary(tmp_path) == set()
    assert audit(str(tmp_path / "cuebook.db"), integrity=True) == []
    with closing(sqlite3.connect(tmp_path / "cuebook.db")) as connection:
        assert connection.execute("SELECT count(*) FROM receipt WHERE state = 'pending'").fetchone() == (0,)
