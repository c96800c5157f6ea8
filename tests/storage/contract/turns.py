"""The contract of turns: one at a time, based on the read state, never lost, never written by an outdated holder."""

import asyncio
from typing import Any

import msgspec
import pytest

from cuebook.errors import Busy, Conflict, CuebookError, LeaseLost, NotFound
from cuebook.interfaces.prompts import Write
from cuebook.interfaces.store import Lease, PathQuery, StepEnd
from cuebook.prompts.digest import sealed
from cuebook.records.conversation import Draft, text_digest
from cuebook.records.memory import Scope
from cuebook.records.prompt import Version
from cuebook.records.turn import TurnState, Usage, WorkUsage
from cuebook.storage.store import Store
from cuebook.testing.doubles import BEGINNING
from storage.contract.posts import OWNER, path_of, say
from storage.makers import draft, drafts, manifest, opening, opening_at

NOW = BEGINNING
LEASE = 30.0


async def begin(
    store: Store, *said: Draft, conversation: str = "c", now: float = NOW, scope: Scope = OWNER, **changes: Any
) -> Lease:
    """Load a scene and open a step on it."""
    scene = await store.scene(scope, PathQuery(conversation=conversation, parent=changes.pop("after", None)))
    return await store.open(scope, opening_at(scene, conversation, *said, now=now, lease_s=LEASE, **changes))


async def end(store: Store, lease: Lease, reply: Draft | None, *, now: float = NOW + 1, **changes: Any) -> int:
    """Close a step, by default as finished."""
    values: dict[str, Any] = {"state": "finished", "now": now, "reply": reply}
    return await store.close(lease, StepEnd(**values | changes))


def answer(id: str = "a", message: str = "well", **changes: Any) -> Draft:  # noqa: A002
    """Return an assistant's post."""
    return draft(id, message, role="assistant", **changes)


class RepeatedCloseContract:
    """Closing a step again, after a commit whose result is unknown."""

    @pytest.mark.parametrize("reply", [None, answer()], ids=["empty", "answer"])
    @pytest.mark.parametrize("parallel", [False, True])
    async def test_the_same_end_again_changes_nothing(self, store: Store, reply: Draft | None, parallel: bool) -> None:
        lease = await begin(store, draft("q", "ask"), parallel=parallel)
        seq = await end(store, lease, reply)
        stored = await store.turn(OWNER, "c", 1)
        assert await end(store, lease, reply) == seq
        assert await store.turn(OWNER, "c", 1) == stored
        for other in ({"state": "interrupted"}, {"error": "broken"}, {"reply": answer(message="well then")}):
            with pytest.raises(LeaseLost):
                await end(store, lease, **{"reply": reply, **other})

    async def test_the_shorter_end_of_another_process_is_not_the_same(self, store: Store) -> None:
        lease = await begin(store, draft("q", "ask"))
        await store.checkpoint(lease, answer(message="we", state="interrupted"), now=NOW + 1, lease_s=LEASE)
        assert await store.expire(now=NOW + 60) == 1
        with pytest.raises(LeaseLost):
            await end(store, lease, answer(state="interrupted"), state="interrupted")


