"""Tests of near-duplicate detection: it equals a comparison of all pairs, for any size and order."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuebook.memory.redundancy import LEAST_CHARACTERS, Redundancy


def flagged(texts: list[str]) -> dict[int, int]:
    """Return the older texts, each with the first newer text that repeats it."""
    index, found = Redundancy(), {}
    for number, text in enumerate(texts):
        found |= dict.fromkeys(index.add(number, text), number)
    return found


def by_all_pairs(texts: list[str]) -> dict[int, int]:
    found: dict[int, int] = {}
    sets = [set(text.lower().split()) for text in texts]
    for newer, words in enumerate(sets):
        for older in range(newer):
            both = len(words & sets[older])
            long = min(len(texts[newer]), len(texts[older])) >= LEAST_CHARACTERS
            if long and words and 10 * both >= 9 * len(words | sets[older]):
                found.setdefault(older, newer)
    return found


@st.composite
def near(draw: st.DrawFn) -> list[str]:
    """Draw texts that are mostly variations of a few texts."""
    sizes = draw(st.lists(st.integers(1, 120), min_size=1, max_size=3))
    dice = random.Random(draw(st.integers(0, 1 << 30)))
    stems = [[f"word{dice.randrange(5000)}" for _ in range(size)] for size in sizes]
    texts = []
    for _ in range(draw(st.integers(2, 14))):
        words = list(dice.choice(stems))
        for _ in range(dice.randrange(1 + len(words) // 6)):
            at = dice.randrange(len(words))
            words[at : at + 1] = dice.choice(([], [f"new{dice.randrange(9)}"], [words[at], f"more{dice.randrange(9)}"]))
        texts.append(" ".join(words))
    return texts


@settings(max_examples=3 * settings().max_examples)
@given(near())
def test_duplicates_match_a_comparison_of_all_pairs(texts: list[str]) -> None:
    assert flagged(texts) == by_all_pairs(texts)


@pytest.mark.slow
def test_two_thousand_texts_match_a_comparison_of_all_pairs() -> None:
    dice = random.Random(7)
    texts: list[str] = []
    for _ in range(2000):
        words = (texts[-dice.randrange(1, 1 + min(9, len(texts)))] if texts and dice.random() < 0.4 else "").split()
        words = words or [f"w{int(dice.paretovariate(0.6))}" for _ in range(dice.randrange(12, 60))]
        words[dice.randrange(len(words))] = f"x{dice.randrange(50)}"
        texts.append(" ".join(words))
    found = flagged(texts)
    assert found == by_all_pairs(texts)
    assert len(found) > 100


def test_short_texts_and_blank_ones_are_ignored() -> None:
    assert flagged(["a short text"] * 3 + [" " * 60] * 3) == {}


def test_only_the_newest_of_equal_texts_stays() -> None:
    assert flagged(["the very same words again and again, and then once more"] * 50) == {n: n + 1 for n in range(49)}
