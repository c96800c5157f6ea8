"""The contract of reading: scenes cover each post once, histories are aligned, and pages miss nothing."""

from typing import Any

import pytest
from msgspec import structs

from cuebook.errors import BackendError, InvalidInput, NotFound
from cuebook.interfaces.store import Batch, PathQuery, PostSpot, Scene, SearchLook
from cuebook.records.conversation import Conversation, Part, chain
from cuebook.records.memory import Scope, SearchResult
from cuebook.storage.search import SMALL
from cuebook.storage.store import Store
from cuebook.testing.doubles import BEGINNING
from storage.compare import State, state_of
from storage.contract.memory import item, result
from storage.contract.posts import OWNER, path_of, say
from storage.contract.turns import answer, begin, end
from storage.makers import draft, drafts

NOW = BEGINNING


def words(*terms: str, limit: int = 400) -> SearchLook:
    """Return a query for posts that contain any of these words."""
    return SearchLook(text=" ".join(terms), limit=limit)


def direct(found: SearchResult) -> set[str]:
    """Return the ids of the posts that matched the search directly."""
    return {each.id for each in found.found if each.direct}


class SceneContract:
    """The contract of scenes: what a turn reads of its path."""

    async def test_an_unknown_conversation_is_an_empty_scene(self, store: Store) -> None:
        assert await store.scene(OWNER, PathQuery(conversation="nobody")) == Scene(
            conversation=Conversation(id="nobody")
        )

    @pytest.mark.parametrize(
        ("full", "small", "whole", "compressed", "unread"),
        [
            (0, 0, [8], [], [1, 2, 3, 4, 5, 6, 7]),
            (20, 0, [7, 8], [], [1, 2, 3, 4, 5, 6]),
            (29, 9, [7, 8], [4, 5, 6], [1, 2, 3]),
            (30, 11, [6, 7, 8], [3, 4, 5], [1, 2]),
            (80, 0, [1, 2, 3, 4, 5, 6, 7, 8], [], []),
            (10, 99, [8], [1, 2, 3, 4, 5, 6, 7], []),
        ],
    )
    async def test_caps_limit_reading_without_losing_posts(  # noqa: PLR0917
        self, store: Store, full: int, small: int, whole: list[int], compressed: list[int], unread: list[int]
    ) -> None:
        await say(store, "c", *(draft(f"p{n}", f"post {n}", tokens=10, small="s", small_tokens=3) for n in range(1, 9)))
        scene = await store.scene(OWNER, PathQuery(conversation="c", full_tokens=full, small_tokens=small))
        assert [post.seq for post in scene.path if post.message is not None] == whole
        assert [post.seq for post in scene.path if post.message is None] == compressed
        assert [seq for gap in scene.unread for seq in range(gap.first, gap.last + 1)] == unread
        assert sum(gap.count for gap in scene.unread) == len(unread)
        assert sum(gap.tokens for gap in scene.unread) == 10 * len(unread)
        assert scene.path_count == 8
        assert [post.path_tokens for post in scene.path] == [10 * post.seq for post in scene.path]

    @pytest.mark.parametrize(
        ("full", "after", "small", "whole", "compressed"),
        [
            (40, 40, 6, [5, 6, 7, 8], [3, 4]),
            (40, 20, 12, [5, 6, 7, 8], [3, 4]),
            (40, 20, 5, [5, 6, 7, 8], []),
            (80, 20, 0, [1, 2, 3, 4, 5, 6, 7, 8], []),
        ],
    )
    async def test_compressed_sizes_count_after_a_position(  # noqa: PLR0917
        self, store: Store, full: int, after: int, small: int, whole: list[int], compressed: list[int]
    ) -> None:
        await say(store, "c", *(draft(f"p{n}", f"post {n}", tokens=10, small="s", small_tokens=3) for n in range(1, 9)))
        look = PathQuery(conversation="c", full_tokens=full, small_after=after, small_tokens=small)
        scene = await store.scene(OWNER, look)
        assert [post.seq for post in scene.path if post.message is not None] == whole
        assert [post.seq for post in scene.path if post.message is None] == compressed

    async def test_a_large_post_counts_up_to_its_cut_size(self, store: Store) -> None:
        said = [draft(f"p{n}", f"post {n}", tokens=1000 if n == 3 else 10) for n in range(1, 6)]
        await say(store, "c", *said)
        for most, whole in ((0, [4, 5]), (20, [3, 4, 5]), (5, [1, 2, 3, 4, 5])):
            scene = await store.scene(OWNER, PathQuery(conversation="c", full_tokens=40, post_tokens=most))
            assert [post.seq for post in scene.path] == whole

    async def test_a_path_across_many_branches_is_covered_once(self, store: Store) -> None:
        parent = None
        for n in range(12):
            await say(store, "c", draft(f"m{n}", "main", tokens=10), parent=parent)
            await say(store, "c", draft(f"s{n}", "side", tokens=10))
            parent = f"m{n}"
        await store.move_head(OWNER, "c", "m11", now=NOW)
        path = [post.seq for post in await store.posts(OWNER, "c")]
        assert len(path) == 12
        for full in range(0, 140, 10):
            scene = await store.scene(OWNER, PathQuery(conversation="c", full_tokens=full, small_tokens=20))
            unread = [seq for gap in scene.unread for seq in range(gap.first, gap.last + 1)]
            assert unread + [post.seq for post in scene.path] == path
            assert scene.path[-1].path_tokens == 120

    async def test_a_compressed_post_keeps_its_parts(self, store: Store) -> None:
        """Any form of a post must keep what pairs a tool result with its call."""
        for size in (10, 4000, 9000):
            call = Part("execution_result", "r" * size, {"callId": "call-1"})
            big = draft(f"r{size}", "r" * size, role="tool", parts=(call,), tokens=100, small="…", small_tokens=1)
            await say(store, f"c{size}", big, draft("last", "ok"))
            scene = await store.scene(OWNER, PathQuery(conversation=f"c{size}", full_tokens=2, small_tokens=99))
            assert (scene.path[0].message, scene.path[0].small) == (None, "…")
            assert b"call-1" in (scene.path[0].parts or b"")
        await say(store, "plain", draft("x", "word " * 2000, small="word"), draft("last", "ok"))
        scene = await store.scene(OWNER, PathQuery(conversation="plain", full_tokens=2, small_tokens=99))
        assert scene.path[0].parts is None

    async def test_a_scene_can_end_before_the_head(self, store: Store) -> None:
        await say(store, "c", *drafts(*"abcd"))
        scene = await store.scene(OWNER, PathQuery(conversation="c", parent=2, full_tokens=99))
        assert (scene.parent, [post.seq for post in scene.path], scene.path_count) == (2, [1, 2], 2)
        scene = await store.scene(OWNER, PathQuery(conversation="c", parent=0, full_tokens=99))
        assert (scene.parent, scene.path, scene.path_count) == (0, (), 0)
        with pytest.raises(NotFound):
            await store.scene(OWNER, PathQuery(conversation="c", parent=9))

    async def test_speakers_are_remembered(self, store: Store) -> None:
        await say(store, "c", draft("x", "hi", sender="Zoë"), draft("y", "hi", sender='a "b"'), answer())
        assert (await store.scene(OWNER, PathQuery(conversation="c"))).speakers == ("Zoë", 'a "b"', "assistant")


