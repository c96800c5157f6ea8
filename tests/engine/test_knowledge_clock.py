"""Tests of knowledge history when the clock stops or is set back."""

from turn_helpers import cue_on

from cuebook.testing import FrozenClock


async def test_a_value_repeated_at_the_same_moment_is_kept_each_time(tmp_path):
    async with cue_on(tmp_path) as cue:  # the clock does not move
        for value in "ABABAB":
            await cue.memory.put_knowledge("domain", "flag", value, user="ann")
        memories = (await cue.memory.list(user="ann", ended=True)).items
        assert sorted(each.text for each in memories) == list("AAABBB")
        assert [each.text for each in memories if each.valid_to is None] == ["B"]


async def test_a_clock_set_back_gives_no_negative_validity(tmp_path):
    clock = FrozenClock()
    async with cue_on(tmp_path, clock=clock) as cue:
        await cue.memory.put_knowledge("domain", "rate", "100", user="ann")
        began = clock.now()
        clock.advance(-3600)
        await cue.memory.put_knowledge("domain", "rate", "200", user="ann")
        past, current = sorted((await cue.memory.list(user="ann", ended=True)).items, key=lambda each: each.text)
        assert (past.text, past.valid_from, past.valid_to) == ("100", began, began)
        assert (current.text, current.valid_from, current.valid_to) == ("200", began, None)
