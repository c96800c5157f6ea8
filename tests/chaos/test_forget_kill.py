"""Tests of a forget killed by SIGKILL at each step: it did not happen, or it completes after the restart."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from project import Project

from cuebook import Ask, Posted
from cuebook.testing import ScriptedModel
from storage.history import losses

FORGET_PROCESS = Path(__file__).with_name("forget_process.py")
CANARY = "Zanzibarquokka"
MODEL = ScriptedModel(default=f"{CANARY}!")

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


async def store_canary(project: Project) -> None:
    """Store the canary in a database with a managed persona prompt, so that the audit and its mirror contain it."""
    (project.folder / "personas").mkdir()
    (project.folder / "personas" / "guide.json").write_text(
        '{"id": "guide", "name": "Gil", "prompts": {"persona": "persona/guide"}}'
    )
    async with project.open(model=MODEL) as cue:
        await cue.prompts.save("persona/guide", {"body": "You are a guide."})
        posts = [Posted(sender="ann", message=f"I keep {n} boats in {CANARY}.") for n in range(30)]
        await cue.append("c", posts, user="ann")
        await cue.append("other", [Posted(sender="bob", message="I like tea.")], user="bob")
        await cue.ask(Ask(f"How many boats in {CANARY}?", "c", user="ann", persona="guide"))
        await cue.settle()


@pytest.mark.parametrize(("failpoint", "happened"), FAILPOINTS)
async def test_a_killed_forget_is_complete_after_the_restart(
    project: Project, failpoint: str, record_fault: Callable[..., None], *, happened: bool
) -> None:
    await store_canary(project)
    async with project.open() as cue:
        bobs = await cue.conversations.posts("other")
    before = project.files_with(CANARY)
    assert {"database", "logs/prompts_audit.jsonl"} <= before
    await asyncio.to_thread(project.run_until_killed, FORGET_PROCESS, failpoint, "user", "ann")
    async with project.open(model=MODEL) as cue:
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
        assert project.files_with(CANARY) == set()
        assert {each.id for each in (await cue.conversations.list()).items} == {"other"}
        assert (await cue.audit.verify()).ok
        assert (await cue.audit.verify()).erased > 0
        posts = await cue.conversations.posts("other")
        counts = Counter(acknowledged=1 + happened) + losses(posts, [each.id for each in bobs])
        record_fault("kill -9 in a forget", counts)
    assert project.files_with(CANARY) == set()
    assert project.audit() == []
