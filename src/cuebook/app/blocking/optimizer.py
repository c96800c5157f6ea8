"""Made by scripts/blocking.py from `cuebook.app.optimizer`: `scripts/check --fix` makes it anew."""

from cuebook.app.blocking.host import Host
from cuebook.app.optimizer import OptimizerStatus
from cuebook.records.tuning import Snapshot


class BlockingOptimizer:
    """`Cuebook.optimizer` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def status(self, conversation: str | None = None, *, user: str | None = None) -> OptimizerStatus:
        """Say what the runs so far came to, of a conversation or of all. Raises NotFound."""
        return self._host.run(lambda book: book.optimizer.status(conversation, user=user))

    def run(self, conversation: str | None = None, *, user: str | None = None) -> Snapshot:
        """Run now, whatever the interval: in a conversation, else in all that changed since their last run.

        Of several runs the snapshot sums up the tokens and the entries, and has the last one's parameters. Fewer than
        ten posts are left as they are, as `untuned` says. Raises NotFound, and InvalidInput where the optimizer is off.
        """
        return self._host.run(lambda book: book.optimizer.run(conversation, user=user))

    def history(self, conversation: str | None = None, *, user: str | None = None, limit: int = 20) -> list[Snapshot]:
        """Give the snapshots of the runs, newest first; of a conversation 500 are kept. Raises NotFound."""
        return self._host.run(lambda book: book.optimizer.history(conversation, user=user, limit=limit))
