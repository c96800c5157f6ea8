"""Tests of repeated and concurrent delivery of memories: no correction or erasure is undone."""

import re
import sqlite3
from contextlib import closing

import pytest
from msgspec.structs import replace
from turn_helpers import ask_and_settle, open_with_memory

from cuebook import Ask
from cuebook.app.memories.search import Memories
from cuebook.errors import NotFound

DAY = 86_400.0


async def texts(cue, *, ended=False, **owner):
    page = await cue.memory.list(ended=ended, limit=1000, **(owner or {"user": "ann"}))
    return [each.text for each in page.items]


async def compact_conversation(cue, clock, conversation):
    """Add enough posts that a pass reads the conversation from its beginning."""
    messages = [{"role": "user", "content": f"Locker number {n} is in corridor {n * 3}."} for n in range(40)]
    await cue.append(conversation, messages, user="ann")
    clock.advance(7200)
    await cue.settle()
    assert await cue.conversations.summary(conversation, user="ann") is not None


async def test_a_pass_does_not_restore_corrected_text(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "I am allergic to nuts.", "c1")
        [memory] = (await cue.memory.list(user="ann")).items
        await cue.memory.update(memory.id, "I am allergic to hazelnuts.", erase=True, user="ann")
        await compact_conversation(cue, clock, "c1")
        matches = [each for each in await texts(cue, ended=True) if "allergic" in each]
        assert matches == ["I am allergic to hazelnuts."]
        await ask_and_settle(cue, clock, "I am allergic to nuts.", "c2")
        assert "I am allergic to nuts." in await texts(cue), "a repeated statement counts"


@pytest.mark.slow
async def test_a_pass_does_not_restore_corrected_text_among_many_memories(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "I am allergic to nuts.", "c1")
        [memory] = (await cue.memory.list(user="ann")).items
        await cue.memory.update(memory.id, "Nothing grows in Ruritania.", erase=True, user="ann")
        for n in range(510):
            await cue.memory.put_knowledge("domain", f"k{n}", f"allergic v{n}", user="ann")
        await compact_conversation(cue, clock, "c1")
        assert "I am allergic to nuts." not in await texts(cue, ended=True)


async def test_a_correction_to_a_known_fact_merges_the_memories(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "I live in Oslo.", "c1")
        await ask_and_settle(cue, clock, "I have been a baker in Oslo for nine years.", "c2")
        first, second = (await cue.memory.list(user="ann")).items
        fixed = await cue.memory.update(second.id, first.text, user="ann")
        [memory] = (await cue.memory.list(user="ann")).items
        assert (memory.id, memory.text) == (fixed.id, first.text)
        assert {each.conversation_id for each in memory.sources} == {"c1", "c2"}


async def test_a_pass_delivers_others_words_to_nobody(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "Hello all.", "group")
        await cue.conversations.participants("group", ["ann", "bob"])
        await cue.ask(Ask("I am allergic to nuts.", "group", user="bob"))
        clock.advance(60)
        await cue.settle()
        for n in range(4):
            await ask_and_settle(cue, clock, f"Tell me something, number {n}.", "group")
        assert await texts(cue) == []
        await compact_conversation(cue, clock, "group")
        assert not [each for each in await texts(cue) if "allergic" in each]


async def test_an_organization_gets_only_the_turns_that_name_it(tmp_path, clock):
    async with open_with_memory(tmp_path, clock, memory__user=False) as cue:
        shares = {"longTermMemory": {"scopes": {"organization": True}, "shareWithOrganization": True}}
        about = {"organization": "acme", "memory_control": shares}
        await ask_and_settle(cue, clock, "We decided to sell the company.", "c1")
        await ask_and_settle(cue, clock, "We decided to ship on Monday.", "c1", **about)
        assert await texts(cue, organization="acme") == ["We decided to ship on Monday."]


