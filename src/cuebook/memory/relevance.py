"""Decide which long-term memories a prompt or a search gets: those relevant to the query, and standing ones in prompts.

Relevance is compared with chance: shared words are no evidence if a random memory of the same owner is expected to
share words as rare. An everyday word of the language is expected once in each clause. Closeness in meaning is compared
with that of the owner's other memories.
docs/design/030-relevance.md has the measurements.
"""

import math
import re
from collections.abc import Collection, Mapping
from itertools import accumulate
from operator import mul
from typing import Final

from msgspec import Struct

from cuebook.languages import detect, language
from cuebook.memory.quotes import ALONE, opening_of, signs_of
from cuebook.memory.recall import FEWEST, Query
from cuebook.memory.tokenizer import everyday_stems, is_pair, query_words

#: Maximum tokens of standing memories in a prompt, except those that do harm when forgotten. These may take half of
#: the room for recalled text.
STANDING_TOKENS: Final = 150
HARMFUL: Final = ("health", "rule")
#: A word of Chinese or Japanese in its script: an ideograph pair, or a run of katakana.
_IDEOGRAPHS: Final = re.compile(r"[\u3400-\u9fff]{2}")
_KATAKANA: Final = re.compile(r"[\u30a1-\u30ff]+")
#: Share of the embedder's threshold that is enough for a memory closer than others.
NEARLY: Final = 0.7
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
    all choices of k words: C(n, k) times the product of their shares of the memories. It must be below 1. It is
    multiplied by the chance of a random memory to be as close in meaning (`as_close`, by number), relative to that of
    an average one. Then it must be at most the square root of the clause's best, which is half of its evidence.
    """
    total = max(held, FEWEST, *frequencies.values())
    present = {no: {term for term in query.terms if f" {term} " in f" {key} "} for no, key in keys.items()}
    anywhere = set[str]().union(*present.values(), (term for term, count in frequencies.items() if count))
    everyday = everyday_stems(detect(query.text))
    found: dict[int, Evidence] = {}
    for clause in _CLAUSE.findall(query.text):
        # most pairs of characters span two words and occur nowhere
        words = dict.fromkeys(query_words(clause))
        terms = [each for each in words if each in query.terms and (each in anywhere or not is_pair(each))]
        common = 1 / max(len(terms), ALONE)
        shares = {term: max(1, frequencies.get(term, 0)) / total for term in terms}
        weak = everyday | {term for term in terms if _is_part(term, clause)}
        shares = {term: max(share, common) if term in weak else share for term, share in shares.items()}
        length = max(len(terms), ALONE) if any(map(is_pair, terms)) else len(terms)
        here = {no: _least_chance(shares, held_terms, length) for no, held_terms in present.items()}
        here = {no: _closer(each, as_close.get(no, 0.5)) for no, each in here.items()}
        most = math.sqrt(min((each.chance for each in here.values()), default=1.0))
        for no, each in here.items():
            if each.chance < 1 and each.chance <= most and (no not in found or each.chance < found[no].chance):
                found[no] = each
    return found


def _closer(words: Evidence, chance: float) -> Evidence:
    """Return evidence with the chance of a memory's closeness, relative to 0.5. No evidence remains none."""
    return Evidence(words.words, words.chance * chance / 0.5) if words.chance < 1 else words


def _is_part(term: str, clause: str) -> bool:
    """Return whether a pair is only a part of a word, as "スト" of "エベレスト": it proves nothing alone."""
    return is_pair(term) and not _IDEOGRAPHS.fullmatch(term) and term not in _KATAKANA.findall(clause)


def _least_chance(shares: Mapping[str, float], present: Collection[str], length: int) -> Evidence:
    """Return the rarest of the shared words that are the least expected, and their expected number in a clause of a
    length in words.
    """
    shared = sorted((each for each in shares if each in present), key=lambda each: shares[each])
    products = accumulate((shares[each] for each in shared), mul)
    chances = [math.comb(length, k) * product for k, product in enumerate(products, 1)]
    chance = min(chances, default=1.0)
    return Evidence(tuple(shared[: chances.index(chance) + 1]) if shared else (), chance)
