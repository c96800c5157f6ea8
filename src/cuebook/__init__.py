"""Cuebook: conversation memory, prompt management and an audit log for LLM agents. This module lists the public API."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cuebook.app.blocking import BlockingCuebook
    from cuebook.app.cuebook import Cuebook, Reply
    from cuebook.config import Config
    from cuebook.engine.core.drafts import Posted
    from cuebook.engine.turn.chat import Chunk
    from cuebook.errors import BackendError, Busy, Conflict, CuebookError, InvalidInput, NotFound
    from cuebook.memory.schema import MEMORY_SCHEMA
    from cuebook.records.conversation import Conversation, Part, Post, Round
    from cuebook.records.memory import Hit, Item, Summary
    from cuebook.records.turn import Ask, Block, Dropped, Window

__all__ = [
    "MEMORY_SCHEMA",
    "Ask",
    "BackendError",
    "Block",
    "BlockingCuebook",
    "Busy",
    "Chunk",
    "Config",
    "Conflict",
    "Conversation",
    "Cuebook",
    "CuebookError",
    "Dropped",
    "Hit",
    "InvalidInput",
    "Item",
    "NotFound",
    "Part",
    "Post",
    "Posted",
    "Reply",
    "Round",
    "Summary",
    "Window",
]

#: The module of each public name. A name is imported when it is first used, so that `import cuebook` stays fast.
_PLACES = {
    "Ask": "cuebook.records.turn",
    "BackendError": "cuebook.errors",
    "Block": "cuebook.records.turn",
    "BlockingCuebook": "cuebook.app.blocking",
    "Busy": "cuebook.errors",
    "Chunk": "cuebook.engine.turn.chat",
    "Config": "cuebook.config",
    "Conflict": "cuebook.errors",
    "Conversation": "cuebook.records.conversation",
    "Cuebook": "cuebook.app.cuebook",
    "CuebookError": "cuebook.errors",
    "Dropped": "cuebook.records.turn",
    "Hit": "cuebook.records.memory",
    "InvalidInput": "cuebook.errors",
    "Item": "cuebook.records.memory",
    "MEMORY_SCHEMA": "cuebook.memory.schema",
    "NotFound": "cuebook.errors",
    "Part": "cuebook.records.conversation",
    "Post": "cuebook.records.conversation",
    "Posted": "cuebook.engine.core.drafts",
    "Reply": "cuebook.app.cuebook",
    "Round": "cuebook.records.conversation",
    "Summary": "cuebook.records.memory",
    "Window": "cuebook.records.turn",
}


def __getattr__(name: str) -> Any:
    """Load a public name."""
    if name not in _PLACES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
