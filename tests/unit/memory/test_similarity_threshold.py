"""Tests of the similarity threshold, which rises with the number of memories to choose from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.memory.recall import akin_among


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.floats(0.01, 1.0))
def test_the_threshold_rises_up_to_the_embedders_maximum(one: int, other: int, akin: float) -> None:
    fewer, more = sorted((one, other))
    assert 0 < akin_among(akin, fewer) <= akin_among(akin, more) <= akin


def test_one_memory_needs_three_fifths_of_the_full_threshold() -> None:
    assert (akin_among(0.5, 1), akin_among(0.5, 50)) == (pytest.approx(0.3), 0.5)
