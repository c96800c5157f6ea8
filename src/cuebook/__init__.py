"""Cuebook: the prompt book of an agent. It holds every line, cue and change, so the show goes on."""

from cuebook.app.blocking import BlockingCuebook
from cuebook.app.book import Cuebook, Reply
from cuebook.config import Config
from cuebook.engine.drafts import Posted
from cuebook.engine.turn import Chunk
from cuebook.errors import (
    BackendError,
    Busy,
    Conflict,
    CuebookError,
    InvalidInput,
    NotFound,
)
from cuebook.records.conversation import Conversation, Part, Post, Round
from cuebook.records.memory import Hit, Item, Summary
from cuebook.records.turn import Ask, Block, Dropped, Window

__all__ = [
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
