"""Tests of memories after edits, regeneration and head moves: abandoned branches are not sources."""

import asyncio

from turn_helpers import Client, ask_and_settle, open_with_memory, user

from cuebook import Ask
from cuebook.records.memory import Scope
from cuebook.testing.upstream import ScriptedUpstream

DAY = 86_400.0


async def memories(cue, *, ended=False):
    return [each async for each in cue.memory.export(user="ann") if ended or each.valid_to is None]


async def texts(cue, *, ended=False):
    return [each.text for each in await memories(cue, ended=ended)]


async def ids(cue, conversation):
    return {post.message: post.id for post in await cue.conversations.posts(conversation, branches="all")}


async def advance_and_settle(cue, clock):
    clock.advance(60)
    await cue.settle()


async def test_an_edited_message_is_no_longer_a_source(tmp_path, clock):
    upstream = ScriptedUpstream()
    async with open_with_memory(tmp_path, clock, upstream=upstream) as cue:
        client = Client(cue, upstream, user_id="ann")
        await client.say("Hello.")
        await client.say("My rent is 900 euros.")
        await client.say("I am allergic to nuts.")
        await advance_and_settle(cue, clock)
        assert await texts(cue) == ["My rent is 900 euros.", "I am allergic to nuts."]
        client.history = client.history[:2]
        await client.say("I live in Bergen.")
        await advance_and_settle(cue, clock)
        assert await texts(cue, ended=True) == ["I live in Bergen."]
        window = await cue.assemble(Ask("Where do I live?", "next", user="ann"))
        assert "Oslo" not in b"".join(window.raw_messages).decode()


async def test_a_regenerated_answer_keeps_the_users_memories(tmp_path, clock):
    upstream = ScriptedUpstream()
    async with open_with_memory(tmp_path, clock, upstream=upstream) as cue:
        client = Client(cue, upstream, user_id="ann")
        await client.say("My rent is 900 euros.", "Noted.")
        await advance_and_settle(cue, clock)
        [before] = await memories(cue)
        for n in range(3):
            client.history = []
            await client.say("My rent is 900 euros.", f"Noted {n}.")
            await advance_and_settle(cue, clock)
        assert len(await cue.conversations.posts("c", branches="all")) == 5
        [after] = await memories(cue)
        assert (after.id, after.sources) == (before.id, before.sources)


async def test_moving_the_head_removes_and_restores_memories(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "My rent is 900 euros.", "c1")
        before = await cue.services.store.conversation(Scope(), "c1")
        await ask_and_settle(cue, clock, "My rent is 950 euros now.", "c1")
        berlin = await cue.services.store.conversation(Scope(), "c1")
        posts = {post.seq: post.id for post in await cue.conversations.posts("c1")}
        assert await texts(cue) == ["My rent is 900 euros.", "My rent is 950 euros now."]
        await cue.conversations.move_head("c1", posts[before.head])
        await advance_and_settle(cue, clock)
        [oslo] = await memories(cue, ended=True)
        assert (oslo.text, oslo.valid_to, oslo.superseded_by) == ("My rent is 900 euros.", None, None)
        await ask_and_settle(cue, clock, "I am allergic to nuts.", "c1")
        assert await texts(cue) == ["My rent is 900 euros.", "I am allergic to nuts."]
        await cue.conversations.move_head("c1", posts[berlin.head])
        await advance_and_settle(cue, clock)
        past, new = await memories(cue, ended=True)
        assert [past.text, new.text, new.supersedes, past.superseded_by] == [
            "My rent is 900 euros.", "My rent is 950 euros now.", past.id, new.id,
        ]  # fmt: skip


async def test_a_memory_also_stated_elsewhere_stays(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "My rent is 900 euros.", "c1")
        clock.advance(DAY)
        await ask_and_settle(cue, clock, "Hello.", "c2")
        start = (await cue.conversations.posts("c2"))[-1].id
        await ask_and_settle(cue, clock, "My rent is 900 euros.", "c2")
        await cue.conversations.move_head("c2", start)
        await advance_and_settle(cue, clock)
        [oslo] = await memories(cue)
        assert [each.conversation_id for each in oslo.sources] == ["c1"]


async def test_removing_a_successor_makes_the_older_memory_current(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "My rent is 900 euros.", "c1")
        await ask_and_settle(cue, clock, "Hello.", "c2")
        start = (await cue.conversations.posts("c2"))[-1].id
        clock.advance(DAY)
        await ask_and_settle(cue, clock, "My rent is 950 euros now.", "c2")
        clock.advance(DAY)
        await ask_and_settle(cue, clock, "My rent is 990 euros now.", "c3")
        await cue.conversations.move_head("c2", start)
        await advance_and_settle(cue, clock)
        oslo, now = await memories(cue, ended=True)
        assert [oslo.text, now.text] == ["My rent is 900 euros.", "My rent is 990 euros now."]
        assert (oslo.valid_to, oslo.superseded_by, now.supersedes) == (None, now.id, oslo.id)


async def test_a_head_moved_during_delivery_leaves_no_old_memory(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as one, open_with_memory(tmp_path, clock) as two:
        await ask_and_settle(one, clock, "Hello.", "c1")
        start = (await one.conversations.posts("c1"))[-1].id
        await one.ask(Ask("My rent is 900 euros.", "c1", user="ann"))
        await asyncio.gather(one.work(), two.conversations.move_head("c1", start), two.work())
        await advance_and_settle(one, clock)
        assert await texts(one, ended=True) == []


async def test_leaving_a_compacted_branch_removes_its_items(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "My rent is 900 euros.", "c1")
        start = (await cue.conversations.posts("c1"))[-1].id
        messages = [user(f"Locker number {n} is in corridor {n * 3}.") for n in range(40)]
        await cue.append("c1", [user("My rent is 950 euros now."), *messages], user="ann")
        clock.advance(7200)
        await cue.settle()
        assert await cue.conversations.summary("c1", user="ann") is not None
        assert "My rent is 950 euros now." in await texts(cue)
        await cue.conversations.move_head("c1", start)
        await advance_and_settle(cue, clock)
        assert await texts(cue, ended=True) == ["My rent is 900 euros."]
        assert await cue.conversations.summary("c1", user="ann") is None
        assert [each.text for each in await cue.memory.items("c1", user="ann", ended=True)] == ["My rent is 900 euros."]
