"""JSON that is hashed or signed: what readers could take in two ways is refused, with its place."""

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
def test_what_passes_reads_back_the_same_from_its_canonical_form(value):
    check(value)
    assert parse(canonical(value)) == value
    assert canonical(parse(canonical(value))) == canonical(value)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ('{"a": 1, "a": 2}', "a: given twice"),
        ('{"b": [{"a": 1, "\\u0061": 1}]}', "a: given twice"),
        ('{"a": [1, NaN]}', "selection.a[1]: nan is no number of JSON"),
        ('{"a": {"b": -Infinity}}', "selection.a.b: -inf is no number of JSON"),
        ("1e999", "selection: inf is no number of JSON"),
        (f'{{"a": {2**53}}}', "selection.a: 9007199254740992 is beyond 2^53 and not exact; write it as a string"),
        (f'{{"a": [{-(2**60)}]}}', "selection.a[0]: -1152921504606846976 is beyond 2^53"),
        ('{"a": 1e17}', "selection.a: 1e+17 is beyond 2^53"),
        ('["\\ud800"]', "selection[0]: holds half a surrogate pair"),
        ('{"\\udc00": 1}', "selection: holds half a surrogate pair"),
        ('{"a": 1', "selection: is no JSON"),
        ("", "selection: is no JSON"),
        (b'"\xff"', "selection: is no JSON"),
        (b'\xef\xbb\xbf""', "selection: is no JSON"),
        ("[" * 100_000, "selection: is no JSON"),
        ("9" * 5000, "selection: is no JSON"),
    ],
)
def test_what_is_torn_or_ambiguous_is_refused_by_place(document, said):
    with pytest.raises(InvalidInput) as refused:
        parse(document, where="selection")
    assert str(refused.value).startswith(said)


def test_values_that_no_document_holds_are_refused_too():
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    for value, said in [
        ({1: 2}, "the key 1 is no string"),
        (b"x", "bytes is no type of JSON"),
        (deep, "nests too deep"),
    ]:
        with pytest.raises(InvalidInput, match=said):
            check(value)


def test_ordinary_documents_pass():
    document = {"a": [1, 2.5, -0.0, 2**53 - 1, 1e300, True, None, "é😀", (1, 2)]}
    check(document)
    assert parse(json.dumps(document)) == {"a": [*document["a"][:-1], [1, 2]]}