class AlignContract:
    """The contract of history alignment."""

    async def test_messages_are_found_with_their_parents(self, store: Store) -> None:
        said = drafts("one", "two", "three")
        await say(store, "c", *said)
        again = draft("other", "two", role="assistant")
        await say(store, "c", again, parent="p3")
        asked = [post.digest for post in (*said, draft("new", "never said"), said[0])]
        (found,) = await store.align(OWNER, asked, conversation="c")
        assert found.places == ((1,), (2, 4), (3,), (), (1,))
        assert found.posts == {1: PostSpot(0, 1, 1), 2: PostSpot(1, 2, 1), 3: PostSpot(2, 3, 1), 4: PostSpot(3, 4, 1)}
        assert found.runs == {1: (0, 0)}
        assert found.conversation.id == "c"
        assert await store.align(OWNER, asked, conversation="unknown") == []

    async def test_a_history_without_id_is_found_by_its_anchors(self, store: Store) -> None:
        ann, bob = Scope(user="ann"), Scope(user="bob")
        for scope, name in ((ann, "old"), (bob, "his"), (ann, "new")):
            await say(store, name, draft("x", "hello"), draft("y", f"I am {name}"), scope=scope)
        hello, old = draft("x", "hello").digest, draft("y", "I am old").digest
        found = await store.align(ann, [hello, old], conversation=None, anchors=[hello])
        assert [each.conversation.id for each in found] == ["new", "old"], "only her conversations, the newest first"
        assert [each.places for each in found] == [((1,), ()), ((1,), (2,))]
        found = await store.align(ann, [hello, old], conversation=None, anchors=[old, hello])
        assert [each.conversation.id for each in found] == ["old", "new"], (
            "the conversation with the most anchors comes first"
        )
        assert await store.align(ann, [hello], conversation=None, anchors=[bytes(16)]) == []

    async def test_a_path_is_found_by_its_chained_digest(self, store: Store) -> None:
        ann, said = Scope(user="ann"), drafts("one", "two", "three")
        await say(store, "c", *said, scope=ann)
        await say(store, "c", draft("other", "else"), parent="p1", scope=ann)
        await say(store, "his", *said, scope=Scope(user="bob"))
        first = chain(b"", [said[0].digest])
        second = chain(first, [said[1].digest])
        for name in ("c", None):
            (found,) = await store.stored_paths(ann, [(3, bytes(16)), (2, second), (1, first)], conversation=name)
            assert (found.conversation.id, found.seqs, found.leads_to_head) == ("c", (1, 2), False)
            (found,) = await store.stored_paths(ann, [(1, first)], conversation=name)
            assert (found.seqs, found.leads_to_head) == ((1,), True)
            assert await store.stored_paths(ann, [(3, second)], conversation=name) == [], "the depth must fit"
        assert await store.stored_paths(ann, [(1, first)], conversation="unknown") == []

    async def test_last_answers_are_those_of_the_user(self, store: Store) -> None:
        ann, bob = Scope(user="ann"), Scope(user="bob")
        for scope, name in ((ann, "old"), (bob, "his"), (ann, "new")):
            await say(store, name, draft("x", "hello"), draft("y", f"I am {name}", role="assistant"), scope=scope)
        await say(store, "open", draft("x", "hello"), scope=ann)
        found = await store.answers_at_heads(ann, looked=9, limit=9)
        assert sorted((conversation.id, text) for conversation, text in found) == [
            ("new", "I am new"),
            ("old", "I am old"),
        ]
        assert len(await store.answers_at_heads(ann, looked=9, limit=1)) == 1

    async def test_common_texts_hide_no_history(self, store: Store) -> None:
        await say(store, "hers", draft("x", "hello"), scope=Scope(user="ann"))
        for n in range(80):
            await say(store, f"c{n}", draft("x", "hello"), scope=Scope(user=f"user {n}"))
        hello = draft("x", "hello").digest
        found = await store.align(Scope(user="ann"), [hello], conversation=None, anchors=[hello])
        assert [each.conversation.id for each in found] == ["hers"]


