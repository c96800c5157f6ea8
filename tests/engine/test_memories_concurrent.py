"""What reaches the places of a conversation a second time, or while somebody writes there, does no harm."""

import sqlite3
from contextlib import closing

import pytest
from msgspec.structs import replace
from stage import on, told

from cuebook import Ask
from cuebook.app.memories import Memories
from cuebook.errors import NotFound

DAY = 86_400.0


async def texts(cue, *, ended=False, **whose):
    page = await cue.memories.page(ended=ended, limit=1000, **(whose or {"user": "ann"}))
    return [each.text for each in page.items]


async def condense(cue, clock, conversation):
    """Say so much beside it that a pass reads the conversation from its beginning."""
    said = [{"role": "user", "content": f"Locker number {n} is in corridor {n * 3}."} for n in range(40)]
    await cue.append(conversation, said, user="ann")
    clock.advance(7200)
    await cue.settle()
    assert await cue.memory.summary(conversation, user="ann") is not None


async def test_what_was_corrected_is_not_brought_back_by_a_pass(tmp_path, clock):
    async with on(tmp_path, clock) as cue:
        await told(cue, clock, "I am allergic to nuts.", "c1")
        [memory] = (await cue.memories.page(user="ann")).items
        await cue.memories.correct(memory.id, "I am allergic to hazelnuts.", user="ann")
        await condense(cue, clock, "c1")
        found = [each for each in await texts(cue, ended=True) if "allergic" in each]
        assert found == ["I am allergic to hazelnuts."]
        await told(cue, clock, "I am allergic to nuts.", "c2")
        assert "I am allergic to nuts." in await texts(cue), "what is said anew counts"


async def test_what_was_corrected_is_not_brought_back_in_a_large_place(tmp_path, clock):
    async with on(tmp_path, clock) as cue:
        await told(cue, clock, "I am allergic to nuts.", "c1")
        [memory] = (await cue.memories.page(user="ann")).items
        await cue.memories.correct(memory.id, "Nothing grows in Ruritania.", user="ann")
        for n in range(510):
            await cue.memories.put("domain", f"k{n}", f"allergic v{n}", user="ann")
        await condense(cue, clock, "c1")
        assert "I am allergic to nuts." not in await texts(cue, ended=True)


async def test_a_correction_to_what_is_known_already_is_one_memory(tmp_path, clock):
    async with on(tmp_path, clock) as cue:
        await told(cue, clock, "I live in Oslo.", "c1")
        await told(cue, clock, "I have been a baker in Oslo for nine years.", "c2")
        first, second = (await cue.memories.page(user="ann")).items
        fixed = await cue.memories.correct(second.id, first.text, user="ann")
        [left] = (await cue.memories.page(user="ann")).items
        assert (left.id, left.text) == (fixed.id, first.text)
        assert {each.conversation for each in left.sources} == {"c1", "c2"}


async def test_anothers_words_reach_nobodys_place_by_a_pass(tmp_path, clock):
    async with on(tmp_path, clock) as cue:
        await told(cue, clock, "Hello all.", "group")
        await cue.conversations.participants("group", ["ann", "bob"])
        await cue.ask(Ask("I am allergic to nuts.", "group", user="bob"))
        clock.advance(60)
        await cue.settle()
        for n in range(4):
            await told(cue, clock, f"Tell me something, number {n}.", "group")
        assert await texts(cue) == []
        await condense(cue, clock, "group")
        assert not [each for each in await texts(cue) if "allergic" in each]


async def test_an_organization_is_told_only_the_turns_that_name_it(tmp_path, clock):
    async with on(tmp_path, clock, memory__user=False) as cue:
        shares = {"longTermMemory": {"scopes": {"organization": True}, "shareWithOrganization": True}}
        about = {"organization": "acme", "memory_control": shares}
        await told(cue, clock, "We decided to sell the company.", "c1")
        await told(cue, clock, "We decided to ship on Monday.", "c1", **about)
        assert await texts(cue, organization="acme") == ["We decided to ship on Monday."]


async def test_what_was_said_while_memory_was_off_reaches_no_place_later(tmp_path, clock):
    async with on(tmp_path, clock) as cue:
        off, back = ({"longTermMemory": {"enabled": on}} for on in (False, True))
        await told(cue, clock, "I am allergic to nuts.", "c1", memory_control=off)
        await told(cue, clock, "I live in Oslo.", "c1", memory_control=back)
        assert await texts(cue) == ["I live in Oslo."]
        await condense(cue, clock, "c1")
        assert not [each for each in await texts(cue) if "allergic" in each]


