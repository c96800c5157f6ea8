"""The contract of the last turn of a path: each branch has its own, not the newest turn of the conversation."""

from typing import Any

from cuebook.interfaces.store import Lease, PathQuery
from cuebook.records.turn import TurnOn
from cuebook.storage.store import Store
from storage.contract.posts import OWNER, say
from storage.contract.turns import answer, begin, end
from storage.makers import draft, drafts


async def _run_turn(store: Store, n: int, **changes: Any) -> Lease:
    """Store turn `n` of the conversation with its number in the metadata."""
    lease = await begin(store, draft(f"q{n}", f"ask {n}"), metadata={"told": n}, **changes)
    await end(store, lease, answer(f"a{n}"))
    return lease


async def _last(store: Store, after: int | None = None) -> TurnOn | None:
    return (await store.scene(OWNER, PathQuery(conversation="c", parent=after))).last_turn


async def _last_turn_number(store: Store, after: int | None = None) -> object:
    last = await _last(store, after)
    return last.metadata.get("told") if last else None


class LastTurnContract:
    """The contract of `Scene.last_turn`."""

    async def test_a_path_without_turns_has_none(self, store: Store) -> None:
        assert await _last(store) is None
        await say(store, "c", *drafts("one", "two"))
        assert await _last(store) is None

    async def test_without_branches_it_is_the_newest_turn(self, store: Store) -> None:
        for n in (1, 2, 3):
            await _run_turn(store, n)
        last = await _last(store)
        assert last is not None
        assert (last.n, last.state, last.query_seq, last.reply_seq, last.metadata) == (3, "finished", 5, 6, {"told": 3})

    async def test_posts_of_other_sources_do_not_hide_it(self, store: Store) -> None:
        await _run_turn(store, 1)
        await say(store, "c", *drafts(*["more"] * 9))
        assert await _last_turn_number(store) == 1

    async def test_a_branch_has_its_own_last_turn(self, store: Store) -> None:
        await _run_turn(store, 1)
        await _run_turn(store, 2)
        await _run_turn(store, 3, after=2)  # the second message, edited
        assert [await _last_turn_number(store, after) for after in (None, 4, 2)] == [3, 2, 1]
        await store.move_head(OWNER, "c", "a2", now=1.0e9)
        assert await _last_turn_number(store) == 2

    async def test_a_turn_on_another_path_does_not_count(self, store: Store) -> None:
        await _run_turn(store, 1)
        await _run_turn(store, 2, after=0, moves_head=False)
        assert await _last_turn_number(store) == 1

    async def test_the_answer_on_the_path_counts(self, store: Store) -> None:
        await _run_turn(store, 1)
        await end(store, await begin(store, after=1, metadata={"told": 2}), answer("again"))
        assert [await _last_turn_number(store, after) for after in (None, 2)] == [2, 1]
        assert await _last_turn_number(store, 1) == 2  # neither is on the path: the newest counts

    async def test_a_turn_without_answer_has_its_error(self, store: Store) -> None:
        await end(store, await begin(store, draft("q", "ask")), None, state="failed", error="the model is away")
        await say(store, "c", draft("p", "hello?"))
        last = await _last(store)
        assert last is not None
        assert (last.state, last.reply_seq, last.error) == ("failed", 0, "the model is away")
