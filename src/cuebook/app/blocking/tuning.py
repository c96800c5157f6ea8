"""A blocking book's optimizer."""

from cuebook.app.blocking.parts import Host
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
        """Run now, whatever the interval: in a conversation, else in all that changed since their last run."""
        return self._host.run(lambda book: book.optimizer.run(conversation, user=user))

    def history(self, conversation: str | None = None, *, user: str | None = None, limit: int = 20) -> list[Snapshot]:
        """Give the snapshots of the runs, newest first. Raises NotFound."""
        return self._host.run(lambda book: book.optimizer.history(conversation, user=user, limit=limit))
