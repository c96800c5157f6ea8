"""Measure memory against a gold list: the facts of a conversation, some superseded later, and questions about them."""

import json
import re
from collections.abc import Sequence
from typing import Literal, TypeVar

from msgspec import Struct

from cuebook.errors import InvalidInput
from cuebook.memory.evidence import Question
from cuebook.records.memory import Hit, Item
from cuebook.validate import Fault, refuse, validate

T = TypeVar("T")

#: Where a text is split into candidate sentences.
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n")
_WORD = re.compile(r"[\w']+")
#: Stop words: not significant in an answer.
_SMALL = frozenset(
    "a an and as at by for from her his in is it of on or she he that the their they to was with".split()
)


class Fact(Struct, frozen=True, kw_only=True):
    """A fact, the words that express it, its source posts, and whether it is still current at the end."""

    id: str
    fact: str
    question: str
    answer: str
    match: tuple[tuple[str, ...], ...]
    sources: tuple[str, ...]
    current: bool
    supersedes: str | None = None

    def in_text(self, text: str) -> bool:
        """Return whether a text contains the fact: one word of every group."""
        low = " ".join(text.lower().split())
        return all(any(word.lower() in low for word in group) for group in self.match)


class GoldList(Struct, frozen=True, kw_only=True):
    """A gold list."""

    facts: list[Fact]


class GoldSurvival(Struct, frozen=True, kw_only=True, rename="camel"):
    """Numbers of gold facts in memory at the end."""

    current: int
    held: int  # current facts found in a current item
    in_summary: int
    superseded: int
    shown: int  # superseded facts that a current item still states
    missing: tuple[str, ...]
    wrong: tuple[str, ...]


class MemoryLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """A result from memory: a line of the summary, an item, or a hit, with its rank from 1 and its source posts.

    `why` names the parts of a hit's score.
    """

    where: Literal["summary", "item", "hit"]
    text: str
    sources: tuple[str, ...] = ()
    rank: int = 0
    why: str = ""


class QuestionResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """A question asked of memory: the first hit, and where in memory the answer is.

    `key` comes from the answer key, for comparison only. `evidence` is the share of the answer's source posts that are
    among the hits, in [0, 1].
    """

    question: str
    key: str
    first: MemoryLine | None
    stands: tuple[MemoryLine, ...]
    source: MemoryLine | None  # the first hit that is one of the source posts
    evidence: float

    def stands_in(self, where: str) -> bool:
        """Return whether the answer is in `where`: the summary, an item, or a hit."""
        return any(memory_line.where == where for memory_line in self.stands)


def read_facts(text: str | bytes, *, name: str) -> list[Fact]:
    """Parse a gold list: `{"facts": [{id, fact, question, answer, match, sources, current, supersedes?}]}`.

    `match` is a list of word groups: a text states the fact if it has a word of every group, ignoring case. Raises
    InvalidInput naming the file and the position.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"{name}: not JSON ({error})"
        raise InvalidInput(msg, where=name) from error
    found, faults = validate(document, GoldList)
    facts = found.facts if found else []
    ids = {fact.id for fact in facts}
    for number, fact in enumerate(facts):
        if not fact.match:
            faults.append(
                Fault(f"facts[{number}].match", "empty list. Name a group of words, like [['ghent'], ['live']]")
            )
        if fact.supersedes is not None and fact.supersedes not in ids:
            faults.append(Fault(f"facts[{number}].supersedes", f"no fact has the id {fact.supersedes!r}"))
    refuse(faults, file=name)
    return facts


def survival(facts: Sequence[Fact], items: Sequence[Item], summary: str) -> GoldSurvival:
    """Compare the current items with the gold list.

    A superseded fact counts as shown if a current item states it without, in the same words, its successor.
    """
    texts = [item.text for item in items if item.valid_to is None and item.superseded_by is None]
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
    return GoldSurvival(
        current=len(current),
        held=len(held),
        in_summary=sum(any(fact.in_text(line) for line in summary.splitlines()) for fact in current),
        superseded=len(facts) - len(current),
        shown=len(wrong),
        missing=tuple(fact.fact for fact in current if fact not in held),
        wrong=tuple(fact.fact for fact in wrong),
    )


def facts_of(questions: Sequence[Question]) -> list[Fact]:
    """Return the questions of a file as facts, expressed by the words of their answers."""
    return [
        Fact(
            id=f"q{number}",
            fact=question.answer,
            question=question.text,
            answer=question.answer,
            match=tuple((word,) for word in _WORD.findall(question.answer.lower()) if word not in _SMALL),
            sources=question.evidence,
            current=True,
        )
        for number, question in enumerate(questions, 1)
    ]


def asked(fact: Fact, *, summary: str, items: Sequence[Item], hits: Sequence[Hit]) -> QuestionResult:
    """Return the result of a fact's question: the first hit, and where in memory the fact is.

    A line of the summary, an item or a sentence of a hit must state the fact itself; a post's id does not count.
    """
    lines = (MemoryLine(where="summary", text=line.strip("- ")) for line in summary.splitlines() if fact.in_text(line))
    told = (MemoryLine(where="item", text=item.text, sources=item.sources) for item in items if fact.in_text(item.text))
    ranked = ((rank, hit, _telling(fact, hit)) for rank, hit in enumerate(hits, 1))
    found = (MemoryLine(where="hit", text=text, sources=hit.sources, rank=rank) for rank, hit, text in ranked if text)
    stands = [next(each, None) for each in (lines, told, found)] if fact.match else []
    memory_lines = [
        MemoryLine(where="hit", text=hit.text, sources=hit.sources, rank=rank, why=hit.why)
        for rank, hit in enumerate(hits, 1)
    ]
    seen = {post for hit in hits for post in hit.sources}.intersection(fact.sources)
    return QuestionResult(
        question=fact.question,
        key=fact.answer,
        first=memory_lines[0] if memory_lines else None,
        stands=tuple(each for each in stands if each is not None),
        source=next((each for each in memory_lines if seen.intersection(each.sources)), None),
        evidence=len(seen) / len(fact.sources) if fact.sources else 0.0,
    )


def _telling(fact: Fact, hit: Hit) -> str:
    """Return the sentence of a hit that states the fact, "" if none does.

    In a post other than the fact's source, the answer must be there too: the fact's words alone may be ambiguous.
    """
    own = bool(set(hit.sources).intersection(fact.sources))
    for sentence in _SENTENCE.split(hit.text):
        if fact.in_text(sentence) and (own or fact.answer.lower() in sentence.lower()):
            return sentence
    return hit.text if own and fact.in_text(hit.text) else ""


def some(every: Sequence[T], most: int) -> Sequence[T]:
    """Return at most `most` elements, evenly spaced from first to last."""
    if len(every) <= most:
        return every
    return [every[number * len(every) // most] for number in range(most)]
