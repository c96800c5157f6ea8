"""The contract of the turn a path last had: branches are told their own, not the newest of the conversation."""

from typing import Any

from cuebook.interfaces.store import Lease, Look, Store, TurnOn
from storage.contract.posts import OWNER, say
from storage.contract.turns import answer, begin, end
from storage.makers import draft, drafts


async def _spoken(store: Store, n: int, **changes: Any) -> Lease:
    """Ask and answer: turn `n` of the conversation, which says its number in its metadata."""
    lease = await begin(store, draft(f"q{n}", f"ask {n}"), metadata={"told": n}, **changes)
    await end(store, lease, answer(f"a{n}"))
    return lease


async def _last(store: Store, after: int | None = None) -> TurnOn | None:
    return (await store.scene(OWNER, Look(conversation="c", parent=after))).last_turn


async def _told(store: Store, after: int | None = None) -> object:
    last = await _last(store, after)
    return last.metadata.get("told") if last else None


class TurnOnContract:
    """What `Scene.last_turn` holds."""

    async def test_a_path_without_turns_has_none(self, store: Store) -> None:
        assert await _last(store) is None
        await say(store, "c", *drafts("one", "two"))
        assert await _last(store) is None

    async def test_it_is_the_newest_where_nothing_branches(self, store: Store) -> None:
        for n in (1, 2, 3):
            await _spoken(store, n)
        last = await _last(store)
        assert last is not None
        assert (last.n, last.state, last.query_seq, last.reply_seq, last.metadata) == (3, "finished", 5, 6, {"told": 3})

    async def test_posts_made_elsewhere_lie_between_without_hiding_it(self, store: Store) -> None:
        await _spoken(store, 1)
        await say(store, "c", *drafts(*["more"] * 9))
        assert await _told(store) == 1

    async def test_a_branch_has_its_own(self, store: Store) -> None:
        await _spoken(store, 1)
        await _spoken(store, 2)
        await _spoken(store, 3, after=2)  # the second message, said otherwise
        assert [await _told(store, after) for after in (None, 4, 2)] == [3, 2, 1]
        await store.move_head(OWNER, "c", "a2", now=1.0e9)
        assert await _told(store) == 2

    async def test_beside_the_path_it_is_not(self, store: Store) -> None:
        await _spoken(store, 1)
        await _spoken(store, 2, after=0, moves_head=False)
        assert await _told(store) == 1

    async def test_of_answers_to_one_message_the_one_that_stands_counts(self, store: Store) -> None:
        await _spoken(store, 1)
        await end(store, await begin(store, after=1, metadata={"told": 2}), answer("again"))
        assert [await _told(store, after) for after in (None, 2)] == [2, 1]
        assert await _told(store, 1) == 2  # neither stands: the newest

    async def test_one_that_said_nothing_tells_why(self, store: Store) -> None:
        await end(store, await begin(store, draft("q", "ask")), None, state="failed", error="the model is away")
        await say(store, "c", draft("p", "hello?"))
        last = await _last(store)
        assert last is not None
        assert (last.state, last.reply_seq, last.error) == ("failed", 0, "the model is away")
