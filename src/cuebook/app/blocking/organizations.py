"""Made by scripts/blocking.py from `cuebook.app.organizations`: `scripts/check --fix` makes it anew."""

from collections.abc import Mapping
from typing import Any

from cuebook.app.blocking.host import Host
from cuebook.records.organization import OrganizationChange, OrganizationSettings


class BlockingOrganizations:
    """`Cuebook.organizations` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def settings(self, organization: str) -> OrganizationSettings:
        """Give an organization's settings. Raises InvalidInput for what is no id."""
        return self._host.run(lambda book: book.organizations.settings(organization))

    def change(
        self, organization: str, change: OrganizationChange | Mapping[str, Any], *, by: str = ""
    ) -> OrganizationSettings:
        """Change what is named and leave the rest: {"memory": {"longTermMemory": {"allowWrites": False}}}.

        Answers with the settings as they are then. Raises InvalidInput.
        """
        return self._host.run(lambda book: book.organizations.change(organization, change, by=by))
