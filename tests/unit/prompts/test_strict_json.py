"""Tests of strict JSON, which is hashed or signed: ambiguous documents are rejected with their path."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.errors import InvalidInput
from cuebook.prompts.digest import canonical
from cuebook.prompts.strict_json import INEXACT, check, parse

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(1 - INEXACT, INEXACT - 1)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda n: abs(n) < INEXACT or abs(n) >= 1e21)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_accepted_json_round_trips_through_its_canonical_form(value):
    check(value)
    assert parse(canonical(value)) == value
    assert canonical(parse(canonical(value))) == canonical(value)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ('{"a": 1, "a": 2}', "selection: a: duplicate key"),
        ('{"b": [{"a": 1, "\\u0061": 1}]}', "selection: a: duplicate key"),
        ('{"a": [1, NaN]}', "selection.a[1]: nan is not a JSON number"),
        ('{"a": {"b": -Infinity}}', "selection.a.b: -inf is not a JSON number"),
        ("1e999", "selection: inf is not a JSON number"),
        (f'{{"a": {2**53}}}', "selection.a: 9007199254740992 is beyond 2^53 and not exact. Write it as a string"),
        (f'{{"a": [{-(2**60)}]}}', "selection.a[0]: -1152921504606846976 is beyond 2^53"),
        ('{"a": 1e17}', "selection.a: 1e+17 is beyond 2^53"),
        ('["\\ud800"]', "selection[0]: contains a lone surrogate"),
        ('{"\\udc00": 1}', "selection: contains a lone surrogate"),
        ('{"a": 1', "selection: not valid JSON"),
        ("", "selection: not valid JSON"),
        (b'"\xff"', "selection: not valid JSON"),
        (b'\xef\xbb\xbf""', "selection: not valid JSON"),
        ("[" * 100_000, "selection: not valid JSON"),
        ("9" * 5000, "selection: not valid JSON"),
    ],
)
def test_torn_or_ambiguous_json_is_rejected_with_its_path(document, said):
    with pytest.raises(InvalidInput) as refused:
        parse(document, where="selection")
    assert str(refused.value).startswith(said)


def test_values_outside_of_json_are_rejected():
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    for value, said in [
        ({1: 2}, "the key 1 is not a string"),
        (b"x", "bytes is not a JSON type"),
        (deep, "nested too deeply"),
    ]:
        with pytest.raises(InvalidInput, match=said):
            check(value)


def test_ordinary_documents_are_accepted():
    document = {"a": [1, 2.5, -0.0, 2**53 - 1, 1e300, True, None, "é😀", (1, 2)]}
    check(document)
    assert parse(json.dumps(document)) == {"a": [*document["a"][:-1], [1, 2]]}
