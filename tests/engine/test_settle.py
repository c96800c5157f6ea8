"""Tests of settle: it completes conversations, prompt judgements, the audit mirror and checkpoints."""

import asyncio
from pathlib import Path

import pytest
from turn_helpers import cue_on

from cuebook.testing import FrozenClock

MIRROR = "logs/prompts_audit.jsonl"


async def test_after_settling_nothing_is_due_and_the_mirror_is_complete(tmp_path: Path) -> None:
    clock = FrozenClock()
    async with cue_on(tmp_path, clock=clock, prompts__rollback="sigma") as cue:
        await cue.prompts.save("a", {"body": "x"})
        await cue.prompts.observe("a", sentiment=1.0)
        clock.advance(100.0)
        assert await cue.settle(timeout=0) == {"rollback": 1, "audit": 2}
        assert await cue.settle() == {}
        assert len((tmp_path / MIRROR).read_text().splitlines()) == 2
        assert (await cue.audit.verify_mirror(tmp_path / MIRROR)).ok
        await cue.prompts.observe("a", sentiment=1.0)
        clock.advance(100.0)
        assert await cue.settle() == {}
        assert [each.size for each in await cue.audit.checkpoints()] == [3]


async def test_an_unwritable_mirror_is_named(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    async with cue_on(tmp_path) as cue:
        await cue.prompts.save("a", {"body": "x"})
        assert await cue.settle() == {"audit": 1}
        (tmp_path / "logs").unlink()
        assert await cue.settle() == {}
        assert len((tmp_path / MIRROR).read_text().splitlines()) == 1


@pytest.mark.slow
async def test_an_interrupted_settle_mirrors_no_record_twice(tmp_path: Path) -> None:
    async with cue_on(tmp_path) as cue:
        for n in range(200):
            await cue.prompts.save("a", {"body": f"text {n}"})
        for n in range(20):
            settling = asyncio.create_task(cue.settle())
            await asyncio.sleep(n / 2000)
            settling.cancel()
            await asyncio.wait((settling,))
        assert await cue.settle() == {}
    assert len((tmp_path / MIRROR).read_text().splitlines()) == 200
