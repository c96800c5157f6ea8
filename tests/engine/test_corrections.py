"""A correction reaches every conversation that goes on: no new window of another one tells what was wrong."""

from stage import cue_on

from cuebook import Ask
from cuebook.memory.recall import read_query
from cuebook.providers.clock_and_ids import SystemDice
from cuebook.testing import FrozenClock, ScriptedModel
from cuebook.testing.embedder import HashingEmbedder

WRONG = "Zanzibarquokka"


async def test_what_was_corrected_comes_in_no_new_window_of_another_conversation(tmp_path):
    clock = FrozenClock()
    settings = {"memory__user": True, "memory__persona": True}
    async with cue_on(
        tmp_path, clock=clock, model=ScriptedModel(default="Noted."), dice=SystemDice(), embedder=HashingEmbedder(),
        **settings,
    ) as cue:  # fmt: skip

        async def say(text, talk):
            reply = await cue.ask(Ask(text, talk, user="ann"))
            clock.advance(60)
            await cue.settle()
            return str(reply.window.messages)

        await say(f"I live in {WRONG}.", "c1")
        await cue.memories.put("user_preference", "home", WRONG, user="ann")
        for talk in ("c2", "c3"):  # two that go on, and keep the durable memories they were told
            assert WRONG in await say("Where do I live?", talk)
        for each in (await cue.memories.page(user="ann")).items:
            if WRONG in each.text:
                await cue.memories.correct(each.id, each.text.replace(WRONG, "Bergen"), user="ann")
        for talk in ("c2", "c3", "c4"):
            for text in ("Where do I live?", "What is my home?", "Hello again"):
                said = await say(text, talk)
                assert WRONG not in said, (talk, text)
            assert "Bergen" in await say("Where do I live?", talk)
        hits = await cue.memories.search(read_query("Where do I live?"), user="ann")
        assert hits
        assert not [each for each in hits if WRONG in each.text]
        assert WRONG not in str(await cue.memories.knowledge(user="ann"))
        assert not [each async for each in cue.memories.export(user="ann") if WRONG in each.text]
        replay = await cue.turns.replay("c2", 1)
        assert replay.verdict == "identical", "the flight recorder keeps what the model was told then"