class OpeningContract:
    """Opening a step and holding its lease."""

    async def test_open_stores_the_query_the_step_and_its_window(self, store: Store) -> None:
        window = manifest(tokens=7, fence="abc", digest="1" * 32)
        texts = {text_digest("persona"): "persona"}
        lease = await begin(store, draft("q", "why?"), manifest=window, texts=texts, metadata={"route": "x"})
        assert (lease.turn, lease.step, lease.until, lease.last_seq) == (1, 1, NOW + LEASE, 1)
        turn = await store.turn(OWNER, "c", 1)
        assert (turn.state, turn.round, turn.query_seq, turn.metadata) == ("running", 1, 1, {"route": "x"})
        assert [(step.n, step.state, step.manifest) for step in turn.steps] == [(1, "running", window)]
        assert await store.texts(OWNER, list(texts)) == texts
        scene = await store.scene(OWNER, PathQuery(conversation="c", full_tokens=100))
        assert scene.waiting_turn is None
        assert scene.previous == window
        assert [post.id for post in scene.path] == ["q"]
        assert await store.round_states(OWNER, "c") == {1: "created"}

    async def test_one_of_two_openers_wins(self, store: Store) -> None:
        await say(store, "c", *drafts("one", "two"))
        scene = await store.scene(OWNER, PathQuery(conversation="c"))
        calls = [store.open(OWNER, opening_at(scene, "c", draft(f"q{n}", "ask"))) for n in range(8)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(answer, Lease) for answer in answers) == 1
        assert sum(isinstance(answer, Conflict) for answer in answers) == 7
        assert (await store.conversation(OWNER, "c")).last_seq == 3

    async def test_open_conflicts_after_newer_posts(self, store: Store) -> None:
        await say(store, "c", *drafts("one"))
        scene = await store.scene(OWNER, PathQuery(conversation="c"))
        await say(store, "c", *drafts("two", start=2))
        with pytest.raises(Conflict) as refused:
            await store.open(OWNER, opening_at(scene, "c", draft("q", "ask")))
        assert not isinstance(refused.value, Busy | LeaseLost)
        assert await path_of(store, "c") == ["p1", "p2"]
        assert (await store.conversation(OWNER, "c")).turns == 0

    async def test_open_conflicts_after_a_side_branch_grew(self, store: Store) -> None:
        await say(store, "c", *drafts("one"))
        scene = await store.scene(OWNER, PathQuery(conversation="c"))
        await end(store, await begin(store, draft("side", "a title, please"), moves_head=False), answer("title"))
        with pytest.raises(Conflict):
            await store.open(OWNER, opening_at(scene, "c", draft("q", "ask")))
        assert (await store.conversation(OWNER, "c")).last_seq == 3

    async def test_open_conflicts_after_the_head_moved(self, store: Store) -> None:
        await say(store, "c", *drafts("one", "two"))
        scene = await store.scene(OWNER, PathQuery(conversation="c"))
        await store.move_head(OWNER, "c", "p1", now=NOW)
        with pytest.raises(Conflict):
            await store.open(OWNER, opening_at(scene, "c", draft("q", "ask")))

    async def test_a_busy_conversation_says_when_to_retry(self, store: Store) -> None:
        await begin(store, draft("q", "ask"))
        with pytest.raises(Busy) as refused:
            await begin(store, draft("q2", "ask"), now=NOW + 10)
        assert refused.value.retry_after == pytest.approx(LEASE - 10)
        assert await path_of(store, "c") == ["q"]

    async def test_an_existing_id_conflicts_without_opening(self, store: Store) -> None:
        await say(store, "c", *drafts("one"))
        for wrong in ([draft("p1", "other")], [draft("q", "ask"), draft("q", "ask")]):
            with pytest.raises(Conflict):
                await begin(store, *wrong)
        row = await store.conversation(OWNER, "c")
        assert (row.last_seq, row.turns, row.lease_until, row.fence) == (1, 0, 0, 0)

    async def test_an_unknown_parent_or_query_is_not_found(self, store: Store) -> None:
        await say(store, "c", *drafts("one"))
        unknown: list[dict[str, Any]] = [{"parent": 9}, {"query_seq": 9}]
        for wrong in unknown:
            with pytest.raises(NotFound):
                await begin(store, draft("q", "ask"), **wrong)
        assert (await store.conversation(OWNER, "c")).turns == 0

    async def test_checkpoints_renew_the_lease_and_store_partial_text(self, store: Store) -> None:
        lease = await begin(store, draft("q", "ask"))
        await store.checkpoint(lease, None, now=NOW + 20, lease_s=LEASE)
        assert await store.expire(now=NOW + 40) == 0
        await store.checkpoint(lease, answer(message="half an"), now=NOW + 45, lease_s=LEASE)
        await store.checkpoint(lease, None, now=NOW + 50, lease_s=LEASE)
        assert (await store.conversation(OWNER, "c")).lease_until == NOW + 50 + LEASE
        assert (await store.turn(OWNER, "c", 1)).partial == "half an"
        assert await path_of(store, "c") == ["q"], "a partial answer is no post yet"
        await end(store, lease, answer(message="half an answer"))
        assert (await store.turn(OWNER, "c", 1)).partial == ""

    async def test_a_parallel_turn_has_a_lease_of_its_own(self, store: Store) -> None:
        await end(store, await begin(store, draft("q", "ask")), answer())
        first = await begin(store, draft("q1", "one"))
        with pytest.raises(Busy):
            await begin(store, draft("q2", "two"), after=2)
        second = await begin(store, draft("q2", "two"), after=2, parallel=True, moves_head=False)
        assert (second.turn, second.parallel) == (3, True)
        assert await end(store, second, answer("a2"), waiting=True) == 5
        assert (await store.turn(OWNER, "c", 3)).state == "finished", "a parallel turn does not wait for tool results"
        assert await end(store, first, answer("a1")) == 6
        assert await path_of(store, "c") == ["q", "a", "q1", "a1"]
        with pytest.raises(LeaseLost):
            await end(store, second, answer("late"))

    async def test_an_expired_parallel_turn_keeps_its_checkpoint(self, store: Store) -> None:
        first = await begin(store, draft("q1", "one"))
        second = await begin(store, draft("q2", "two"), after=0, parallel=True, moves_head=False)
        await store.checkpoint(first, None, now=NOW + LEASE, lease_s=LEASE)
        await store.checkpoint(second, answer("a2", "part"), now=NOW + 1, lease_s=LEASE)
        assert await store.expire(now=NOW + LEASE + 2) == 1
        turn = await store.turn(OWNER, "c", second.turn)
        assert (turn.state, turn.reply_seq) == ("interrupted", 3)
        posts = await store.posts(OWNER, "c", path=False)
        assert [(post.message, post.parent, post.state) for post in posts[2:]] == [("part", 2, "interrupted")]
        with pytest.raises(LeaseLost):
            await store.checkpoint(second, None, now=NOW + LEASE + 2, lease_s=LEASE)
        assert await end(store, first, answer("a1"), now=NOW + LEASE + 2) == 4
        assert await path_of(store, "c") == ["q1", "a1"]

    async def test_a_regenerated_answer_is_a_sibling(self, store: Store) -> None:
        await end(store, await begin(store, draft("q", "ask")), answer("a1"))
        lease = await begin(store, after=1)
        assert await path_of(store, "c") == ["q"]
        assert await end(store, lease, answer("a2", "better")) == 3
        assert await path_of(store, "c") == ["q", "a2"]
        assert [turn.round for turn in await store.turns(OWNER, "c", last=5)] == [1, 1]

    async def test_a_side_branch_does_not_move_the_head(self, store: Store) -> None:
        await say(store, "c", *drafts("one", "two"))
        lease = await begin(store, draft("side", "a title, please"), moves_head=False)
        assert await end(store, lease, answer("title")) == 4
        assert await path_of(store, "c") == ["p1", "p2"]
        row = await store.conversation(OWNER, "c")
        assert (row.last_seq, row.backlog) == (4, 2)
        assert [post.id for post in await store.posts(OWNER, "c", head=4)] == ["p1", "p2", "side", "title"]

    async def test_a_first_side_branch_leaves_the_head_empty(self, store: Store) -> None:
        await end(store, await begin(store, draft("side", "a title, please"), moves_head=False), answer("title"))
        assert await path_of(store, "c") == []
        await say(store, "c", draft("first", "hello"))
        assert await path_of(store, "c") == ["first"]
        assert (await store.conversation(OWNER, "c")).backlog == 1

    async def test_the_project_is_stored_and_its_prompts_load(self, store: Store) -> None:
        for slug in ("a", "default/a", "projects/acme/a", "projects/x/default/a"):
            version = sealed(Version(slug=slug, sections={"body": slug}))
            await store.prompts.save(OWNER, [Write(version=version)], by="ann", now=BEGINNING)
        await end(store, await begin(store, draft("q", "ask"), mode="calm", project="acme"), answer())
        await end(store, await begin(store, draft("r", "ask"), mode="wild"), answer("b"))
        assert (await store.conversation(OWNER, "c")).metadata == {"mode": "wild", "project": "acme"}
        for conversation, asked, otherwise, own in (
            ("c", None, "x", {"projects/acme/a"}),
            ("c", "x", "", {"projects/x/default/a"}),
            ("c", "", "x", set()),
            ("new", None, "x", {"projects/x/default/a"}),
            ("new", None, "", set()),
        ):
            look = PathQuery(conversation=conversation, prompts=("a", "default/a"), project=asked, otherwise=otherwise)
            assert (await store.scene(OWNER, look)).families.keys() == {"a", "default/a", *own}

    async def test_the_mode_is_stored_in_the_conversation(self, store: Store) -> None:
        await end(store, await begin(store, draft("q", "ask"), mode="calm"), answer())
        await end(store, await begin(store, draft("q2", "ask")), answer("a2"))
        assert (await store.conversation(OWNER, "c")).metadata == {"mode": "calm"}


