"""Identify memory items: the stable id of an item, and the key of its subject."""

import hashlib
from datetime import UTC, tzinfo

from cuebook.languages import detect, language
from cuebook.memory.tokenizer import key_text
from cuebook.records.memory import Category, Memory

#: Words of a subject key.
WORDS = 3


def item_id(category: Category, text: str) -> str:
    """Return an item's stable id: 16 hex digits of SHA-256 over category and normalized text."""
    return hashlib.sha256(f"{category}|{normal(text)}".encode()).hexdigest()[:16]


def normal(text: str) -> str:
    """Return a text normalized for deduplication: trimmed, lower case, whitespace collapsed."""
    return " ".join(text.lower().split())


def subject_of(text: str) -> str:
    """Return the key of a text's subject: its first content words."""
    return " ".join(dict.fromkeys(language(detect(text)).content(text)[:WORDS]))


# ---- print a memory -------------------------------------------------------------------------------------------------


def said_of(memory: Memory) -> str:
    """Return a memory as it is printed: its text, after its key or name if the text does not contain that."""
    return f"{memory.name}: {memory.text}" if memory.name and memory.name not in memory.text else memory.text


def memory_key(memory: Memory, *, zone: tzinfo = UTC) -> str:
    """Return what the store indexes for a memory: the `key_text` of its printed form."""
    return key_text("", memory.valid_from, said_of(memory), zone=zone)
