"""Tests of shortened JSON documents: they parse, fit, and say what is missing."""

import json

from hypothesis import given
from hypothesis import strategies as st

from cuebook.window.cut_json import cut_json
from cuebook.window.tokens import estimate

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=12), inner, max_size=20),
    max_leaves=40,
)


@given(document=JSON, tokens=st.integers(1, 300))
def test_a_shortened_document_parses_and_fits(document: object, tokens: int) -> None:
    text = json.dumps(document, ensure_ascii=False)
    shorter = cut_json(text, tokens, count=estimate)
    if shorter is None:
        return
    assert type(json.loads(shorter)) is type(document)
    assert estimate(shorter) <= tokens


def test_a_long_list_says_how_many_items_are_missing() -> None:
    text = json.dumps({"path": "a.py", "rows": [{"id": n, "name": f"row {n}"} for n in range(200)]})
    shorter = cut_json(text, 200, count=estimate)
    assert shorter is not None
    rows = json.loads(shorter)["rows"]
    assert rows[0] == {"id": 0, "name": "row 0"}
    assert rows[-1] == {"id": 199, "name": "row 199"}
    [note] = [each for each in rows if isinstance(each, str)]
    assert note == f"[{200 - len(rows) + 1} items left out]"


def test_a_long_string_keeps_its_ends() -> None:
    shorter = cut_json(json.dumps({"content": "begin " + "x y " * 2000 + "end"}), 120, count=estimate)
    assert shorter is not None
    content = json.loads(shorter)["content"]
    assert content.startswith("begin ")
    assert content.endswith("end")
    assert "characters left out]" in content


def test_other_text_is_no_document() -> None:
    assert cut_json("{not json}", 50, count=estimate) is None
