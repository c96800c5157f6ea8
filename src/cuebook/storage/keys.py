"""Store API keys and organization settings."""

from collections.abc import Sequence

from cuebook.errors import Conflict
from cuebook.interfaces.store import Spending
from cuebook.records.audit import Record
from cuebook.records.key import (
    Key,
    LongTermMemory,
    OrganizationMemoryChange,
    OrganizationSettings,
    changed,
    unknown_key,
)
from cuebook.storage.audit import chained
from cuebook.storage.database.columns import columns, decode, encode_json, record
from cuebook.storage.database.transaction import Noun, Transaction, read, read_all, write


class KeyStore(Noun):
    """Stores API keys and the settings of organizations.

    A project with keys stays closed to callers without one: only expired ones are deleted, when a user signs in again.
    """

    @read_all
    def present(self, transaction: Transaction, id_: str | None) -> tuple[bool, Key | None, bytes]:
        """Return whether any keys exist, including revoked ones, and a key by its id with its digest.

        The key may belong to any tenant, because the caller is not known yet.
        """
        row = transaction.one("key_by_id", id=id_) if id_ is not None else None
        if row is None:
            return transaction.one("key_any") is not None, None, b""
        return True, record(Key, row), row["digest"]

    @write
    def add(
        self,
        transaction: Transaction,
        key: Key,
        digest: bytes,
        *,
        replaces: tuple[str, float] | None = None,
        prunes: bool = False,
        audit: Sequence[Record] = (),
    ) -> None:
        """Store a key with its records in one transaction. Raises Conflict if its id exists.

        `replaces` is an id and when that key expires, unless it does earlier. Raises Conflict if it is not valid.
        `prunes` deletes expired keys of the same name.
        """
        if prunes:
            transaction.run("key_prune", name=key.name, now=key.created_at)
        if replaces is not None:
            id_, until = replaces
            if not transaction.run("key_expire", id=id_, now=key.created_at, until=until).rowcount:
                msg = f"Key {id_!r} is not valid anymore. Create another one with `cuebook key new`."
                raise Conflict(msg)
        values = columns(key) | {"tenant": transaction.scope.tenant, "digest": digest}
        if not transaction.run("key_insert", **values).rowcount:
            msg = f"Key {key.id!r} already exists. Create another one."
            raise Conflict(msg)
        chained(transaction, audit)

    @read
    def keys(self, transaction: Transaction) -> list[Key]:
        """Return a tenant's keys, oldest first."""
        return transaction.records(Key, "keys_of")

    @write
    def revoke(self, transaction: Transaction, id_: str, *, now: float, audit: Sequence[Record] = ()) -> Key:
        """Revoke a key permanently. A revoked one stays unchanged. Raises NotFound."""
        closed = transaction.run("key_revoke", id=id_, now=now).rowcount
        row = transaction.one("key_by_id", id=id_)
        if row is None or row["tenant"] != transaction.scope.tenant:
            raise unknown_key(id_)
        if closed:
            chained(transaction, audit)
        return record(Key, row)

    @read
    def spent(self, transaction: Transaction, id_: str, *, day: int) -> int:
        """Return how many tokens a key has spent on a day since 1970."""
        return int(transaction.value("key_spent", id=id_, day=day) or 0)

    @write
    def spend(self, transaction: Transaction, spending: Spending) -> None:
        """Add tokens to those that a key has spent."""
        count_spending(transaction, spending)

    @read
    def organization(self, transaction: Transaction, organization: str) -> OrganizationSettings:
        """Return an organization's settings, by default the defaults."""
        return _stored(transaction, organization)

    @write
    def change_organization(
        self,
        transaction: Transaction,
        organization: str,
        change: OrganizationMemoryChange,
        *,
        now: float,
        audit: Sequence[Record] = (),
    ) -> OrganizationSettings:
        """Change the settings by a function of their current values. Return the new ones."""
        after = changed(_stored(transaction, organization), change)
        transaction.run("organization_put", id=organization, settings=encode_json(after), now=now)
        chained(transaction, audit)
        return after


def count_spending(transaction: Transaction, spending: Spending) -> None:
    """Add tokens to those that a key has spent, inside a transaction. A smaller day than the last one counts as it."""
    transaction.run("key_spend", id=spending.key, day=spending.day, tokens=spending.tokens)


def settings_of(transaction: Transaction, organization: str) -> LongTermMemory:
    """Return an organization's memory settings inside a transaction, by default the defaults."""
    return _stored(transaction, organization).memory.long_term_memory


def _stored(transaction: Transaction, organization: str) -> OrganizationSettings:
    settings = transaction.value("organization_get", id=organization)
    return decode(OrganizationSettings, settings) if settings else OrganizationSettings()
