"""The contract of posts: appended posts are stored once, in order, complete, and on their path."""

import asyncio

import pytest

from cuebook.errors import Conflict, InvalidInput, NotFound
from cuebook.interfaces.store import ROOT, Batch
from cuebook.records.conversation import Appended, Draft, Part, text_digest
from cuebook.records.memory import Scope
from cuebook.storage.store import Store
from cuebook.testing.doubles import BEGINNING
from storage.makers import draft, drafts, opening

OWNER = Scope()

#: Unusual text: right to left, combining and wide characters, joined emoji, control characters, all line breaks.
TEXTS = (
    "",
    " ",
    "naïve café, cafe\u0301",
    "שלום \u202eעולם\u202c",
    "👩‍👩‍👧‍👦 🇪🇺 𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
    "漢字かな交じり文",
    "line\nbreak\r\nreturn\u2028separator\x0bvertical\x0cform\x85next",
    "\x01\x1f\x7f\ufeff\uffff\U0010ffff",
    "'; DROP TABLE post; -- \" \\ % _ {scope} $1 :seq ?",
)


async def say(
    store: Store, conversation: str, *said: Draft, scope: Scope = OWNER, parent: str | None = None
) -> Appended:
    """Append posts."""
    return await store.append(scope, Batch(conversation=conversation, drafts=said, now=BEGINNING, parent=parent))


async def path_of(store: Store, conversation: str) -> list[str]:
    """Return the ids of the head's path."""
    return [post.id for post in await store.posts(OWNER, conversation)]


