"""The contract of reflections: requested by a turn or by hand, due after it ends, stored once, read on its path."""

import pytest
from msgspec.structs import replace

from cuebook.errors import InvalidInput, NotFound
from cuebook.interfaces.store import MetapromptTask, PathQuery, ReflectionInput
from cuebook.records.mind import MoodState, Reflection
from cuebook.storage.store import Store
from storage.contract.posts import OWNER, say
from storage.contract.turns import answer, begin, end
from storage.makers import draft, drafts

CALLS = (MetapromptTask("gmi_frustration_recovery", "event:user_frustrated"),)
SAD = Reflection(turn=1, at=1.0, mind=MoodState(mood="empathetic"))


async def _ask(store: Store, n: int = 1) -> None:
    lease = await begin(store, draft(f"q{n}", f"ask {n}"), calls=CALLS)
    await end(store, lease, answer(f"a{n}"))


async def _read(store: Store) -> ReflectionInput | None:
    due = await store.reflections.due()
    return await store.reflections.read(OWNER, due[0]) if due else None


class ReflectionContract:
    """The contract of `Store.reflections`."""

    async def test_a_reflection_is_due_after_its_turn(self, store: Store) -> None:
        lease = await begin(store, draft("q1", "ask"), calls=CALLS)
        assert await store.reflections.due() == []
        await end(store, lease, answer("a1"))
        read = await _read(store)
        assert read is not None
        assert (read.turn.n, read.n, read.calls, read.before) == (1, 1, CALLS, None)

    async def test_a_turn_without_reflection_leaves_none(self, store: Store) -> None:
        await end(store, await begin(store, draft("q1", "ask")), answer("a1"))
        assert await store.reflections.due() == []

    async def test_a_reflection_is_stored_once_for_the_next_turn(self, store: Store) -> None:
        await _ask(store)
        read = await _read(store)
        assert read is not None
        assert await store.reflections.save(OWNER, read, SAD)
        assert not await store.reflections.save(OWNER, read, replace(SAD, mind=MoodState(mood="playful")))
        assert (await store.scene(OWNER, PathQuery(conversation="c"))).reflection == SAD
        assert await store.reflections.of(OWNER, "c") == [SAD]
        assert await store.reflections.due() == []

    async def test_the_oldest_reflection_comes_first(self, store: Store) -> None:
        await _ask(store, 1)
        await _ask(store, 2)
        assert [(each.turn, each.count) for each in await store.reflections.due()] == [(1, 2)]
        of_one = await store.reflections.due(tenant=OWNER.tenant, conversation="c")
        assert [(each.turn, each.count) for each in of_one] == [(1, 2)]
        assert await store.reflections.due(tenant=OWNER.tenant, conversation="nobody's") == []
        read = await _read(store)
        assert read is not None
        await store.reflections.save(OWNER, read, SAD)
        assert [(each.turn, each.count) for each in await store.reflections.due()] == [(2, 1)]
        read = await _read(store)
        assert read is not None
        assert (read.turn.n, read.before) == (2, SAD)

    async def test_a_branch_does_not_see_another_branchs_reflections(self, store: Store) -> None:
        await _ask(store, 1)
        await _ask(store, 2)
        for n in (1, 2):
            read = await _read(store)
            assert read is not None
            await store.reflections.save(OWNER, read, replace(SAD, turn=n))
        minds = [(await store.scene(OWNER, PathQuery(conversation="c", parent=seq))).reflection for seq in (4, 2, 0)]
        assert [each and each.turn for each in minds] == [2, 1, None]

    async def test_a_manual_reflection_is_about_the_newest_turn(self, store: Store) -> None:
        await _ask(store)
        read = await _read(store)
        assert read is not None
        await store.reflections.save(OWNER, read, SAD)
        assert await store.reflections.ask(OWNER, "c", [MetapromptTask("own", "manual")]) == 1
        read = await _read(store)
        assert read is not None
        assert (read.n, read.calls, read.before) == (2, (MetapromptTask("own", "manual"),), SAD)

    async def test_a_manual_reflection_needs_a_turn(self, store: Store) -> None:
        await say(store, "c", *drafts("one", "two"))
        with pytest.raises(InvalidInput, match="no turn to reflect on"):
            await store.reflections.ask(OWNER, "c", CALLS)
        with pytest.raises(NotFound):
            await store.reflections.ask(OWNER, "nobody's", CALLS)

    async def test_reflections_are_deleted_with_their_conversation(self, store: Store) -> None:
        await _ask(store)
        read = await _read(store)
        assert read is not None
        await store.delete(OWNER, "c")
        assert await store.reflections.due() == []
        assert not await store.reflections.save(OWNER, read, SAD)
