"""Tests of corrected and forgotten items in their own conversation: summary, items and later passes."""

import json

import pytest
from turn_helpers import bot, cue_on, user

from cuebook import Ask
from cuebook.errors import NotFound
from cuebook.interfaces import Piece
from cuebook.memory.corrections import correction_of
from cuebook.providers.clock_and_ids import SystemDice
from cuebook.records.memory import CATEGORIES, Scope
from cuebook.storage.store import sqlite_store
from cuebook.testing import FrozenClock, ScriptedModel

WRONG, RIGHT = "I am allergic to nuts.", "Allergic to peanuts, not to nuts."
FILLER = ("I work as a nurse in Bergen.", "My sister Ida lives in Turku.", "We decided to paint the kitchen green.")


@pytest.fixture
def clock():
    return FrozenClock()


def open_database(path, clock, **settings):
    return cue_on(path, clock=clock, model=ScriptedModel(default="Noted."), dice=SystemDice(), **settings)


async def say(cue, clock, *texts, conversation="c1", user="ann"):
    reply = None
    for text in texts:
        reply = await cue.ask(Ask(text, conversation, user=user))
        clock.advance(60)
    return reply


async def store_long_conversation(cue, clock, rounds=12):
    """Store an error and enough other posts that a summary covers it."""
    texts = (WRONG, *FILLER, *(f"Step {n} of the garden plan is done." for n in range(rounds)))
    messages = [message for text in texts for message in (user(text), bot("Noted."))]
    await cue.append("c1", messages, user="ann")
    clock.advance(60 * len(texts))
    await cue.settle()


async def summary_of(cue):
    return await cue.services.store.summary(Scope(), "c1")


async def item_of(cue, word, **more):
    return next(each for each in await cue.memory.items("c1", **more) if word in each.text)


@pytest.mark.parametrize("by", [pytest.param("memory", marks=pytest.mark.slow), "item"])
async def test_a_correction_applies_to_its_own_conversation(tmp_path, clock, by):
    async with open_database(tmp_path, clock, memory__user=True) as cue:
        await store_long_conversation(cue, clock)
        before = await summary_of(cue)
        assert "nuts" in before.markdown
        if by == "memory":
            memory = next(each for each in (await cue.memory.list(user="ann")).items if "nuts" in each.text)
            name = memory.id
        else:
            name = f"item:c1:{(await item_of(cue, 'nuts')).id}"
        await cue.memory.update(name, RIGHT, erase=True, user="ann")
        after = await summary_of(cue)
        assert (after.upto_seq, after.path_digest, after.made_by) == (before.upto_seq, before.path_digest, "quotes")
        assert after.version == before.version + 1
        assert RIGHT.rstrip(".") in after.markdown
        assert WRONG.rstrip(".") not in f"{after.markdown}{after.memory_json}{after.tainted}"
        item = await item_of(cue, "peanuts")
        assert (item.trust, item.sources) == ("user", (await item_of(cue, "peanuts", ended=True)).sources)
        assert not [each for each in await cue.memory.items("c1", ended=True) if each.text == WRONG]
        texts = [each.text for each in (await cue.memory.list(user="ann", ended=True)).items if "nuts" in each.text]
        assert texts == [RIGHT]
        window = str((await say(cue, clock, "What am I allergic to?")).window.raw_messages[0])
        assert "peanuts" in window
        assert "allergic to nuts" not in window
        await continue_conversation(cue, clock)
        assert WRONG.rstrip(".") not in (await summary_of(cue)).markdown
        texts = [each.text for each in (await cue.memory.list(user="ann", ended=True)).items if "nuts" in each.text]
        assert texts == [RIGHT]
        assert (await cue.turns.replay("c1", 12)).verdict == "identical"


async def continue_conversation(cue, clock):
    await say(cue, clock, *(f"Bed {n} of the garden has tulips." for n in range(12)))
    await cue.settle()


async def test_a_correction_applies_when_a_later_pass_reads_the_posts(tmp_path, clock):
    async with open_database(tmp_path, clock) as cue:
        await say(cue, clock, WRONG)
        await cue.memory.update(f"item:c1:{(await item_of(cue, 'nuts')).id}", RIGHT)
        assert [each.text for each in await cue.memory.items("c1")] == [RIGHT]
        await say(cue, clock, *FILLER, *(f"Step {n} of the garden plan is done." for n in range(12)))
        await cue.settle()
        assert "peanuts" in (await summary_of(cue)).markdown
        assert "allergic to nuts" not in (await summary_of(cue)).markdown


