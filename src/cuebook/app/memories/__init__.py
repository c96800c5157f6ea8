"""Long-term memories across conversations, of users, personas and organizations, and knowledge."""

from cuebook.app.memories.knowledge import Decayed, Knowing
from cuebook.app.memories.reading import KINDS

__all__ = ["KINDS", "Decayed", "Memories"]


class Memories(Knowing):
    """The long-term memories of a project. Each has an owner, and a user sees only their own."""
