"""The contract of memories across conversations: their owners, their search, and exactly-once deliveries."""

import asyncio
from typing import Any

import pytest

from cuebook.interfaces.store import Batch, MemoryLook, MemoryQuery, PathQuery, PlaceChange
from cuebook.memory.scopes import PROJECT
from cuebook.records.memory import Memory, Place, Scope, Source
from cuebook.storage import search
from cuebook.storage.store import Store
from cuebook.testing.doubles import BEGINNING
from storage.contract.posts import OWNER
from storage.makers import drafts

NOW = BEGINNING
ANN, BOB = Place("user", "ann"), Place("user", "bob")
OTHERS = Scope("others")


def memory(place: Place, id: str, text: str, **changes: Any) -> Memory:  # noqa: A002
    """Return a manually added memory."""
    values: dict[str, Any] = {
        "id": id,
        "kind": place.kind,
        "owner": place.id,
        "category": "facts",
        "text": text,
        "written": True,
    }
    return Memory(**values | {"used_at": NOW, "valid_from": NOW} | changes)


def memory_query(text: str, **fields: Any) -> MemoryQuery:
    """Return a query for words."""
    return MemoryQuery(text=text, limit=5, **fields)


async def put(store: Store, *memories: Memory, scope: Scope = OWNER) -> bool:
    """Store memories of one owner."""
    place = memories[0].place
    generation, _ = await store.memories.place(scope, place)
    change = PlaceChange(place=place, generation=generation, memories=memories)
    return await store.memories.save(scope, change, now=NOW)


async def texts(store: Store, place: Place, *, scope: Scope = OWNER) -> list[str]:
    """Return the texts of an owner's memories."""
    return [each.text for each in (await store.memories.place(scope, place))[1]]


