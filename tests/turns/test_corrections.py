"""A correction reaches every conversation that goes on: no new window of another one tells what was wrong."""

from stage import book_on

from cuebook import Ask
from cuebook.memory.recall import read_query
from cuebook.providers.clock_and_ids import SystemDice
from cuebook.testing import FrozenClock, ScriptedModel
from cuebook.testing.embedder import HashingEmbedder

WRONG = "Zanzibarquokka"


async def test_what_was_corrected_comes_in_no_new_window_of_another_conversation(tmp_path):
    clock = FrozenClock()
    settings = {"memory__user": True, "memory__persona": True}
    async with book_on(
        tmp_path, clock=clock, model=ScriptedModel(default="Noted."), dice=SystemDice(), embedder=HashingEmbedder(),
        **settings,
    ) as book:  # fmt: skip

        async def say(text, talk):
            reply = await book.ask(Ask(text, talk, user="ann"))
            clock.advance(60)
            await book.settle()
            return str(reply.window.messages)

        await say(f"I live in {WRONG}.", "c1")
        await book.memories.put("user_preference", "home", WRONG, user="ann")
        for talk in ("c2", "c3"):  # two that go on, and keep the durable memories they were told
            assert WRONG in await say("Where do I live?", talk)
        for each in (await book.memories.page(user="ann")).items:
            if WRONG in each.text:
                await book.memories.correct(each.id, each.text.replace(WRONG, "Bergen"), user="ann")
        for talk in ("c2", "c3", "c4"):
            for text in ("Where do I live?", "What is my home?", "Hello again"):
                said = await say(text, talk)
                assert WRONG not in said, (talk, text)
            assert "Bergen" in await say("Where do I live?", talk)
        hits = await book.memories.search(read_query("Where do I live?"), user="ann")
        assert hits
        assert not [each for each in hits if WRONG in each.text]
        assert WRONG not in str(await book.memories.knowledge(user="ann"))
        assert not [each async for each in book.memories.export(user="ann") if WRONG in each.text]
        replay = await book.turns.replay("c2", 1)
        assert replay.verdict == "identical", "the flight recorder keeps what the model was told then"
