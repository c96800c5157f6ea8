"""Tests of the path cache: cached posts equal the posts in the file, whichever process writes."""

import random

import pytest

from cuebook.errors import NotFound
from cuebook.interfaces.store import Batch, PathQuery
from cuebook.records.memory import Scope
from cuebook.storage.search import neighbors
from cuebook.storage.store import sqlite_store
from cuebook.storage.tree import Paths
from storage.makers import draft


@pytest.fixture
async def stores(tmp_path):
    """Return two stores with their own caches, like those of two processes."""
    both = [sqlite_store(str(tmp_path / "cuebook.db"), synchronous="OFF") for _ in range(2)]
    for store in both:
        store.paths = Paths(least=1)
    yield both
    for store in both:
        await store.aclose()


async def read(store, name, **caps):
    look = PathQuery(conversation=name, use_summary=False, **({"full_tokens": 10**9} | caps))
    return [(post.seq, post.message, post.parts, post.wire) for post in (await store.scene(Scope(), look)).path]


async def fresh(store, name, **caps):
    other = sqlite_store(store.database.path)
    try:
        return await read(other, name, **caps)
    finally:
        await other.aclose()


@pytest.mark.slow
async def test_cached_posts_equal_the_file(stores):
    dice, last, ids = random.Random(5), 0, []
    for n in range(60):
        writer, reader = dice.sample(stores, 2)
        parent = None if dice.random() < 0.7 or not last else dice.choice(ids)
        said = [
            draft(f"p{n}-{k}", dice.choice(["short", "long " * 9000]), tokens=10) for k in range(dice.randint(1, 9))
        ]
        ids += [each.id for each in said]
        last = (
            await writer.append(Scope(), Batch(conversation="c", drafts=tuple(said), parent=parent, now=1.0))
        ).last_seq
        for store in (writer, reader):
            caps = {"full_tokens": dice.choice([25, 100, 10**9]), "small_tokens": dice.choice([0, 60]), "parent": None}
            caps["parent"] = dice.choice([None, None, dice.randint(1, last)])
            assert await read(store, "c", **caps) == await fresh(store, "c", **caps)


async def test_a_deleted_conversation_leaves_the_cache(stores):
    mine, theirs = stores
    batch = Batch(conversation="c", drafts=tuple(draft(f"p{n}", f"old {n}") for n in range(9)), now=1.0)
    await mine.append(Scope(), batch)
    assert len(await read(mine, "c")) == len(await read(theirs, "c")) == 9
    await mine.delete(Scope(), "c")
    assert mine.paths.size == (0, 0)
    await theirs.append(Scope(), Batch(conversation="c", drafts=(draft("p0", "new"),), now=2.0))
    for store in stores:
        assert [message for _, message, *_ in await read(store, "c")] == ["new"]
    with pytest.raises(NotFound):
        await theirs.conversation(Scope(), "gone")


async def test_the_cache_size_is_bounded(stores):
    stores[0].paths = Paths(least=1, most_tokens=350)
    for name in "abcde":
        said = tuple(draft(f"{name}{n}", "text", tokens=10) for n in range(10))
        await stores[0].append(Scope(), Batch(conversation=name, drafts=said, now=1.0))
        assert len(await read(stores[0], name)) == 10
    assert stores[0].paths.size == (3, 300)


@pytest.mark.parametrize("seq", range(1, 21))
@pytest.mark.parametrize("reach", [1, 3, 19, 30])
def test_neighbors_of_a_post_do_not_depend_on_runs(seq: int, reach: int) -> None:
    near = neighbors([(1, 20)], seq, reach)
    assert near == neighbors([(16, 20), (6, 15), (1, 5)], seq, reach)
    assert near == (
        [other for other in range(seq - 1, seq - reach - 1, -1) if other >= 1],
        [other for other in range(seq + 1, seq + reach + 1) if other <= 20],
    )
