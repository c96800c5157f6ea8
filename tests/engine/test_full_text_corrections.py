"""Words of a place that are held in memory are those of the file, whoever changed it."""

import pytest

from cuebook import Cuebook
from cuebook.config import build
from cuebook.interfaces.memories import PlaceChange
from cuebook.memory.owner_memories import memory_id
from cuebook.records.memory import Memory, Place, Scope
from cuebook.storage.sqlite import search
from cuebook.storage.sqlite.connect import connect
from cuebook.storage.sqlite.search import PlaceWords

ANN = Place("user", "ann")
COLUMNS = {"tenant": "default", "kind": "user", "owner": "ann"}


def opened(folder):
    config = build(arguments={"store.url": str(folder / "cuebook.db"), "memory.user": True}, folder=str(folder))
    return Cuebook.open(config, worker=False)


async def found(cue, query):
    return [hit.text for hit in await cue.memory.search(query, user="ann", scopes=["user"], limit=5)]


async def fill(cue, texts):
    generation, _ = await cue.desk.store.memories.place(Scope(), ANN, near=())
    made = tuple(
        Memory(id=memory_id(ANN, "facts", text), place=ANN, category="facts", text=text, written=True) for text in texts
    )
    change = PlaceChange(place=ANN, generation=generation, memories=made)
    assert await cue.desk.store.memories.save(Scope(), change, now=1.0)


async def test_what_another_process_writes_corrects_and_forgets_is_seen_at_once(tmp_path):
    async with opened(tmp_path) as one, opened(tmp_path) as other:
        await fill(one, ["The lamp stands in the hall.", "Bread is baked at six."])
        assert await found(one, "lamp") == await found(other, "lamp") == ["The lamp stands in the hall."]
        lamp = memory_id(ANN, "facts", "The lamp stands in the hall.")
        await other.memories.correct(lamp, "The lantern stands in the hall.", user="ann")
        assert await found(one, "lamp") == []
        assert await found(one, "lantern") == ["The lantern stands in the hall."]
        await other.memory.forget(user="ann")
        assert await found(one, "lantern") == []


async def test_what_was_forgotten_of_a_tenant_is_held_no_longer_than_until_the_next_look(tmp_path):
    async with opened(tmp_path) as cue:
        await fill(cue, ["The lamp stands in the hall."])
        await cue.memories.put("domain", "bob's", "a boat", user="bob")
        with connect(str(tmp_path / "cuebook.db"), read_only=True) as connection:
            words = PlaceWords()
            assert "lamp" in str(words.of(connection, COLUMNS).keys)
            await cue.memory.forget(user="ann")
            words.of(connection, COLUMNS | {"owner": "bob"})
            assert words.owners() == ["bob"]


@pytest.mark.parametrize("count", [search.SMALL, search.SMALL_PLACE + 200])
async def test_a_place_of_any_size_finds_the_one_that_holds_the_rare_word(tmp_path, count):
    async with opened(tmp_path) as cue:
        await fill(cue, [f"The harbour lamp number{n} burns at night." for n in range(count)])
        assert (await found(cue, "which harbour lamp is number77?"))[0] == "The harbour lamp number77 burns at night."
        assert await found(cue, "xylophone") == []
        assert len(await found(cue, "harbour")) == 5
