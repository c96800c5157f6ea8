"""Protocols for API keys, stored without their secrets, and for settings of organizations."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from cuebook.records.audit import Record
from cuebook.records.key import Key
from cuebook.records.memory import Scope
from cuebook.records.organization import OrganizationChange, OrganizationSettings


class PresentedKey(Struct, frozen=True):
    """A presented API key. `configured`: whether any keys exist, including revoked ones."""

    configured: bool
    key: Key | None = None
    digest: bytes = b""


class KeyStore(Protocol):
    """Stores API keys. Keys are never deleted, so that a project with keys stays closed to callers without one."""

    async def present(self, id_: str | None) -> PresentedKey:
        """Return a key by its id, of any tenant, because the caller is not known yet."""
        ...

    async def add(self, scope: Scope, key: Key, digest: bytes, *, audit: Sequence[Record] = ()) -> None:
        """Store a key with its records in one transaction. Raises Conflict if its id exists."""
        ...

    async def keys(self, scope: Scope) -> list[Key]:
        """Return a tenant's keys, oldest first."""
        ...

    async def revoke(self, scope: Scope, id_: str, *, now: float, audit: Sequence[Record] = ()) -> Key:
        """Revoke a key permanently. A revoked one stays unchanged. Raises NotFound."""
        ...


class OrganizationStore(Protocol):
    """Stores the settings of organizations."""

    async def settings(self, scope: Scope, organization: str) -> OrganizationSettings:
        """Return an organization's settings, by default the defaults."""
        ...

    async def change(
        self,
        scope: Scope,
        organization: str,
        change: OrganizationChange,
        *,
        now: float,
        audit: Sequence[Record] = (),
    ) -> OrganizationSettings:
        """Change the settings by a function of their current values. Return the new ones."""
        ...
