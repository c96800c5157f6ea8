"""Made by scripts/blocking.py from `cuebook.app.keys`: `scripts/check --fix` makes it anew."""

from collections.abc import Sequence

from cuebook.app.blocking.host import Host
from cuebook.app.keys import NewKey
from cuebook.app.shapes import Wire
from cuebook.records.key import Caller, Key, Role


class BlockingKeys:
    """`Cuebook.keys` without `await`."""

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
        """Make a key. One of role viewer or editor is one user's; a higher one speaks for any, unless it names one.

        From the first key on the server lets nobody in without one. Raises InvalidInput.
        """
        return self._host.run(
            lambda book: book.keys.new(
                role, user=user, organizations=organizations, name=name, expires_days=expires_days, by=by
            )
        )

    def list(self) -> Sequence[Key]:
        """Give the keys, the oldest first; revoked and expired ones too."""
        return self._host.run(lambda book: book.keys.list())

    def describe(self) -> Sequence[Wire]:
        """Give the same as JSON shows them, each with its `state`."""
        return self._host.run(lambda book: book.keys.describe())

    def revoke(self, key: str, *, by: str = "") -> Key:
        """Close a key for good, from the next request on. Raises NotFound."""
        return self._host.run(lambda book: book.keys.revoke(key, by=by))

    def configured(self) -> bool:
        """Whether there are keys, of any tenant and revoked ones too: who has none is not let in then."""
        return self._host.run(lambda book: book.keys.configured())

    def admit(self, token: str | None, *, closed: bool = False) -> Caller:
        """Say who asks with a key, of whichever tenant. Where there are no keys, who asks owns the machine.

        `closed`: nobody gets in without a key, though none is configured. Raises Unproven.
        """
        return self._host.run(lambda book: book.keys.admit(token, closed=closed))
