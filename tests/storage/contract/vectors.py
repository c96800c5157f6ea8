"""The contract of vectors: found by closeness, kept once, by model, and gone with what they are of."""

from array import array
from typing import Any

from msgspec.structs import replace

from cuebook.interfaces.memories import MemoryQuery, PlaceChange
from cuebook.interfaces.store import Batch, SearchLook, Store
from cuebook.interfaces.vectors import Embedded, EmbeddedPlace
from cuebook.records.memory import Dense, Memory, Place, Scope
from cuebook.testing.doubles import BEGINNING
from storage.makers import drafts

MODEL = "m"
US = Scope(user="ann")
ANN, BOB = Place("user", "ann"), Place("user", "bob")


def vector(x: float, y: float) -> bytes:
    """Give a vector of two numbers, at length 1."""
    length = (x * x + y * y) ** 0.5
    return array("f", (x / length, y / length)).tobytes()


def dense(x: float, y: float, *, model: str = MODEL) -> Dense:
    """Give a query's vector."""
    return Dense(model, vector(x, y), 0.5)


async def stored(store: Store, *, scope: Scope = US, name: str = "c", count: int = 3) -> int:
    """Store posts none of whose words a query of this contract holds; answers with the conversation's number."""
    texts = [f"message number {n}" for n in range(1, count + 1)]
    batch = Batch(conversation=name, drafts=drafts(*texts), now=BEGINNING, user=scope.user)
    await store.append(scope, batch)
    return (await store.conversation(scope, name)).no


def embedded(no: int, *rows: tuple[int, int, bytes], after: int = 0, upto: int = 3, **fields: Any) -> Embedded:
    """Give vectors to keep."""
    told: dict[str, Any] = {"conversation": "c", "model": MODEL, **fields}
    return Embedded(no=no, after=after, upto=upto, rows=rows, now=BEGINNING, **told)


async def found(store: Store, look: Dense, *, conversation: str | None = "c") -> dict[int, float]:
    """Give what was found by closeness alone: cosines by seq."""
    result = await store.search(US, SearchLook(text="unheard", dense=look), conversation=conversation)
    return {each.seq: round(each.cosine or 0.0, 3) for each in result.found if each.direct}


async def told(store: Store, place: Place, *texts: str) -> None:
    """Put memories into a place that has none."""
    memories = tuple(
        Memory(id=text, place=place, category="facts", text=text, written=True, valid_from=BEGINNING) for text in texts
    )
    assert await store.memories.save(US, PlaceChange(place=place, generation=0, memories=memories), now=BEGINNING)


def embedded_place(place: Place, *rows: tuple[int, int, bytes], after: int = 0, upto: int = 2) -> EmbeddedPlace:
    """Give vectors of memories to keep."""
    return EmbeddedPlace(place=place, model=MODEL, after=after, upto=upto, rows=rows, now=BEGINNING)


async def close(store: Store, look: Dense, place: Place, *, scope: Scope = US) -> dict[str, float]:
    """Give what of a place was found by closeness alone: cosines by text."""
    found = await store.memories.find(scope, [place], MemoryQuery(text="", dense=look, standing=0))
    return {each.text: round(found.cosines[each.no], 3) for each in found.memories}


