"""What a book remembers across conversations: a user's memories, a persona's, an organization's, and knowledge."""

from cuebook.app.memories.knowledge import Decayed, Knowing
from cuebook.app.memories.reading import KINDS

__all__ = ["KINDS", "Decayed", "Memories"]


class Memories(Knowing):
    """The memories of a book across conversations. Whose they are is named: a user sees their own."""
