"""How a remembered text is identified: its id, and the key of what it is about."""

import hashlib
from datetime import UTC, tzinfo

from cuebook.languages import detect, language
from cuebook.memory.tokenizer import key_text
from cuebook.records.memory import Category, Memory

#: Words of a subject.
WORDS = 3


def item_id(category: Category, text: str) -> str:
    """Return an item's stable id: 16 hex digits of SHA-256 over category and normalized text (notes/seed-origins.md
    1.5).
    """
    return hashlib.sha256(f"{category}|{normal(text)}".encode()).hexdigest()[:16]


def normal(text: str) -> str:
    """Return a text as repeats are recognized: trimmed, lower case, spaces collapsed."""
    return " ".join(text.lower().split())


def subject_of(text: str) -> str:
    """Return the key of what a text is about: its first content words."""
    return " ".join(dict.fromkeys(language(detect(text)).content(text)[:WORDS]))


# ---- how a memory is printed ----------------------------------------------------------------------------------------


def said_of(memory: Memory) -> str:
    """Return a memory as it is said: its text, after the key or the name it is known by where that is not in it."""
    return f"{memory.name}: {memory.text}" if memory.name and memory.name not in memory.text else memory.text


def memory_key(memory: Memory, *, zone: tzinfo = UTC) -> str:
    """Return what the store indexes for a memory: the `key_text` of what it says."""
    return key_text("", memory.valid_from, said_of(memory), zone=zone)
