"""Tests of corrections across conversations: no new window contains the corrected error."""

from turn_helpers import cue_on

from cuebook import Ask
from cuebook.providers.clock_and_ids import SystemDice
from cuebook.testing import FrozenClock, ScriptedModel
from hashing_embedder import HashingEmbedder

WRONG = "Zanzibarquokka"


async def test_a_corrected_fact_appears_in_no_other_conversations_window(tmp_path):
    clock = FrozenClock()
    settings = {"memory__user": True, "memory__persona": True}
    async with cue_on(
        tmp_path, clock=clock, model=ScriptedModel(default="Noted."), dice=SystemDice(), embedder=HashingEmbedder(),
        **settings,
    ) as cue:  # fmt: skip

        async def say(text, conversation):
            reply = await cue.ask(Ask(text, conversation, user="ann"))
            clock.advance(60)
            await cue.settle()
            return str(reply.window.raw_messages)

        await say(f"I live in {WRONG}.", "c1")
        await cue.memory.put_knowledge("user_preference", "home", WRONG, user="ann")
        for conversation in ("c2", "c3"):  # two conversations continue and keep the durable memories in their prompts
            assert WRONG in await say("Where do I live?", conversation)
        for each in (await cue.memory.list(user="ann")).items:
            if WRONG in each.text:
                await cue.memory.update(each.id, each.text.replace(WRONG, "Bergen"), erase=True, user="ann")
        for conversation in ("c2", "c3", "c4"):
            for text in ("Where do I live?", "What is my home?", "Hello again"):
                prompt = await say(text, conversation)
                assert WRONG not in prompt, (conversation, text)
            assert "Bergen" in await say("Where do I live?", conversation)
        hits = await cue.memory.search("Where do I live?", user="ann", limit=200)
        hits = [each for each in hits if each.kind == "item"]
        assert hits
        assert not [each for each in hits if WRONG in each.text]
        assert WRONG not in str(await cue.memory.list_knowledge(user="ann"))
        assert not [each async for each in cue.memory.export(user="ann") if WRONG in each.text]
        replay = await cue.turns.replay("c2", 1)
        assert replay.verdict == "identical", "the turn record keeps the original prompt"
