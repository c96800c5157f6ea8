"""The contract of derived data: heads, marks, summaries per path, memory items per branch, and due passes."""

import asyncio
from typing import Any

import pytest

from cuebook.errors import Conflict, NotFound
from cuebook.interfaces.store import CompactionInput, CompactionResult, PathQuery
from cuebook.records.audit import Record
from cuebook.records.memory import Item, Summary
from cuebook.storage.store import Store
from cuebook.testing.doubles import BEGINNING
from storage.contract.posts import OWNER, path_of, say
from storage.contract.turns import answer, begin, end
from storage.makers import draft, drafts

NOW = BEGINNING


def item(id: str, text: str = "likes tea", **changes: Any) -> Item:  # noqa: A002
    """Return an item."""
    values: dict[str, Any] = {"id": id, "category": "facts", "text": text, "sources": ("p1",), "seq": 1}
    return Item(**values | changes)


def digest(upto: int, markdown: str = "so far", **changes: Any) -> Summary:
    """Return a summary that covers up to a post."""
    values: dict[str, Any] = {
        "version": 0, "upto_seq": upto, "upto_at": NOW, "path_digest": bytes(16), "markdown": markdown,
        "memory_json": {"facts": [{"text": "tea"}], "tags": ["ü"]}, "profile": "neutral", "made_by": "rules",
        "created_at": NOW, "tokens": 5, "tainted": "from a page",
    }  # fmt: skip
    return Summary(**values | changes)


def result(previous: int, upto: int, conversation: str = "c", **changes: Any) -> CompactionResult:
    """Return a pass's result."""
    values: dict[str, Any] = {"now": NOW}
    return CompactionResult(
        **values | {"conversation": conversation, "previous_version": previous, "summary": digest(upto)} | changes
    )


async def read(store: Store, limit: int = 100) -> CompactionInput:
    """Load what a pass needs."""
    found = await store.compaction(OWNER, "c", limit=limit)
    assert found is not None
    return found


async def standing(store: Store) -> int:
    """Return the last seq that the head's summary covers, and check that all reads agree."""
    summary = await store.summary(OWNER, "c")
    mark = summary.upto_seq if summary else 0
    row = await store.conversation(OWNER, "c")
    scene = await store.scene(OWNER, PathQuery(conversation="c", full_tokens=10_000))
    behind = [post.seq for post in await store.posts(OWNER, "c") if post.seq > mark]
    assert row.mark == mark
    assert (scene.summary.upto_seq if scene.summary else 0) == mark
    assert [post.seq for post in scene.path] == behind
    assert row.backlog == len(behind)
    assert row.backlog_tokens == sum(post.tokens for post in scene.path)
    return mark


class HeadContract:
    """Moving the head, and what follows from it."""

    async def test_the_head_moves_to_any_post(self, store: Store) -> None:
        await say(store, "c", *drafts("one", "two", "three", "four"))
        moved = await store.move_head(OWNER, "c", "p2", now=NOW + 9)
        assert (moved.head, moved.backlog, moved.last_seq, moved.updated_at) == (2, 2, 4, NOW + 9)
        assert await path_of(store, "c") == ["p1", "p2"]
        await say(store, "c", draft("b", "instead"))
        assert await path_of(store, "c") == ["p1", "p2", "b"]
        await store.move_head(OWNER, "c", "p4", now=NOW)
        assert await path_of(store, "c") == ["p1", "p2", "p3", "p4"]

    async def test_an_unknown_post_is_not_found(self, store: Store) -> None:
        await say(store, "c", *drafts("one"))
        with pytest.raises(NotFound):
            await store.move_head(OWNER, "c", "nobody", now=NOW)
        with pytest.raises(NotFound):
            await store.move_head(OWNER, "unknown", "p1", now=NOW)

    async def test_the_head_stays_while_a_turn_speaks(self, store: Store) -> None:
        await say(store, "c", *drafts("one", "two"))
        lease = await begin(store, draft("q", "ask"))
        with pytest.raises(Conflict):
            await store.move_head(OWNER, "c", "p1", now=NOW + 1)
        await end(store, lease, answer())
        assert (await store.move_head(OWNER, "c", "p1", now=NOW + 1)).head == 1

    async def test_mark_and_backlog_follow_the_head(self, store: Store) -> None:
        await say(store, "c", *drafts(*"abcdef"))
        assert await store.save_summary(OWNER, result(0, 2))
        assert await store.save_summary(OWNER, result(1, 4))
        assert await standing(store) == 4
        for post, mark in (("p3", 2), ("p1", 0), ("p5", 4), ("p2", 2), ("p6", 4)):
            await store.move_head(OWNER, "c", post, now=NOW)
            assert await standing(store) == mark

    async def test_appending_elsewhere_finds_the_farthest_summary(self, store: Store) -> None:
        """The head is before a summary. Posts appended after the newest post move it past that summary again."""
        await say(store, "c", *drafts(*"abcdef"))
        assert await store.save_summary(OWNER, result(0, 2))
        assert await store.save_summary(OWNER, result(1, 5))
        await store.move_head(OWNER, "c", "p3", now=NOW)
        await say(store, "c", draft("x", "on"), parent="p6")
        assert await standing(store) == 5
        await store.move_head(OWNER, "c", "p3", now=NOW)
        lease = await begin(store, after=6)
        assert await standing(store) == 5
        await end(store, lease, answer())
        assert await standing(store) == 5


