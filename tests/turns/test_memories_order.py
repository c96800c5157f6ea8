"""What was said when decides what holds, in whatever order conversations are delivered."""

import itertools

import pytest
from stage import book_on, user

from cuebook.app.memories.json_shapes import memory
from cuebook.engine.jobs.delivery import deliver
from cuebook.records.memory import Scope
from cuebook.testing import FrozenClock

DAY = 86_400.0
EXAMS = ("My exam is on 4 March.", "My exam moved to 9 March.", "My exam is on 12 March.")


@pytest.fixture
def clock():
    return FrozenClock()


async def said(book, clock, texts, order, *, same=False):
    """Say one text a day, each in a conversation of its own, and deliver them in an order; gives their times."""
    times = []
    for n, text in enumerate(texts):
        times.append(clock.now())
        await book.append("c" if same else f"c{n}", [user(text, timestamp=clock.now())], user="ann")
        clock.advance(DAY)
    for n in order:
        await deliver(book.desk, Scope(), f"c{n}")
    return times


async def held(book):
    return sorted([each async for each in book.memories.export(user="ann")], key=lambda each: each.valid_from)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_a_date_after_a_date_after_a_date(tmp_path, clock, order):
    async with book_on(tmp_path, clock=clock, memory__user=True) as book:
        times = await said(book, clock, EXAMS, order)
        first, second, third = found = await held(book)
        assert [each.text for each in found] == list(EXAMS)
        assert [each.valid_from for each in found] == times
        assert [each.valid_to for each in found] == [None] * 3
        assert (second.supersedes, third.supersedes) == (first.id, second.id)
        assert (first.ended_by, second.ended_by, third.ended_by) == (second.id, third.id, None)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_a_repeat_is_one_memory_since_it_was_said_first(tmp_path, clock, order):
    texts = ("I am allergic to nuts.", "I work as a baker.", "I am allergic to nuts.")
    async with book_on(tmp_path, clock=clock, memory__user=True) as book:
        times = await said(book, clock, texts, order)
        nuts, baker = await held(book)
        assert (nuts.text, nuts.valid_from, nuts.valid_to, len(nuts.sources)) == (texts[0], times[0], None, 2)
        assert nuts.confidence == pytest.approx(0.6)
        assert (baker.text, baker.valid_to) == (texts[1], None)


async def test_a_clock_set_back_changes_no_order_within_a_conversation(tmp_path, clock):
    async with book_on(tmp_path, clock=clock, memory__user=True) as book:
        await book.append("c", [user(EXAMS[0], timestamp=clock.now())], user="ann")
        await book.settle()
        clock.advance(-3600)
        await book.append("c", [user(EXAMS[1], timestamp=clock.now())], user="ann")
        await book.settle()
        found = {each.text: each for each in await held(book)}
        assert found[EXAMS[0]].ended_by == found[EXAMS[1]].id
        assert found[EXAMS[0]].valid_to is None
        clock.advance(30 * DAY)
        assert (await book.memories.decay()).gone == 0


async def test_what_is_delivered_anew_stays_as_it_was(tmp_path, clock):
    async with book_on(tmp_path, clock=clock, memory__user=True) as book:
        await said(book, clock, (*EXAMS, "I am allergic to nuts."), range(4))
        before = await held(book)
        for n in (2, 0, 3, 1):
            await book.desk.store._write(  # noqa: SLF001  # as a forget of what they say too leaves them
                lambda c, n=n: c.execute(
                    "UPDATE delivery SET seq = 0, version = -1, due = 1"
                    " WHERE conversation = (SELECT no FROM conversation WHERE id = ?)",
                    (f"c{n}",),
                )
            )
            await deliver(book.desk, Scope(), f"c{n}")
        assert await held(book) == before


async def test_an_earlier_quote_is_found_behind_the_newer_one_and_never_alone(tmp_path, clock):
    async with book_on(tmp_path, clock=clock, memory__user=True) as book:
        await said(book, clock, EXAMS, range(3))
        hits = await book.memory.search("When is my exam in March?", user="ann", scopes=["user"])
        assert next(hit.text for hit in hits if hit.kind == "item") == EXAMS[2]
        found = [hit.text for hit in await book.memory.search("4 March", user="ann", scopes=["user"])]
        assert found.index(EXAMS[2]) < found.index(EXAMS[0])
        shown = {each["text"]: each["supersededBy"] for each in await current(book)}
        assert (shown[EXAMS[0]] is not None, shown[EXAMS[2]]) == (True, None)


async def current(book):
    return [memory(each) for each in (await book.memories.page(user="ann")).items]
