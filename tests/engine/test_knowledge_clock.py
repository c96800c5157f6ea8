"""Knowledge under a clock that stands still or is set back: each value before stays as history, of no negative time."""

from stage import cue_on

from cuebook.testing import FrozenClock


async def test_a_value_that_comes_back_at_the_same_moment_is_kept_each_time(tmp_path):
    async with cue_on(tmp_path) as cue:  # its clock stands still
        for value in "ABABAB":
            await cue.memories.put("domain", "flag", value, user="ann")
        known = (await cue.memories.page(user="ann", ended=True)).items
        assert sorted(each.text for each in known) == list("AAABBB")
        assert [each.text for each in known if each.valid_to is None] == ["B"]


async def test_a_clock_set_back_ends_nothing_before_it_began(tmp_path):
    clock = FrozenClock()
    async with cue_on(tmp_path, clock=clock) as cue:
        await cue.memories.put("domain", "rate", "100", user="ann")
        began = clock.now()
        clock.advance(-3600)
        await cue.memories.put("domain", "rate", "200", user="ann")
        past, held = sorted((await cue.memories.page(user="ann", ended=True)).items, key=lambda each: each.text)
        assert (past.text, past.valid_from, past.valid_to) == ("100", began, began)
        assert (held.text, held.valid_from, held.valid_to) == ("200", began, None)
