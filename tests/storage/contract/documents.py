"""The contract of documents: places are paths of names, values are replaced whole, users and tenants are apart."""

import asyncio

import pytest

from cuebook.errors import Conflict
from cuebook.records.document import DocumentChange
from cuebook.records.memory import Scope
from cuebook.storage.store import Store
from cuebook.testing.doubles import BEGINNING

NOW = BEGINNING
HERE, ELSEWHERE, ANN = Scope("here"), Scope("elsewhere"), Scope("here", "ann")


def put(path: str, value: object = 1, ttl_s: float | None = None) -> DocumentChange:
    """Return a change of the document at a path of names and a key."""
    *space, key = path.split("/")
    body = None if value is None else {"is": value}
    return DocumentChange(space=tuple(space), key=key, value=body, ttl_s=ttl_s)


async def paths(store: Store, scope: Scope = HERE, space: str = "", *, now: float = NOW) -> list[str]:
    """Return the documents in a place."""
    names = tuple(space.split("/")) if space else ()
    found = await store.documents.page(scope, names, limit=9, now=now)
    return ["/".join((*each.space, each.key)) for each in found]


class DocumentsContract:
    """The contract of documents."""

    async def test_a_place_contains_the_places_in_it_and_no_others(self, store: Store) -> None:
        changes = [put("a/k"), put("a/b/k"), put("a%/k"), put("A/k"), put("ab/k"), put("é/k"), put("k")]
        assert await store.documents.apply(HERE, changes, now=NOW) == 0
        assert await paths(store) == ["k", "A/k", "a/k", "a/b/k", "a%/k", "ab/k", "é/k"]
        assert await paths(store, space="a") == ["a/k", "a/b/k"]
        assert await paths(store, space="%") == []
        assert await store.documents.spaces(HERE, ("a",), now=NOW) == [("a",), ("a", "b")]

    async def test_a_page_continues_after_the_last_one(self, store: Store) -> None:
        await store.documents.apply(HERE, [put(f"s{n}/k{m}") for n in range(2) for m in range(2)], now=NOW)
        [first] = await store.documents.page(HERE, (), limit=1, now=NOW)
        rest = await store.documents.page(HERE, (), after=(b"s0\x1f", first.key.encode()), limit=9, now=NOW)
        assert [(each.space, each.key) for each in rest] == [(("s0",), "k1"), (("s1",), "k0"), (("s1",), "k1")]
        [last] = await store.documents.page(HERE, ("s0",), back=True, limit=1, now=NOW)
        back = await store.documents.page(HERE, (), after=(b"s0\x1f", last.key.encode()), back=True, limit=9, now=NOW)
        assert [each.key for each in (last, *back)] == ["k1", "k0"]
        assert await store.documents.delete(HERE, ("s0",)) == 2
        assert await paths(store) == ["s1/k0", "s1/k1"]

    async def test_a_value_is_replaced_and_deleted(self, store: Store) -> None:
        await store.documents.apply(HERE, [put("a/k")], now=NOW)
        assert await store.documents.apply(HERE, [put("a/k", 2), put("a/x")], now=NOW + 1) == 1
        found = await store.documents.get(HERE, ("a",), "k", now=NOW + 1)
        assert found is not None
        assert (found.value, found.created_at, found.updated_at) == ({"is": 2}, NOW, NOW + 1)
        assert await store.documents.apply(HERE, [put("a/k", None), put("a/k", None)], now=NOW) == 1
        assert await paths(store) == ["a/x"]

    async def test_a_change_requires_the_expected_value(self, store: Store) -> None:
        first = DocumentChange(space=("a",), key="k", value={"n": 1, "list": [1.5, None]}, new=True)
        await store.documents.apply(HERE, [first], now=NOW)
        with pytest.raises(Conflict, match="'k' in 'a' has another value"):
            await store.documents.apply(HERE, [put("a/x"), first], now=NOW)
        assert await paths(store) == ["a/k"], "nothing of the refused changes is stored"
        second = DocumentChange(space=("a",), key="k", value={"n": 2}, expected=first.value, ttl_s=5)
        await store.documents.apply(HERE, [second], now=NOW)
        with pytest.raises(Conflict):
            await store.documents.apply(HERE, [second], now=NOW)
        with pytest.raises(Conflict):
            await store.documents.apply(ANN, [second], now=NOW)
        await store.documents.apply(HERE, [first], now=NOW + 5)
        await store.documents.apply(HERE, [DocumentChange(space=("a",), key="k", expected=first.value)], now=NOW)
        assert await paths(store) == []

    async def test_one_of_concurrent_changes_succeeds(self, store: Store) -> None:
        changes = [DocumentChange(space=("a",), key="k", value={"n": n}, new=True) for n in range(6)]
        writes = [store.documents.apply(HERE, [each], now=NOW) for each in changes]
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert sum(each == 0 for each in results) == 1
        assert sum(isinstance(each, Conflict) for each in results) == len(changes) - 1

    async def test_an_expired_document_is_gone(self, store: Store) -> None:
        await store.documents.apply(HERE, [put("a/k", ttl_s=5), put("a/x")], now=NOW)
        assert await paths(store, now=NOW + 4) == ["a/k", "a/x"]
        assert await paths(store, now=NOW + 5) == ["a/x"]
        assert await store.documents.get(HERE, ("a",), "k", now=NOW + 5) is None
        assert await store.documents.apply(HERE, [put("a/k", 3)], now=NOW + 6) == 0, "it was deleted"
        assert await paths(store, now=NOW + 99) == ["a/k", "a/x"]

    async def test_users_and_tenants_have_their_own(self, store: Store) -> None:
        for scope in (HERE, ANN, ELSEWHERE):
            await store.documents.apply(scope, [put("a/k", scope.user or scope.tenant)], now=NOW)
        for scope in (HERE, ANN, ELSEWHERE):
            found = await store.documents.get(scope, ("a",), "k", now=NOW)
            assert found is not None
            assert found.value == {"is": scope.user or scope.tenant}
