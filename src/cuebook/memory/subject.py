"""How a remembered text is identified: its id, and the key of what it is about."""

import hashlib

from cuebook.languages import detect, language
from cuebook.records.memory import Category

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
