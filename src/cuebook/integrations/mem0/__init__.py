"""The interface of mem0 (2.2) over Cuebook's memory: replace `from mem0 import Memory`. It needs no other package."""

from cuebook.integrations.mem0.memory import AsyncMemory, Memory

__all__ = ["AsyncMemory", "Memory"]
