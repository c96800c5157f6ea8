"""What keeps who may do what: keys without their secrets, and the settings of organizations."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from cuebook.records.audit import Record
from cuebook.records.key import Key
from cuebook.records.memory import Scope
from cuebook.records.organization import OrganizationChange, OrganizationSettings


class Presented(Struct, frozen=True):
    """What is known of a key somebody presents; `configured`: whether there are keys at all, revoked ones too."""

    configured: bool
    key: Key | None = None
    digest: bytes = b""


class KeyStore(Protocol):
    """Keeps keys. None is ever taken away: a book that had keys stays closed to who has none."""

    async def present(self, id_: str | None) -> Presented:
        """Look a key up by its id, of any tenant: who asks is not known yet."""
        ...

    async def add(self, scope: Scope, key: Key, digest: bytes, *, audit: Sequence[Record] = ()) -> None:
        """Keep a key, and the records of it in the same transaction. Raises Conflict where its id is taken."""
        ...

    async def keys(self, scope: Scope) -> list[Key]:
        """Return a tenant's keys, the oldest first."""
        ...

    async def revoke(self, scope: Scope, id_: str, *, now: float, audit: Sequence[Record] = ()) -> Key:
        """Close a key for good; one closed already stays as it was. Raises NotFound."""
        ...


class OrganizationStore(Protocol):
    """Keeps the settings of organizations."""

    async def settings(self, scope: Scope, organization: str) -> OrganizationSettings:
        """Return an organization's settings, the defaults where nobody has set any."""
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
        """Change them on what they are now; answers with what they are then."""
        ...
