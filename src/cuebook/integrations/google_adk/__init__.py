"""Google ADK: `CuebookSessionService` stores sessions and their state, `CuebookMemoryService` is the memory."""

from cuebook.integrations.google_adk.memory import CuebookMemoryService
from cuebook.integrations.google_adk.sessions import CuebookSessionService

__all__ = ["CuebookMemoryService", "CuebookSessionService"]
