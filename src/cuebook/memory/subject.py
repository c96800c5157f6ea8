"""How a remembered text is known: its id, and the key of what it is about, under which later statements replace it."""

import hashlib

from cuebook.memory.patterns import SUBJECT, SUBJECTS
from cuebook.memory.slots import WORD, stem, topic
from cuebook.memory.vocabulary import STOP
from cuebook.records.memory import Category


def item_id(category: Category, text: str) -> str:
    """Return an item's stable id: 16 hex digits of SHA-256 over category and normalised text (notes/seed-origins.md
    1.5).
    """
    return hashlib.sha256(f"{category}|{normal(text)}".encode()).hexdigest()[:16]


def normal(text: str) -> str:
    """Return `text` as repeats are told: trimmed, lower case, spaces collapsed."""
    return " ".join(text.lower().split())


def subject_of(text: str, speaker: str = "") -> str:
    """Return the normalised key of what a text is about: texts of one subject with other values exclude each other."""
    prefix = f"@{normal(speaker)} " if speaker else ""
    for subject, pattern in SUBJECTS:
        if pattern.search(text):
            return prefix + subject
    match = SUBJECT.search(text)
    if match:
        owner = match["owner"].lower()
        about = [stem(word) for word in WORD.findall(match["topic"]) if word.lower() not in STOP]
        whose = [] if owner in {"my", "our", "the"} else [owner.removesuffix("'s").removesuffix("’s")]
        if about:
            return prefix + " ".join([*whose, *about[-3:]])
    lower = text.lower()
    about = sorted(topic(text), key=lambda found: (lower.find(found), found))
    return prefix + " ".join(about[:3])
