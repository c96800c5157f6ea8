"""Organization settings: what each organization allows in its long-term memory (AgentOS's organization settings)."""

from typing import Annotated

import msgspec
from msgspec import Meta

from cuebook.app.arguments import OWNER, Actor, CallerOf, IdempotencyKey
from cuebook.app.keys import LONGEST
from cuebook.app.namespace import Namespace
from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.drafts import check_text
from cuebook.operations import Argument, operation
from cuebook.records.key import OrganizationMemoryChange, OrganizationSettings, checked
from cuebook.records.memory import Scope

OrganizationId = Annotated[
    str,
    Meta(min_length=1, max_length=LONGEST, description="Organization ID."),
    Argument(wire="organization", metavar="ID"),
]


class Organizations(Namespace):
    """The organizations of one tenant. An organization without settings has the defaults."""

    @operation(
        "GET /api/organizations/{organization}/settings",
        role="admin",
        hidden=True,
        cli="organization show",
        examples=("cuebook organization show acme", "cuebook organization show acme --json"),
    )
    async def settings(self, organization: OrganizationId, *, caller: CallerOf = OWNER) -> OrganizationSettings:
        """Return an organization's settings, or the defaults. Only for its admins. Raises InvalidInput, NotFound."""
        check_text(organization, "organization")
        caller.check_organization(organization)
        return await self._services.store.keys.organization(Scope(), organization)

    @operation("PATCH /api/organizations/{organization}/settings", role="admin", hidden=True, stores=True)
    async def change(
        self,
        organization: OrganizationId,
        memory: Annotated[OrganizationMemoryChange, Meta(description="Settings to change.")],
        *,
        caller: CallerOf = OWNER,
        by: Actor = "",
        idempotency_key: IdempotencyKey = None,
    ) -> OrganizationSettings:
        """Update the named settings and keep the others. `allowedCategories` null allows all, [] none.

        Only for the organization's admins. Raises InvalidInput, NotFound.
        """
        check_text(organization, "organization")
        caller.check_organization(organization)
        change = checked(memory)
        value = {"memory": msgspec.to_builtins(change)}
        record = receipt(self._services, f"organization:{organization}", "organization", agent=by, context=value)
        store, now = self._services.store.keys, self._services.clock.now()
        return await store.change_organization(Scope(), organization, change, now=now, audit=[record])
