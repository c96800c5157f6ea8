"""API keys: create, list, revoke and authenticate."""

import secrets
from collections.abc import Sequence

from msgspec import Struct, structs

from cuebook.app.json_shapes import Wire, iso
from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.drafts import check_text
from cuebook.engine.core.services import Services
from cuebook.errors import InvalidInput, Unproven
from cuebook.records.audit import Record
from cuebook.records.key import (
    OF_ONE_USER,
    ROLES,
    SECRET_BYTES,
    Caller,
    Key,
    Role,
    digest_of_token,
    fits,
    id_of,
    write_token,
)
from cuebook.records.memory import DEFAULT_TENANT, Scope
from cuebook.records.prompt import Version

DAY_S = 86_400.0
#: Maximum validity in days of a key that expires.
MOST_DAYS = 36_500
#: Maximum length of a name, a user or an organization, in characters.
LONGEST = 200


class NewKey(Struct, frozen=True):
    """A new key and its token. The token is returned only here and never stored."""

    key: Key
    token: str


class Keys:
    """The API keys of one tenant."""

    def __init__(self, services: Services, tenant: str = DEFAULT_TENANT) -> None:
        self._services = services
        self._tenant = tenant

    async def new(
        self,
        role: Role,
        *,
        user: str | None = None,
        organizations: Sequence[str] = (),
        name: str = "",
        expires_days: float | None = None,
        by: str = "",
    ) -> NewKey:
        """Create a key. Roles viewer and editor need a `user`; a higher role acts for any user unless it names one.

        Once a key exists, the server refuses requests without one. Raises InvalidInput.
        """
        _check(role, user, organizations, name, expires_days)
        now = self._services.clock.now()
        key = Key(
            id=self._services.dice.new_id("key").removeprefix("key-"),
            role=role,
            user=user,
            organizations=tuple(dict.fromkeys(organizations)),
            name=name,
            tenant=self._tenant,
            created_at=now,
            expires_at=None if expires_days is None else now + expires_days * DAY_S,
        )
        token = write_token(key.id, secrets.token_bytes(SECRET_BYTES))
        record = record_of(self._services, f"key:{key.id}", "key-new", by=by, said=shape(key, now=now))
        digest = digest_of_token(token, self._services.settings.key)
        await self._services.store.keys.add(Scope(self._tenant), key, digest, audit=[record])
        return NewKey(key, token)

    async def list(self) -> Sequence[Key]:
        """Return all keys, oldest first, revoked and expired ones included."""
        return await self._services.store.keys.keys(Scope(self._tenant))

    async def describe(self) -> Sequence[Wire]:
        """Return all keys as JSON objects, each with its `state`."""
        now = self._services.clock.now()
        return [shape(each, now=now) for each in await self.list()]

    async def revoke(self, key: str, *, by: str = "") -> Key:
        """Revoke a key permanently, effective from the next request. Raises NotFound."""
        check_text(key, "key")
        record = record_of(self._services, f"key:{key}", "key-revoke", by=by, said={"id": key})
        now = self._services.clock.now()
        return await self._services.store.keys.revoke(Scope(self._tenant), key, now=now, audit=[record])

    async def configured(self) -> bool:
        """Return whether any tenant has keys, revoked ones included. If so, requests need a key."""
        return (await self._services.store.keys.present(None)).configured

    async def admit(self, token: str | None, *, closed: bool = False) -> Caller:
        """Authenticate a token and return its caller, of any tenant. Without any keys the caller is the owner.

        `closed`: require a key even if none is configured. Raises Unproven.
        """
        presented = await self._services.store.keys.present(id_of(token) if token is not None else None)
        if not presented.configured and not closed:
            return Caller()
        if token is None:
            msg = "API key required. Send `Authorization: Bearer cue_…` or the header X-Cuebook-Key."
            raise Unproven(msg)
        genuine = fits(token, self._services.settings.key, presented.digest)  # an unknown key takes as long
        key = presented.key
        if key is None or not genuine or key.state(self._services.clock.now()) != "valid":
            msg = "Invalid API key: unknown, expired or revoked. Create another with `cuebook key new`."
            raise Unproven(msg)
        return Caller(role=key.role, tenant=key.tenant, user=key.user, organizations=key.organizations, key=key.id)


def _check(role: str, user: str | None, organizations: Sequence[str], name: str, expires_days: float | None) -> None:
    if role not in ROLES:
        msg = f"role: unknown role {role!r}. Available: {', '.join(ROLES)}."
        raise InvalidInput(msg, where="role")
    if isinstance(organizations, str):
        msg = f"organizations: expected a list of names, got {organizations!r}."
        raise InvalidInput(msg, where="organizations")
    if role in OF_ONE_USER and not user:
        msg = f"user: required for role {role}. Add --user U, or choose role agent or higher."
        raise InvalidInput(msg, where="user")
    named = [("user", user), *(("organizations", each) for each in organizations), ("name", name or None)]
    for where, text in named:
        if text is None:
            continue
        check_text(text, where)
        if not 0 < len(text) <= LONGEST:
            msg = f"{where}: {len(text)} characters. Must have 1 to {LONGEST}."
            raise InvalidInput(msg, where=where)
    if expires_days is not None and not 0 < expires_days <= MOST_DAYS:
        msg = f"expires: {expires_days} days. Must be above 0 and at most {MOST_DAYS:,}."
        raise InvalidInput(msg, where="expires")


def record_of(services: Services, about: str, event: str, *, by: str, said: Wire) -> Record:
    """Return the audit record of a change to a key, an organization or a conversation's participants."""
    record = receipt(services, Version(slug=about), event, agent=by, context=said)
    return structs.replace(record, selection=None)


def shape(key: Key, *, now: float) -> Wire:
    """Return a key as a JSON object."""
    return {
        "id": key.id,
        "role": key.role,
        "tenant": key.tenant,
        "userId": key.user,
        "organizations": list(key.organizations),
        "name": key.name,
        "state": key.state(now),
        "createdAt": iso(key.created_at),
        "expiresAt": iso(key.expires_at),
        "revokedAt": iso(key.revoked_at),
    }
