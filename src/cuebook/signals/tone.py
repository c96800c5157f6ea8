"""Compute the tone of a text: polarity, intensity, irony, and the words that carry no mood.

In a writing order, a question or printed output, subject-matter words are no mood. Irony turns a positive score, and a
mere acknowledgment halves it.
"""

import re
from collections.abc import Iterator
from functools import cache, partial
from itertools import product
from typing import Final

from cuebook.languages import english, english_expression, english_words
from cuebook.records.expression import Expression
from cuebook.records.mind import Polarity

_pattern = partial(english_expression, "tone", flags=re.IGNORECASE)

# ---- polarity and intensity -----------------------------------------------------------------------------------------

#: The score from which a text is positive; below its negative, a text is negative (VADER's own value).
POLAR: Final = 0.05
_WORD: Final = Expression(r"[A-Za-z][A-Za-z']*")
_STRETCHED: Final = Expression(r"([a-z])\1{2,}", re.IGNORECASE)
_SWORN: Final = _pattern("sworn")


def polarity_of(score: float, polar: float = POLAR) -> Polarity:
    """Return the polarity of a score in -1..1."""
    if score >= polar:
        return "positive"
    return "negative" if score <= -polar else "neutral"


def intensity_of(text: str, weight: float, *, emphasized: bool = False) -> float:
    """Return the intensity of a text, 0..1: its weight plus its emphasis.

    Emphasis adds: `!` 0.08 (three at most), `??` 0.15, a swear word 0.25, capitals 0.2, a stretched word 0.1. Capitals
    are half the words or more, or the words that carry weight (`emphasized`).
    """
    words = _WORD.findall(text)
    loud = sum(len(word) > 2 and word.isupper() for word in words)
    shouted = emphasized or (loud >= 2 and 2 * loud >= len(words))
    found = weight + 0.08 * min(3, text.count("!")) + 0.15 * ("??" in text or "?!" in text or "!?" in text)
    found += 0.25 * (_SWORN.search(text) is not None) + 0.2 * shouted + 0.1 * (_STRETCHED.search(text) is not None)
    return round(min(1.0, found), 4)


# ---- irony ----------------------------------------------------------------------------------------------------------

#: Maximum words of a mere acknowledgment.
_BRIEF: Final = 5
_PRAISE: Final = _pattern("praise")
_MISHAP: Final = _pattern("mishap")
_MENDED: Final = _pattern("mended")
#: A deed in quotation marks: ironic.
_SO_CALLED: Final = Expression(r"\byou(?:'ve| have)? (?:just |have )?\"\w+\"", re.IGNORECASE)


def tempered(score: float, text: str, parts: list[str]) -> float:
    """Return a score adjusted for irony; `parts` are the sentences of the user's words.

    Praise of a mishap is negative, -0.6 to -0.3; a mere acknowledgment counts half.
    """
    if score <= 0 or not parts:
        return score
    if _is_ironic(parts):
        return -max(0.3, min(score, 0.6))
    return score / 2 if _acknowledges(text) else score


def _acknowledges(text: str) -> bool:
    if "!" in text or len(text) > 60:
        return False
    words = [word.lower() for word in _WORD.findall(text)]
    return 0 < len(words) <= _BRIEF and english_words("tone", "acknowledgment_words").issuperset(words)


def _is_ironic(parts: list[str]) -> bool:
    """Return whether praise is about a mishap: at the start with a mishap after it, or at the end with one before."""
    first = _PRAISE.match(parts[0])
    if first:
        rest = " ".join([parts[0][first.end() :], *parts[1:]])
        return _SO_CALLED.search(rest) is not None or bool(_MISHAP.search(rest) and not _MENDED.search(rest))
    if len(parts) < 2 or "!" in parts[-1] or not _PRAISE.fullmatch(parts[-1]):
        return False
    before = " ".join(parts[:-1])
    return bool(_MISHAP.search(before)) and not _MENDED.search(before)


