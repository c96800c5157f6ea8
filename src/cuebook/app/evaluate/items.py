"""Measure the quality of current memory items: count junk, duplicates and contradictions."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from msgspec import Struct

from cuebook.app.gold import Fact
from cuebook.languages import detect, language
from cuebook.memory.facts import content, values_in
from cuebook.memory.quotes import names_of, values_of
from cuebook.records.memory import Item

#: BrowserOS's redundancy threshold.
SAME = 0.9
#: Share of common content words from which two items have the same subject, whatever their keys.
ONE_SUBJECT = 0.5


class Cleanness(Struct, frozen=True, kw_only=True, rename="camel"):
    """The current items that are wrong, each with its text.

    Junk: an item with no value of any kind, no name, and no gold fact. Duplicate: an item with the content words of an
    earlier one (exact Jaccard of at least 0.9), or with the same values of the same subject. Contradiction: a pair of
    one subject with conflicting values of one kind (a date, a time, an amount).
    """

    items: int
    junk: tuple[str, ...]
    duplicates: tuple[str, ...]
    contradictions: tuple[tuple[str, str], ...]


class _ItemWords(Struct, frozen=True):
    """An item prepared for comparison."""

    text: str
    subject: str
    words: frozenset[str]
    values: frozenset[tuple[str, str]]
    codes: frozenset[str]
    names: frozenset[str]


def cleanness(items: Sequence[Item], *, texts: Iterable[str], facts: Sequence[Fact] = ()) -> Cleanness:
    """Return the junk, duplicates and contradictions of current items, oldest first.

    `texts` are the posts: they show whether a sentence's first word is a name. Cost: quadratic, 0.1 s for 300 items.
    """
    known = {part.lower() for text in texts for name in _names(text) for part in name.split()}
    item_words = [_read(item) for item in items]
    return Cleanness(
        items=len(items),
        junk=tuple(each.text for each in item_words if _is_junk(each, known, facts)),
        duplicates=tuple(_duplicates(item_words)),
        contradictions=tuple((one.text, two.text) for one, two in combinations(item_words, 2) if _exclude(one, two)),
    )


def _read(item: Item) -> _ItemWords:
    values = frozenset(values_of(item.text))
    codes = frozenset(value for kind, value in values if kind == "code")
    return _ItemWords(item.text, item.subject, content(item.text), values, codes, frozenset(_names(item.text)))


def _names(text: str) -> list[str]:
    return names_of(text, language(detect(text)))


def _is_junk(item: _ItemWords, known: set[str], facts: Sequence[Fact]) -> bool:
    if item.values or values_in(item.text) or any(fact.in_text(item.text) for fact in facts):
        return False
    return not any(word[:1].isupper() and word.strip(".,;:!?'’()\"").lower() in known for word in item.text.split())


def _duplicates(items: Sequence[_ItemWords]) -> Iterator[str]:
    for number, item in enumerate(items):
        if any(_same(item, earlier) for earlier in items[:number]):
            yield item.text


def _same(one: _ItemWords, two: _ItemWords) -> bool:
    if one.subject and one.subject == two.subject and one.values and one.values == two.values:
        return True
    return _alike(one, two) >= SAME


def _exclude(one: _ItemWords, two: _ItemWords) -> bool:
    pairs = ((one.codes, two.codes), (one.names, two.names))
    if any(left and right and not left & right for left, right in pairs):
        return False
    if not (one.subject and one.subject == two.subject) and _alike(one, two) < ONE_SUBJECT:
        return False
    kinds = {kind for kind, _ in one.values} & {kind for kind, _ in two.values} - {"code"}
    return any(_of(one, kind).isdisjoint(_of(two, kind)) for kind in kinds)


def _of(item: _ItemWords, kind: str) -> frozenset[str]:
    return frozenset(value for own, value in item.values if own == kind)


def _alike(one: _ItemWords, two: _ItemWords) -> float:
    """Return the Jaccard similarity of two items' content words; 0 if they have none."""
    every = len(one.words | two.words)
    return len(one.words & two.words) / every if every else 0.0
