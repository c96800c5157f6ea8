"""The contract of vectors: similarity search, one vector per model and text, and deletion with the text."""

from array import array

from msgspec.structs import replace

from cuebook.interfaces.store import Batch, MemoryQuery, PlaceChange, SearchLook
from cuebook.records.memory import Dense, Memory, Place, Scope
from cuebook.storage.store import Store
from cuebook.storage.vectors import EmbeddingBacklog, NewVectors
from cuebook.testing.doubles import BEGINNING
from storage.makers import drafts

MODEL = "m"
US = Scope(user="ann")
ANN, BOB = Place("user", "ann"), Place("user", "bob")


def vector(x: float, y: float) -> bytes:
    """Return a unit vector of two numbers."""
    length = (x * x + y * y) ** 0.5
    return array("f", (x / length, y / length)).tobytes()


def dense(x: float, y: float, *, model: str = MODEL) -> Dense:
    """Return a query's vector."""
    return Dense(model, vector(x, y), 0.5)


async def stored(store: Store, *, scope: Scope = US, name: str = "c", count: int = 3) -> int:
    """Store posts that share no word with the queries. Return the conversation's number."""
    texts = [f"message number {n}" for n in range(1, count + 1)]
    batch = Batch(conversation=name, drafts=drafts(*texts), now=BEGINNING, user=scope.user)
    await store.append(scope, batch)
    return (await store.conversation(scope, name)).no


def embedded(
    no: int, *rows: tuple[int, int, bytes], after: int = 0, upto: int = 3, conversation: str = "c", model: str = MODEL
) -> tuple[EmbeddingBacklog, NewVectors]:
    """Return vectors to store, and the conversation that lacks them."""
    due = EmbeddingBacklog(tenant=US.tenant, conversation=conversation, no=no, upto=after, last_seq=upto)
    return due, NewVectors(model=model, after=after, upto=upto, rows=rows, now=BEGINNING)


async def find_similar(store: Store, look: Dense, *, conversation: str | None = "c") -> dict[int, float]:
    """Return what similarity search alone finds: cosines by seq."""
    result = await store.search(US, SearchLook(text="unheard", dense=look), conversation=conversation)
    return {each.seq: round(each.cosine or 0.0, 3) for each in result.found if each.direct}


async def store_memories(store: Store, place: Place, *texts: str, scope: Scope = US, now: float = BEGINNING) -> None:
    """Store memories of an owner that has none."""
    memories = tuple(
        Memory(
            id=text, kind=place.kind, owner=place.id, category="facts", text=text, written=True, valid_from=BEGINNING
        )
        for text in texts
    )
    assert await store.memories.save(scope, PlaceChange(place=place, generation=0, memories=memories), now=now)


def embedded_place(
    place: Place, *rows: tuple[int, int, bytes], after: int = 0, upto: int = 2
) -> tuple[Place, NewVectors]:
    """Return vectors of memories to store, and their owner."""
    return place, NewVectors(model=MODEL, after=after, upto=upto, rows=rows, now=BEGINNING)


async def find_similar_memories(store: Store, look: Dense, place: Place, *, scope: Scope = US) -> dict[str, float]:
    """Return what similarity search alone finds of an owner: cosines by text."""
    found = await store.memories.find(scope, [place], MemoryQuery(text="", dense=look, standing=0))
    return {each.text: round(found.cosines[each.no], 3) for each in found.memories}


