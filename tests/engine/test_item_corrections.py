"""What a hand corrects or forgets holds in the conversation it was said in too: summary, items, later passes."""

import json

import pytest
from stage import cue_on

from cuebook import Ask
from cuebook.errors import NotFound
from cuebook.interfaces.model import Piece
from cuebook.memory.corrections import correction_of
from cuebook.providers.clock_and_ids import SystemDice
from cuebook.records.memory import CATEGORIES, Scope
from cuebook.storage.sqlite.store import SqliteStore
from cuebook.testing import FrozenClock, ScriptedModel

WRONG, RIGHT = "I am allergic to nuts.", "Allergic to peanuts, not to nuts."
FILLER = ("I work as a nurse in Bergen.", "My sister Ida lives in Turku.", "We decided to paint the kitchen green.")


@pytest.fixture
def clock():
    return FrozenClock()


def opened(path, clock, **settings):
    return cue_on(path, clock=clock, model=ScriptedModel(default="Noted."), dice=SystemDice(), **settings)


async def say(cue, clock, *texts, talk="c1", user="ann"):
    reply = None
    for text in texts:
        reply = await cue.ask(Ask(text, talk, user=user))
        clock.advance(60)
    return reply


async def long_talk(cue, clock, rounds=30):
    """Say what is wrong, and so much else that it lies under a summary."""
    await say(cue, clock, WRONG, *FILLER, *(f"Step {n} of the garden plan is done." for n in range(rounds)))
    await cue.settle()


async def summary_of(cue):
    return await cue.memory.summary("c1")


async def item_of(cue, word, **more):
    return next(each for each in await cue.memory.items("c1", **more) if word in each.text)


@pytest.mark.parametrize("by", ["memory", "item"])
async def test_a_correction_holds_in_the_conversation_it_came_from(tmp_path, clock, by):
    async with opened(tmp_path, clock, memory__user=True) as cue:
        await long_talk(cue, clock)
        before = await summary_of(cue)
        assert "nuts" in before.markdown
        if by == "memory":
            memory = next(each for each in (await cue.memories.page(user="ann")).items if "nuts" in each.text)
            name = memory.id
        else:
            name = f"item:c1:{(await item_of(cue, 'nuts')).id}"
        await cue.memories.correct(name, RIGHT, user="ann")
        after = await summary_of(cue)
        assert (after.upto_seq, after.path_digest, after.made_by) == (before.upto_seq, before.path_digest, "quotes")
        assert after.version == before.version + 1
        assert RIGHT.rstrip(".") in after.markdown
        assert WRONG.rstrip(".") not in f"{after.markdown}{after.memory_json}{after.tainted}"
        held = await item_of(cue, "peanuts")
        assert (held.trust, held.sources) == ("user", (await item_of(cue, "peanuts", ended=True)).sources)
        assert not [each for each in await cue.memory.items("c1", ended=True) if each.text == WRONG]
        known = [each.text for each in (await cue.memories.page(user="ann", ended=True)).items if "nuts" in each.text]
        assert known == [RIGHT]
        window = str((await say(cue, clock, "What am I allergic to?")).window.messages[0])
        assert "peanuts" in window
        assert "allergic to nuts" not in window
        await long_talk_on(cue, clock)
        assert WRONG.rstrip(".") not in (await summary_of(cue)).markdown
        known = [each.text for each in (await cue.memories.page(user="ann", ended=True)).items if "nuts" in each.text]
        assert known == [RIGHT]
        assert (await cue.turns.replay("c1", 30)).verdict == "identical"


async def long_talk_on(cue, clock):
    await say(cue, clock, *(f"Bed {n} of the garden has tulips." for n in range(30)))
    await cue.settle()


async def test_what_no_pass_has_read_yet_is_corrected_when_one_does(tmp_path, clock):
    async with opened(tmp_path, clock) as cue:
        await say(cue, clock, WRONG)
        await cue.memories.correct(f"item:c1:{(await item_of(cue, 'nuts')).id}", RIGHT)
        assert [each.text for each in await cue.memory.items("c1")] == [RIGHT]
        await say(cue, clock, *FILLER, *(f"Step {n} of the garden plan is done." for n in range(30)))
        await cue.settle()
        assert "peanuts" in (await summary_of(cue)).markdown
        assert "allergic to nuts" not in (await summary_of(cue)).markdown


