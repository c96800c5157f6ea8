"""How a memory is printed, and the key it is indexed by."""

from datetime import UTC, tzinfo

from cuebook.memory.words import key_text
from cuebook.records.memory import Memory


def said_of(memory: Memory) -> str:
    """Give a memory as it is said: its text, after the key or the name it is known by where that is not in it."""
    return f"{memory.name}: {memory.text}" if memory.name and memory.name not in memory.text else memory.text


def memory_key(memory: Memory, *, zone: tzinfo = UTC) -> str:
    """Return what the store indexes for a memory: the `key_text` of what it says."""
    return key_text("", memory.valid_from, said_of(memory), zone=zone)
