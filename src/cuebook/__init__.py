"""Cuebook: conversation memory, prompt management and an audit log for LLM agents. This module lists the public API."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cuebook.errors import (
    BackendError,
    Busy,
    Conflict,
    CuebookError,
    Denied,
    InvalidInput,
    KeyReused,
    LeaseLost,
    MergeConflict,
    NotFound,
    StoreFull,
    SyncRefused,
    TooLarge,
    UnknownSigner,
    Unproven,
    UpstreamError,
)

if TYPE_CHECKING:
    from cuebook.app.blocking.cuebook import BlockingCuebook
    from cuebook.app.cuebook import Cuebook, Reply
    from cuebook.config import Config
    from cuebook.engine.core.drafts import Posted
    from cuebook.engine.turn.chat import Chunk
    from cuebook.memory.schema import MEMORY_SCHEMA
    from cuebook.records.conversation import Conversation, Part, Post, Round
    from cuebook.records.memory import Hit, Item, Nearby, Summary
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
    "Denied",
    "Dropped",
    "Hit",
    "InvalidInput",
    "Item",
    "KeyReused",
    "LeaseLost",
    "MergeConflict",
    "Nearby",
    "NotFound",
    "Part",
    "Post",
    "Posted",
    "Reply",
    "Round",
    "StoreFull",
    "Summary",
    "SyncRefused",
    "TooLarge",
    "UnknownSigner",
    "Unproven",
    "UpstreamError",
    "Window",
    "__version__",
]

#: The modules of the other public names. A name is imported when it is first used, so that `import cuebook` stays fast.
_PLACES = {
    "cuebook.app.blocking.cuebook": ("BlockingCuebook",),
    "cuebook.app.cuebook": ("Cuebook", "Reply"),
    "cuebook.config": ("Config",),
    "cuebook.engine.core.drafts": ("Posted",),
    "cuebook.engine.turn.chat": ("Chunk",),
    "cuebook.memory.schema": ("MEMORY_SCHEMA",),
    "cuebook.records.conversation": ("Conversation", "Part", "Post", "Round"),
    "cuebook.records.memory": ("Hit", "Item", "Nearby", "Summary"),
    "cuebook.records.turn": ("Ask", "Block", "Dropped", "Window"),
}


def __getattr__(name: str) -> Any:
    """Load a public name."""
    if name == "__version__":
        return import_module("importlib.metadata").version("cuebook")
    for place, names in _PLACES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(place), name)
            return value
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