class SummaryContract:
    """Summaries belong to paths. A pass is stored only if its source is unchanged."""

    async def test_the_audit_record_is_stored_with_its_summary(self, store: Store) -> None:
        await say(store, "c", *drafts(*"abcd"))
        told = Record(
            timestamp="2024-01-01T00:00:00Z", agent="compactor", prompt_id="system/x", version="1.0.0",
            input_context="", interpolated_text="", output_summary="", event="render", seq=0,
        )  # fmt: skip
        made = digest(2, made_by="m", prompt="prompt:system/x@main:1")
        assert await store.save_summary(OWNER, result(0, 2, summary=made, audit=(told,)))
        assert not await store.save_summary(OWNER, result(0, 3, audit=(told,)))
        assert [each.agent for each in await store.audit.records(OWNER)] == ["compactor"]
        found = await store.summary(OWNER, "c")
        assert found is not None
        assert (found.made_by, found.prompt) == ("m", "prompt:system/x@main:1")

    async def test_a_pass_reads_the_posts_after_the_mark(self, store: Store) -> None:
        await say(store, "c", *drafts(*"abcdef"))
        first = await read(store, 4)
        assert [post.message for post in first.posts] == ["a", "b", "c", "d"]
        assert (first.previous, first.items, first.scope, first.conversation.id) == (None, (), OWNER, "c")
        assert await store.save_summary(OWNER, result(0, 4, items=(item("i"),), now=NOW + 7))
        second = await read(store)
        assert [post.message for post in second.posts] == ["e", "f"]
        assert second.previous == digest(4, version=1)
        assert second.items == (item("i"),)
        assert second.last_at == NOW + 7

    async def test_nothing_is_read_while_a_round_is_open(self, store: Store) -> None:
        await say(store, "c", *drafts("one", "two"))
        lease = await begin(store, draft("q", "ask"))
        assert await store.compaction(OWNER, "c", limit=9) is None
        await end(store, lease, answer("call"), waiting=True)
        assert await store.compaction(OWNER, "c", limit=9) is None
        await end(store, await begin(store, draft("r", "42", role="tool"), turn=1), answer())
        assert len((await read(store)).posts) == 6

    async def test_one_of_two_equal_passes_is_stored(self, store: Store) -> None:
        await say(store, "c", *drafts(*"abcdef"))
        both = [store.save_summary(OWNER, result(0, 4)), store.save_summary(OWNER, result(0, 5))]
        assert sorted(await asyncio.gather(*both)) == [False, True]
        assert not await store.save_summary(OWNER, result(0, 6))
        assert (await store.conversation(OWNER, "c")).mark in (4, 5)

    async def test_a_summary_is_never_ahead_of_the_path(self, store: Store) -> None:
        await say(store, "c", *drafts("one", "two"))
        assert not await store.save_summary(OWNER, result(0, 3))
        assert not await store.save_summary(OWNER, result(0, 0))
        assert await store.summary(OWNER, "c") is None

    async def test_a_mark_never_moves_back(self, store: Store) -> None:
        await say(store, "c", *drafts(*"abcdef"))
        assert await store.save_summary(OWNER, result(0, 4))
        assert not await store.save_summary(OWNER, result(1, 3))
        assert await store.save_summary(OWNER, result(1, 4, summary=digest(4, "said better")))
        summary = await store.summary(OWNER, "c")
        assert summary == digest(4, "said better", version=2)
        assert await store.summary(OWNER, "c", version=1) == digest(4, version=1)
        assert await store.summary(OWNER, "c", version=9) is None

    async def test_an_abandoned_branchs_summary_is_not_used(self, store: Store) -> None:
        await say(store, "c", *drafts(*"abcd"))
        assert await store.save_summary(OWNER, result(0, 1))
        assert await store.save_summary(OWNER, result(1, 3))
        await say(store, "c", draft("e", "edit"), parent="p2")
        assert await standing(store) == 1
        assert not await store.save_summary(OWNER, result(2, 5)), "its source is the other branch"
        assert not await store.save_summary(OWNER, result(1, 4)), "it covers the other branch"
        assert await store.save_summary(OWNER, result(1, 5))
        assert await standing(store) == 5
        await store.move_head(OWNER, "c", "p4", now=NOW)
        assert await standing(store) == 3

    async def test_a_pass_does_not_restore_a_deleted_conversation(self, store: Store) -> None:
        await say(store, "c", *drafts("secret one", "two"))
        before = await read(store)
        await store.delete(OWNER, "c")
        late = result(0, 2, no=before.conversation.no, items=(item("i", "secret"),))
        assert not await store.save_summary(OWNER, late)
        await say(store, "c", *drafts("begun", "again"))
        assert not await store.save_summary(OWNER, late)
        assert await store.summary(OWNER, "c") is None
        assert await store.items(OWNER, "c") == []

    async def test_a_summary_round_trips(self, store: Store) -> None:
        await say(store, "c", *drafts("one", "two"))
        made = digest(2, "## ünïcode\n" * 1000, memory_json={"deep": [{"x": None}], "tags": []}, profile="warm")
        assert await store.save_summary(OWNER, result(0, 2, summary=made))
        found = await store.summary(OWNER, "c")
        assert found is not None
        assert (found.version, found.markdown, found.memory_json) == (1, made.markdown, made.memory_json)
        assert (found.tainted, found.profile, found.made_by) == (made.tainted, made.profile, made.made_by)
        assert (found.path_digest, found.tokens, found.upto_at) == (made.path_digest, made.tokens, made.upto_at)

    async def test_an_earlier_scene_uses_the_summary_of_its_path(self, store: Store) -> None:
        await say(store, "c", *drafts(*"abcdef"))
        assert await store.save_summary(OWNER, result(0, 2))
        assert await store.save_summary(OWNER, result(1, 5))
        for parent, mark in ((6, 5), (4, 2), (1, 0)):
            scene = await store.scene(OWNER, PathQuery(conversation="c", parent=parent, full_tokens=99))
            assert (scene.summary.upto_seq if scene.summary else 0) == mark
            assert [post.seq for post in scene.path] == list(range(mark + 1, parent + 1))

    async def test_a_scene_can_use_a_named_summary(self, store: Store) -> None:
        """A round keeps the summary it started with, even if a newer one was stored."""
        await say(store, "c", *drafts(*"abcdef"))
        assert await store.save_summary(OWNER, result(0, 2))
        assert await store.save_summary(OWNER, result(1, 5))
        for version, mark in ((None, 5), (2, 5), (1, 2), (0, 0), (7, 0)):
            scene = await store.scene(OWNER, PathQuery(conversation="c", full_tokens=99, summary_version=version))
            assert (scene.summary.upto_seq if scene.summary else 0) == mark
            assert [post.seq for post in scene.path] == list(range(mark + 1, 7))

    async def test_a_scene_can_omit_the_summary(self, store: Store) -> None:
        await say(store, "c", *drafts(*"abcd"))
        assert await store.save_summary(OWNER, result(0, 3))
        scene = await store.scene(OWNER, PathQuery(conversation="c", full_tokens=99, use_summary=False))
        assert (scene.summary, [post.seq for post in scene.path]) == (None, [1, 2, 3, 4])


