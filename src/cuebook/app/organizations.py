"""Organization settings: what each organization allows in its long-term memory (AgentOS's organization settings)."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cuebook.app.json_shapes import Wire
from cuebook.app.keys import record_of
from cuebook.engine.core.drafts import check_text
from cuebook.engine.core.services import Services
from cuebook.errors import InvalidInput
from cuebook.records.memory import DEFAULT_TENANT, Scope
from cuebook.records.organization import OrganizationChange, OrganizationSettings, change_of, checked

#: Maximum length of an organization's id, in characters.
LONGEST = 200


class Organizations:
    """The organizations of one tenant. An organization without settings has the defaults."""

    def __init__(self, services: Services, tenant: str = DEFAULT_TENANT) -> None:
        self._services = services
        self._scope = Scope(tenant)

    async def settings(self, organization: str) -> OrganizationSettings:
        """Return an organization's settings. Raises InvalidInput for an invalid id."""
        return await self._services.store.organizations.settings(self._scope, _checked(organization))

    async def change(
        self, organization: str, change: OrganizationChange | Mapping[str, Any], *, by: str = ""
    ) -> OrganizationSettings:
        """Change the given settings and keep the others: {"memory": {"longTermMemory": {"allowWrites": False}}}.

        Return the new settings. Raises InvalidInput.
        """
        organization_change = checked(change) if isinstance(change, OrganizationChange) else change_of(change)
        value = msgspec.to_builtins(organization_change)
        record = record_of(self._services, f"organization:{_checked(organization)}", "organization", by=by, said=value)
        store, now = self._services.store.organizations, self._services.clock.now()
        return await store.change(self._scope, organization, organization_change, now=now, audit=[record])


def _checked(organization: str) -> str:
    check_text(organization, "organization")
    if not 0 < len(organization) <= LONGEST:
        msg = f"organization: {len(organization)} characters. An id has 1 to {LONGEST}."
        raise InvalidInput(msg, where="organization")
    return organization


def shape(settings: OrganizationSettings) -> Wire:
    """Return settings as a JSON object."""
    data: Wire = msgspec.to_builtins(settings)
    return data
