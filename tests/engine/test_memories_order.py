"""Tests of delivery order: the time of a statement decides which memory is current."""

import itertools

import pytest
from turn_helpers import cue_on, user

from cuebook.engine.jobs.delivery import deliver
from cuebook.records.memory import Scope
from cuebook.testing import FrozenClock

DAY = 86_400.0
EXAMS = ("My exam is on 4 March.", "My exam moved to 9 March.", "My exam is on 12 March.")


@pytest.fixture
def clock():
    return FrozenClock()


async def deliver_in_order(cue, clock, texts, order, *, same=False):
    """Store one text a day in separate conversations and deliver them in an order. Return their times."""
    times = []
    for n, text in enumerate(texts):
        times.append(clock.now())
        await cue.append("c" if same else f"c{n}", [user(text, timestamp=clock.now())], user="ann")
        clock.advance(DAY)
    for n in order:
        await deliver(cue.services, Scope(), f"c{n}")
    return times


async def memories_by_time(cue):
    return sorted([each async for each in cue.memory.export(user="ann")], key=lambda each: each.valid_from)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_the_latest_of_three_dates_is_current(tmp_path, clock, order):
    async with cue_on(tmp_path, clock=clock, memory__user=True) as cue:
        times = await deliver_in_order(cue, clock, EXAMS, order)
        first, second, third = memories = await memories_by_time(cue)
        assert [each.text for each in memories] == list(EXAMS)
        assert [each.valid_from for each in memories] == times
        assert [each.valid_to for each in memories] == [None] * 3
        assert (second.supersedes, third.supersedes) == (first.id, second.id)
        assert (first.superseded_by, second.superseded_by, third.superseded_by) == (second.id, third.id, None)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_a_repeated_statement_is_one_memory_since_its_first_time(tmp_path, clock, order):
    texts = ("I am allergic to nuts.", "I work as a baker.", "I am allergic to nuts.")
    async with cue_on(tmp_path, clock=clock, memory__user=True) as cue:
        times = await deliver_in_order(cue, clock, texts, order)
        nuts, baker = await memories_by_time(cue)
        assert (nuts.text, nuts.valid_from, nuts.valid_to, len(nuts.sources)) == (texts[0], times[0], None, 2)
        assert nuts.confidence == pytest.approx(0.6)
        assert (baker.text, baker.valid_to) == (texts[1], None)


async def test_a_clock_set_back_keeps_the_order_within_a_conversation(tmp_path, clock):
    async with cue_on(tmp_path, clock=clock, memory__user=True) as cue:
        await cue.append("c", [user(EXAMS[0], timestamp=clock.now())], user="ann")
        await cue.settle()
        clock.advance(-3600)
        await cue.append("c", [user(EXAMS[1], timestamp=clock.now())], user="ann")
        await cue.settle()
        memories = {each.text: each for each in await memories_by_time(cue)}
        assert memories[EXAMS[0]].superseded_by == memories[EXAMS[1]].id
        assert memories[EXAMS[0]].valid_to is None
        clock.advance(30 * DAY)
        assert (await cue.memory.decay_knowledge()).gone == 0


async def test_delivering_again_changes_nothing(tmp_path, clock):
    async with cue_on(tmp_path, clock=clock, memory__user=True) as cue:
        await deliver_in_order(cue, clock, (*EXAMS, "I am allergic to nuts."), range(4))
        before = await memories_by_time(cue)
        for n in (2, 0, 3, 1):
            values = {
                "tenant": "default",
                "no": (await cue.services.store.conversation(Scope(), f"c{n}")).no,
                "epoch": 1,
            }
            # as a forget of what they say too leaves them
            await cue.services.store.database.write(
                lambda each, values=values: each.run("delivery_anew", **values).rowcount
            )
            await deliver(cue.services, Scope(), f"c{n}")
        assert await memories_by_time(cue) == before


async def test_an_earlier_quote_is_recalled_only_behind_the_newer_one(tmp_path, clock):
    async with cue_on(tmp_path, clock=clock, memory__user=True) as cue:
        await deliver_in_order(cue, clock, EXAMS, range(3))
        hits = await cue.memory.search("When is my exam in March?", user="ann", scopes=["user"])
        assert next(hit.text for hit in hits if hit.kind == "item") == EXAMS[2]
        hits = await cue.memory.search("4 March", user="ann", scopes=["user"])
        texts = [hit.text for hit in hits if hit.kind == "item"]
        assert texts.index(EXAMS[2]) < texts.index(EXAMS[0])
        superseded_by = {each.text: each.superseded_by for each in await cue.memory.list(user="ann")}
        assert (superseded_by[EXAMS[0]] is not None, superseded_by[EXAMS[2]]) == (True, None)


async def test_the_newest_version_is_first_among_posts_and_memories(tmp_path, clock):
    said = (
        "From now on, end all method names with '_x'.",
        "The parser works. Going forward, end method names with '_o', please, and tell the others.",
        "Well done. One more thing about our code: I want you to start ending your method names with '_p' from today.",
    )
    async with cue_on(tmp_path, clock=clock, memory__user=True) as cue:
        for n, text in enumerate(said):
            await cue.append("c", [user(text, id=f"p{n}")], user="ann")
            clock.advance(DAY)
        await cue.settle()
        hits = await cue.memory.search("end method names", user="ann", conversation="c")
        assert {"item", "post"} <= {hit.kind for hit in hits}
        order = list(dict.fromkeys(source for hit in hits for source in hit.sources))
        assert order == ["p2", "p1", "p0"]