async def test_a_statement_repeated_after_a_correction_is_new(tmp_path, clock):
    async with open_database(tmp_path, clock) as cue:
        await store_long_conversation(cue, clock)
        await cue.memory.update(f"item:c1:{(await item_of(cue, 'nuts')).id}", "Allergic to strawberries.")
        await say(cue, clock, "I moved on: I am allergic to nuts.")
        assert [each for each in await cue.memory.items("c1") if "nuts" in each.text]


async def test_a_correction_can_be_corrected(tmp_path, clock):
    async with open_database(tmp_path, clock, memory__user=True) as cue:
        await store_long_conversation(cue, clock)
        name = f"item:c1:{(await item_of(cue, 'nuts')).id}"
        correction = await cue.memory.update(name, "Allergic to walnuts.")
        assert correction.id == name
        assert (await cue.memory.get(name)).text == "Allergic to walnuts."
        await cue.memory.update(correction.id, RIGHT)
        summary = (await summary_of(cue)).markdown
        assert "peanuts" in summary
        assert "walnuts" not in summary
        store = sqlite_store(str(tmp_path / "cuebook.db"))
        assert [each.text for each in await store.memories.corrections(Scope(), "c1")] == [RIGHT, RIGHT]
        await store.aclose()


@pytest.mark.slow
async def test_another_branch_is_corrected_when_it_continues(tmp_path, clock):
    async with open_database(tmp_path, clock) as cue:
        await store_long_conversation(cue, clock)
        posts = await cue.conversations.posts("c1")
        other = posts[-3].id
        await say(cue, clock, *(f"Bed {n} of the garden has tulips." for n in range(12)))
        await cue.settle()
        await cue.memory.update(f"item:c1:{(await item_of(cue, 'nuts')).id}", RIGHT)
        await cue.conversations.move_head("c1", other)
        window = str((await say(cue, clock, "What now?")).window.raw_messages[0])
        assert "peanuts" in window
        assert "allergic to nuts" not in window


async def test_a_crash_between_correction_and_summary_affects_no_window(tmp_path, clock):
    async with open_database(tmp_path, clock) as cue:
        await store_long_conversation(cue, clock)
        item = await item_of(cue, "nuts")
        store = sqlite_store(str(tmp_path / "cuebook.db"))  # another process that ends after its first write
        await store.memories.keep_correction(Scope(), correction_of("c1", item.sources, item.text, RIGHT))
        assert await store.due_pairs("corrections_due") == [("default", "c1")]
        await store.aclose()
        assert [each.text for each in await cue.memory.items("c1") if "nuts" in each.text] == [RIGHT]
        window = str((await say(cue, clock, "What am I allergic to?")).window.raw_messages[0])
        assert "peanuts" in window
        assert "allergic to nuts" not in window


async def test_a_background_job_finishes_a_correction_once(tmp_path, clock):
    async with open_database(tmp_path, clock) as cue:
        await store_long_conversation(cue, clock)
        item, before = await item_of(cue, "nuts"), await summary_of(cue)
        store = sqlite_store(str(tmp_path / "cuebook.db"))
        await store.memories.keep_correction(Scope(), correction_of("c1", item.sources, item.text, RIGHT))
        await store.aclose()
        assert await cue.settle() == {}
        assert await cue.settle() == {}
        assert (await summary_of(cue)).version == before.version + 1
        assert "peanuts" in (await summary_of(cue)).markdown


class Slow(ScriptedModel):
    """A work model during whose answer a correction is made."""

    def __init__(self, during):
        super().__init__(default="x")
        self.during = during

    async def stream(self, request):
        if request.purpose == "compaction":
            await self.during()
            items = {name: [] for name in (*CATEGORIES, "tags")}
            text = json.dumps({"summary_markdown": f"## Facts\n- {WRONG}", "memory_json": items})
            yield Piece(text=text)
            return
        async for piece in super().stream(request):
            yield piece


