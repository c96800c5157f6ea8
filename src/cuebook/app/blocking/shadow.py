"""A blocking book's ledger of shadow mode."""

from cuebook.app.blocking.parts import Host
from cuebook.app.shadow import ShadowCall, ShadowReport


class BlockingShadowLedger:
    """`Cuebook.shadow` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def report(self, conversation: str | None = None, *, user: str | None = None) -> ShadowReport:
        """Sum up the calls of a conversation, or of all that who asks takes part in. Raises NotFound, InvalidInput."""
        return self._host.run(lambda book: book.shadow.report(conversation, user=user))

    def calls(self, conversation: str | None = None, *, user: str | None = None) -> list[ShadowCall]:
        """Give each call of a conversation, or of all, the oldest first. Raises NotFound, InvalidInput."""
        return self._host.run(lambda book: book.shadow.calls(conversation, user=user))
