"""The contract of vectors: found by closeness, kept once, by model, and gone with their conversation."""

from array import array
from typing import Any

from cuebook.ports.store import Batch, SearchLook, Store
from cuebook.ports.vectors import Embedded
from cuebook.records.memory import Dense, Scope
from cuebook.testing.doubles import BEGINNING
from cuebook.testing.makers import drafts

MODEL = "m"
US = Scope(user="ann")


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


class VectorsContract:
    """Vectors of posts."""

    async def test_what_is_close_is_found_without_a_common_word(self, store: Store) -> None:
        no = await stored(store)
        rows = ((1, 0, vector(1, 0)), (2, 0, vector(0, 1)), (2, 1, vector(3, 4)), (3, 0, vector(-1, 0)))
        assert await store.vectors.keep(US, embedded(no, *rows))
        assert await found(store, dense(1, 0)) == {1: 1.0, 2: 0.6, 3: -1.0}
        assert await found(store, dense(1, 0), conversation=None) == {1: 1.0, 2: 0.6, 3: -1.0}
        result = await store.search(US, SearchLook(text="unheard", dense=dense(1, 0)), conversation="c")
        assert round(result.mean_cosine, 3) == 0.2

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

    async def test_one_user_finds_nothing_of_anothers(self, store: Store) -> None:
        other = Scope(user="bob")
        no = await stored(store, scope=other, name="theirs")
        await store.vectors.keep(other, embedded(no, (1, 0, vector(1, 0)), conversation="theirs"))
        assert await found(store, dense(1, 0), conversation=None) == {}