async def test_what_ended_in_one_conversation_holds_where_another_says_it_later(tmp_path, clock):
    async with on(tmp_path, clock) as cue:
        await told(cue, clock, "I live in Berlin.", "c1")
        await told(cue, clock, "I moved to Munich, I live in Munich now.", "c1")
        clock.advance(DAY)
        await told(cue, clock, "I moved back, I live in Berlin.", "c2")
        await told(cue, clock, "I live in Berlin.", "c3")
        before = await texts(cue)
        await condense(cue, clock, "c1")
        now = [each for each in await texts(cue) if "Locker" not in each]
        assert now == before


class Before:
    """A store's memories to which something is done just before a place is asked for, or just after."""

    def __init__(self, inner, then, after):
        self._inner, self._then, self._after = inner, then, after

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def place(self, *given, **named):
        then, self._then = self._then, None
        found = await self._inner.place(*given, **named) if self._after else None
        if then is not None:
            await then()
        return found or await self._inner.place(*given, **named)


def slowed(cue, then, *, after=False):
    class Slow:
        memories = Before(cue.desk.store.memories, then, after)

        def __getattr__(self, name):
            return getattr(cue.desk.store, name)

    return Memories(replace(cue.desk, store=Slow()))


async def test_a_use_or_a_decay_meanwhile_undoes_no_correction(tmp_path, clock):
    async with on(tmp_path, clock) as cue:
        memory = await cue.memories.put("domain", "api.rate", "100 a minute")

        async def correct():
            await cue.memories.correct(memory.id, "200 a minute")

        await slowed(cue, correct).use(memory.id)
        assert await texts(cue, user=None) == ["200 a minute"]
        clock.advance(35 * DAY)

        async def again():
            await cue.memories.correct(memory.id, "300 a minute")

        await slowed(cue, again).decay()
        assert await texts(cue, user=None) == ["300 a minute"]


async def test_a_correction_holds_though_something_else_came_to_the_place_meanwhile(tmp_path, clock):
    async with on(tmp_path, clock) as cue:
        await told(cue, clock, "I live in Oslo.", "c1")
        [memory] = (await cue.memories.page(user="ann")).items

        async def put():
            await cue.memories.put("domain", "k", "v", user="ann")

        await slowed(cue, put, after=True).correct(memory.id, "I live in Bergen.", user="ann")
        assert await texts(cue) == ["I live in Bergen.", "v"]


async def test_what_is_forgotten_while_it_is_corrected_stays_forgotten(tmp_path, clock):
    async with on(tmp_path, clock) as cue:
        memory = await cue.memories.put("domain", "api.rate", "100 a minute")

        async def forget():
            await cue.memories.remove(memory.id)

        with pytest.raises(NotFound):
            await slowed(cue, forget).correct(memory.id, "a secret number")
    with closing(sqlite3.connect(tmp_path / "cuebook.db")) as file:
        assert file.execute("SELECT count(*) FROM memory_text").fetchone() == (0,)


async def test_a_decay_touches_one_tenants_knowledge(tmp_path, clock):
    async with on(tmp_path, clock) as cue:
        await cue.memories.put("domain", "harbour", "the lamp burns", user="ann")
        clock.advance(35 * DAY)
        done = await cue.of("other").memories.decay()
        assert (done.lost, done.gone) == (0, 0)
        assert [hit.text for hit in await cue.memory.search("lamp", user="ann", scopes=["user"])]


async def test_what_was_said_before_a_persona_is_forgotten_goes_however_much_is_due(tmp_path, clock):
    async with on(tmp_path, clock, memory__user=False, memory__persona=True) as cue:
        for n in range(203):
            await cue.append(f"c{n}", [{"role": "user", "content": f"I live in Oslo, door {n}."}], user="ann")
        await cue.memory.forget(persona=cue.desk.default_persona)
        await cue.settle()
        assert await texts(cue) == []


async def test_a_corrected_memory_is_said_in_a_conversation_that_goes_on(tmp_path, clock):
    async with on(tmp_path, clock, memory__review_every=10) as cue:
        await told(cue, clock, "I am allergic to nuts.", "c1")
        await told(cue, clock, "Hello there.", "c2")
        [memory] = (await cue.memories.page(user="ann")).items
        await cue.memories.correct(memory.id, "I am allergic to hazelnuts.", user="ann")
        reply = await told(cue, clock, "Tell me something.", "c2")
        said = [block.text for block in reply.window.blocks if block.source.startswith("memory:")]
        assert len(said) == 1
        assert said[0].endswith("I am allergic to hazelnuts.")


async def test_a_window_too_small_for_memories_says_so_in_no_negative_number(tmp_path, clock):
    async with on(tmp_path, clock) as cue:
        await told(cue, clock, "I am allergic to nuts.", "c1")
        window = await cue.assemble(Ask("What am I allergic to?", "c2", user="ann", token_budget=60))
        [dropped] = [each for each in window.dropped if each.kind == "memory"]
        assert "use at most 0 tokens" in dropped.reason
