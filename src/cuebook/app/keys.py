"""API keys: create, list, rotate, revoke and authenticate."""

import secrets
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, structs

from cuebook.app.arguments import Actor
from cuebook.app.namespace import Namespace
from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.drafts import check_text
from cuebook.engine.core.services import Services
from cuebook.errors import Conflict, InvalidInput, Unproven
from cuebook.operations import Argument, operation
from cuebook.records.answer import Page, to_wire
from cuebook.records.key import (
    DAY_S,
    OF_ONE_USER,
    ROLES,
    SECRET_BYTES,
    Caller,
    Key,
    KeyEntry,
    NewKey,
    Role,
    digest_of_token,
    fits,
    id_of,
    key_entry,
    unknown_key,
    write_token,
)
from cuebook.records.memory import DEFAULT_TENANT, Scope

#: Maximum validity in days of a key that expires.
MOST_DAYS = 36_500
#: Maximum length of a name, a user or an organization, in characters.
LONGEST = 200
#: Hours for which a replaced key stays valid by default.
OVERLAP_HOURS = 24.0
#: Beginning of the names of signed-in users' keys.
SIGNED_IN = "login:"
KeyId = Annotated[str, Meta(description="Key ID from `cuebook key list`."), Argument(metavar="ID")]


class Keys(Namespace):
    """The API keys of one tenant."""

    def __init__(self, services: Services, tenant: str = DEFAULT_TENANT) -> None:
        super().__init__(services)
        self._tenant = tenant

    @operation(
        "",
        role="owner",
        cli="key new",
        examples=(
            "cuebook key new --role editor --user ann",
            "cuebook key new --role agent --name support-bot --expires 90",
            "cuebook key new --role admin --user mara --organization acme --json",
        ),
    )
    async def new(
        self,
        role: Annotated[Role, Meta(description=f"One of {', '.join(ROLES)}."), Argument(flag="role", metavar="ROLE")],
        *,
        user: Annotated[
            str | None,
            Meta(min_length=1, max_length=LONGEST, description="Owner of the key; required for viewer and editor."),
        ] = None,
        organizations: Annotated[
            Sequence[Annotated[str, Meta(min_length=1, max_length=LONGEST)]],
            Meta(description="Allow access to this organization; repeatable."),
            Argument(flag="organization", metavar="ORG"),
        ] = (),
        name: Annotated[
            str, Meta(max_length=LONGEST, description="Purpose of the key."), Argument(metavar="TEXT")
        ] = "",
        expires_days: Annotated[
            float | None,
            Meta(gt=0, le=MOST_DAYS, description="Number of days until the key expires. Default: never."),
            Argument(wire="expires", flag="expires", metavar="DAYS"),
        ] = None,
        by: Actor = "",
    ) -> NewKey:
        """Create an API key and show it once. Once a key exists, the server requires one.

        Roles viewer and editor need a `user`. Keys with role agent or higher may act for any user, unless you name one.
        Raises InvalidInput.
        """
        if role in OF_ONE_USER and not user:
            msg = f"user: required for role {role}. Add --user U, or choose role agent or higher."
            raise InvalidInput(msg, where="user")
        for where, text in (("user", user), *(("organizations", each) for each in organizations), ("name", name)):
            check_text(text or "", where)
        now = self._services.clock.now()
        key = Key(
            id=self._new_id(),
            role=role,
            user=user,
            organizations=tuple(dict.fromkeys(organizations)),
            name=name,
            tenant=self._tenant,
            created_at=now,
            expires_at=None if expires_days is None else now + expires_days * DAY_S,
        )
        return await self._add(key, event="key-new", by=by)

    @operation(
        "",
        role="owner",
        cli="key rotate",
        examples=(
            "cuebook key rotate 3f2a90c41b7d5e68a0f1",
            "cuebook key rotate 3f2a90c41b7d5e68a0f1 --overlap 168 --expires 90",
        ),
    )
    async def rotate(
        self,
        key: KeyId,
        *,
        overlap_hours: Annotated[
            float,
            Meta(ge=0, le=24 * MOST_DAYS, description="Hours for which the old key stays valid."),
            Argument(wire="overlap", flag="overlap", metavar="HOURS"),
        ] = OVERLAP_HOURS,
        expires_days: Annotated[
            float | None,
            Meta(
                gt=0, le=MOST_DAYS, description="Days until the new key expires. Default: as many as the old key had."
            ),
            Argument(wire="expires", flag="expires", metavar="DAYS"),
        ] = None,
        by: Actor = "",
    ) -> NewKey:
        """Replace a key by a new one with the same permissions, and show it once. The old one expires later.

        Raises NotFound, Conflict for a key that is revoked or expired.
        """
        check_text(key, "key")
        now, stored = self._services.clock.now(), await self._services.store.keys.keys(Scope(self._tenant))
        old = next((each for each in stored if each.id == key), None)
        if old is None:
            raise unknown_key(key)
        if (state := old.state(now)) != "valid":
            msg = f"Key {key!r} is {state}. Create another one with `cuebook key new`."
            raise Conflict(msg)
        lifetime_s = None if old.expires_at is None else old.expires_at - old.created_at
        lifetime_s = lifetime_s if expires_days is None else expires_days * DAY_S
        expires_at = None if lifetime_s is None else now + lifetime_s
        new = structs.replace(old, id=self._new_id(), created_at=now, expires_at=expires_at)
        return await self._add(new, event="key-rotate", replaces=(key, now + overlap_hours * 3600.0), by=by)

    def _new_id(self) -> str:
        return self._services.dice.new_id("key").removeprefix("key-")

    async def _add(self, key: Key, *, event: str, replaces: tuple[str, float] | None = None, by: str) -> NewKey:
        """Store a key. `replaces` is another one's id and when that one expires."""
        token = write_token(key.id, secrets.token_bytes(SECRET_BYTES))
        entry = key_entry(key, now=key.created_at)
        context = to_wire(entry) | ({"replaces": replaces[0]} if replaces else {})
        record = receipt(self._services, f"key:{key.id}", event, agent=by, context=context)
        digest, is_session = digest_of_token(token, self._services.settings.key), event == "key-sign-in"
        scope, keys = Scope(self._tenant), self._services.store.keys
        await keys.add(scope, key, digest, replaces=replaces, prunes=is_session, audit=[record])
        return NewKey(**structs.asdict(entry), token=token)

    @operation(
        "",
        role="owner",
        cli="key list",
        examples=("cuebook key list", "cuebook key list --json"),
        none="no keys: the server accepts local connections only. Run `cuebook key new --role ROLE` to create one.",
    )
    async def list(self) -> Page[KeyEntry]:
        """List the API keys, oldest first, revoked and expired ones included."""
        now = self._services.clock.now()
        keys = await self._services.store.keys.keys(Scope(self._tenant))
        return Page(items=tuple(key_entry(each, now=now) for each in keys))

    @operation("", role="owner", cli="key revoke", examples=("cuebook key revoke 3f2a90c41b7d5e68a0f1",))
    async def revoke(
        self,
        key: KeyId,
        *,
        by: Actor = "",
    ) -> KeyEntry:
        """Revoke a key permanently, effective from the next request. Raises NotFound."""
        check_text(key, "key")
        record = receipt(self._services, f"key:{key}", "key-revoke", agent=by, context={"id": key})
        now = self._services.clock.now()
        revoked = await self._services.store.keys.revoke(Scope(self._tenant), key, now=now, audit=[record])
        return key_entry(revoked, now=now)

    async def sign_in(self, user: str, role: Role, *, hours: float) -> NewKey:
        """Create a key for a user whom a provider has identified. Expired ones of the user are deleted."""
        check_text(user, "user")
        now = self._services.clock.now()
        key = Key(
            id=self._new_id(),
            role=role,
            user=user if role in OF_ONE_USER else None,
            name=f"{SIGNED_IN}{user}",
            tenant=self._tenant,
            created_at=now,
            expires_at=now + hours * 3600.0,
        )
        return await self._add(key, event="key-sign-in", by=key.name)

    async def sign_out(self, token: str) -> None:
        """Revoke the key of a signed-in user. Other keys stay valid."""
        _, key, digest = await self._services.store.keys.present(id_of(token))
        if key is not None and key.name.startswith(SIGNED_IN) and fits(token, self._services.settings.key, digest):
            await self.revoke(key.id, by=key.name)

    async def configured(self) -> bool:
        """Return whether any tenant has keys, revoked ones included. If so, requests need a key."""
        return (await self._services.store.keys.present(None))[0]

    async def admit(self, token: str | None, *, closed: bool = False) -> Caller:
        """Authenticate a token and return its caller, of any tenant. Without any keys the caller is the owner.

        `closed`: require a key even if none is configured. Raises Unproven.
        """
        id_ = id_of(token) if token is not None else None
        configured, key, digest = await self._services.store.keys.present(id_)
        if not configured and not closed:
            return Caller()
        if token is None:
            msg = "API key required. Send `Authorization: Bearer cue_…` or the header X-Cuebook-Key."
            raise Unproven(msg)
        genuine = fits(token, self._services.settings.key, digest)  # an unknown key takes as long
        if key is None or not genuine or key.state(self._services.clock.now()) != "valid":
            msg = "Invalid API key: unknown, expired or revoked. Create another with `cuebook key new`."
            raise Unproven(msg)
        return Caller(role=key.role, tenant=key.tenant, user=key.user, organizations=key.organizations, key=key.id)
