"""The contract of scopes: other users' data does not exist, and deleted data is gone."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cuebook.errors import NotFound
from cuebook.interfaces.store import Batch, PathQuery
from cuebook.records.conversation import chain, text_digest
from cuebook.records.memory import Scope
from cuebook.storage.store import Store
from cuebook.testing.doubles import BEGINNING
from storage.contract.memory import item, result
from storage.contract.posts import OWNER, say
from storage.contract.reading import words
from storage.contract.turns import answer, begin, end
from storage.makers import draft, drafts, opening

NOW = BEGINNING
ANN = Scope(user="ann")
BOB = Scope(user="bob")
ELSEWHERE = Scope("elsewhere", "ann")

Call = Callable[[Store, Scope], Awaitable[Any]]

#: Every method of the port that names a conversation.
CALLS: dict[str, Call] = {
    "scene": lambda store, scope: store.scene(scope, PathQuery(conversation="c")),
    "append": lambda store, scope: say(store, "c", draft("z", "intruder"), scope=scope),
    "open": lambda store, scope: store.open(scope, opening("c", draft("z", "intruder"))),
    "align": lambda store, scope: store.align(scope, [draft("p1", "one").digest], conversation="c"),
    "stored_paths": lambda store, scope: store.stored_paths(
        scope, [(1, chain(b"", [draft("p1", "one").digest]))], conversation="c"
    ),
    "conversation": lambda store, scope: store.conversation(scope, "c"),
    "posts": lambda store, scope: store.posts(scope, "c"),
    "posts_in": lambda store, scope: store.posts_in(scope, "c", [(1, 9)]),
    "post_digests": lambda store, scope: store.post_digests(scope, "c", ["p1"]),
    "round_states": lambda store, scope: store.round_states(scope, "c"),
    "turn": lambda store, scope: store.turn(scope, "c", 1),
    "turns": lambda store, scope: store.turns(scope, "c", last=9),
    "summary": lambda store, scope: store.summary(scope, "c"),
    "items": lambda store, scope: store.items(scope, "c"),
    "search": lambda store, scope: store.search(scope, words("one"), conversation="c"),
    "move_head": lambda store, scope: store.move_head(scope, "c", "p1", now=NOW),
    "participate": lambda store, scope: store.participate(scope, "c", ["bob"]),
    "delete": lambda store, scope: store.delete(scope, "c"),
    "compaction": lambda store, scope: store.compaction(scope, "c", limit=9),
    "save_summary": lambda store, scope: store.save_summary(scope, result(0, 1)),
    "postpone": lambda store, scope: store.postpone(scope, "c", until=NOW, failed=True, mark=0),
}
#: Results for an unknown conversation that are not NotFound.
EMPTY = {"scene", "append", "open", "align", "stored_paths", "post_digests", "search", "save_summary", "postpone"}


class ScopesContract:
    """Users, tenants and forgetting."""

    @pytest.mark.parametrize("name", CALLS)
    async def test_another_users_conversation_is_not_found(self, store: Store, name: str) -> None:
        await say(store, "c", *drafts("one", "two"), scope=ANN)
        with pytest.raises(NotFound) as refused:
            await CALLS[name](store, BOB)
        assert "'c'" in str(refused.value)
        row = await store.conversation(ANN, "c")
        assert (row.last_seq, row.head, row.turns, row.mark) == (2, 2, 0, 0)
        assert (await store.due())[0].failures == 0

    @pytest.mark.parametrize("name", CALLS)
    async def test_another_tenants_conversation_does_not_exist(self, store: Store, name: str) -> None:
        await say(store, "c", *drafts("one", "two"), scope=ANN)
        if name in EMPTY:
            found = await CALLS[name](store, ELSEWHERE)
            assert not getattr(found, "path", ()), "nothing is visible"
        else:
            with pytest.raises(NotFound):
                await CALLS[name](store, ELSEWHERE)
        row = await store.conversation(ANN, "c")
        assert (row.last_seq, row.head, row.turns, row.mark) == (2, 2, 0, 0)

    async def test_errors_do_not_reveal_other_users_conversations(self, store: Store) -> None:
        await say(store, "c", *drafts("one"), scope=ANN)
        told = []
        for conversation in ("c", "d"):
            with pytest.raises(NotFound) as refused:
                await store.posts(BOB, conversation)
            told.append(str(refused.value).replace(repr(conversation), "it"))
        assert told[0] == told[1]

    async def test_no_user_creates_a_conversation_for_another(self, store: Store) -> None:
        with pytest.raises(NotFound):
            await store.append(BOB, Batch(conversation="c", drafts=drafts("one"), now=NOW, user="ann"))
        with pytest.raises(NotFound):
            await store.conversation(OWNER, "c")
        await store.append(OWNER, Batch(conversation="c", drafts=drafts("one"), now=NOW, user="ann", persona="guide"))
        row = await store.conversation(ANN, "c")
        assert (row.user, row.persona, row.participants) == ("ann", "guide", ("ann",))

    async def test_a_taken_id_names_the_reason(self, store: Store) -> None:
        await say(store, "c", *drafts("one"), scope=ANN)
        with pytest.raises(NotFound, match=r"Conversation 'c' belongs to another user\. Use another ID"):
            await store.append(BOB, Batch(conversation="c", drafts=drafts("two"), now=NOW))

    async def test_participants_see_a_conversation_until_they_leave(self, store: Store) -> None:
        await say(store, "c", *drafts("one"), scope=ANN)
        assert (await store.participate(OWNER, "c", ["bob", "ann", "bob"])).participants == ("ann", "bob")
        assert (await store.conversation(BOB, "c")).participants == ("ann", "bob")
        assert [each.id for each in (await store.conversations(BOB, limit=9)).items] == ["c"]
        assert (await store.participate(OWNER, "c", [])).participants == ("ann",)
        with pytest.raises(NotFound):
            await store.conversation(BOB, "c")
        assert (await store.conversations(BOB, limit=9)).items == ()

    async def test_unowned_conversations_belong_to_no_authenticated_user(self, store: Store) -> None:
        await say(store, "c", *drafts("one"), scope=OWNER)
        proven = Scope(user="ann", proven=True)
        assert (await store.conversation(ANN, "c")).user is None
        assert len((await store.conversations(ANN, limit=9)).items) == 1
        with pytest.raises(NotFound):
            await store.conversation(proven, "c")
        assert (await store.conversations(proven, limit=9)).items == ()
        assert (await store.conversation(Scope(proven=True), "c")).last_seq == 1
        await store.participate(OWNER, "c", ["ann"])
        assert (await store.conversation(proven, "c")).last_seq == 1

    async def test_lists_contain_only_the_users_conversations(self, store: Store) -> None:
        for name, scope in (("hers", ANN), ("his", BOB), ("far", ELSEWHERE), ("open", OWNER)):
            await say(store, name, *drafts("one"), scope=scope)
        for scope, expected in ((ANN, {"hers", "open"}), (BOB, {"his", "open"}), (ELSEWHERE, {"far"})):
            page = await store.conversations(scope, limit=10)
            assert {row.id for row in page.items} == expected
        assert {row.id for row in (await store.conversations(OWNER, limit=10)).items} == {"hers", "his", "open"}

    async def test_one_id_in_two_tenants_is_two_conversations(self, store: Store) -> None:
        await say(store, "c", *drafts("here"), scope=ANN)
        await say(store, "c", *drafts("there", "too"), scope=ELSEWHERE)
        assert [post.message for post in await store.posts(ANN, "c")] == ["here"]
        await store.delete(ELSEWHERE, "c")
        assert [post.message for post in await store.posts(ANN, "c")] == ["here"]

    async def test_stored_texts_are_visible_to_participants(self, store: Store) -> None:
        texts = {text_digest("her persona"): "her persona"}
        await begin(store, draft("q", "ask"), scope=ANN, texts=texts)
        assert await store.texts(ANN, list(texts)) == texts
        assert await store.texts(OWNER, list(texts)) == texts
        assert await store.texts(BOB, list(texts)) == {}
        assert await store.texts(ELSEWHERE, list(texts)) == {}

    async def test_a_deleted_conversation_is_gone(self, store: Store) -> None:
        await say(store, "c", *drafts("apples", "two"), draft("big", "long " * 3000))
        await say(store, "d", *drafts("apples"))
        assert await store.save_summary(OWNER, result(0, 2, items=(item("i"),)))
        await end(store, await begin(store, draft("q", "ask"), idempotency=("k", b"1")), answer())
        await begin(store, draft("q2", "ask"))
        await store.delete(OWNER, "c")
        for name in sorted(set(CALLS) - EMPTY):
            with pytest.raises(NotFound):
                await CALLS[name](store, OWNER)
        assert (await store.search(OWNER, words("apples"), conversation="c")).found == ()
        assert len((await store.search(OWNER, words("apples"), conversation=None)).found) == 1
        assert await store.idempotency_record(OWNER, "k") is None
        assert [due.conversation for due in await store.due()] == ["d"]
        assert await store.expire(now=NOW + 9999) == 0
        assert (await store.check())["conversations"] == 1

    async def test_a_deleted_conversation_can_be_created_again(self, store: Store) -> None:
        await say(store, "c", *drafts("one", "two"))
        await store.delete(OWNER, "c")
        await say(store, "c", draft("p1", "other content"))
        row = await store.conversation(OWNER, "c")
        assert (row.head, row.last_seq, row.turns, row.backlog) == (1, 1, 0, 1)
        assert await store.summary(OWNER, "c") is None
