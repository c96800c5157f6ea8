"""What is said to be over in a later conversation ends in what is known of the user, and stays there as history."""

import pytest
from stage import on, told

DAY = 86_400.0


async def held(book, *, ended=False):
    page = (await book.memories.page(user="ann", ended=ended)).items
    return [each.text for each in page if (each.valid_to is not None) is ended]


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        ("I work at Shell.", "I no longer work at Shell.", []),
        ("answer in French", "answer in English from now on", []),
        ("I live in Utrecht and I work as a nurse.", "I moved to Ghent.", ["I work as a nurse."]),
        ("My fiancée Zoë lives in Liège.", "Zoë moved to Köln.", ["My fiancée Zoë"]),
        ("I have a tin of red paint.", "I no longer have tins of red paint.", []),
    ],
)
async def test_what_another_conversation_says_is_over_ends(tmp_path, clock, old, new, left):
    async with on(tmp_path, clock) as book:
        await told(book, clock, old, "c1")
        clock.advance(DAY)
        await told(book, clock, new, "c2")
        assert sorted(await held(book)) == sorted([*left, new])
        assert await held(book, ended=True) == [old]
        [over] = [each for each in (await book.memories.page(user="ann", ended=True)).items if each.text == old]
        by = [each.id for each in (await book.memories.page(user="ann")).items if each.text == new]
        assert [over.ended_by] == by


async def test_what_is_said_to_be_over_first_ends_nothing_said_later(tmp_path, clock):
    async with on(tmp_path, clock) as book:
        await told(book, clock, "I no longer work at Shell.", "c1")
        clock.advance(DAY)
        await told(book, clock, "I work at Shell again.", "c2")
        assert await held(book) == ["I work at Shell again."]


@pytest.mark.parametrize(
    ("said", "asked", "found"),
    [
        (["I live in Utrecht.", "I moved to Ghent."], "Where do I live?", "I moved to Ghent."),
        (["I'm a nurse at St. Anna."], "What is my job?", "I'm a nurse at St. Anna."),
    ],
)
async def test_a_home_and_a_job_are_found_by_the_words_that_ask_for_them(tmp_path, clock, said, asked, found):
    async with on(tmp_path, clock) as book:
        for number, text in enumerate(said):
            await told(book, clock, text, f"c{number}")
        hits = await book.memory.search(asked, user="ann", scopes=["user"])
        assert [hit.text for hit in hits if hit.kind == "item"][:1] == [found]
        hits = await book.memory.search("Which paint is in the shed?", user="ann", scopes=["user"])
        assert [hit.text for hit in hits if hit.kind == "item"] == []