class PostsContract:
    """Appending and reading posts."""

    async def test_append_stores_in_order_and_counts(self, store: Store) -> None:
        assert await say(store, "c", *drafts("one", "two", "three")) == Appended(3, 3)
        assert await say(store, "c", *drafts("four", start=4)) == Appended(1, 4)
        posts = await store.posts(OWNER, "c")
        assert [(post.seq, post.parent, post.id, post.message) for post in posts] == [
            (1, 0, "p1", "one"), (2, 1, "p2", "two"), (3, 2, "p3", "three"), (4, 3, "p4", "four"),
        ]  # fmt: skip
        row = await store.conversation(OWNER, "c")
        assert (row.head, row.last_seq, row.backlog, row.turns) == (4, 4, 4, 0)

    async def test_an_empty_append_creates_a_conversation(self, store: Store) -> None:
        assert await say(store, "c") == Appended(0, 0)
        assert await store.posts(OWNER, "c") == []

    async def test_a_batch_may_skip_creation_and_set_conversation_fields(self, store: Store) -> None:
        nothing = Batch(conversation="c", drafts=(), now=BEGINNING, metadata={"a": 1}, begins=False)
        with pytest.raises(NotFound):
            await store.append(OWNER, nothing)
        with pytest.raises(NotFound):
            await store.conversation(OWNER, "c")
        await store.append(OWNER, Batch(conversation="c", drafts=(), now=BEGINNING, metadata={"a": 0, "b": 0}))
        assert await store.append(OWNER, nothing) == Appended(0, 0)
        assert (await store.conversation(OWNER, "c")).metadata == {"a": 1, "b": 0}

    async def test_a_repeated_post_is_stored_once(self, store: Store) -> None:
        await say(store, "c", *drafts("one", "two"))
        assert await say(store, "c", *drafts("one", "two")) == Appended(0, 2)
        assert await say(store, "c", *drafts("one", "two", "three")) == Appended(1, 3)
        assert await path_of(store, "c") == ["p1", "p2", "p3"]

    async def test_a_post_repeated_in_a_batch_is_stored_once(self, store: Store) -> None:
        post = draft("x", "hello")
        assert await say(store, "c", post, post) == Appended(1, 1)
        assert await say(store, "c", draft("y", "bye"), draft("y", "bye"), post) == Appended(1, 2)

    async def test_an_existing_id_with_other_content_conflicts(self, store: Store) -> None:
        await say(store, "c", *drafts("one"))
        with pytest.raises(Conflict):
            await say(store, "c", draft("new", "fine"), draft("p1", "other"), draft("new2", "fine"))
        with pytest.raises(Conflict):
            await say(store, "fresh", draft("a", "one"), draft("a", "two"))
        assert await path_of(store, "c") == ["p1"]
        with pytest.raises(NotFound):
            await store.conversation(OWNER, "fresh")

    async def test_ids_are_unique_only_within_a_conversation(self, store: Store) -> None:
        await say(store, "c", draft("x", "here"))
        await say(store, "d", draft("x", "there"))
        assert [post.message for post in await store.posts(OWNER, "d")] == ["there"]

    async def test_a_named_parent_starts_a_sibling_branch(self, store: Store) -> None:
        await say(store, "c", *drafts("one", "two", "three"))
        assert await say(store, "c", draft("edit", "another two"), parent="p1") == Appended(1, 4)
        assert await path_of(store, "c") == ["p1", "edit"]
        assert await say(store, "c", draft("next", "and on")) == Appended(1, 5)
        assert await path_of(store, "c") == ["p1", "edit", "next"]
        everything = await store.posts(OWNER, "c", path=False)
        assert [(post.seq, post.parent) for post in everything] == [(1, 0), (2, 1), (3, 2), (4, 1), (5, 4)]
        assert [post.id for post in await store.posts(OWNER, "c", head=3)] == ["p1", "p2", "p3"]

    async def test_a_post_without_a_parent_starts_a_new_root(self, store: Store) -> None:
        await say(store, "c", *drafts("one", "two"))
        assert await say(store, "c", *drafts("another one", "and on", prefix="q"), parent=ROOT) == Appended(2, 4)
        assert await path_of(store, "c") == ["q1", "q2"]
        assert [post.parent for post in await store.posts(OWNER, "c", path=False)] == [0, 1, 0, 3]
        assert [post.id for post in await store.posts(OWNER, "c", head=2)] == ["p1", "p2"]
        assert await say(store, "new", draft("x", "hello"), parent=ROOT) == Appended(1, 1)

    async def test_an_unknown_parent_is_not_found(self, store: Store) -> None:
        with pytest.raises(NotFound):
            await say(store, "c", draft("x", "hello"), parent="nobody")
        with pytest.raises(NotFound):
            await store.conversation(OWNER, "c")

    async def test_a_path_ends_only_at_a_stored_post(self, store: Store) -> None:
        await say(store, "c", *drafts("one"))
        for seq in (-1, 2, 99):
            with pytest.raises(NotFound):
                await store.posts(OWNER, "c", head=seq)
        assert await store.posts(OWNER, "c", head=0) == []

    async def test_rounds_start_at_users_and_follow_the_path(self, store: Store) -> None:
        await say(store, "c", draft("s", "note", role="system"), *drafts("ask", "answer", "ask again"))
        await say(store, "c", draft("r", "another answer", role="assistant"), parent="p1")
        rounds = {post.id: post.round for post in await store.posts(OWNER, "c", path=False)}
        assert rounds == {"s": 0, "p1": 2, "p2": 2, "p3": 4, "r": 2}
        assert await store.round_states(OWNER, "c") == {2: "finished"}

    async def test_the_newest_posts_of_a_path_cross_branches(self, store: Store) -> None:
        await say(store, "c", *drafts("one", "two", "three", "four"))
        await say(store, "c", draft("b1", "b"), draft("b2", "b"), parent="p2")
        assert [post.id for post in await store.posts(OWNER, "c", last=3)] == ["p2", "b1", "b2"]
        assert [post.id for post in await store.posts(OWNER, "c", last=99)] == ["p1", "p2", "b1", "b2"]
        assert await store.posts(OWNER, "c", last=0) == []
        assert [post.id for post in await store.posts(OWNER, "c", path=False, last=2)] == ["b1", "b2"]

    async def test_the_next_posts_follow_a_path_or_all_branches(self, store: Store) -> None:
        await say(store, "c", *drafts("one", "two", "three", "four"))
        await say(store, "c", draft("b1", "b"), draft("b2", "b"), parent="p2")
        for path in (True, False):
            everything = await store.posts(OWNER, "c", path=path)
            for limit in (1, 2, 3, 99):
                read = [[each for each in everything if each.seq > after][:limit] for after in range(8)]
                assert read == [
                    await store.posts(OWNER, "c", after=after, limit=limit, path=path) for after in range(8)
                ]
        assert [post.id for post in await store.posts(OWNER, "c", after=2, limit=9, head=4)] == ["p3", "p4"]
        with pytest.raises(NotFound):
            await store.posts(OWNER, "nowhere", after=0, limit=1)

    async def test_ranges_are_returned_in_order(self, store: Store) -> None:
        await say(store, "c", *drafts("one", "two", "three", "four", "five"))
        found = await store.posts_in(OWNER, "c", [(4, 5), (1, 2), (9, 12)])
        assert [(post.seq, post.message) for post in found] == [(4, "four"), (5, "five"), (1, "one"), (2, "two")]

    async def test_digests_are_those_of_stored_posts(self, store: Store) -> None:
        await say(store, "c", draft("p1", "one"), draft("p2", "two"))
        found = await store.post_digests(OWNER, "c", ["p2", "p3", "p1"])
        assert found == {each: draft(each, text).digest for each, text in (("p1", "one"), ("p2", "two"))}
        assert await store.post_digests(OWNER, "nowhere", ["p1"]) == {}

    @pytest.mark.parametrize("size", [0, 100, 4096, 5000, 2_000_000])
    async def test_a_post_of_any_size_round_trips(self, store: Store, size: int) -> None:
        parts = (
            Part("function", '{"q": 1}', {"callId": "call-1", "name": "find"}, "a1"),
            Part("opaque", "kept", {"in": "content", "deep": [1, None, {"x": "ü"}]}),
        )
        wire = b'{"role":"assistant","content":"' + b"w" * size + b'"}'
        said = draft("x", "m" * size, role="assistant", parts=parts, wire=wire, small="short", small_tokens=2)
        await say(store, "c", said)
        (post,) = await store.posts(OWNER, "c")
        assert (post.message, post.parts, post.wire, post.digest) == (said.message, parts, wire, said.digest)
        assert (post.sender, post.recipient, post.role) == (said.sender, said.recipient, said.role)
        assert (post.tokens, post.created_at, post.state) == (said.tokens, said.created_at, "complete")
        (lean,) = await store.posts_in(OWNER, "c", [(1, 1)])
        assert (lean.message, lean.wire, lean.small, lean.small_tokens) == (said.message, wire, "short", 2)

    @pytest.mark.parametrize("text", TEXTS)
    async def test_any_text_round_trips(self, store: Store, text: str) -> None:
        said = draft(f"id {text}", text, sender=f"who {text}", parts=(Part("text", text, {"k": text}),), small=text)
        await say(store, f"talk {text}", said)
        (post,) = await store.posts(OWNER, f"talk {text}")
        assert (post.id, post.message, post.sender, post.parts) == (said.id, text, said.sender, said.parts)
        assert (await store.conversation(OWNER, f"talk {text}")).id == f"talk {text}"

    async def test_a_lone_surrogate_is_rejected(self, store: Store) -> None:
        with pytest.raises(InvalidInput):
            await store.append(OWNER, Batch(conversation="c", drafts=(_with_surrogate(),), now=BEGINNING))
        with pytest.raises(NotFound):
            await store.conversation(OWNER, "c")

    async def test_concurrent_appends_leave_no_gap(self, store: Store) -> None:
        answers = await asyncio.gather(*(say(store, "c", draft(f"x{n}", f"post {n}")) for n in range(40)))
        assert sorted(answer.last_seq for answer in answers) == list(range(1, 41))
        posts = await store.posts(OWNER, "c")
        assert [post.seq for post in posts] == list(range(1, 41))
        assert {post.id for post in posts} == {f"x{n}" for n in range(40)}

    async def test_a_batch_stays_contiguous(self, store: Store) -> None:
        batches = [[draft(f"{n}-{m}", f"post {n} {m}") for m in range(5)] for n in range(12)]
        await asyncio.gather(*(say(store, "c", *batch) for batch in batches))
        ids = await path_of(store, "c")
        assert [ids[start : start + 5] for start in range(0, 60, 5)] == [
            [f"{ids[start].split('-')[0]}-{m}" for m in range(5)] for start in range(0, 60, 5)
        ]

    async def test_a_failed_append_does_not_affect_concurrent_ones(self, store: Store) -> None:
        await say(store, "c", *drafts("one"))
        wrong = [say(store, "c", draft(f"w{n}", "fine"), draft("p1", "other")) for n in range(5)]
        right = [say(store, "c", draft(f"r{n}", "fine")) for n in range(5)]
        calls = [call for pair in zip(wrong, right, strict=True) for call in pair]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(answer, Conflict) for answer in answers] == [True, False] * 5
        path = await path_of(store, "c")
        assert (path[0], sorted(path[1:])) == ("p1", ["r0", "r1", "r2", "r3", "r4"])  # concurrent calls have no order

    async def test_stored_texts_live_while_a_conversation_needs_them(self, store: Store) -> None:
        large = "shared " * 2000
        digest = text_digest("block")
        for name in ("c", "d"):
            await say(store, name, draft("x", large))
            start = opening(name, expected_head=1, expected_last_seq=1, parent=1, query_seq=1, texts={digest: "block"})
            await store.open(OWNER, start)
        await store.delete(OWNER, "c")
        assert [post.message for post in await store.posts(OWNER, "d")] == [large]
        assert await store.texts(OWNER, [digest, "00" * 16]) == {digest: "block"}
        await store.delete(OWNER, "d")
        assert await store.texts(OWNER, [digest]) == {}


def _with_surrogate() -> Draft:
    post = draft("x", "placeholder")
    return Draft(
        id=post.id, sender=post.sender, recipient=post.recipient, role=post.role, message="half \ud83d", tokens=2,
        created_at=post.created_at, digest=post.digest,
    )  # fmt: skip
