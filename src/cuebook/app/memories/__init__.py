"""Long-term memories across conversations, of users, personas and organizations, and knowledge."""

from cuebook.app.memories.knowledge import DecayResult, KnowledgeApi
from cuebook.app.memories.reading import KINDS

__all__ = ["KINDS", "DecayResult", "Memories"]


class Memories(KnowledgeApi):
    """The long-term memories of a project. Each has an owner, and a user sees only their own."""
