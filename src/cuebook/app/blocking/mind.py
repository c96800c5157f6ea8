"""Made by scripts/blocking.py from `cuebook.app.mind`: `scripts/check --fix` makes it anew."""

from cuebook.app.blocking.host import Host
from cuebook.app.mind import MindState


class BlockingMindOf:
    """`Cuebook.mind` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def show(self, conversation: str, *, user: str | None = None, limit: int = 20) -> MindState:
        """Give a conversation's Mind and what moved it. Raises NotFound, InvalidInput."""
        return self._host.run(lambda book: book.mind.show(conversation, user=user, limit=limit))

    def run(self, conversation: str, metaprompt: str, *, user: str | None = None) -> MindState:
        """Run a metaprompt now, on the newest turn. What is due of the conversation is done before it.

        It is one of the persona's or one that ships. While a turn is running it waits for its end, `due` says so.
        Raises NotFound, and InvalidInput for a metaprompt that is not known or a conversation without turns.
        """
        return self._host.run(lambda book: book.mind.run(conversation, metaprompt, user=user))

    def reset(self, conversation: str, *, user: str | None = None) -> MindState:
        """Make the Mind neutral again; its history stays. Raises NotFound, and InvalidInput without turns."""
        return self._host.run(lambda book: book.mind.reset(conversation, user=user))