class ItemContract:
    """Memory items have the state after the passes of the head's branch."""

    async def test_an_item_round_trips(self, store: Store) -> None:
        await say(store, "c", *drafts("one", "two"))
        whole = item(
            "i", "Zoë moved", category="people", sources=("p1", "p2"), subject="zoe", trust="tool", confidence=0.75,
            valid_from=NOW, supersedes="h", name="Zoë", status="active", seq=2, weight=0.25,
        )  # fmt: skip
        assert await store.save_summary(OWNER, result(0, 2, items=(whole,)))
        assert await store.items(OWNER, "c") == [whole]

    async def test_ended_items_are_returned_only_on_request(self, store: Store) -> None:
        await say(store, "c", *drafts(*"abcd"))
        old, new = item("old"), item("new", "likes coffee", supersedes="old", seq=3)
        assert await store.save_summary(OWNER, result(0, 2, items=(old,)))
        ended = item("old", valid_to=NOW + 5)
        assert await store.save_summary(OWNER, result(1, 4, items=(ended, new)))
        assert await store.items(OWNER, "c") == [new]
        assert await store.items(OWNER, "c", ended=True) == [ended, new]
        assert (await read(store)).items == (ended, new)

    async def test_a_repeated_item_gets_stronger(self, store: Store) -> None:
        await say(store, "c", *drafts(*"abcd"))
        assert await store.save_summary(OWNER, result(0, 2, items=(item("i"),)))
        again = item("i", sources=("p1", "p3"), confidence=0.9, weight=0.5, seq=3)
        assert await store.save_summary(OWNER, result(1, 4, items=(again,)))
        assert await store.items(OWNER, "c") == [again]

    async def test_another_branch_sees_its_own_items(self, store: Store) -> None:
        await say(store, "c", *drafts(*"abcd"))
        tea, cake = item("tea"), item("cake", "likes cake")
        assert await store.save_summary(OWNER, result(0, 2, items=(tea, cake)))
        ended = item("tea", valid_to=NOW)
        stronger = item("cake", "likes cake", confidence=1.0, sources=("p1", "p4"), seq=4)
        new = item("new", "met Ann", seq=4)
        assert await store.save_summary(OWNER, result(1, 4, items=(ended, stronger, new)))
        assert await store.items(OWNER, "c") == [stronger, new]
        await say(store, "c", draft("edit", "no"), parent="p2")
        assert await store.items(OWNER, "c", ended=True) == [cake, tea]
        assert await store.save_summary(OWNER, result(1, 5, items=(ended,)))
        assert await store.items(OWNER, "c") == [cake], "the item ended on this branch too"
        await store.move_head(OWNER, "c", "p4", now=NOW)
        assert await store.items(OWNER, "c") == [stronger, new]
        await store.move_head(OWNER, "c", "p1", now=NOW)
        assert await store.items(OWNER, "c") == []


