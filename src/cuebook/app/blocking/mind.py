"""A blocking book's minds."""

from cuebook.app.blocking.parts import Host
from cuebook.app.mind import MindState


class BlockingMind:
    """`Cuebook.mind` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def show(self, conversation: str, *, user: str | None = None, limit: int = 20) -> MindState:
        """Give a conversation's Mind and what moved it. Raises NotFound, InvalidInput."""
        return self._host.run(lambda book: book.mind.show(conversation, user=user, limit=limit))

    def run(self, conversation: str, metaprompt: str, *, user: str | None = None) -> MindState:
        """Run a metaprompt now, on the newest turn. Raises NotFound, InvalidInput."""
        return self._host.run(lambda book: book.mind.run(conversation, metaprompt, user=user))

    def reset(self, conversation: str, *, user: str | None = None) -> MindState:
        """Make the Mind neutral again; its history stays. Raises NotFound, InvalidInput."""
        return self._host.run(lambda book: book.mind.reset(conversation, user=user))
