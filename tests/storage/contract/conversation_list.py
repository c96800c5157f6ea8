"""The contract of the conversation list: word search, branches, answers, and usage of model calls."""

import pytest

from cuebook.errors import InvalidInput, NotFound
from cuebook.interfaces.store import Batch
from cuebook.records.memory import Scope
from cuebook.records.turn import PostRun, Usage
from cuebook.storage.store import Store
from storage.contract.posts import OWNER, say
from storage.contract.turns import NOW, answer, begin, end
from storage.makers import draft, manifest

ANN, BOB = Scope(user="ann"), Scope(user="bob")


class ConversationListContract:
    """Lists, branches, answers, and usage of model calls."""

    async def test_word_search_lists_the_most_recent_first(self, store: Store) -> None:
        for at, (name, text) in enumerate((("garden", "Tulips for BED 7"), ("train", "To Gent"), ("moor", "Bed 9"))):
            said = draft("p1", text, created_at=NOW + at)
            await store.append(OWNER, Batch(conversation=name, drafts=(said,), now=NOW + at, user="ann"))
        found = await store.talks.find(ANN, [], limit=2)
        assert [each.conversation.id for each in found.items] == ["moor", "train"]
        rest = await store.talks.find(ANN, [], limit=2, cursor=found.next)
        assert ([each.conversation.id for each in rest.items], rest.next) == (["garden"], None)
        assert [each.conversation.id for each in (await store.talks.find(ANN, ["bed"], limit=9)).items] == [
            "moor",
            "garden",
        ]
        [both] = (await store.talks.find(ANN, ["tul", "bed"], limit=9)).items
        assert (both.said, both.branches, both.state) == ("Tulips for BED 7", 1, None)
        assert (await store.talks.find(BOB, ["bed"], limit=9)).items == ()
        with pytest.raises(InvalidInput):
            await store.talks.find(ANN, [], limit=2, cursor="nonsense")

    async def test_utility_calls_are_listed_apart_until_they_are_continued(self, store: Store) -> None:
        await store.append(OWNER, Batch(conversation="talk", drafts=(draft("p1", "hello"),), now=NOW))
        lease = await begin(store, draft("q", "Name it."), conversation="call", utility=True, frame=(b"a", b"z"))
        await end(store, lease, answer("a", "Tides"))
        assert await _listed(store) == (["talk"], ["call"])
        lease = await begin(store, draft("q2", "And now?"), conversation="call", now=NOW + 9)
        await end(store, lease, answer("a2", "More tides"), now=NOW + 10)
        assert await _listed(store) == (["call", "talk"], [])

    async def test_messages_with_the_same_ends_belong_to_one_user(self, store: Store) -> None:
        for user, name, frame in (("ann", "c", (b"a", b"z")), ("bob", "d", (b"a", b"z")), (None, "e", (b"b", b"z"))):
            lease = await begin(store, draft("q", f"In {name}"), conversation=name, user=user, frame=frame)
            await end(store, lease, answer())
        for user, ends, texts in (
            ("ann", (b"a", b"y"), ["In c"]),
            ("ann", (b"y", b"z"), ["In c"]),
            ("bob", (b"a", b"z"), ["In d"]),
            (None, (b"a", b"z"), ["In e"]),
            (None, (b"a", b"y"), []),
        ):
            assert await store.framed_texts(OWNER, ends, user=user, limit=9) == texts
        assert await store.framed_texts(Scope("other"), (b"a", b"z"), user="ann", limit=9) == []

    async def test_every_write_changes_the_change_mark(self, store: Store) -> None:
        marks = dict([await store.talks.written() for _ in range(9)])
        again = [await store.talks.written() for _ in range(9)]
        assert all(marks.get(reader, mark) == mark for reader, mark in again)
        marks |= dict(again)
        await say(store, "c", draft("p1", "a post"))
        assert not {await store.talks.written() for _ in range(9)} & set(marks.items())

    async def test_branches_are_runs_after_their_fork(self, store: Store) -> None:
        await say(store, "c", *(draft(f"p{n}", f"post {n}") for n in range(1, 4)))
        await say(store, "c", draft("s1", "aside"), draft("s2", "still aside"), parent="p1")
        assert await store.talks.runs(OWNER, "c") == [PostRun(1, 3, 0), PostRun(4, 5, 1)]
        [found] = (await store.talks.find(OWNER, [], limit=1)).items
        assert found.branches == 2
        places = await store.talks.places(OWNER, "c", ["s2", "nobody's"])
        assert {id_: (place.seq, place.sender) for id_, place in places.items()} == {"s2": (5, "ann")}

    async def test_turns_are_listed_at_their_rounds_with_usage(self, store: Store) -> None:
        lease = await begin(store, draft("q", "why?", tokens=4), manifest=manifest(tokens=90), metadata={"shadow": {}})
        [running] = await store.talks.answering(OWNER, "c", first=1, last=1)
        assert (running.turn, running.state, running.query_seq, running.replies) == (1, "running", 1, {})
        await end(store, lease, answer("a", "because", tokens=6), usage=Usage(input=80, output=5))
        [ended] = await store.talks.answering(OWNER, "c", first=1, last=9)
        assert (ended.state, ended.replies, ended.tokens, ended.shadow) == ("finished", {2: 1}, 90, True)
        assert await store.talks.answering(OWNER, "c", first=2, last=9) == []
        assert await store.talks.answers(OWNER, "c", [1, 5]) == {2: (1, 1)}
        [call] = await store.talks.calls(OWNER, "c", first=1, last=9)
        assert (call.turn, call.step, call.tokens, call.whole, call.posts, call.reply) == (1, 1, 90, 4, 1, 6)
        assert (call.usage, call.shadow) == (Usage(input=80, output=5), True)
        assert await store.talks.calls(OWNER, "c", first=2, last=9) == []

    async def test_lists_contain_only_the_callers_conversations(self, store: Store) -> None:
        await store.append(OWNER, Batch(conversation="c", drafts=(draft("p1", "hello"),), now=NOW, user="ann"))
        for scope, name in ((BOB, "c"), (Scope("other"), "c"), (ANN, "nobody's")):
            with pytest.raises(NotFound):
                await store.talks.runs(scope, name)
            with pytest.raises(NotFound):
                await store.talks.answering(scope, name, first=1, last=1)
            with pytest.raises(NotFound):
                await store.talks.answers(scope, name, [1])
            with pytest.raises(NotFound):
                await store.talks.places(scope, name, ["p1"])
            with pytest.raises(NotFound):
                await store.talks.calls(scope, name, first=1, last=1)


async def _listed(store: Store) -> tuple[list[str], list[str]]:
    """Return the conversations, by both lists, and the utility calls."""
    page = await store.conversations(OWNER, limit=9)
    found = [await store.talks.find(OWNER, [], limit=9, utility=utility) for utility in (False, True)]
    ids = tuple([each.conversation.id for each in page.items] for page in found)
    assert ids[0] == [each.id for each in page.items]
    return ids[0], ids[1]
