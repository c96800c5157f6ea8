"""The contract of leases: a turn without renewal ends with its partial answer, and its late holder is rejected."""

import msgspec
import pytest

from cuebook.errors import Busy, Conflict, LeaseLost
from cuebook.records.conversation import Part
from cuebook.storage.store import Store
from storage.contract.posts import OWNER, path_of, say
from storage.contract.turns import LEASE, NOW, answer, begin, end
from storage.makers import draft


class LeasesContract:
    """Leases that expire, and turns that nobody ends."""

    async def test_an_expired_turn_is_interrupted_with_its_partial_answer(self, store: Store) -> None:
        lease = await begin(store, draft("q", "ask"))
        await store.checkpoint(lease, answer(message="half"), now=NOW, lease_s=LEASE)
        assert await store.expire(now=NOW + LEASE) == 0
        assert await store.expire(now=NOW + LEASE + 1) == 1
        posts = await store.posts(OWNER, "c")
        assert [(post.id, post.message, post.state) for post in posts][1:] == [("a", "half", "interrupted")]
        turn = await store.turn(OWNER, "c", 1)
        assert (turn.state, turn.reply_seq, turn.steps[0].state) == ("interrupted", 2, "interrupted")
        assert await store.round_states(OWNER, "c") == {1: "failed"}
        assert await store.expire(now=NOW + 999) == 0

    async def test_an_expired_turn_without_answer_stores_nothing(self, store: Store) -> None:
        await begin(store, draft("q", "ask"))
        assert await store.expire(now=NOW + 31) == 1
        assert await path_of(store, "c") == ["q"]
        assert (await store.turn(OWNER, "c", 1)).state == "interrupted"

    async def test_writes_of_an_outdated_holder_are_rejected(self, store: Store) -> None:
        lease = await begin(store, draft("q", "ask"))
        await store.expire(now=NOW + 31)
        later = await begin(store, draft("q2", "ask again"), now=NOW + 40)
        for stale in (lease, msgspec.structs.replace(lease, turn=later.turn)):
            with pytest.raises(LeaseLost):
                await store.checkpoint(stale, answer("z"), now=NOW + 41, lease_s=LEASE)
            with pytest.raises(LeaseLost):
                await end(store, stale, answer("z"))
        assert await end(store, later, answer("a2")) == 3
        assert await path_of(store, "c") == ["q", "q2", "a2"]

    async def test_a_late_holder_continues_if_nobody_took_over(self, store: Store) -> None:
        lease = await begin(store, draft("q", "ask"))
        await store.checkpoint(lease, None, now=NOW + 500, lease_s=LEASE)
        assert await end(store, lease, answer(), now=NOW + 900) == 2

    async def test_the_next_opener_ends_an_expired_turn(self, store: Store) -> None:
        await begin(store, draft("q", "ask"))
        assert (await begin(store, draft("q2", "anyone?"), now=NOW + 31)).turn == 2
        assert (await store.turn(OWNER, "c", 1)).state == "interrupted"

    async def test_the_next_opener_rereads_after_an_interrupted_post(self, store: Store) -> None:
        lease = await begin(store, draft("q", "ask"))
        await store.checkpoint(lease, answer(message="half"), now=NOW, lease_s=LEASE)
        with pytest.raises(Conflict) as refused:
            await begin(store, draft("q2", "anyone?"), now=NOW + 31)
        assert not isinstance(refused.value, Busy)
        assert await path_of(store, "c") == ["q", "a"]
        assert (await begin(store, draft("q2", "anyone?"), now=NOW + 31)).turn == 2

    async def test_an_expired_turn_with_unstorable_text_still_ends(self, store: Store) -> None:
        for name in ("c", "d"):
            lease = await begin(store, draft("q", "ask"), conversation=name)
            await store.checkpoint(lease, answer(message="half"), now=NOW, lease_s=LEASE)
        await say(store, "c", answer("a", "taken by another"))
        assert await store.expire(now=NOW + 31) == 2
        assert await path_of(store, "d") == ["q", "a"]
        assert (await store.turn(OWNER, "c", 1)).state == "interrupted"

    async def test_a_lease_of_a_wrong_clock_ends_without_renewal(self, store: Store) -> None:
        ahead = NOW + 10_000_000
        for name in ("dead", "alive"):
            lease = await begin(store, draft("q", "ask"), conversation=name, now=ahead)
        for n in range(30):
            assert await store.expire(now=NOW + n, lease_s=LEASE) == 0
            await store.checkpoint(lease, None, now=ahead + n, lease_s=LEASE)
        assert await store.expire(now=NOW + LEASE) == 0, "without a lease duration nothing ends"
        assert await store.expire(now=NOW + LEASE + 1, lease_s=LEASE) == 1
        states = [(await store.turn(OWNER, name, 1)).state for name in ("dead", "alive")]
        assert states == ["interrupted", "running"]
        assert (await begin(store, draft("q2", "anyone?"), conversation="dead", now=NOW + LEASE + 1)).turn == 2

    async def test_a_lease_with_a_plausible_time_is_kept(self, store: Store) -> None:
        await begin(store, draft("q", "ask"))
        for n in range(0, 40, 5):
            assert await store.expire(now=NOW, lease_s=LEASE) == 0, n

    async def test_a_waiting_turn_ends_at_a_post_that_is_no_result(self, store: Store) -> None:
        for name, after in (("one", "q"), ("other", None)):
            lease = await begin(store, draft("q", "ask"), conversation=name)
            await end(store, lease, answer("call"), waiting=True)
            result = Part("execution_result", "42", {"callId": "x"})
            await say(store, name, draft("r1", "42", role="tool"), draft("r2", "42", parts=(result,)))
            assert (await store.turn(OWNER, name, 1)).waiting
            await say(store, name, draft("r3", "42", role="tool"), draft("n", "never mind"), parent=after)
            turn = await store.turn(OWNER, name, 1)
            assert (turn.state, turn.waiting, turn.closed_at) == ("interrupted", False, NOW)
            assert (await store.conversation(OWNER, name)).open_round == 0
            assert (await store.round_states(OWNER, name))[1] == "failed"
            assert await store.compaction(OWNER, name, limit=9)

    async def test_a_running_turn_continues_after_any_append(self, store: Store) -> None:
        lease = await begin(store, draft("q", "ask"))
        await say(store, "c", draft("n", "by the way"))
        await end(store, lease, answer("call"), waiting=True)
        assert (await store.turn(OWNER, "c", 1)).waiting

    async def test_a_turn_that_waits_too_long_ends(self, store: Store) -> None:
        times = {"left": NOW, "used": NOW + 50, "ahead": NOW + 10_000_000}
        for name, now in times.items():
            lease = await begin(store, draft("q", "ask"), conversation=name, now=now)
            await end(store, lease, answer("call"), waiting=True, now=now)
        assert await store.expire(now=NOW + 100) == 0, "without a wait limit nothing ends"
        assert await store.expire(now=NOW + 100, wait_s=60, limit=1) == 1
        assert await store.expire(now=NOW + 100, wait_s=60) == 1
        states = [(await store.turn(OWNER, name, 1)).state for name in times]
        assert states == ["interrupted", "running", "interrupted"]
        assert (await store.conversation(OWNER, "left")).updated_at == NOW

    async def test_deleting_a_conversation_ends_its_leases(self, store: Store) -> None:
        lease = await begin(store, draft("q", "ask"))
        await store.delete(OWNER, "c")
        await begin(store, draft("q", "begun again"))
        with pytest.raises(LeaseLost):
            await end(store, lease, answer())
        assert await path_of(store, "c") == ["q"]