async def test_what_is_said_anew_after_a_correction_is_news(tmp_path, clock):
    async with opened(tmp_path, clock) as cue:
        await long_talk(cue, clock)
        await cue.memories.correct(f"item:c1:{(await item_of(cue, 'nuts')).id}", "Allergic to strawberries.")
        await say(cue, clock, "I moved on: I am allergic to nuts.")
        assert [each for each in await cue.memory.items("c1") if "nuts" in each.text]


async def test_a_correction_is_corrected(tmp_path, clock):
    async with opened(tmp_path, clock, memory__user=True) as cue:
        await long_talk(cue, clock)
        name = f"item:c1:{(await item_of(cue, 'nuts')).id}"
        made = await cue.memories.correct(name, "Allergic to walnuts.")
        assert (await cue.memories.get(made.id)).text == "Allergic to walnuts."
        with pytest.raises(NotFound):
            await cue.memories.get(name)
        await cue.memories.correct(made.id, RIGHT)
        said = (await summary_of(cue)).markdown
        assert "peanuts" in said
        assert "walnuts" not in said
        store = SqliteStore(str(tmp_path / "cuebook.db"))
        assert [each.text for each in await store.memories.corrections.of(Scope(), "c1")] == [RIGHT, RIGHT]
        await store.aclose()


async def test_another_branch_is_corrected_when_it_goes_on(tmp_path, clock):
    async with opened(tmp_path, clock) as cue:
        await long_talk(cue, clock)
        posts = await cue.conversations.posts("c1")
        other = posts[-3].id
        await say(cue, clock, *(f"Bed {n} of the garden has tulips." for n in range(30)))
        await cue.settle()
        await cue.memories.correct(f"item:c1:{(await item_of(cue, 'nuts')).id}", RIGHT)
        await cue.conversations.move_head("c1", other)
        window = str((await say(cue, clock, "What now?")).window.messages[0])
        assert "peanuts" in window
        assert "allergic to nuts" not in window


async def test_a_crash_between_the_correction_and_the_summary_costs_no_window(tmp_path, clock):
    async with opened(tmp_path, clock) as cue:
        await long_talk(cue, clock)
        item = await item_of(cue, "nuts")
        store = SqliteStore(str(tmp_path / "cuebook.db"))  # another process, that ends behind its first write
        await store.memories.corrections.keep(Scope(), correction_of("c1", item.sources, item.text, RIGHT))
        assert await store.memories.corrections.due() == [("default", "c1")]
        await store.aclose()
        assert [each.text for each in await cue.memory.items("c1") if "nuts" in each.text] == [RIGHT]
        window = str((await say(cue, clock, "What am I allergic to?")).window.messages[0])
        assert "peanuts" in window
        assert "allergic to nuts" not in window


async def test_the_work_behind_finishes_a_correction_once(tmp_path, clock):
    async with opened(tmp_path, clock) as cue:
        await long_talk(cue, clock)
        item, before = await item_of(cue, "nuts"), await summary_of(cue)
        store = SqliteStore(str(tmp_path / "cuebook.db"))
        await store.memories.corrections.keep(Scope(), correction_of("c1", item.sources, item.text, RIGHT))
        await store.aclose()
        assert await cue.settle() == {}
        assert await cue.settle() == {}
        assert (await summary_of(cue)).version == before.version + 1
        assert "peanuts" in (await summary_of(cue)).markdown


class Slow(ScriptedModel):
    """A model for the work behind that lets somebody correct while it answers."""

    def __init__(self, during):
        super().__init__(default="x")
        self.during = during

    async def stream(self, request):
        if request.purpose == "compaction":
            await self.during()
            said = {name: [] for name in (*CATEGORIES, "tags")}
            text = json.dumps({"summary_markdown": f"## Facts\n- {WRONG}", "memory_json": said})
            yield Piece(text=text)
            return
        async for piece in super().stream(request):
            yield piece


