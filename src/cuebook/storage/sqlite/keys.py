"""Store API keys and organization settings in SQLite."""

import json
import sqlite3
from collections.abc import Sequence

import msgspec

from cuebook.errors import Conflict, NotFound
from cuebook.interfaces.keys import PresentedKey
from cuebook.records.audit import Record
from cuebook.records.key import Key
from cuebook.records.memory import Scope
from cuebook.records.organization import OrganizationChange, OrganizationSettings, changed
from cuebook.storage.sqlite.audit import chained
from cuebook.storage.sqlite.base import SnapshotRunner, one, rows, run
from cuebook.storage.sqlite.rows import Row

_settings = msgspec.json.Decoder(OrganizationSettings).decode


class SqliteKeys:
    """The API keys of a SQLite store."""

    def __init__(self, read: SnapshotRunner, write: SnapshotRunner) -> None:
        self._read = read
        self._write = write

    async def present(self, id_: str | None) -> PresentedKey:
        """Return a key by its id."""

        def read(connection: sqlite3.Connection) -> PresentedKey:
            row = one(connection, "key_by_id", id=id_) if id_ is not None else None
            if row is None:
                return PresentedKey(configured=one(connection, "key_any") is not None)
            return PresentedKey(configured=True, key=key_record(row), digest=row["digest"])

        return await self._read(read)

    async def add(self, scope: Scope, key: Key, digest: bytes, *, audit: Sequence[Record] = ()) -> None:
        """Store a key."""
        values = {
            "tenant": scope.tenant,
            "id": key.id,
            "digest": digest,
            "role": key.role,
            "user": key.user,
            "organizations": json.dumps(key.organizations, ensure_ascii=False),
            "name": key.name,
            "created_at": key.created_at,
            "expires_at": key.expires_at,
        }

        def write(connection: sqlite3.Connection) -> None:
            try:
                run(connection, "key_insert", **values)
            except sqlite3.IntegrityError as error:
                msg = f"Key {key.id!r} already exists. Create another one."
                raise Conflict(msg) from error
            chained(connection, scope.tenant, audit)

        await self._write(write)

    async def keys(self, scope: Scope) -> list[Key]:
        """Return a tenant's keys, oldest first."""
        return await self._read(lambda c: [key_record(row) for row in rows(c, "keys_of", tenant=scope.tenant)])

    async def revoke(self, scope: Scope, id_: str, *, now: float, audit: Sequence[Record] = ()) -> Key:
        """Revoke a key permanently."""

        def write(connection: sqlite3.Connection) -> Key:
            closed = run(connection, "key_revoke", tenant=scope.tenant, id=id_, now=now).rowcount
            row = one(connection, "key_by_id", id=id_)
            if row is None or row["tenant"] != scope.tenant:
                msg = f"Unknown key {id_!r}. Run `cuebook key list` to list keys."
                raise NotFound(msg)
            if closed:
                chained(connection, scope.tenant, audit)
            return key_record(row)

        return await self._write(write)


class SqliteOrganizations:
    """The settings of organizations in a SQLite store."""

    def __init__(self, read: SnapshotRunner, write: SnapshotRunner) -> None:
        self._read = read
        self._write = write

    async def settings(self, scope: Scope, organization: str) -> OrganizationSettings:
        """Return an organization's settings."""
        return await self._read(lambda c: settings_of(c, scope.tenant, organization))

    async def change(
        self,
        scope: Scope,
        organization: str,
        change: OrganizationChange,
        *,
        now: float,
        audit: Sequence[Record] = (),
    ) -> OrganizationSettings:
        """Change the current settings atomically."""

        def write(connection: sqlite3.Connection) -> OrganizationSettings:
            after = changed(settings_of(connection, scope.tenant, organization), change)
            kept = msgspec.json.encode(after).decode()
            run(connection, "organization_put", tenant=scope.tenant, id=organization, settings=kept, now=now)
            chained(connection, scope.tenant, audit)
            return after

        return await self._write(write)


def settings_of(connection: sqlite3.Connection, tenant: str, organization: str) -> OrganizationSettings:
    """Return an organization's settings inside a transaction, by default the defaults."""
    row = one(connection, "organization_get", tenant=tenant, id=organization)
    return _settings(row["settings"]) if row else OrganizationSettings()


def key_record(row: Row) -> Key:
    """Parse a key from a row."""
    return Key(
        id=row["id"],
        role=row["role"],
        user=row["user_id"],
        organizations=tuple(json.loads(row["organizations"])),
        name=row["name"],
        tenant=row["tenant"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
    )
