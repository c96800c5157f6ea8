"""How close is close: the more there is to choose from, the closer the closest is by chance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.memory.recall import akin_among


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.floats(0.01, 1.0))
def test_more_memories_ask_for_no_less_and_none_for_more_than_an_embedder_says(
    one: int, other: int, akin: float
) -> None:
    fewer, more = sorted((one, other))
    assert 0 < akin_among(akin, fewer) <= akin_among(akin, more) <= akin


def test_one_memory_is_asked_for_three_fifths_and_fifty_for_all() -> None:
    assert (akin_among(0.5, 1), akin_among(0.5, 50)) == (pytest.approx(0.3), 0.5)
