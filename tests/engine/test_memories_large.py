"""A place of more memories than are read whole takes in what comes to it as a small one does."""

import pytest
from stage import cue_on, user

from cuebook.testing import FrozenClock

DAY = 86_400.0


@pytest.fixture
def clock():
    return FrozenClock()


async def appended(cue, clock, conversation, *texts):
    await cue.append(conversation, [user(text) for text in texts], user="ann")
    clock.advance(DAY)
    await cue.settle()


async def known(cue):
    return {each.text: each async for each in cue.memories.export(user="ann")}


async def test_a_large_place_marks_what_is_earlier_and_repeats_what_it_holds(tmp_path, clock):
    friends = [f"My friend {name}{n} likes cheese {n}." for n in range(200) for name in ("Anna", "Ben", "Cleo")]
    async with cue_on(tmp_path, clock=clock, memory__user=True) as cue:
        await appended(cue, clock, "c1", "My rent is 900 euros.")
        await appended(cue, clock, "c2", *friends)
        held = await known(cue)
        assert len(held) == len(friends) + 1
        await appended(cue, clock, "c3", "My rent is 950 euros now.", friends[5], friends[-1])
        held = await known(cue)
        assert held["My rent is 950 euros now."].supersedes == held["My rent is 900 euros."].id
        assert held["My rent is 900 euros."].ended_by == held["My rent is 950 euros now."].id
        assert [len(held[each].sources) for each in (friends[5], friends[-1], friends[7])] == [2, 2, 1]
        assert len(held) == len(friends) + 2
