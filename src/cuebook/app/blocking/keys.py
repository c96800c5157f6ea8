"""A blocking book's keys and organizations."""

from collections.abc import Mapping, Sequence
from typing import Any

from cuebook.app.blocking.parts import Host
from cuebook.app.keys import NewKey
from cuebook.app.shapes import Wire
from cuebook.records.key import Caller, Key, Role
from cuebook.records.organization import OrganizationChange, OrganizationSettings


class BlockingKeys:
    """The keys of a blocking book."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def new(
        self,
        role: Role,
        *,
        user: str | None = None,
        organizations: Sequence[str] = (),
        name: str = "",
        expires_days: float | None = None,
        by: str = "",
    ) -> NewKey:
        """Make a key; its token is told once."""
        return self._host.run(
            lambda book: book.keys.new(
                role, user=user, organizations=organizations, name=name, expires_days=expires_days, by=by
            )
        )

    def list(self) -> Sequence[Key]:
        """Give the keys, the oldest first."""
        return self._host.run(lambda book: book.keys.list())

    def describe(self) -> Sequence[Wire]:
        """Give the same as JSON shows them."""
        return self._host.run(lambda book: book.keys.describe())

    def revoke(self, key: str, *, by: str = "") -> Key:
        """Close a key for good."""
        return self._host.run(lambda book: book.keys.revoke(key, by=by))

    def configured(self) -> bool:
        """Whether there are keys."""
        return self._host.run(lambda book: book.keys.configured())

    def admit(self, token: str | None, *, closed: bool = False) -> Caller:
        """Say who asks with a key."""
        return self._host.run(lambda book: book.keys.admit(token, closed=closed))


class BlockingOrganizations:
    """The organizations of a blocking book."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def settings(self, organization: str) -> OrganizationSettings:
        """Give an organization's settings."""
        return self._host.run(lambda book: book.organizations.settings(organization))

    def change(
        self, organization: str, change: OrganizationChange | Mapping[str, Any], *, by: str = ""
    ) -> OrganizationSettings:
        """Change what is named and leave the rest."""
        return self._host.run(lambda book: book.organizations.change(organization, change, by=by))