class DueContract:
    """The contract of due conversations."""

    async def test_unsummarized_posts_are_due(self, store: Store) -> None:
        assert await store.due() == []
        await say(store, "small", *drafts("one"))
        await say(store, "c", *drafts(*"abcd"))
        found = await store.due()
        assert [(due.conversation, due.backlog, due.mark) for due in found] == [("c", 4, 0), ("small", 1, 0)]
        assert await store.save_summary(OWNER, result(0, 4))
        assert [due.conversation for due in await store.due()] == ["small"]
        assert len(await store.due(limit=1)) == 1
        assert await store.due(conversation="c") == []

    async def test_due_conversations_are_paged_with_a_minimum_backlog(self, store: Store) -> None:
        for number, name in enumerate("abcde"):
            await say(store, name, *drafts(*"wxyz"[: 1 + number % 3]))
        read, last = [], None
        while page := await store.due(limit=2, least=2, after=last):
            read += [(due.conversation, due.backlog) for due in page]
            last = page[-1]
        assert sorted(read) == [("b", 2), ("c", 3), ("e", 2)]
        assert [backlog for _, backlog in read] == [3, 2, 2]
        assert [due.conversation for due in await store.due(conversation="a")] == ["a"]

    async def test_an_open_round_is_not_due(self, store: Store) -> None:
        lease = await begin(store, draft("q", "ask"))
        assert await store.due() == []
        await end(store, lease, answer("call"), waiting=True)
        assert await store.due() == []
        await end(store, await begin(store, draft("r", "42", role="tool"), turn=1), answer())
        assert [due.backlog for due in await store.due()] == [4]

    async def test_a_delayed_pass_has_a_time_and_counts_failures(self, store: Store) -> None:
        await say(store, "c", *drafts("one", "two"))
        for _ in range(2):
            await store.postpone(OWNER, "c", until=NOW + 60, failed=True, mark=0)
        (due,) = await store.due()
        assert (due.not_before, due.failures) == (NOW + 60, 2)
        assert (await read(store)).failures == 2
        await store.postpone(OWNER, "c", until=NOW + 90, failed=False, mark=99)
        assert (await store.due())[0].failures == 2, "the mark has moved"
        assert await store.save_summary(OWNER, result(0, 1))
        (due,) = await store.due()
        assert (due.not_before, due.failures, due.last_at) == (0, 0, NOW)


class MemoryContract(HeadContract, SummaryContract, ItemContract, DueContract):
    """The contract of everything derived from posts."""
