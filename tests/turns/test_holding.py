"""A book without a model quotes what it recalled, and what holds now before what was said of it earlier."""

import pytest
from stage import NAME

from cuebook import Ask, Cuebook


async def told(book: Cuebook, *said: str) -> None:
    for each in said:
        await book.ask(Ask(each, NAME, user="ann"))


async def quoted(book: Cuebook, question: str) -> list[str]:
    reply = await book.ask(Ask(question, NAME, user="ann"))
    return [line.split("ann: ")[1].rpartition(" (")[0] for line in reply.text.splitlines() if "ann: " in line]


@pytest.mark.parametrize("settled", [False, True])
async def test_what_holds_now_stands_before_what_it_ended(settled):
    async with Cuebook.open(worker=False) as book:
        await told(book, "Hi, I live in Oslo.", "My cat is called Miso.", "I moved to Bergen last week.", "Fine.")
        if settled:
            await told(book, *(f"The {n}th rain today." for n in range(4, 14)))
            await book.settle()
            assert (await book.memory.summary(NAME, user="ann")) is not None
        found = await quoted(book, "Where do I live?")
        assert found[:2] == ["I moved to Bergen last week.", "Hi, I live in Oslo."]
        # As often as it changed, the newest is what holds; and what never changed stands as it was said.
        await told(book, "I moved to Voss yesterday.")
        again = await quoted(book, "Where do I live now?")
        assert again.index("I moved to Voss yesterday.") < again.index("Hi, I live in Oslo.")
        assert (await quoted(book, "What is my cat called?"))[0] == "My cat is called Miso."


async def test_a_question_asked_before_answers_nothing():
    async with Cuebook.open(worker=False) as book:
        await told(book, "My cat is called Miso.", "What is my cat called?")
        assert await quoted(book, "What is my cat called?") == ["My cat is called Miso."]