class SearchContract:
    """Full-text search, within a conversation's path or over all conversations of a user."""

    async def test_word_forms_are_found_with_neighboring_posts(self, store: Store) -> None:
        await say(store, "c", *drafts("Hello there", "Walking to Zürich", "fine", "bye", "last"))
        found = await store.search(OWNER, words("walked", "zurich"), conversation="c")
        assert [(each.seq, each.direct, each.previous) for each in found.found] == [
            (1, False, 0), (2, True, 1), (3, False, 2), (4, False, 3), (5, False, 4),
        ]  # fmt: skip
        assert found.found[1].text == "Walking to Zürich"
        assert found.posts == 5

    async def test_neighbors_are_limited_in_number_and_tokens(self, store: Store) -> None:
        before = (draft("a", "too far", tokens=60), draft("b", "long", tokens=30), draft("c", "near", tokens=90))
        match = draft("d", "apples", tokens=900)
        await say(store, "c", *before, match, *drafts(*(f"ok {n}" for n in range(9))))
        for place in ("c", None):
            found = await store.search(OWNER, words("apples"), conversation=place)
            assert [each.seq for each in found.found] == [2, 3, 4, *range(5, 11)]

    async def test_a_long_post_hides_the_neighbors_behind_it(self, store: Store) -> None:
        said = (draft("a", "apples"), draft("b", "very long", tokens=151), draft("c", "behind"))
        await say(store, "c", *said)
        found = await store.search(OWNER, words("apples"), conversation="c")
        assert [each.seq for each in found.found] == [1]

    async def test_all_speakers_of_the_conversation_are_named(self, store: Store) -> None:
        said = (("ann", "apples"), *(("ann", f"rain {n}") for n in range(9)), ("bob", "pears"))
        await say(store, "c", *(draft(f"p{n}", text, sender=who) for n, (who, text) in enumerate(said)))
        for conversation in ("c", None):
            found = await store.search(OWNER, words("apples"), conversation=conversation)
            assert {each.sender for each in found.found} == {"ann"}
            assert set(found.speakers) == {"ann", "bob"}

    async def test_a_large_post_is_found_by_its_text(self, store: Store) -> None:
        text = "needle " + "hay " * 5000
        await say(store, "c", draft("x", text, key="needl"))
        found = await store.search(OWNER, words("needle"), conversation="c")
        assert [each.text for each in found.found] == [text]

    async def test_a_post_without_a_key_is_not_found(self, store: Store) -> None:
        await say(store, "c", draft("x", "apples", key=""))
        assert (await store.search(OWNER, words("apples"), conversation="c")).found == ()

    async def test_only_the_path_is_searched(self, store: Store) -> None:
        await say(store, "c", *drafts("apples", "pears"))
        await say(store, "c", draft("e", "plums"), parent="p1")
        for word, expected in (("apples", {"p1"}), ("pears", set()), ("plums", {"e"})):
            assert direct(await store.search(OWNER, words(word), conversation="c")) == expected
        scene = await store.scene(OWNER, PathQuery(conversation="c", parent=2, search=words("pears", "plums")))
        assert direct(scene.found) == {"p2"}

    async def test_another_conversation_is_not_searched(self, store: Store) -> None:
        await say(store, "c", draft("x", "apples"))
        await say(store, "d", draft("y", "apples"))
        assert direct(await store.search(OWNER, words("apples"), conversation="c")) == {"x"}
        assert (await store.search(OWNER, words("apples"), conversation="unknown")).found == ()

    async def test_a_users_search_covers_all_their_conversations(self, store: Store) -> None:
        ann, bob = Scope(user="ann"), Scope(user="bob")
        for name, scope in (("a", ann), ("b", ann), ("c", bob), ("d", Scope("other", "ann"))):
            await say(store, name, draft(f"in {name}", "apples"), draft(f"off {name}", "old apples"), scope=scope)
            await store.move_head(scope, name, f"in {name}", now=NOW)
        assert direct(await store.search(ann, words("apples"), conversation=None)) == {"in a", "in b"}
        assert direct(await store.search(bob, words("apples"), conversation=None)) == {"in c"}

    async def test_word_frequencies_are_counted_for_partial_results(self, store: Store) -> None:
        await say(store, "c", *(draft(f"p{n}", "apples" if n % 2 else "apples pears") for n in range(10)))
        found = await store.search(OWNER, words("apples", "pears", limit=4), conversation="c")
        assert len(direct(found)) == 4
        assert found.frequencies == {"appl": 10, "pear": 5}

    async def test_posts_beside_each_other_are_found_before_those_with_one_word(self, store: Store) -> None:
        apart = [draft(f"off {n}", "nothing") for n in range(5)]
        await say(store, "c", draft("a", "apples"), draft("b", "pears"), *apart, draft("c", "apples"))
        for conversation in ("c", None):
            found = await store.search(OWNER, words("apples", "pears", limit=2), conversation=conversation)
            assert direct(found) == {"a", "b"}

    async def test_of_equal_posts_the_newest_are_found(self, store: Store) -> None:
        for name in ("first", "second"):
            await say(store, name, *(draft(f"{name} {n}", "apples" if n % 3 == 0 else "nothing") for n in range(12)))
        found = await store.search(OWNER, words("apples", limit=2), conversation="first")
        assert direct(found) == {"first 6", "first 9"}
        found = await store.search(OWNER, words("apples", limit=2), conversation=None)
        assert direct(found) == {"second 6", "second 9"}

    async def test_the_rarer_word_explains_more(self, store: Store) -> None:
        names = ["pears", *["apples", "nothing", "nothing"] * 4]
        await say(store, "c", *(draft(f"p{n}", text) for n, text in enumerate(names)))
        found = await store.search(OWNER, words("apples", "pears", limit=1), conversation="c")
        assert direct(found) == {"p0"}

    async def test_a_long_conversation_is_searched_for_rare_words(self, store: Store) -> None:
        await say(store, "c", *(draft(f"p{n}", "pears" if n == 7 else "apples") for n in range(SMALL + 1)))
        for limit in (1, 400):
            found = await store.search(OWNER, words("apples", "pears", limit=limit), conversation="c")
            assert direct(found) == {"p7"}
            assert found.frequencies == {"appl": SMALL, "pear": 1}
        found = await store.search(OWNER, words("apples", limit=2), conversation="c")  # no rarer word
        assert len(direct(found)) == 2
        assert (await store.search(OWNER, words("zebras"), conversation="c")).found == ()
        await say(store, "c", draft("new", "zebras"))
        assert direct(await store.search(OWNER, words("zebras"), conversation="c")) == {"new"}

    async def test_matches_on_another_branch_displace_none(self, store: Store) -> None:
        await say(store, "c", *(draft(f"old {n}", "apples") for n in range(9)))
        await say(store, "c", *(draft(f"new {n}", "apples") for n in range(9)), parent="old 0")
        await store.move_head(OWNER, "c", "old 8", now=NOW)
        found = await store.search(OWNER, words("apples", limit=4), conversation="c")
        assert len(direct(found)) == 4
        assert direct(found) <= {f"old {n}" for n in range(9)}
        assert found.frequencies == {"appl": 9}

    async def test_newer_matches_displace_none_of_a_time(self, store: Store) -> None:
        await say(store, "c", *(draft(f"p{n}", "apples", created_at=NOW + n) for n in range(20)))
        look = structs.replace(words("apples", limit=4), until=NOW + 5)
        for conversation in ("c", None):
            found = direct(await store.search(OWNER, look, conversation=conversation))
            assert len(found) == 4
            assert found <= {f"p{n}" for n in range(6)}

    @pytest.mark.slow
    async def test_all_words_count_in_a_search_of_all_conversations(self, store: Store) -> None:
        texts = ("zoo walk", "budget list")
        await say(store, "c", *(draft(f"p{n}", texts[n % 2] if n != 2500 else "zoo budget") for n in range(4_600)))
        assert "p2500" in direct(await store.search(OWNER, words("zoo", "budget", limit=9), conversation=None))

    async def test_other_languages_match_words_that_begin_alike(self, store: Store) -> None:
        await say(store, "c", draft("x", "der Verlobte"), draft("y", "der Verlag zahlt"), draft("z", "verloren"))
        look = SearchLook(text="Wann hat er sich denn verloben wollen?", limit=400)
        for conversation in ("c", None):
            assert direct(await store.search(OWNER, look, conversation=conversation)) == {"x", "z"}
        found = await store.search(OWNER, structs.replace(look, limit=2), conversation="c")
        assert found.frequencies["verlo*"] == 2

    @pytest.mark.parametrize("text", ["scope : {scope} AND", '"apples', "nocolumn : apples", "apples : (", "apples *"])
    async def test_any_text_can_be_searched(self, store: Store, text: str) -> None:
        await say(store, "c", draft("x", "apples"))
        found = await store.search(OWNER, SearchLook(text=text), conversation="c")
        assert direct(found) == ({"x"} if "apples" in text else set())


