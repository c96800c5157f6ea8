"""How a memory is said, and the words it is found by: its own, and those that ask for what it tells."""

from datetime import UTC, tzinfo
from typing import Final

from cuebook.memory.words import key_text, words
from cuebook.records.memory import Memory

#: What has one value at a time is asked for in words that need not be its own: "Where do I live?", "I moved to Ghent".
ASKED: Final = {"home": "live home", "job": "work job"}


def said_of(memory: Memory) -> str:
    """Give a memory as it is said: its text, after the key or the name it is known by where that is not in it."""
    return f"{memory.name}: {memory.text}" if memory.name and memory.name not in memory.text else memory.text


def memory_key(memory: Memory, *, zone: tzinfo = UTC) -> str:
    """Write what the store indexes for a memory: `key_text` of what it says, with the words that ask for it."""
    said = said_of(memory)
    own = set(words(said))
    asked = [word for word in words(ASKED.get(memory.subject, "")) if word not in own]
    return key_text(" ".join(asked), memory.valid_from, said, zone=zone)