async def test_a_pass_does_not_overwrite_a_correction_that_came_while_it_ran(tmp_path, clock):
    done = []

    async def during():
        if not done:
            done.append(await cue.memories.correct(f"item:c1:{(await item_of(cue, 'nuts')).id}", RIGHT))

    async with opened(tmp_path, clock) as cue:
        cue.desk.work_model = Slow(during)
        await say(cue, clock, WRONG, *FILLER, *(f"Step {n} of the garden plan is done." for n in range(15)))
        await cue.settle()
        assert done
        said = (await summary_of(cue)).markdown
        assert "allergic to nuts" not in said


async def test_a_forgotten_item_does_not_come_back(tmp_path, clock):
    async with opened(tmp_path, clock, memory__user=True) as cue:
        await long_talk(cue, clock)
        await say(cue, clock, "What do you know?")
        name = f"item:c1:{(await item_of(cue, 'nuts')).id}"
        receipt = await cue.memories.remove(name, user="ann")
        assert (receipt.state, receipt.counts["items"], receipt.counts["memories"]) == ("done", 1, 1)
        await cue.settle()
        for _ in range(2):
            summary = await summary_of(cue)
            assert "Ida" in f"{summary.markdown}{summary.memory_json}"
            assert "nuts" not in f"{summary.markdown}{summary.memory_json}{summary.tainted}"
            assert not [each for each in await cue.memory.items("c1", ended=True) if "nuts" in each.text]
            assert not [each for each in (await cue.memories.page(user="ann")).items if "nuts" in each.text]
            await long_talk_on(cue, clock)
        assert WRONG in str([post.message for post in await cue.conversations.posts("c1")])
        with pytest.raises(NotFound):
            await cue.memories.get(name)
        again = await cue.memory.forget(memories=[name], by="ann")
        assert not any(again.counts.values())


async def test_a_forgotten_memory_goes_from_the_summary_it_came_from(tmp_path, clock):
    async with opened(tmp_path, clock, memory__user=True) as cue:
        await long_talk(cue, clock)
        memory = next(each for each in (await cue.memories.page(user="ann")).items if "nuts" in each.text)
        await cue.memories.remove(memory.id, user="ann")
        await cue.settle()
        assert "nuts" not in (await summary_of(cue)).markdown
        assert not [each for each in (await cue.memories.page(user="ann")).items if "nuts" in each.text]


async def test_an_item_of_others_is_not_there(tmp_path, clock):
    async with opened(tmp_path, clock) as cue:
        await long_talk(cue, clock)
        name = f"item:c1:{(await item_of(cue, 'nuts')).id}"
        for call in (
            cue.memories.get(name, user="bob"),
            cue.memories.correct(name, RIGHT, user="bob"),
            cue.memories.remove(name, user="bob"),
        ):
            with pytest.raises(NotFound):
                await call
        assert not any((await cue.memory.forget(memories=[name], by="bob")).counts.values())
        assert (await item_of(cue, "nuts")).text == WRONG
        for wrong in ("item:c1:0000000000000000", "item:nowhere:0000000000000000", "item:", "item:c1"):
            with pytest.raises(NotFound):
                await cue.memories.get(wrong)


@pytest.mark.parametrize("whose", ["conversation", "user"])
async def test_corrections_go_with_whose_they_are(tmp_path, clock, whose):
    async with opened(tmp_path, clock, memory__user=whose == "user") as cue:
        await long_talk(cue, clock)
        await cue.memories.correct(f"item:c1:{(await item_of(cue, 'nuts')).id}", "Allergic to zanzibarquokkas.")
        await cue.memory.forget(**{whose: "c1" if whose == "conversation" else "ann"})
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert b"zanzibarquokka" not in file.read_bytes(), file


@pytest.mark.parametrize("settled", [False, True])
async def test_what_a_forgotten_item_had_marked_as_earlier_is_current_again(tmp_path, clock, settled):
    async with opened(tmp_path, clock) as cue:
        await say(cue, clock, "My rent is 900 euros.", "My rent is 950 euros now.")
        if settled:
            await say(cue, clock, *(f"Step {n} of the garden plan is done." for n in range(30)))
            await cue.settle()
        old, new = await item_of(cue, "900"), await item_of(cue, "950")
        assert old.superseded_by == new.id
        await cue.memory.forget(memories=[f"item:c1:{new.id}"], by="ann")
        await cue.settle()  # what was derived is derived anew
        assert (await item_of(cue, "900")).superseded_by is None
