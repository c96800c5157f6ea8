"""The contract of API keys and organizations: no stored secrets, permanent revocation, tenant isolation and audit."""

import pytest
from msgspec.structs import replace

from cuebook.errors import Conflict, NotFound
from cuebook.interfaces.store import Spending
from cuebook.records.audit import Record
from cuebook.records.key import Key, LongTermMemoryChange, OrganizationMemoryChange, OrganizationSettings
from cuebook.records.memory import Scope
from cuebook.storage.store import Store
from cuebook.testing.doubles import BEGINNING

NOW = BEGINNING
HERE, ELSEWHERE = Scope("here"), Scope("elsewhere")
KEY = Key(id="k1", role="editor", user="ann", organizations=("acme", "zürich"), name="n", tenant="here", created_at=NOW)


def audit_record(event: str) -> Record:
    """Return an audit record of an action."""
    return Record(
        timestamp="2026-01-01T00:00:00Z",
        agent="a",
        prompt_id="key:k1",
        version="",
        input_context="",
        interpolated_text="",
        output_summary="",
        event=event,
        seq=0,
    )


class KeysContract:
    """The contract of keys and organizations."""

    async def test_a_store_reports_that_it_has_no_keys(self, store: Store) -> None:
        assert await store.keys.present(None) == (False, None, b"")
        assert await store.keys.present("k1") == (False, None, b"")

    async def test_a_key_is_found_by_its_id(self, store: Store) -> None:
        await store.keys.add(HERE, KEY, b"digest", audit=[audit_record("key-new")])
        assert await store.keys.present("k1") == (True, KEY, b"digest")
        assert await store.keys.present("k2") == (True, None, b"")
        assert [each.event for each in await store.audit.records(HERE)] == ["key-new"]

    async def test_key_ids_are_unique(self, store: Store) -> None:
        await store.keys.add(HERE, KEY, b"digest")
        with pytest.raises(Conflict):
            await store.keys.add(ELSEWHERE, KEY, b"other", audit=[audit_record("key-new")])
        assert await store.audit.records(ELSEWHERE) == []

    async def test_a_revoked_key_stays_revoked_and_keys_stay_required(self, store: Store) -> None:
        await store.keys.add(HERE, KEY, b"digest")
        closed = await store.keys.revoke(HERE, "k1", now=NOW + 5, audit=[audit_record("key-revoke")])
        assert closed.revoked_at == NOW + 5
        assert (
            await store.keys.revoke(HERE, "k1", now=NOW + 9, audit=[audit_record("key-revoke")])
        ).revoked_at == NOW + 5
        assert (await store.keys.present("k1"))[1] == closed
        assert (await store.keys.present(None))[0]
        assert [each.event for each in await store.audit.records(HERE)] == ["key-revoke"]

    async def test_a_replaced_key_expires_unless_it_does_earlier(self, store: Store) -> None:
        await store.keys.add(HERE, KEY, b"digest")
        await store.keys.add(HERE, replace(KEY, id="k2"), b"2", replaces=("k1", NOW + 9))
        await store.keys.add(HERE, replace(KEY, id="k3"), b"3", replaces=("k1", NOW + 99))
        expiries = {each.id: each.expires_at for each in await store.keys.keys(HERE)}
        assert expiries == {"k1": NOW + 9, "k2": None, "k3": None}
        late = replace(KEY, id="k4", created_at=NOW + 9)
        for scope, old in ((HERE, "k1"), (ELSEWHERE, "k2"), (HERE, "k0")):
            with pytest.raises(Conflict, match="not valid anymore"):
                await store.keys.add(scope, late, b"4", replaces=(old, NOW + 99))
        assert len(await store.keys.keys(HERE)) == 3

    async def test_a_key_spends_tokens_of_a_day(self, store: Store) -> None:
        await store.keys.add(HERE, KEY, b"digest")
        for day, tokens in ((5, 10), (5, 7), (6, 3), (5, 4)):  # the last one by a clock that is behind
            await store.keys.spend(HERE, Spending("k1", day, tokens))
        assert [await store.keys.spent(HERE, "k1", day=day) for day in (5, 6, 7)] == [0, 7, 0]
        assert await store.keys.spent(ELSEWHERE, "k1", day=6) == 0
        await store.keys.spend(ELSEWHERE, Spending("k1", 6, 100))
        assert (await store.keys.keys(HERE))[0].tokens_on(6) == 7

    async def test_a_tenant_sees_only_its_own_keys(self, store: Store) -> None:
        await store.keys.add(HERE, KEY, b"digest")
        assert await store.keys.keys(HERE) == [KEY]
        assert await store.keys.keys(ELSEWHERE) == []
        for scope, name in ((ELSEWHERE, "k1"), (HERE, "k2")):
            with pytest.raises(NotFound):
                await store.keys.revoke(scope, name, now=NOW)
        found = (await store.keys.present("k1"))[1]
        assert found is not None
        assert found.revoked_at is None

    async def test_an_organizations_settings_change_field_by_field(self, store: Store) -> None:
        of = store.keys
        assert await of.organization(HERE, "acme") == OrganizationSettings()
        one = OrganizationMemoryChange(long_term_memory=LongTermMemoryChange(allow_writes=False))
        two = OrganizationMemoryChange(long_term_memory=LongTermMemoryChange(allowed_categories=["facts"]))
        await of.change_organization(HERE, "acme", one, now=NOW, audit=[audit_record("organization")])
        after = await of.change_organization(HERE, "acme", two, now=NOW + 1)
        memory = after.memory.long_term_memory
        assert (memory.enabled, memory.allow_writes, memory.allowed_categories) == (True, False, ("facts",))
        assert await of.organization(HERE, "acme") == after
        assert await of.organization(ELSEWHERE, "acme") == OrganizationSettings()
        assert await of.organization(HERE, "other") == OrganizationSettings()
        assert len(await store.audit.records(HERE)) == 1
