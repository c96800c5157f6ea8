"""Decide which long-term memories a prompt or a search gets: those relevant to the query, and standing ones in prompts.

Relevance is compared with chance: shared words are no evidence if a random memory of the same owner is expected to
share words as rare. An everyday word of the language is expected once in each clause. Closeness in meaning is compared
with that of the owner's other memories.
docs/design/030-relevance.md has the measurements.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from itertools import accumulate
from operator import mul
from typing import Final

from msgspec import Struct

from cuebook.languages import detect, language
from cuebook.memory.query import Query
from cuebook.memory.quotes import ALONE, opening_of, signs_of
from cuebook.memory.recall import FEWEST, NEARLY
from cuebook.memory.tokenizer import everyday_stems, is_pair, key_pattern, query_words, terms_in

#: Maximum tokens of standing memories in a prompt, except those that do harm when forgotten. These may take half of
#: the room for recalled text.
STANDING_TOKENS: Final = 150
HARMFUL: Final = ("health", "rule")
#: A word of Chinese or Japanese in its script: an ideograph pair, or a run of katakana.
_IDEOGRAPHS: Final = re.compile(r"[\u3400-\u9fff]{2}")
_KATAKANA: Final = re.compile(r"[\u30a1-\u30ff]+")
_CLAUSE: Final = re.compile(r"(?:[^.!?,;:()\n。！？，、；：（）—]|[.,:](?=\S))+")


def standing_reason(text: str) -> str:
    """Return why a memory enters every prompt: health, or how to address and answer the user; "" if it does not."""
    signs = signs_of(text)
    if signs["health"]:
        return "health"
    if signs["address"]:
        return "name, language or form of answers"
    lists = language(detect(text))
    return "rule" if signs["rule"] and lists.signs(opening_of(text, lists))["request"] else ""


def asks_about_user(text: str) -> bool:
    """Return whether a question is about the user in general: "What do you know about me?"."""
    return language(detect(text)).signs(text)["about"] > 0


def speaks_of_self(text: str) -> bool:
    """Return whether a question is about something of the user: "my sister", "our kitchen"."""
    return language(detect(text)).signs(text)["self"] > 0


class Evidence(Struct, frozen=True):
    """The words that a memory shares with a query, and how many as rare ones a random memory is expected to share."""

    words: tuple[str, ...]
    chance: float


def as_written(text: str, terms: Collection[str]) -> list[str]:
    """Return the spelling of each term in a text that contains it."""
    spelled: dict[str, str] = {}
    for word in reversed(text.split()):
        spelled |= dict.fromkeys(terms_in(terms, query_words(word)), word.strip(".,;:!?()\"'"))
    return list(dict.fromkeys(term if is_pair(term) else spelled.get(term, term) for term in terms))


def chance_as_close(cosine: float, mean: float, deviation: float) -> float:
    """Return the share of random memories whose cosine is at least this one, given those of the owner's memories."""
    return math.erfc((cosine - mean) / deviation / math.sqrt(2)) / 2 if deviation else 0.5


def is_close(cosine: float, chance: float, held: int, *, akin: float) -> bool:
    """Return whether a memory is close to a query in meaning.

    Its cosine reaches the embedder's threshold, or most of it and fewer than one of the owner's memories is expected
    to be as close by chance.
    """
    return cosine >= akin or (cosine >= NEARLY * akin and max(held, FEWEST) * chance < 1)


