"""LangGraph: `CuebookSaver` saves the checkpoints of threads, `CuebookStore` is the long-term store."""

from cuebook.integrations.langgraph.saver import CuebookSaver
from cuebook.integrations.langgraph.store import CuebookStore

__all__ = ["CuebookSaver", "CuebookStore"]
