"""Tests of the similarity threshold: it rises with the number of memories, and meaning counts beside words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.memory.query import read_query
from cuebook.memory.recall import akin_among
from cuebook.memory.relevance import chance_as_close, evidence, is_close


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.floats(0.01, 1.0))
def test_the_threshold_rises_up_to_the_embedders_maximum(one: int, other: int, akin: float) -> None:
    fewer, more = sorted((one, other))
    assert 0 < akin_among(akin, fewer) <= akin_among(akin, more) <= akin


def test_one_memory_needs_three_fifths_of_the_full_threshold() -> None:
    assert (akin_among(0.5, 1), akin_among(0.5, 50)) == (pytest.approx(0.3), 0.5)


def test_the_closest_memory_of_many_needs_less_of_the_threshold() -> None:
    by_closeness = {cosine: chance_as_close(cosine, 0.1, 0.1) for cosine in (0.2, 0.3, 0.4, 0.5)}
    assert by_closeness[0.3] == pytest.approx(0.0228, abs=0.0001), "two standard deviations above the mean"
    close = [cosine for cosine, chance in by_closeness.items() if is_close(cosine, chance, 40, akin=0.5)]
    assert close == [0.4, 0.5], "0.3 is less than most of the threshold"
    assert not is_close(0.4, chance_as_close(0.4, 0.35, 0.1), 40, akin=0.5), "others are as close"
    assert not is_close(0.4, chance_as_close(0.4, 0.4, 0.0), 1, akin=0.5), "there is nothing to compare with"


def test_a_memory_far_in_meaning_needs_more_words() -> None:
    query = read_query("Which oven suits our bakery?")
    keys = {1: "2026 | oven kitchen", 2: "2026 | oven museum"}
    frequencies = {"oven": 2, "bakeri": 0}
    by_words = evidence(query, keys, frequencies, 40, {})
    assert by_words[1].chance == by_words[2].chance < 1
    by_both = evidence(query, keys, frequencies, 40, {1: 0.01, 2: 0.9})
    assert list(by_both) == [1]
    assert by_both[1].chance < by_words[1].chance


def test_a_match_must_be_less_expected_in_a_message_of_several_clauses() -> None:
    keys, frequencies = {1: "2026 | oven kitchen"}, {"oven": 16}
    asked = "Does the oven work?"
    assert list(evidence(read_query(asked), keys, frequencies, 40, {})) == [1]
    chatty = f"My train was late again, the tram too, so I walked along the harbor. {asked}"
    assert list(evidence(read_query(chatty), keys, frequencies, 40, {})) == [], "two fifths of the memories have one"
