"""Pydantic AI: `CuebookConversationStore` saves conversations, `CuebookMemory` recalls and summarizes for an agent."""

from cuebook.integrations.pydantic_ai.memory import CuebookMemory
from cuebook.integrations.pydantic_ai.store import CuebookConversationStore

__all__ = ["CuebookConversationStore", "CuebookMemory"]