class ClosingContract:
    """Closing steps, and interrupting steps that stay open."""

    async def test_close_stores_the_reply_after_its_query(self, store: Store) -> None:
        lease = await begin(store, draft("q", "ask"), metadata={"a": 1, "b": 1})
        usage = Usage(input=10, output=3, cache_read=8)
        assert await end(store, lease, answer(), usage=usage, metadata={"b": 2}) == 2
        turn = await store.turn(OWNER, "c", 1)
        assert (turn.state, turn.reply_seq, turn.metadata, turn.closed_at) == ("finished", 2, {"a": 1, "b": 2}, NOW + 1)
        assert [(step.state, step.reply_seq, step.usage) for step in turn.steps] == [("finished", 2, usage)]
        assert await store.round_states(OWNER, "c") == {1: "finished"}
        assert await path_of(store, "c") == ["q", "a"]
        row = await store.conversation(OWNER, "c")
        assert (row.lease_until, row.open_round, row.turns) == (0, 0, 1)
        scene = await store.scene(OWNER, PathQuery(conversation="c"))
        assert scene.waiting_turn is None

    async def test_a_failed_turn_keeps_its_query_and_its_error(self, store: Store) -> None:
        assert await end(store, await begin(store, draft("q", "ask")), None, state="failed", error="upstream 500") == 0
        turn = await store.turn(OWNER, "c", 1)
        assert (turn.state, turn.steps[0].error, turn.reply_seq) == ("failed", "upstream 500", 0)
        assert await store.round_states(OWNER, "c") == {1: "failed"}
        assert await path_of(store, "c") == ["q"]

    async def test_further_choices_are_siblings_of_the_reply(self, store: Store) -> None:
        lease = await begin(store, draft("q", "ask"))
        assert await end(store, lease, answer("a"), others=(answer("b", "or"), answer("c", "else"))) == 2
        posts = await store.posts(OWNER, "c", path=False)
        assert [(post.id, post.parent) for post in posts] == [("q", 0), ("a", 1), ("b", 1), ("c", 1)]
        await say(store, "c", draft("next", "go on"))
        assert await path_of(store, "c") == ["q", "a", "next"]

    async def test_a_reply_follows_posts_stored_meanwhile(self, store: Store) -> None:
        lease = await begin(store, draft("q", "ask"))
        await say(store, "c", draft("extra", "by the way"))
        assert await end(store, lease, answer()) == 3
        assert await path_of(store, "c") == ["q", "extra", "a"]

    async def test_a_reply_stays_on_its_branch_after_a_head_move(self, store: Store) -> None:
        await say(store, "c", *drafts("one", "two"))
        lease = await begin(store, draft("q", "ask"))
        await say(store, "c", draft("edit", "instead"), parent="p1")
        assert await end(store, lease, answer()) == 5
        assert await path_of(store, "c") == ["p1", "edit"]
        assert [post.id for post in await store.posts(OWNER, "c", head=5)] == ["p1", "p2", "q", "a"]
        assert (await store.conversation(OWNER, "c")).backlog == 2

    async def test_a_reply_with_existing_id_conflicts_and_keeps_the_turn_open(self, store: Store) -> None:
        lease = await begin(store, draft("q", "ask"))
        with pytest.raises(Conflict):
            await end(store, lease, answer("q"))
        assert await end(store, lease, answer("a")) == 2

    async def test_a_closed_turn_cannot_be_closed_again(self, store: Store) -> None:
        lease = await begin(store, draft("q", "ask"))
        await end(store, lease, answer())
        with pytest.raises(LeaseLost):
            await end(store, lease, answer("again"))
        with pytest.raises(LeaseLost):
            await store.checkpoint(lease, None, now=NOW, lease_s=LEASE)
        assert await path_of(store, "c") == ["q", "a"]

    async def test_tool_calls_are_steps_of_one_turn(self, store: Store) -> None:
        lease = await begin(store, draft("q", "ask"))
        assert await end(store, lease, answer("call"), waiting=True) == 2
        turn = await store.turn(OWNER, "c", 1)
        assert (turn.state, turn.waiting, turn.steps[0].state) == ("running", True, "finished")
        assert (await store.conversation(OWNER, "c")).open_round == 1
        second = await begin(store, draft("result", "42", role="tool"), turn=1)
        assert (second.turn, second.step) == (1, 2)
        assert second.fence > lease.fence
        assert (await store.turn(OWNER, "c", 1)).waiting is False
        await end(store, second, answer("final"))
        turn = await store.turn(OWNER, "c", 1)
        assert (turn.state, turn.reply_seq, [step.reply_seq for step in turn.steps]) == ("finished", 4, [2, 4])
        assert await path_of(store, "c") == ["q", "call", "result", "final"]

    @pytest.mark.parametrize("query_seq", [1, 0])
    async def test_a_new_turn_interrupts_a_waiting_turn(self, store: Store, query_seq: int) -> None:
        await end(store, await begin(store, draft("q", "ask"), query_seq=query_seq), answer("call"), waiting=True)
        lease = await begin(store, draft("q2", "never mind"))
        assert lease.turn == 2
        assert [turn.state for turn in await store.turns(OWNER, "c", last=9)] == ["interrupted", "running"]
        await end(store, lease, answer("a2"))
        with pytest.raises(Conflict):
            await begin(store, draft("result", "42", role="tool"), turn=1)
        assert (await store.conversation(OWNER, "c")).last_seq == 4

    async def test_only_a_waiting_turn_can_continue(self, store: Store) -> None:
        await end(store, await begin(store, draft("q", "ask")), answer())
        for turn in (1, 7):
            with pytest.raises(Conflict):
                await begin(store, draft("x", "42", role="tool"), turn=turn)

    async def test_turns_are_listed_oldest_first(self, store: Store) -> None:
        for n in range(4):
            await end(store, await begin(store, draft(f"q{n}", "ask")), answer(f"a{n}"))
        assert [turn.n for turn in await store.turns(OWNER, "c", last=3)] == [2, 3, 4]
        with pytest.raises(NotFound):
            await store.turn(OWNER, "c", 5)