class VectorsContract:
    """Vectors of posts and of memories."""

    async def test_what_is_close_is_found_without_a_common_word(self, store: Store) -> None:
        no = await stored(store)
        rows = ((1, 0, vector(1, 0)), (2, 0, vector(0, 1)), (2, 1, vector(3, 4)), (3, 0, vector(-1, 0)))
        assert await store.vectors.keep(US, embedded(no, *rows))
        assert await found(store, dense(1, 0)) == {1: 1.0, 2: 0.6, 3: -1.0}
        assert await found(store, dense(1, 0), conversation=None) == {1: 1.0, 2: 0.6, 3: -1.0}
        result = await store.search(US, SearchLook(text="unheard", dense=dense(1, 0)), conversation="c")
        assert round(result.mean_cosine, 4) == 0.0375, "three tell little: as if there were sixteen, the others unlike"

    async def test_another_model_finds_nothing(self, store: Store) -> None:
        no = await stored(store)
        await store.vectors.keep(US, embedded(no, (1, 0, vector(1, 0))))
        assert await found(store, dense(1, 0, model="other")) == {}

    async def test_vectors_that_are_added_are_found(self, store: Store) -> None:
        no = await stored(store)
        await store.vectors.keep(US, embedded(no, (1, 0, vector(1, 0)), upto=1))
        assert await found(store, dense(1, 0)) == {1: 1.0}
        await store.vectors.keep(US, embedded(no, (3, 0, vector(0, 1)), after=1))
        assert await found(store, dense(1, 0)) == {1: 1.0, 3: 0.0}
        assert await store.vectors.counts(MODEL) == (3, 2)

    async def test_who_comes_second_keeps_nothing(self, store: Store) -> None:
        no = await stored(store)
        assert await store.vectors.keep(US, embedded(no, (1, 0, vector(1, 0))))
        assert not await store.vectors.keep(US, embedded(no, (1, 0, vector(0, 1))))
        assert not await store.vectors.keep(US, embedded(no + 1, (1, 0, vector(0, 1)), model="other"))
        assert not await store.vectors.keep(US, embedded(no, (9, 0, vector(0, 1)), after=3, upto=9))
        assert await store.vectors.counts(MODEL) == (3, 1)

    async def test_posts_without_vectors_are_due(self, store: Store) -> None:
        no = await stored(store)
        [due] = await store.vectors.due(MODEL)
        assert (due.conversation, due.no, due.upto, due.last_seq) == ("c", no, 0, 3)
        assert await store.vectors.due(MODEL, since=BEGINNING + 1e6) == []
        await store.vectors.keep(US, embedded(no, upto=2))
        assert [each.upto for each in await store.vectors.due(MODEL)] == [2]
        await store.vectors.keep(US, embedded(no, after=2))
        assert await store.vectors.due(MODEL) == []
        assert [each.upto for each in await store.vectors.due("other")] == [0]

    async def test_vectors_go_with_their_conversation(self, store: Store) -> None:
        no = await stored(store)
        await store.vectors.keep(US, embedded(no, (1, 0, vector(1, 0))))
        await found(store, dense(1, 0))
        counts = await store.delete(US, "c")
        assert (counts["vectors"], counts["embedded"]) == (1, 1)
        again = await stored(store)
        assert await found(store, dense(1, 0)) == {}
        assert await store.vectors.counts(MODEL) == (0, 0)
        assert not await store.vectors.keep(US, embedded(no, (1, 0, vector(1, 0))))
        assert await store.vectors.keep(US, embedded(again, (1, 0, vector(1, 0))))

    async def test_memories_are_found_by_closeness_in_the_places_asked_for(self, store: Store) -> None:
        await told(store, ANN, "lamp", "lantern")
        await told(store, BOB, "lamp")
        assert await store.vectors.keep_of_place(US, embedded_place(ANN, (1, 0, vector(1, 0)), (2, 0, vector(3, 4))))
        assert await store.vectors.keep_of_place(US, embedded_place(BOB, (1, 0, vector(1, 0)), upto=1))
        assert await close(store, dense(1, 0), ANN) == {"lamp": 1.0, "lantern": 0.6}
        assert await close(store, dense(1, 0), BOB) == {"lamp": 1.0}
        assert await close(store, dense(1, 0, model="other"), ANN) == {}
        assert await close(store, dense(1, 0), ANN, scope=Scope("others")) == {}

    async def test_what_a_memory_said_before_has_no_vector(self, store: Store) -> None:
        await told(store, ANN, "lamp", "lantern")
        [due] = await store.vectors.places_due(MODEL)
        assert (due.place, due.upto, due.said) == (ANN, 0, 2)
        assert await store.vectors.places_due(MODEL, since=BEGINNING + 1e6) == []
        await store.vectors.keep_of_place(US, embedded_place(ANN, (1, 0, vector(1, 0)), (2, 0, vector(0, 1))))
        assert not await store.vectors.keep_of_place(US, embedded_place(ANN, (1, 0, vector(0, 1)))), "who is second"
        assert await store.vectors.places_due(MODEL) == []
        generation, [lamp, lantern] = await store.memories.place(US, ANN)
        changes = (replace(lamp, text="torch"), replace(lantern, uses=7))
        await store.memories.save(US, PlaceChange(place=ANN, generation=generation, memories=changes), now=BEGINNING)
        assert await close(store, dense(1, 0), ANN) == {"lantern": 0.0}
        [due] = await store.vectors.places_due(MODEL)
        assert [each.text for each in await store.vectors.memory_texts(US, ANN, after=due.upto, limit=9)] == ["torch"]
        late = embedded_place(ANN, (2, 0, vector(1, 0)), (3, 0, vector(1, 0)), after=2, upto=3)
        assert await store.memories.remove(US, [(await store.memories.place(US, ANN))[1][0]]) == 1
        assert await store.vectors.keep_of_place(US, late)
        assert await close(store, dense(1, 0), ANN) == {"lantern": 0.0}, "it is gone"

    async def test_one_user_finds_nothing_of_anothers(self, store: Store) -> None:
        other = Scope(user="bob")
        no = await stored(store, scope=other, name="theirs")
        await store.vectors.keep(other, embedded(no, (1, 0, vector(1, 0)), conversation="theirs"))
        assert await found(store, dense(1, 0), conversation=None) == {}
