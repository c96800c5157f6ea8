"""Tests of a forget while another process answers, compacts and remembers: no forgotten data is written back."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from project import Project

from cuebook import Cuebook, Posted
from cuebook.testing import ScriptedModel
from storage.databases import snapshot

STREAMING_PROCESS = Path(__file__).with_name("streaming_process.py")
CANARY = "Zanzibarquokka"


@pytest.mark.parametrize(("owner", "pause"), [("ann", 0.0), ("ann", 0.3), ("ann", 0.7), ("bob", 0.1), ("bob", 0.5)])
async def test_another_process_writes_no_forgotten_data_back(
    project: Project, owner: str, pause: float, record_fault: Callable[..., None]
) -> None:
    async with Cuebook.open(
        project.config(memory_user=True), model=ScriptedModel(default="Well."), worker=False
    ) as cue:
        posts = [Posted(sender="ann", message=f"I keep {n} quails in my garden in {CANARY}.") for n in range(30)]
        await cue.append("c", posts, user=owner)
        await cue.append("other", [Posted(sender="bob", message="I like tea.")], user="bob")
        other = await asyncio.create_subprocess_exec(
            *project.command(STREAMING_PROCESS, CANARY, owner), stdout=asyncio.subprocess.PIPE
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
        assert project.files_with(CANARY) == set()
        assert (await cue.memory.list(user="ann")).items == ()
    assert project.files_with(CANARY) == set()
    assert project.audit() == []
    with snapshot(project.database) as rows:
        assert rows("SELECT count(*) FROM receipt WHERE state = 'pending'") == [(0,)]
    record_fault("forget beside a writing process", {"acknowledged": 1})