async def test_a_pass_does_not_overwrite_a_concurrent_correction(tmp_path, clock):
    done = []

    async def during():
        if not done:
            done.append(await cue.memory.update(f"item:c1:{(await item_of(cue, 'nuts')).id}", RIGHT))

    async with open_database(tmp_path, clock) as cue:
        cue.services.work_model = Slow(during)
        await say(cue, clock, WRONG, *FILLER, *(f"Step {n} of the garden plan is done." for n in range(15)))
        await cue.settle()
        assert done
        summary = (await summary_of(cue)).markdown
        assert "allergic to nuts" not in summary


@pytest.mark.slow
async def test_a_forgotten_item_does_not_return(tmp_path, clock):
    async with open_database(tmp_path, clock, memory__user=True) as cue:
        await store_long_conversation(cue, clock)
        await say(cue, clock, "What do you know?")
        name = f"item:c1:{(await item_of(cue, 'nuts')).id}"
        receipt = await cue.memory.delete(name, user="ann")
        assert (receipt.state, receipt.counts["items"], receipt.counts["memories"]) == ("done", 1, 1)
        await cue.settle()
        for _ in range(2):
            summary = await summary_of(cue)
            assert "Ida" in f"{summary.markdown}{summary.memory_json}"
            assert "nuts" not in f"{summary.markdown}{summary.memory_json}{summary.tainted}"
            assert not [each for each in await cue.memory.items("c1", ended=True) if "nuts" in each.text]
            assert not [each for each in (await cue.memory.list(user="ann")).items if "nuts" in each.text]
            await continue_conversation(cue, clock)
        assert WRONG in str([post.message for post in await cue.conversations.posts("c1")])
        with pytest.raises(NotFound):
            await cue.memory.get(name)
        second = await cue.memory.forget(memories=[name], by="ann")
        assert not any(second.counts.values())


async def test_a_forgotten_memory_leaves_its_source_summary(tmp_path, clock):
    async with open_database(tmp_path, clock, memory__user=True) as cue:
        await store_long_conversation(cue, clock)
        memory = next(each for each in (await cue.memory.list(user="ann")).items if "nuts" in each.text)
        await cue.memory.delete(memory.id, user="ann")
        await cue.settle()
        assert "nuts" not in (await summary_of(cue)).markdown
        assert not [each for each in (await cue.memory.list(user="ann")).items if "nuts" in each.text]


async def test_another_users_item_does_not_exist(tmp_path, clock):
    async with open_database(tmp_path, clock) as cue:
        await store_long_conversation(cue, clock)
        name = f"item:c1:{(await item_of(cue, 'nuts')).id}"
        for call in (
            cue.memory.get(name, user="bob"),
            cue.memory.update(name, RIGHT, user="bob"),
            cue.memory.delete(name, user="bob"),
        ):
            with pytest.raises(NotFound):
                await call
        assert not any((await cue.memory.forget(memories=[name], by="bob")).counts.values())
        assert (await item_of(cue, "nuts")).text == WRONG
        for wrong in ("item:c1:0000000000000000", "item:nowhere:0000000000000000", "item:", "item:c1"):
            with pytest.raises(NotFound):
                await cue.memory.get(wrong)


@pytest.mark.parametrize("owner", ["conversation", "user"])
async def test_corrections_are_erased_with_their_owner(tmp_path, clock, owner):
    async with open_database(tmp_path, clock, memory__user=owner == "user") as cue:
        await store_long_conversation(cue, clock)
        await cue.memory.update(f"item:c1:{(await item_of(cue, 'nuts')).id}", "Allergic to zanzibarquokkas.")
        await cue.memory.forget(**{owner: "c1" if owner == "conversation" else "ann"})
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert b"zanzibarquokka" not in file.read_bytes(), file


@pytest.mark.parametrize("summarized", [False, True])
async def test_an_item_superseded_by_a_forgotten_one_is_current_again(tmp_path, clock, summarized):
    async with open_database(tmp_path, clock) as cue:
        await say(cue, clock, "My rent is 900 euros.", "My rent is 950 euros now.")
        if summarized:
            await say(cue, clock, *(f"Step {n} of the garden plan is done." for n in range(12)))
            await cue.settle()
        old, new = await item_of(cue, "900"), await item_of(cue, "950")
        assert old.superseded_by == new.id
        await cue.memory.forget(memories=[f"item:c1:{new.id}"], by="ann")
        await cue.settle()  # derived items are derived again
        assert (await item_of(cue, "900")).superseded_by is None
