"""Tests of the in-memory full-text index: it follows changes made by other processes."""

from contextlib import closing

import pytest

from cuebook import Cuebook
from cuebook.config import build
from cuebook.interfaces.store import PlaceChange
from cuebook.memory.owner_memories import memory_id
from cuebook.records.memory import Memory, Place, Scope
from cuebook.storage import search
from cuebook.storage.database.sqlite import transaction_on
from cuebook.storage.database.sqlite_files import connect
from cuebook.storage.search import PlaceWords

ANN = Place("user", "ann")
COLUMNS = {"kind": "user", "owner": "ann"}


def open_database(folder):
    config = build(arguments={"store.url": str(folder / "cuebook.db"), "memory.user": True}, folder=str(folder))
    return Cuebook.open(config, worker=False)


async def search_texts(cue, query):
    return [hit.text for hit in await cue.memory.search(query, user="ann", scopes=["user"], limit=5)]


async def fill(cue, texts):
    generation, _ = await cue.services.store.memories.place(Scope(), ANN, near=())
    new_memories = tuple(
        Memory(id=memory_id(ANN, "facts", text), kind=ANN.kind, owner=ANN.id, category="facts", text=text, written=True)
        for text in texts
    )
    change = PlaceChange(place=ANN, generation=generation, memories=new_memories)
    assert await cue.services.store.memories.save(Scope(), change, now=1.0)


async def test_writes_corrections_and_erasures_of_another_process_apply_at_once(tmp_path):
    async with open_database(tmp_path) as one, open_database(tmp_path) as other:
        await fill(one, ["The lamp stands in the hall.", "Bread is baked at six."])
        assert await search_texts(one, "lamp") == await search_texts(other, "lamp") == ["The lamp stands in the hall."]
        lamp = memory_id(ANN, "facts", "The lamp stands in the hall.")
        await other.memory.update(lamp, "The lantern stands in the hall.", user="ann")
        assert await search_texts(one, "lamp") == []
        assert await search_texts(one, "lantern") == ["The lantern stands in the hall."]
        await other.memory.forget(user="ann")
        assert await search_texts(one, "lantern") == []


async def test_a_tenants_forgotten_words_leave_memory_at_the_next_search(tmp_path):
    async with open_database(tmp_path) as cue:
        await fill(cue, ["The lamp stands in the hall."])
        await cue.memory.put_knowledge("domain", "bob's", "a boat", user="bob")
        with closing(connect(str(tmp_path / "cuebook.db"), read_only=True)) as connection:
            words = PlaceWords()
            assert "lamp" in str(words.of(transaction_on(connection).within(Scope()), COLUMNS).keys)
            await cue.memory.forget(user="ann")
            words.of(transaction_on(connection).within(Scope()), COLUMNS | {"owner": "bob"})
            assert words.owners() == ["bob"]


@pytest.mark.parametrize("count", [search.SMALL, search.SMALL_PLACE + 200])
@pytest.mark.slow
async def test_a_rare_word_is_found_among_any_number_of_memories(tmp_path, count):
    async with open_database(tmp_path) as cue:
        await fill(cue, [f"The harbour lamp number{n} burns at night." for n in range(count)])
        assert (await search_texts(cue, "which harbour lamp is number77?"))[
            0
        ] == "The harbour lamp number77 burns at night."
        assert await search_texts(cue, "xylophone") == []
        assert len(await search_texts(cue, "harbour")) == 5