class IdempotencyContract:
    """The contract of idempotency keys."""

    async def test_a_key_returns_the_turn_it_opened(self, store: Store) -> None:
        assert await store.idempotency_record(OWNER, "k") is None
        lease = await begin(store, draft("q", "ask"), idempotency=("k", b"digest"))
        found = await store.idempotency_record(OWNER, "k")
        assert found is not None
        assert (found.digest, found.conversation, found.turn, found.step) == (b"digest", "c", lease.turn, 1)

    async def test_a_key_returns_its_step(self, store: Store) -> None:
        lease = await begin(store, draft("q", "ask"), idempotency=("k1", b"1"))
        await end(store, lease, answer(), waiting=True)
        result = draft("r", "done", role="tool")
        await end(store, await begin(store, result, turn=1, idempotency=("k2", b"2")), answer("b"))
        found = [await store.idempotency_record(OWNER, key) for key in ("k1", "k2")]
        assert [(each.turn, each.step) for each in found if each] == [(1, 1), (1, 2)]

    @pytest.mark.parametrize("state", ["failed", "interrupted"])
    async def test_a_key_of_an_unanswered_step_can_be_retried(self, store: Store, state: TurnState) -> None:
        await end(store, await begin(store, draft("q", "ask"), idempotency=("k", b"1")), None, state=state)
        with pytest.raises(Conflict):
            await begin(store, draft("q2", "other"), idempotency=("k", b"2"))
        await begin(store, idempotency=("k", b"1"))
        found = await store.idempotency_record(OWNER, "k")
        assert found is not None
        assert (found.turn, found.step) == (2, 1)
        with pytest.raises(Conflict):
            await begin(store, conversation="d", idempotency=("k", b"1"))

    async def test_a_key_used_for_another_request_conflicts(self, store: Store) -> None:
        await end(store, await begin(store, draft("q", "ask"), idempotency=("k", b"1")), answer())
        with pytest.raises(Conflict):
            await begin(store, draft("q2", "ask"), idempotency=("k", b"1"))
        assert await path_of(store, "c") == ["q", "a"]

    async def test_keys_belong_to_their_user(self, store: Store) -> None:
        ann, bob = Scope(user="ann"), Scope(user="bob")
        await begin(store, draft("q", "ask"), conversation="hers", scope=ann, idempotency=("k", b"1"))
        assert await store.idempotency_record(bob, "k") is None
        assert await store.idempotency_record(Scope("other", "ann"), "k") is None
        await begin(store, draft("q", "ask"), conversation="his", scope=bob, idempotency=("k", b"2"))
        found = await store.idempotency_record(ann, "k")
        assert found is not None
        assert found.conversation == "hers"

    async def test_fifty_concurrent_requests_with_one_key_run_once(self, store: Store) -> None:
        start = [store.open(OWNER, opening(f"c{n}", draft("q", "ask"), idempotency=("k", b"1"))) for n in range(50)]
        answers = await asyncio.gather(*start, return_exceptions=True)
        assert sum(isinstance(answer, Lease) for answer in answers) == 1
        assert all(isinstance(answer, Lease | CuebookError) for answer in answers)
        assert len((await store.conversations(OWNER, limit=99)).items) == 1

    async def test_old_keys_are_deleted_oldest_first(self, store: Store) -> None:
        for n in range(4):
            name = f"k{n}"
            await begin(store, draft("q", "ask"), conversation=name, now=NOW + n, idempotency=(name, b"1"))
        assert await store.forget_keys(before=NOW) == 0
        assert await store.forget_keys(before=NOW + 3, limit=2) == 2
        assert [bool(await store.idempotency_record(OWNER, f"k{n}")) for n in range(4)] == [False, False, True, True]
        assert await store.forget_keys(before=NOW + 3) == 1
        assert await store.idempotency_record(OWNER, "k3")
        await begin(store, draft("q", "ask"), conversation="again", idempotency=("k0", b"another request"))

    async def test_keys_are_deleted_with_their_conversation(self, store: Store) -> None:
        await begin(store, draft("q", "ask"), idempotency=("k", b"1"))
        await store.delete(OWNER, "c")
        assert await store.idempotency_record(OWNER, "k") is None


class TurnsContract(OpeningContract, ClosingContract, RepeatedCloseContract, IdempotencyContract):
    """Turns from their opening to their end."""

    async def test_the_usage_of_background_models_is_summed_and_deleted(self, store: Store) -> None:
        call = WorkUsage(task="compaction", model="small", input_tokens=10, output_tokens=2, costs={"USD": 0.5})
        await begin(store, draft("q", "hi"), user="ann", work=(call,))
        await asyncio.gather(*(store.tuning.add_work(OWNER, "c", [call]) for _ in range(3)))
        await store.tuning.add_work(OWNER, "gone", [call])
        total = msgspec.structs.replace(call, calls=4, input_tokens=40, output_tokens=8, costs={"USD": 2.0})
        assert await store.tuning.work(OWNER, "c") == await store.tuning.work(OWNER, None) == [total]
        assert (await store.scene(OWNER, PathQuery(conversation="c"))).work == (total,)
        assert await store.tuning.work(Scope(user="eve"), None) == []
        await store.delete(OWNER, "c")
        assert await store.tuning.work(OWNER, None) == []
