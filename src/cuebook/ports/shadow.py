"""What is read of the ledger of shadow mode: it lies in the turns' own metadata, and goes with them."""

from typing import Protocol

from cuebook.records.memory import Scope
from cuebook.records.shadow import ShadowedCall


class ShadowStore(Protocol):
    """Reads the calls that were kept in shadow."""

    async def calls(self, scope: Scope, conversation: str | None) -> list[ShadowedCall]:
        """Give the calls of a conversation, or of all that who asks takes part in, oldest first. Raises NotFound."""
        ...