# ---- phrases --------------------------------------------------------------------------------------------------------

#: Punctuation around a word.
_EDGES: Final = '!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'
#: By first word: the words of each phrase, the longest first.
Phrases = dict[str, tuple[tuple[str, ...], ...]]


@cache
def valences() -> dict[str, float]:
    """Return the valence of each phrase (its words joined by `_`) as one word; of a term 0. Built on first use."""
    mishaps = {word: valence for valence, words in english("sentiment")["mishaps"] for word in words.split()}
    return mishaps | {phrase.replace(" ", "_"): valence for phrase, valence in _valued_phrases()}


def _valued_phrases() -> Iterator[tuple[str, float]]:
    """Yield each phrase with its valence; terms have none."""
    lists = english("sentiment")
    yield from ((" ".join(each.split()), 0.0) for each in f"{lists['terms']},{lists['like']}".split(","))
    for valence, beginnings, ends in lists["paired"]:
        for beginning, end in product(beginnings.split(","), ends.split(",")):
            yield " ".join(f"{beginning} {end}".split()), valence
    yield from lists["phrases"].items()


@cache
def phrases() -> Phrases:
    """Return the phrases by their first word."""
    results: dict[str, list[tuple[str, ...]]] = {}
    for phrase in sorted((each for each in valences() if "_" in each), key=lambda each: -each.count("_")):
        words = tuple(phrase.split("_"))
        results.setdefault(words[0], []).append(words)
    return {first: tuple(each) for first, each in results.items()}


def has_phrase(sentence: str) -> bool:
    """Return whether a sentence with joined phrases has one with a valence."""
    if "_" not in sentence:
        return False
    known = valences()
    return any("_" in token and known.get(token.strip(_EDGES).lower()) for token in sentence.split())


def join_phrases(sentence: str) -> str:
    """Join the words of each phrase in a sentence by `_`, so that it is one word of the lexicon."""
    starts = phrases()
    tokens = sentence.split()
    bare = [token.strip(_EDGES).lower() for token in tokens]
    if starts.keys().isdisjoint(bare):
        return sentence
    joined: list[str] = []
    place = 0
    while place < len(tokens):
        here = next(
            (len(each) for each in starts.get(bare[place], ()) if tuple(bare[place : place + len(each)]) == each), 1
        )
        joined.append(
            "_".join([*(each.strip(_EDGES) for each in tokens[place : place + here - 1]), tokens[place + here - 1]])
        )
        place += here
    return " ".join(joined)


# ---- subject matter -------------------------------------------------------------------------------------------------

_SENTENCE: Final = Expression(r"(?<=[.!?:;])\s+|\n+")
_PLAIN: Final = str.maketrans(
    {"\u2026": "... ", "\u2019": "'", "\u2018": "'", "\u201c": '"', "\u201d": '"', "\u2014": ", ", "\u2013": " - "}
)
_NAME: Final = Expression(r"[A-Za-z][A-Za-z'_]*")
_WORK: Final = _pattern("work")
_QUESTION: Final = _pattern("question")
_POINTED: Final = _pattern("pointed")
_ABOUT: Final = _pattern("about")
_PRINTS: Final = _pattern("prints")


def plain(text: str) -> str:
    """Return a text with ASCII quotes, dashes and dots."""
    return text.translate(_PLAIN)


def sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text."""
    return [each for each in _SENTENCE.split(text) if each.strip()]


def without_matter(sentence: str) -> str:
    """Return a sentence with `it` for its subject-matter words, and without printed output."""
    sentence = _PRINTS.sub("says it", sentence)
    sentence = _ABOUT.sub(lambda result: _NAME.sub("it", result[0]), sentence)
    work = _WORK.match(sentence)
    if work is None and not _POINTED.search(sentence) and not has_phrase(sentence):
        work = _QUESTION.match(sentence)
    return _NAME.sub("it", work[0]) + sentence[work.end() :] if work else sentence
