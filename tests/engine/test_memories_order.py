"""What was said when decides what holds, in whatever order conversations are delivered."""

import itertools

import pytest
from stage import cue_on, user

from cuebook.app.memories.json_shapes import memory
from cuebook.engine.jobs.delivery import deliver
from cuebook.records.memory import Scope
from cuebook.testing import FrozenClock

DAY = 86_400.0
EXAMS = ("My exam is on 4 March.", "My exam moved to 9 March.", "My exam is on 12 March.")


@pytest.fixture
def clock():
    return FrozenClock()


async def said(cue, clock, texts, order, *, same=False):
    """Say one text a day, each in a conversation of its own, and deliver them in an order; gives their times."""
    times = []
    for n, text in enumerate(texts):
        times.append(clock.now())
        await cue.append("c" if same else f"c{n}", [user(text, timestamp=clock.now())], user="ann")
        clock.advance(DAY)
    for n in order:
        await deliver(cue.desk, Scope(), f"c{n}")
    return times


async def held(cue):
    return sorted([each async for each in cue.memories.export(user="ann")], key=lambda each: each.valid_from)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_a_date_after_a_date_after_a_date(tmp_path, clock, order):
    async with cue_on(tmp_path, clock=clock, memory__user=True) as cue:
        times = await said(cue, clock, EXAMS, order)
        first, second, third = found = await held(cue)
        assert [each.text for each in found] == list(EXAMS)
        assert [each.valid_from for each in found] == times
        assert [each.valid_to for each in found] == [None] * 3
        assert (second.supersedes, third.supersedes) == (first.id, second.id)
        assert (first.ended_by, second.ended_by, third.ended_by) == (second.id, third.id, None)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_a_repeat_is_one_memory_since_it_was_said_first(tmp_path, clock, order):
    texts = ("I am allergic to nuts.", "I work as a baker.", "I am allergic to nuts.")
    async with cue_on(tmp_path, clock=clock, memory__user=True) as cue:
        times = await said(cue, clock, texts, order)
        nuts, baker = await held(cue)
        assert (nuts.text, nuts.valid_from, nuts.valid_to, len(nuts.sources)) == (texts[0], times[0], None, 2)
        assert nuts.confidence == pytest.approx(0.6)
        assert (baker.text, baker.valid_to) == (texts[1], None)


async def test_a_clock_set_back_changes_no_order_within_a_conversation(tmp_path, clock):
    async with cue_on(tmp_path, clock=clock, memory__user=True) as cue:
        await cue.append("c", [user(EXAMS[0], timestamp=clock.now())], user="ann")
        await cue.settle()
        clock.advance(-3600)
        await cue.append("c", [user(EXAMS[1], timestamp=clock.now())], user="ann")
        await cue.settle()
        found = {each.text: each for each in await held(cue)}
        assert found[EXAMS[0]].ended_by == found[EXAMS[1]].id
        assert found[EXAMS[0]].valid_to is None
        clock.advance(30 * DAY)
        assert (await cue.memories.decay()).gone == 0


async def test_what_is_delivered_anew_stays_as_it_was(tmp_path, clock):
    async with cue_on(tmp_path, clock=clock, memory__user=True) as cue:
        await said(cue, clock, (*EXAMS, "I am allergic to nuts."), range(4))
        before = await held(cue)
        for n in (2, 0, 3, 1):
            await cue.desk.store._write(  # noqa: SLF001  # as a forget of what they say too leaves them
                lambda c, n=n: c.execute(
                    "UPDATE delivery SET seq = 0, version = -1, due = 1"
                    " WHERE conversation = (SELECT no FROM conversation WHERE id = ?)",
                    (f"c{n}",),
                )
            )
            await deliver(cue.desk, Scope(), f"c{n}")
        assert await held(cue) == before


async def test_an_earlier_quote_is_found_behind_the_newer_one_and_never_alone(tmp_path, clock):
    async with cue_on(tmp_path, clock=clock, memory__user=True) as cue:
        await said(cue, clock, EXAMS, range(3))
        hits = await cue.memory.search("When is my exam in March?", user="ann", scopes=["user"])
        assert next(hit.text for hit in hits if hit.kind == "item") == EXAMS[2]
        found = [hit.text for hit in await cue.memory.search("4 March", user="ann", scopes=["user"])]
        assert found.index(EXAMS[2]) < found.index(EXAMS[0])
        shown = {each["text"]: each["supersededBy"] for each in await current(cue)}
        assert (shown[EXAMS[0]] is not None, shown[EXAMS[2]]) == (True, None)


async def current(cue):
    return [memory(each) for each in (await cue.memories.page(user="ann")).items]
