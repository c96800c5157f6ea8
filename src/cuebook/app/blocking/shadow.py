"""Made by scripts/blocking.py from `cuebook.app.shadow`: `scripts/check --fix` makes it anew."""

from cuebook.app.blocking.host import Host
from cuebook.app.shadow import ShadowCall, ShadowReport


class BlockingShadowLedger:
    """`Cuebook.shadow` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def report(self, conversation: str | None = None, *, user: str | None = None) -> ShadowReport:
        """Sum up the calls of a conversation, or of all that who asks takes part in.

        Raises NotFound, and InvalidInput for prices of the project that cannot be read.
        """
        return self._host.run(lambda book: book.shadow.report(conversation, user=user))

    def calls(self, conversation: str | None = None, *, user: str | None = None) -> list[ShadowCall]:
        """Give each call of a conversation, or of all that who asks takes part in, the oldest first; none was refused.

        Raises NotFound, and InvalidInput for prices of the project that cannot be read.
        """
        return self._host.run(lambda book: book.shadow.calls(conversation, user=user))
