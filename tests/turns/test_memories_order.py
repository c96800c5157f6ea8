"""What was said when decides what holds, in whatever order conversations are delivered."""

import itertools

import pytest
from stage import book_on, user

from cuebook.engine.deliver import deliver
from cuebook.records.memory import Scope
from cuebook.testing import FrozenClock

DAY = 86_400.0
HOMES = ("I live in Oslo.", "I moved to Berlin.", "I moved to Munich.")


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
async def test_a_home_after_a_home_after_a_home(tmp_path, clock, order):
    async with book_on(tmp_path, clock=clock, memory__user=True) as book:
        times = await said(book, clock, HOMES, order)
        oslo, berlin, munich = found = await held(book)
        assert [each.text for each in found] == list(HOMES)
        assert [each.valid_from for each in found] == times
        assert [each.valid_to for each in found] == [times[1], times[2], None]
        assert (berlin.supersedes, munich.supersedes) == (oslo.id, berlin.id)
        assert (oslo.ended_by, berlin.ended_by) == (berlin.id, munich.id)
        for when, name in zip(times, ("Oslo", "Berlin", "Munich"), strict=True):
            hits = await book.memory.search(name, user="ann", scopes=["user"], as_of=when + 60)
            assert [hit.text for hit in hits if hit.kind == "item"] == [each for each in HOMES if name in each]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_a_home_one_comes_back_to(tmp_path, clock, order):
    texts = ("I live in Berlin.", "I moved to Munich.", "I live in Berlin.")
    async with book_on(tmp_path, clock=clock, memory__user=True) as book:
        times = await said(book, clock, texts, order)
        *past, now = sorted(await held(book), key=lambda each: each.valid_to or clock.now())
        assert (now.text, now.valid_to) == (texts[2], None)
        [munich] = [each for each in past if each.text == texts[1]]
        assert (munich.valid_from, munich.valid_to) == (times[1], times[2])
        told = [len(each.sources) for each in await held(book) if each.text == texts[0]]
        assert sum(told) == 2, "what was known as a repeat before Munich came stays one memory"


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
        await book.append("c", [user(HOMES[0], timestamp=clock.now())], user="ann")
        await book.settle()
        clock.advance(-3600)
        await book.append("c", [user(HOMES[1], timestamp=clock.now())], user="ann")
        await book.settle()
        found = {each.text: each for each in await held(book)}
        assert found[HOMES[0]].ended_by == found[HOMES[1]].id
        assert found[HOMES[0]].valid_to >= found[HOMES[0]].valid_from
        clock.advance(30 * DAY)
        assert (await book.memories.decay()).gone == 0


async def test_what_is_delivered_anew_stays_as_it_was(tmp_path, clock):
    async with book_on(tmp_path, clock=clock, memory__user=True) as book:
        await said(book, clock, (*HOMES, "I am allergic to nuts."), range(4))
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