class PlacesContract:
    """Memories of owners, and deliveries."""

    async def test_memories_belong_to_an_owner_and_a_tenant(self, store: Store) -> None:
        assert await put(store, memory(ANN, "1", "tea"), memory(ANN, "2", "coffee"))
        assert await put(store, memory(BOB, "3", "tea"))
        assert await put(store, memory(ANN, "4", "tea"), scope=OTHERS)
        assert (await texts(store, ANN), await texts(store, BOB)) == (["tea", "coffee"], ["tea"])
        assert await texts(store, ANN, scope=OTHERS) == ["tea"]
        assert [each.id for each in await store.memories.get(OTHERS, "1")] == []
        assert [each.id for each in await store.memories.get(OWNER, "1", places=[BOB])] == []
        listed = await store.memories.page(OWNER, [ANN, BOB], limit=10)
        assert [each.id for each in listed] == ["1", "2", "3"]
        assert [each.id for each in await store.memories.page(OTHERS, None, limit=10)] == ["4"]

    async def test_each_change_of_an_owner_is_counted(self, store: Store) -> None:
        assert (await store.memories.changes(OWNER), await store.memories.generations(OWNER)) == ((0, 0), {})
        seen = set()
        for each in (memory(ANN, "1", "tea"), memory(BOB, "2", "tea"), memory(ANN, "3", "coffee")):
            assert await put(store, each)
            seen.add(await store.memories.changes(OWNER))
        assert len(seen) == 3
        generations = await store.memories.generations(OWNER)
        assert {*generations} == {ANN, BOB}
        assert generations[ANN] == generations[BOB] + 1
        assert await store.memories.known(OWNER, ["3", "4", "1"]) == {"1", "3"}
        assert await store.memories.known(OTHERS, ["1"]) == set()

    async def test_full_text_searches_only_the_requested_owners(self, store: Store) -> None:
        await put(store, memory(ANN, "1", "the lamp of the harbour"))
        await put(store, memory(BOB, "2", "the lamp of the harbour"), memory(BOB, "3", "I am allergic to nuts."))
        matched = await store.memories.find(OWNER, [BOB], memory_query("Where is the lamp?"))
        assert [each.id for each in matched.memories if each.no in matched.found] == ["2"]
        assert {each.id for each in matched.memories} == {"2", "3"}, "memories that apply always are returned too"
        assert (await store.memories.find(OTHERS, [BOB], memory_query("lamp"))).memories == ()

    @pytest.mark.parametrize(
        "size", [0, pytest.param(search.SMALL_PLACE, marks=pytest.mark.slow)], ids=["small", "large"]
    )
    async def test_memories_in_other_languages_match_words_that_begin_alike(self, store: Store, size: int) -> None:
        texts = ("die Verletzung heilt", "der Verein zahlt", "eine Brille und eine Lampe")
        others = (memory(ANN, f"other{n}", f"nichts neues, nummer {n}") for n in range(size))
        await put(store, *(memory(ANN, str(n), text) for n, text in enumerate(texts)), *others)
        for asked, ids in (("Wann hat sie sich denn verletzt?", ["0"]), ("Wo sind denn die Brillen?", ["2"])):
            matched = await store.memories.find(OWNER, [ANN], memory_query(asked))
            assert [each.id for each in matched.memories if each.no in matched.found] == ids
            assert set(matched.frequencies.values()) <= {0, 1}

    async def test_a_change_based_on_an_older_state_is_rejected(self, store: Store) -> None:
        generation, _ = await store.memories.place(OWNER, ANN)
        changes = [
            PlaceChange(place=ANN, generation=generation, memories=(memory(ANN, str(n), f"text {n}"),))
            for n in range(8)
        ]
        kept = await asyncio.gather(*(store.memories.save(OWNER, each, now=NOW) for each in changes))
        assert sum(kept) == 1
        assert len(await texts(store, ANN)) == 1

    async def test_a_changed_memory_is_found_only_by_new_words(self, store: Store) -> None:
        await put(store, memory(ANN, "1", "lamp"))
        [old] = (await store.memories.place(OWNER, ANN))[1]
        await put(store, memory(ANN, "1", "lantern", no=old.no))
        assert (await store.memories.find(OWNER, [ANN], memory_query("lamp"))).found == ()
        assert (await store.memories.find(OWNER, [ANN], memory_query("lantern"))).found == (old.no,)
        [new] = (await store.memories.place(OWNER, ANN))[1]
        assert await store.memories.remove(OWNER, [new]) == 1
        assert (await store.memories.find(OWNER, [ANN], memory_query("lantern"))).memories == ()

    async def test_a_derived_memory_without_sources_is_deleted(self, store: Store) -> None:
        await store.append(OWNER, Batch(conversation="c", drafts=drafts("one", "two"), now=NOW))
        said = Source("c", "p1")
        await put(store, memory(ANN, "1", "said", written=False, sources=(said,)), memory(ANN, "2", "put"))
        held = (await store.memories.place(OWNER, ANN))[1]
        assert [each.sources for each in held] == [(said,), ()]
        await put(store, *(memory(ANN, each.id, each.text, written=each.written, no=each.no) for each in held))
        assert await texts(store, ANN) == ["put"]

    async def test_a_changed_memory_has_its_new_sources_and_words(self, store: Store) -> None:
        await store.append(OWNER, Batch(conversation="c", drafts=drafts("one", "two"), now=NOW))
        first, last = Source("c", "p1"), Source("c", "p2")
        states = [("lamp", (first,)), ("lamp", (first, last)), ("lantern", (first, last)), ("lantern", (last,))]
        number = 0
        for text, sources in states:
            await put(store, memory(ANN, "1", text, written=False, sources=sources, no=number))
            [stored] = (await store.memories.place(OWNER, ANN))[1]
            number = stored.no
            assert (stored.text, stored.sources) == (text, sources)
            for word in ("lamp", "lantern"):
                matches = await store.memories.find(OWNER, [ANN], memory_query(word))
                assert (matches.found == (number,)) == (word == text)

    async def test_a_delivery_is_atomic_over_all_owners(self, store: Store) -> None:
        await store.append(
            OWNER, Batch(conversation="c", drafts=drafts("one", "two", "three"), now=NOW, user="ann", delivers=True)
        )
        assert await store.due_pairs("deliveries_due") == [(OWNER.tenant, "c")]
        read = await store.memories.delivering(OWNER, "c", limit=2)
        assert read is not None
        assert ([post.seq for post in read.posts], read.done) == ([1, 2], (0, 0))

        async def deliver(generation: int) -> bool:
            change = PlaceChange(place=ANN, generation=generation, memories=(memory(ANN, "1", "x"),))
            return await store.memories.deliver(OWNER, read, [change], now=NOW)

        assert not await deliver(7), "the owner's memories changed since they were read"
        assert await texts(store, ANN) == []
        once = await asyncio.gather(*(deliver(0) for _ in range(4)))
        assert sum(once) == 1
        rest = await store.memories.delivering(OWNER, "c", limit=9)
        assert rest is not None
        assert [post.seq for post in rest.posts] == [3]

    async def test_memories_of_an_abandoned_branch_are_withdrawn_once(self, store: Store) -> None:
        posts = drafts("one", "two", "three")
        await store.append(OWNER, Batch(conversation="c", drafts=posts, now=NOW, user="ann", delivers=True))
        read = await store.memories.delivering(OWNER, "c", limit=9)
        assert read is not None
        first, last = Source("c", posts[0].id), Source("c", posts[2].id)
        old = memory(ANN, "1", "x", written=False, sources=(first,), valid_to=NOW, ended_by="2")
        new = memory(ANN, "2", "y", written=False, sources=(last,), supersedes="1")
        change = PlaceChange(place=ANN, generation=0, memories=(old, new))
        assert await store.memories.deliver(OWNER, read, [change], now=NOW)
        assert await store.due_pairs("deliveries_due") == []
        await store.move_head(OWNER, "c", posts[1].id, now=NOW)
        assert await store.due_pairs("deliveries_due") == [(OWNER.tenant, "c")]
        left = await store.memories.delivering(OWNER, "c", limit=9)
        assert left is not None
        assert left.left
        once = await asyncio.gather(*(store.memories.withdraw(OWNER, left, now=NOW) for _ in range(4)))
        assert sum(once) == 1
        [held] = (await store.memories.place(OWNER, ANN))[1]
        assert (held.text, held.valid_to, held.ended_by) == ("x", None, None)
        rest = await store.memories.delivering(OWNER, "c", limit=9)
        assert rest is not None
        assert (rest.left, rest.posts, rest.seq) == (False, (), 2)

    async def test_a_users_memories_are_deleted_for_every_persona(self, store: Store) -> None:
        coach, other = (Place("persona", f"coach\x1f{user}") for user in ("ann", "bob"))
        for place in (ANN, coach, other, Place("organization", "ann")):
            await put(store, memory(place, "1", "tea"))
        assert await store.memories.places(OWNER, "ann") == [coach, ANN]
        assert await store.memories.places(OTHERS, "ann") == []

    async def test_a_scene_contains_only_memories_its_policy_allows(self, store: Store) -> None:
        await put(store, memory(ANN, "1", "the lamp of the harbour"))
        look = MemoryLook(control={"user": True}, user="ann", text="lamp")
        scene = await store.scene(OWNER, PathQuery(conversation="new", memory=look))
        assert scene.known is not None
        assert [each.id for each in scene.known.memories] == ["1"]
        assert scene.known.places == (ANN, PROJECT)
        scene = await store.scene(OWNER, PathQuery(conversation="new", memory=MemoryLook(user="ann", text="lamp")))
        assert scene.known is not None
        assert (scene.known.places, scene.known.memories) == ((PROJECT,), ())