async def test_posts_stored_while_memory_was_off_are_not_delivered_later(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        off, back = ({"longTermMemory": {"enabled": open_with_memory}} for open_with_memory in (False, True))
        await ask_and_settle(cue, clock, "I am allergic to nuts.", "c1", memory_control=off)
        await ask_and_settle(cue, clock, "I live in Oslo.", "c1", memory_control=back)
        assert await texts(cue) == ["I live in Oslo."]
        await compact_conversation(cue, clock, "c1")
        assert not [each for each in await texts(cue) if "allergic" in each]


async def test_a_superseded_fact_is_current_if_repeated_elsewhere_later(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "I live in Berlin.", "c1")
        await ask_and_settle(cue, clock, "I moved to Munich, I live in Munich now.", "c1")
        clock.advance(DAY)
        await ask_and_settle(cue, clock, "I moved back, I live in Berlin.", "c2")
        await ask_and_settle(cue, clock, "I live in Berlin.", "c3")
        before = await texts(cue)
        await compact_conversation(cue, clock, "c1")
        now = [each for each in await texts(cue) if "Locker" not in each]
        assert now == before


class HookedMemories:
    """Wrap a store and run a callback just before or after a place is loaded."""

    def __init__(self, inner, callback, after):
        self._inner, self._then, self._after = inner, callback, after

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def place(self, *args, **kwargs):
        callback, self._then = self._then, None
        result = await self._inner.place(*args, **kwargs) if self._after else None
        if callback is not None:
            await callback()
        return result or await self._inner.place(*args, **kwargs)


def with_hook(cue, callback, *, after=False):
    class Slow:
        memories = HookedMemories(cue.services.store.memories, callback, after)

        def __getattr__(self, name):
            return getattr(cue.services.store, name)

    return Memories(replace(cue.services, store=Slow()), cue.config)


async def test_a_concurrent_use_or_decay_undoes_no_correction(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        memory = await cue.memory.put_knowledge("domain", "api.rate", "100 a minute")

        async def correct():
            await cue.memory.update(memory.id, "200 a minute")

        await with_hook(cue, correct).use_knowledge(memory.id)
        assert await texts(cue, user=None) == ["200 a minute"]
        clock.advance(35 * DAY)

        async def correct_again():
            await cue.memory.update(memory.id, "300 a minute")

        await with_hook(cue, correct_again).decay_knowledge()
        assert await texts(cue, user=None) == ["300 a minute"]


async def test_a_correction_survives_a_concurrent_new_memory(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "I live in Oslo.", "c1")
        [memory] = (await cue.memory.list(user="ann")).items

        async def put():
            await cue.memory.put_knowledge("domain", "k", "v", user="ann")

        await with_hook(cue, put, after=True).update(memory.id, "I live in Bergen.", user="ann")
        assert await texts(cue) == ["I live in Bergen.", "v"]


async def test_a_memory_forgotten_during_its_correction_stays_forgotten(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        memory = await cue.memory.put_knowledge("domain", "api.rate", "100 a minute")

        async def forget():
            await cue.memory.delete(memory.id)

        with pytest.raises(NotFound):
            await with_hook(cue, forget).update(memory.id, "a secret number")
    with closing(sqlite3.connect(tmp_path / "cuebook.db")) as file:
        assert file.execute("SELECT count(*) FROM memory_text").fetchone() == (0,)


async def test_decay_affects_one_tenants_knowledge(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await cue.memory.put_knowledge("domain", "harbour", "the lamp burns", user="ann")
        clock.advance(35 * DAY)
        done = await cue.of("other").memory.decay_knowledge()
        assert (done.lost, done.gone) == (0, 0)
        assert [hit.text for hit in await cue.memory.search("lamp", user="ann", scopes=["user"])]


@pytest.mark.slow
async def test_forgetting_a_persona_covers_undelivered_posts(tmp_path, clock):
    async with open_with_memory(tmp_path, clock, memory__user=False, memory__persona=True) as cue:
        for n in range(203):
            await cue.append(f"c{n}", [{"role": "user", "content": f"I live in Oslo, door {n}."}], user="ann")
        await cue.memory.forget(persona=cue.services.settings.default_persona)
        await cue.settle()
        assert await texts(cue) == []


async def test_a_corrected_memory_appears_in_an_existing_conversation(tmp_path, clock):
    async with open_with_memory(tmp_path, clock, memory__review_every=10) as cue:
        await ask_and_settle(cue, clock, "I am allergic to nuts.", "c1")
        await ask_and_settle(cue, clock, "Hello there.", "c2")
        [memory] = (await cue.memory.list(user="ann")).items
        await cue.memory.update(memory.id, "I am allergic to hazelnuts.", user="ann")
        reply = await ask_and_settle(cue, clock, "Tell me something.", "c2")
        blocks = [block.text for block in reply.window.blocks if block.source.startswith("memory:")]
        assert len(blocks) == 1
        assert blocks[0].endswith("I am allergic to hazelnuts.")


async def test_a_window_too_small_for_memories_reports_no_negative_number(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "I am allergic to nuts.", "c1")
        window = await cue.assemble(Ask("What am I allergic to?", "c2", user="ann", token_budget=60))
        [dropped] = [each for each in window.dropped if each.kind == "memory"]
        assert re.search(r"use at most \d tokens", dropped.reason)
