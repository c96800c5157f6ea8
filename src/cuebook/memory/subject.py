"""How a remembered text is known: its id, and the key of what it is about, under which later statements replace it."""

import hashlib
import re
from typing import Final

from cuebook.memory.patterns import SUBJECT, SUBJECTS
from cuebook.memory.slots import WORD, stem, topic
from cuebook.memory.vocabulary import STOP
from cuebook.records.expression import Expression
from cuebook.records.memory import Category

#: Where one statement of a sentence ends and the next begins: "I live in Utrecht and work as a nurse".
VERB: Final = Expression(r"(?:work|live|study|teach|play|own|drive|run|speak|have)\b", re.IGNORECASE)
STATEMENTS: Final = Expression(
    r"(?<=[.!?])\s+|;\s+|,\s+(?=(?:and|but|so)\s)|(?:,|(?<![\s,]))\s+(?:and|but|so)\s+(?=(?:i|we|my|our|i'm|i’m|i've|we're|we’re)\b|"
    rf"{VERB.pattern})",
    re.IGNORECASE,
)


def item_id(category: Category, text: str) -> str:
    """Return an item's stable id: 16 hex digits of SHA-256 over category and normalised text (notes/seed-origins.md
    1.5).
    """
    return hashlib.sha256(f"{category}|{normal(text)}".encode()).hexdigest()[:16]


def normal(text: str) -> str:
    """Return `text` as repeats are told: trimmed, lower case, spaces collapsed."""
    return " ".join(text.lower().split())


def statements(clause: str) -> list[tuple[str, str]]:
    """Return the statements that one clause joins, each as it stands and with the subject it shares with the first."""
    parts = [part for part in STATEMENTS.split(clause) if part.strip()]
    first = re.match(r"(?:i|we)\b", clause, re.IGNORECASE)
    return [(part, f"{first[0]} {part}" if first and VERB.match(part) else part) for part in parts]


def about(text: str, subject: str) -> str:
    """Return the one statement of a text that is about a single-valued subject, where it makes others too; else ""."""
    pattern = dict(SUBJECTS).get(subject)
    match = pattern.search(text) if pattern else None
    if match is None:
        return ""
    ahead = [found.end() for found in STATEMENTS.finditer(text, 0, match.start() + 1)]
    after = STATEMENTS.search(text, match.end())
    start, end = (ahead or [0])[-1], after.start() if after else len(text)
    return text[start:end].strip(" ,;") if (start, end) != (0, len(text)) else ""


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