def evidence(
    query: Query, keys: Mapping[int, str], frequencies: Mapping[str, int], held: int, as_close: Mapping[int, float]
) -> dict[int, Evidence]:
    """Return the evidence of the memories that share more words with a clause of the query than by chance.

    `keys` are the search keys of memories, by number; `held` is the number of memories of the owner, of which
    `frequencies` contain a word. The expected number for the k rarest shared words of a clause of n words is that of
    all choices of k words: C(n, k) times the product of their shares of the memories. It is multiplied by the chance of
    a random memory to be as close in meaning (`as_close`, by number), relative to that of an average one. It must be
    below 1 over the root of the number of clauses, as each is an opportunity to match by chance, but several are about
    one topic. It must also be at most the square root of the best one with one of its words, which is half of its
    evidence. The date of a memory does not count.
    """
    heads, present = set[str](), dict[int, set[str]]()
    for no, key in keys.items():
        head, _, body = key.partition(" | ")
        heads.update(head.split())
        present[no] = {term for term in query.terms if key_pattern(term) in f" {body} "}
    counts = {
        term: sum(term in each for each in present.values()) if term in heads else frequencies.get(term, 0)
        for term in query.terms
    }
    total = max(held, FEWEST, *counts.values())
    shares = {term: max(1, count) / total for term, count in counts.items()}
    anywhere = {term for term, count in counts.items() if count}.union(*present.values())
    everyday = everyday_stems(detect(query.text))
    everyday = everyday.union(term for term, stems in query.stems_by_term.items() if not everyday.isdisjoint(stems))
    found: dict[int, Evidence] = {}
    clauses = [clause for clause in _CLAUSE.findall(query.text) if query_words(clause)]
    for clause in clauses:
        # most pairs of characters span two words and occur nowhere
        words = dict.fromkeys(query.terms_of(clause))
        terms = [each for each in words if each in shares and (each in anywhere or not is_pair(each))]
        runs = [set(query_words(run)) for run in _KATAKANA.findall(clause)]
        weigh = _Clause({term: shares[term] for term in terms}, everyday).least_chance
        here = {no: weigh(_whole(terms_of, runs), as_close.get(no, 0.5)) for no, terms_of in present.items()}
        least: dict[str, float] = {}
        for each in here.values():
            least |= {word: min(each.chance, least.get(word, 1.0)) for word in each.words}
        for no, each in here.items():
            most = math.sqrt(min((least[word] for word in each.words), default=1.0))
            known = found[no].chance if no in found else 1 / math.sqrt(len(clauses))
            if each.chance < known and each.chance <= most:
                found[no] = each
    return found


class _Clause:
    """A clause of a query: its terms, and the share of the owner's memories that contain each.

    In a clause of three words, an everyday word is expected once, and so are all parts of words together.
    """

    def __init__(self, shares: Mapping[str, float], everyday: Collection[str]) -> None:
        self._parts = {term for term in shares if _is_part(term)}
        expected = 1 / max(len(shares), ALONE)
        weak = self._parts.union(everyday)
        self._shares = {term: max(each, expected) if term in weak else each for term, each in shares.items()}
        self._length = max(len(shares), ALONE) if any(map(is_pair, shares)) else len(shares)

    def least_chance(self, present: Collection[str], as_close: float) -> Evidence:
        """Return the rarest words of the clause among those present that are the least expected, and their expected
        number. `as_close` is the chance of the memory's closeness in meaning; 0.5 changes nothing.
        """
        shared = sorted((each for each in self._shares if each in present), key=lambda each: self._shares[each])
        ignored = [each for each in shared if each in self._parts][1:]
        shared = [each for each in shared if each not in ignored]
        products = accumulate((self._shares[each] for each in shared), mul)
        chances = [math.comb(self._length, k) * product for k, product in enumerate(products, 1)]
        chance = min(chances, default=1.0)
        if chance >= 1:
            return Evidence((), 1.0)
        return Evidence(tuple(shared[: chances.index(chance) + 1]), chance * as_close / 0.5)


def _is_part(term: str) -> bool:
    """Return whether a pair may be grammar or a part of a word, as most pairs with hiragana are."""
    return is_pair(term) and not _IDEOGRAPHS.fullmatch(term) and not _KATAKANA.fullmatch(term)


def _whole(terms: set[str], runs: Iterable[set[str]]) -> set[str]:
    """Return terms without the pairs of an incomplete run of katakana: "スト" of "エベレスト" proves nothing."""
    return terms.difference(*(run for run in runs if not run <= terms))