class PagesContract:
    """Pages of lists, and the store itself."""

    async def test_pages_list_each_conversation_once_newest_first(self, store: Store) -> None:
        for n in range(23):
            batch = Batch(conversation=f"c{n:02d}", drafts=(draft("x", "hi"),), now=NOW + n // 3)
            await store.append(OWNER, batch)
        seen: list[str] = []
        cursor = None
        while True:
            page = await store.conversations(OWNER, limit=5, cursor=cursor)
            seen += [row.id for row in page.items]
            await say(store, f"begun meanwhile {len(seen)}", draft("x", "hi"))
            cursor = page.next
            if cursor is None:
                break
        listed = [id_ for id_ in seen if id_.startswith("c")]
        assert listed == [f"c{n:02d}" for n in reversed(range(23))]
        assert len(set(seen)) == len(seen)

    @pytest.mark.parametrize("cursor", ["", "x", "1", "a:b", "1.0:", "nan:x"])
    async def test_an_invalid_cursor_is_rejected(self, store: Store, cursor: str) -> None:
        with pytest.raises(InvalidInput):
            await store.conversations(OWNER, limit=5, cursor=cursor)

    async def test_check_counts_all_rows(self, store: Store) -> None:
        await say(store, "c", *drafts("one", "two"))
        found = await store.check()
        assert (found["conversations"], found["posts"]) == (1, 2)
        assert "integrity" not in found, "readiness is checked often: it must not read the whole store"
        assert await store.check(whole=True) == found | {"integrity": "ok"}

    async def test_a_closed_store_raises(self, store: Store) -> None:
        await say(store, "c", *drafts("one"))
        await store.aclose()
        await store.aclose()
        with pytest.raises(BackendError):
            await say(store, "c", *drafts("two", start=2))
        with pytest.raises(BackendError):
            await store.posts(OWNER, "c")

    async def store_everything(self, store: Store) -> Any:
        """Store one record of every kind. Return what was then loaded."""
        await say(store, "c", *drafts(*"abcd"), draft("big", "long " * 3000))
        assert await store.save_summary(OWNER, result(0, 2, items=(item("i"),)))
        await say(store, "c", draft("e", "apples"), parent="p3")
        await end(store, await begin(store, draft("q", "ask"), idempotency=("k", b"1")), answer())
        lease = await begin(store, draft("q2", "ask"))
        await store.checkpoint(lease, answer("a2", "half"), now=NOW, lease_s=30)
        return await self.load_everything(store)

    async def load_everything(self, store: Store) -> tuple[State | None, Any, Any]:
        """Load the stored records."""
        assert await path_of(store, "c") == ["p1", "p2", "p3", "e", "q", "a", "q2"]
        found = await store.search(OWNER, words("apples"), conversation="c")
        return await state_of(store, OWNER, "c"), found, await store.idempotency_record(OWNER, "k")


class ReadingContract(SceneContract, AlignContract, SearchContract, PagesContract):
    """The contract of all reads."""
