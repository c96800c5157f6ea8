"""Tests of the lazily compiled regular expression, and of the lower-case conversion that keeps character positions."""

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.records.expression import Expression, lowered

ODD = st.text(st.sampled_from("skiSKIıİſKßΣς aB1_\n"), max_size=60)


def test_it_matches_like_the_compiled_expression():
    text = "one 12, two 345"
    digits, compiled = Expression(r"[0-9]+"), re.compile(r"[0-9]+")
    assert digits.search(text, 6).span() == compiled.search(text, 6).span()
    assert digits.match(text, 4).span() == compiled.match(text, 4).span()
    assert digits.fullmatch(text) is compiled.fullmatch(text) is None
    assert [one.span() for one in digits.finditer(text, 5, 14)] == [
        one.span() for one in compiled.finditer(text, 5, 14)
    ]
    assert digits.findall(text) == compiled.findall(text)
    assert digits.split(text) == compiled.split(text)
    assert digits.sub("n", text, count=1) == compiled.sub("n", text, count=1)
    assert digits.sub(lambda one: one[0][::-1], text) == "one 21, two 543"


def test_its_flags_apply():
    assert Expression("over", re.IGNORECASE).search("It is OVER")
    assert not Expression("over").search("It is OVER")


def test_it_is_compiled_at_first_use():
    broken = Expression("(")
    with pytest.raises(re.error):
        broken.search("")


@given(st.one_of(st.text(max_size=200), ODD))
def test_lower_case_keeps_every_position(text):
    assert len(lowered(text)) == len(text)


@given(ODD)
@pytest.mark.parametrize("pattern", ["s", "k", "i", r"\bis\b", r"\w+", "[a-z]+", r"sk|ki|i\d"])
def test_lower_case_search_equals_case_insensitive_search(pattern, text):
    found = [one.span() for one in re.finditer(pattern, lowered(text))]
    assert found == [one.span() for one in re.finditer(pattern, text, re.IGNORECASE)]


@pytest.mark.slow
def test_the_stemmer_is_loaded_with_the_first_word():
    program = "import sys; from cuebook import Cuebook; sys.exit('Stemmer' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
