"""What a replayed conversation is measured against.

Facts it told, some of them superseded later, and questions about them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from cuebook.records.memory import Hit, Item


class Fact(Struct, frozen=True, kw_only=True):
    """A fact, the words that tell it, where it was said, and whether it still holds at the end."""

    id: str
    fact: str
    question: str
    answer: str
    match: tuple[tuple[str, ...], ...]
    sources: tuple[str, ...]
    current: bool
    supersedes: str | None = None

    def in_text(self, text: str) -> bool:
        """Whether a text holds the fact: one word of every group."""
        low = " ".join(text.lower().split())
        return all(any(word.lower() in low for word in group) for group in self.match)


class Survival(Struct, frozen=True, kw_only=True):
    """What memory holds of the gold facts at the end."""

    current: int
    held: int  # current facts that stand in a current item
    in_summary: int
    superseded: int
    shown: int  # superseded facts that a current item still tells
    missing: tuple[str, ...]
    wrong: tuple[str, ...]


class Asked(Struct, frozen=True, kw_only=True):
    """A question put to memory: the rank of the first source that tells the answer, 0 for none."""

    question: str
    answer: str
    rank: int
    found: str
    sources: tuple[str, ...]


def read_facts(document: Mapping[str, Any]) -> list[Fact]:
    """Read a gold list."""
    return [
        Fact(
            id=raw["id"],
            fact=raw["fact"],
            question=raw["question"],
            answer=raw["answer"],
            match=tuple(tuple(group) for group in raw["match"]),
            sources=tuple(raw["sources"]),
            current=raw["current"],
            supersedes=raw.get("supersedes"),
        )
        for raw in document["facts"]
    ]


def survival(facts: Sequence[Fact], items: Sequence[Item], summary: str) -> Survival:
    """Hold the current items against the gold list.

    A superseded fact counts as shown when a current item tells it and not, in the same words, what came after it.
    """
    texts = [item.text for item in items if item.valid_to is None]
    after: dict[str, list[Fact]] = {}
    for fact in facts:
        if fact.supersedes:
            after.setdefault(fact.supersedes, []).append(fact)
    held = [fact for fact in facts if fact.current and any(fact.in_text(text) for text in texts)]
    wrong = [
        fact
        for fact in facts
        if not fact.current
        and any(
            fact.in_text(text) and not any(later.in_text(text) for later in after.get(fact.id, ())) for text in texts
        )
    ]
    current = [fact for fact in facts if fact.current]
    return Survival(
        current=len(current),
        held=len(held),
        in_summary=sum(any(fact.in_text(line) for line in summary.splitlines()) for fact in current),
        superseded=len(facts) - len(current),
        shown=len(wrong),
        missing=tuple(fact.fact for fact in current if fact not in held),
        wrong=tuple(fact.fact for fact in wrong),
    )


def asked(fact: Fact, hits: Sequence[Hit]) -> Asked:
    """Look for the answer to a fact's question among hits."""
    for rank, hit in enumerate(hits, 1):
        if set(hit.sources).intersection(fact.sources):
            found = _telling(fact, hit.text)
            return Asked(question=fact.question, answer=fact.answer, rank=rank, found=found, sources=hit.sources)
    first = hits[0] if hits else None
    return Asked(
        question=fact.question,
        answer=fact.answer,
        rank=0,
        found=first.text if first else "",
        sources=first.sources if first else (),
    )


def _telling(fact: Fact, text: str) -> str:
    """Give the sentence of a text that tells the fact, the whole text where none does alone."""
    sentences = re.split(r"(?<=[.!?])\s+", text)
    return next((sentence for sentence in sentences if fact.in_text(sentence)), text)