class VectorsContract:
    """Vectors of posts and of memories."""

    async def test_similar_posts_are_found_without_a_common_word(self, store: Store) -> None:
        no = await stored(store)
        rows = ((1, 0, vector(1, 0)), (2, 0, vector(0, 1)), (2, 1, vector(3, 4)), (3, 0, vector(-1, 0)))
        assert await store.vectors.keep(US, *embedded(no, *rows))
        assert await find_similar(store, dense(1, 0)) == {1: 1.0, 2: 0.6, 3: -1.0}
        assert await find_similar(store, dense(1, 0), conversation=None) == {1: 1.0, 2: 0.6, 3: -1.0}
        result = await store.search(US, SearchLook(text="unheard", dense=dense(1, 0)), conversation="c")
        assert round(result.mean_cosine, 4) == 0.0375, (
            "three candidates are too few: the score assumes sixteen, the others dissimilar"
        )

    async def test_a_query_of_several_sentences_finds_what_is_close_to_one_of_them(self, store: Store) -> None:
        no = await stored(store)
        rows = ((1, 0, vector(1, 0)), (2, 0, vector(0, 1)), (3, 0, vector(-1, -1)))
        await store.vectors.keep(US, *embedded(no, *rows))
        of_both = replace(dense(1, 1), sentences=(vector(1, 0), vector(0, 1)))
        found = await find_similar(store, of_both)
        assert found[1] == found[2] > 0.9, "each is the sentence itself; to the whole query both have 0.707"
        assert found[3] < 0.2
        repeated = replace(dense(3, 4), sentences=(vector(3, 4),) * 8)
        assert max((await find_similar(store, repeated)).values()) == 0.8, "a repeated sentence is not closer"

    async def test_another_model_finds_nothing(self, store: Store) -> None:
        no = await stored(store)
        await store.vectors.keep(US, *embedded(no, (1, 0, vector(1, 0))))
        assert await find_similar(store, dense(1, 0, model="other")) == {}

    async def test_added_vectors_are_found(self, store: Store) -> None:
        no = await stored(store)
        await store.vectors.keep(US, *embedded(no, (1, 0, vector(1, 0)), upto=1))
        assert await find_similar(store, dense(1, 0)) == {1: 1.0}
        await store.vectors.keep(US, *embedded(no, (3, 0, vector(0, 1)), after=1))
        assert await find_similar(store, dense(1, 0)) == {1: 1.0, 3: 0.0}
        assert await store.vectors.counts(MODEL) == (3, 2)

    async def test_the_second_writer_stores_nothing(self, store: Store) -> None:
        no = await stored(store)
        assert await store.vectors.keep(US, *embedded(no, (1, 0, vector(1, 0))))
        assert not await store.vectors.keep(US, *embedded(no, (1, 0, vector(0, 1))))
        assert not await store.vectors.keep(US, *embedded(no + 1, (1, 0, vector(0, 1)), model="other"))
        assert not await store.vectors.keep(US, *embedded(no, (9, 0, vector(0, 1)), after=3, upto=9))
        assert await store.vectors.counts(MODEL) == (3, 1)

    async def test_posts_without_vectors_are_listed_as_due(self, store: Store) -> None:
        no = await stored(store)
        [due] = await store.vectors.due(MODEL)
        assert (due.conversation, due.no, due.upto, due.last_seq) == ("c", no, 0, 3)
        assert await store.vectors.due(MODEL, since=BEGINNING + 1e6) == []
        await store.vectors.keep(US, *embedded(no, upto=2))
        assert [each.upto for each in await store.vectors.due(MODEL)] == [2]
        await store.vectors.keep(US, *embedded(no, after=2))
        assert await store.vectors.due(MODEL) == []
        assert [each.upto for each in await store.vectors.due("other")] == [0]

    async def test_vectors_are_deleted_with_their_conversation(self, store: Store) -> None:
        no = await stored(store)
        await store.vectors.keep(US, *embedded(no, (1, 0, vector(1, 0))))
        await find_similar(store, dense(1, 0))
        counts = await store.delete(US, "c")
        assert (counts["vectors"], counts["embedded"]) == (1, 1)
        again = await stored(store)
        assert await find_similar(store, dense(1, 0)) == {}
        assert await store.vectors.counts(MODEL) == (0, 0)
        assert not await store.vectors.keep(US, *embedded(no, (1, 0, vector(1, 0))))
        assert await store.vectors.keep(US, *embedded(again, (1, 0, vector(1, 0))))

    async def test_similar_memories_of_the_requested_owners_are_found(self, store: Store) -> None:
        await store_memories(store, ANN, "lamp", "lantern")
        await store_memories(store, BOB, "lamp")
        assert await store.vectors.keep_of_place(US, *embedded_place(ANN, (1, 0, vector(1, 0)), (2, 0, vector(3, 4))))
        assert await store.vectors.keep_of_place(US, *embedded_place(BOB, (1, 0, vector(1, 0)), upto=1))
        assert await find_similar_memories(store, dense(1, 0), ANN) == {"lamp": 1.0, "lantern": 0.6}
        assert await find_similar_memories(store, dense(1, 0), BOB) == {"lamp": 1.0}
        assert await find_similar_memories(store, dense(1, 0, model="other"), ANN) == {}
        assert await find_similar_memories(store, dense(1, 0), ANN, scope=Scope("others")) == {}

    async def test_due_work_comes_from_tenants_in_turn(self, store: Store) -> None:
        busy, other = Scope("busy", "ann"), Scope("other", "ann")
        for scope, number in [*((busy, n) for n in range(3)), (other, 3)]:
            await store_memories(store, Place("user", f"u{number}"), "lamp", scope=scope, now=BEGINNING - number)
            await stored(store, scope=scope, name=f"c{number}")
        places = await store.vectors.places_due(MODEL, limit=2)
        assert {each.tenant for each in places} == {"busy", "other"}
        for statement in ("conversations_idle", "memories_untouched"):
            due = await store.due_pairs(statement, before=1e12, limit=2)
            assert {tenant for tenant, _ in due} == {"busy", "other"}, statement

    async def test_a_memorys_earlier_text_has_no_vector(self, store: Store) -> None:
        await store_memories(store, ANN, "lamp", "lantern")
        [due] = await store.vectors.places_due(MODEL)
        assert (due.place, due.upto, due.said) == (ANN, 0, 2)
        assert await store.vectors.places_due(MODEL, since=BEGINNING + 1e6) == []
        await store.vectors.keep_of_place(US, *embedded_place(ANN, (1, 0, vector(1, 0)), (2, 0, vector(0, 1))))
        assert not await store.vectors.keep_of_place(US, *embedded_place(ANN, (1, 0, vector(0, 1)))), (
            "the second writer stores nothing"
        )
        assert await store.vectors.places_due(MODEL) == []
        generation, [lamp, lantern] = await store.memories.place(US, ANN)
        changes = (replace(lamp, text="torch"), replace(lantern, uses=7))
        await store.memories.save(US, PlaceChange(place=ANN, generation=generation, memories=changes), now=BEGINNING)
        assert await find_similar_memories(store, dense(1, 0), ANN) == {"lantern": 0.0}
        [due] = await store.vectors.places_due(MODEL)
        assert [text for *_, text in await store.vectors.memory_texts(US, ANN, after=due.upto, limit=9)] == ["torch"]
        late = embedded_place(ANN, (2, 0, vector(1, 0)), (3, 0, vector(1, 0)), after=2, upto=3)
        assert await store.memories.remove(US, [(await store.memories.place(US, ANN))[1][0]]) == 1
        assert await store.vectors.keep_of_place(US, *late)
        assert await find_similar_memories(store, dense(1, 0), ANN) == {"lantern": 0.0}, (
            "the replaced text has no vector"
        )

    async def test_a_user_finds_no_memories_of_others(self, store: Store) -> None:
        other = Scope(user="bob")
        no = await stored(store, scope=other, name="theirs")
        await store.vectors.keep(other, *embedded(no, (1, 0, vector(1, 0)), conversation="theirs"))
        assert await find_similar(store, dense(1, 0), conversation=None) == {}
