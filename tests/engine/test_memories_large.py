"""Tests of owners with too many memories to load at once: they behave like small ones."""

import pytest
from turn_helpers import cue_on, user

from cuebook.testing import FrozenClock

DAY = 86_400.0


@pytest.fixture
def clock():
    return FrozenClock()


async def append_and_settle(cue, clock, conversation, *texts):
    await cue.append(conversation, [user(text) for text in texts], user="ann")
    clock.advance(DAY)
    await cue.settle()


async def memories_by_text(cue):
    return {each.text: each async for each in cue.memory.export(user="ann")}


@pytest.mark.slow
async def test_many_memories_still_supersede_and_deduplicate(tmp_path, clock):
    friends = [f"My friend {name}{n} likes cheese {n}." for n in range(200) for name in ("Anna", "Ben", "Cleo")]
    async with cue_on(tmp_path, clock=clock, memory__user=True) as cue:
        await append_and_settle(cue, clock, "c1", "My rent is 900 euros.")
        await append_and_settle(cue, clock, "c2", *friends)
        memories = await memories_by_text(cue)
        assert len(memories) == len(friends) + 1
        await append_and_settle(cue, clock, "c3", "My rent is 950 euros now.", friends[5], friends[-1])
        memories = await memories_by_text(cue)
        assert memories["My rent is 950 euros now."].supersedes == memories["My rent is 900 euros."].id
        assert memories["My rent is 900 euros."].superseded_by == memories["My rent is 950 euros now."].id
        assert [len(memories[each].sources) for each in (friends[5], friends[-1], friends[7])] == [2, 2, 1]
        assert len(memories) == len(friends) + 2
