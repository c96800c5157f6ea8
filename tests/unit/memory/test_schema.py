"""Tests of the parser for a model's summary answer: valid answers become items, broken ones are rejected."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.errors import InvalidInput
from cuebook.memory.claims import items_of
from cuebook.memory.schema import MEMORY_SCHEMA, compact, parse_answer
from cuebook.memory.tokenizer import item_id, normal
from cuebook.records.memory import CATEGORIES, Line

KNOWN = frozenset({"p1", "p2", "p3"})


def memory(**changes):
    empty = dict.fromkeys((*CATEGORIES, "tags"))
    return {key: [] for key in empty} | changes


def answer(**changes):
    return {"summary_markdown": "## Facts\n- Lives in Porto", "memory_json": memory(**changes)}


def parse(text, known=KNOWN, max_tokens=900):
    return parse_answer(text, known=known, max_tokens=max_tokens, count=lambda part: len(part) // 4)[1]


@given(st.text(max_size=200))
def test_any_text_is_rejected_or_parsed(text):
    with pytest.raises(InvalidInput):
        parse(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*CATEGORIES, "text", "sources"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from([*CATEGORIES, "tags"]), JSON, min_size=1))
def test_a_memory_of_wrong_shape_is_rejected(changes):
    try:
        found = parse(json.dumps(answer(**changes)))
    except InvalidInput:
        return
    for category in CATEGORIES:
        for item in found[category]:
            assert set(item["sources"]) <= KNOWN
            assert item["sources"]


@given(
    st.lists(st.tuples(st.sampled_from(CATEGORIES), st.text(min_size=1, max_size=20).filter(str.strip)), max_size=10)
)
def test_valid_answers_become_items_with_their_sources(pairs):
    raw = memory()
    for category, text in pairs:
        key = "name" if category in {"people", "projects"} else "text"
        raw[category].append({key: text, "sources": ["p2", "p1", "p2"]})
    lines = [
        Line(id="p1", seq=1, role="user", speaker="", text="", when=0.0),
        Line(id="p2", seq=2, role="tool", speaker="", text="", when=7.0),
    ]
    found = items_of(
        parse(json.dumps({"summary_markdown": "x", "memory_json": raw}), max_tokens=10**6), when=5.0, lines=lines
    )
    assert len(found) == len(pairs)
    assert all(
        item.sources == ("p2", "p1") and item.trust == "tool" and item.seq == 2 and item.valid_from == 7.0
        for item in found
    )
    assert all(item.id == item_id(item.category, item.text) for item in found)


GOOD = json.dumps(answer(facts=[{"text": "Lives in Porto", "confidence": 0.8, "sources": ["p1"]}]))


@pytest.mark.parametrize("text", [GOOD, f"```json\n{GOOD}\n```", f"```\n{GOOD}\n```", f"Here you are: {GOOD} - done."])
def test_an_answer_is_extracted_from_text(text):
    assert parse(text)["facts"][0]["text"] == "Lives in Porto"


def item(**changes):
    return {"text": "x", "sources": ["p1"]} | changes


@pytest.mark.parametrize(
    "broken",
    [
        "[1]",
        GOOD[:-3],
        json.dumps({"summary_markdown": "x"}),
        json.dumps(answer() | {"more": 1}),
        json.dumps(answer() | {"summary_markdown": " "}),
        json.dumps(answer() | {"summary_markdown": 7}),
        json.dumps(answer(facts=[{"text": "no sources"}])),
        json.dumps(answer(facts=[item(sources=[])])),
        json.dumps(answer(facts=[item(sources=["p9"])])),
        json.dumps(answer(facts=[item(sources="p1")])),
        json.dumps(answer(facts=[item(confidence=2)])),
        json.dumps(answer(facts=[item(confidence=True)])),
        json.dumps(answer(facts=[item(text="x" * 3000)])),
        json.dumps(answer(facts=[item(extra=1)])),
        json.dumps(answer(facts=[item()] * 101)),
        json.dumps(answer(tags=[1])),
        json.dumps(answer(people=[{"notes": "nameless", "sources": ["p1"]}])),
        GOOD.replace("0.8", "NaN"),
    ],
)
def test_a_broken_answer_is_rejected(broken):
    with pytest.raises(InvalidInput):
        parse(broken, max_tokens=10**6)


def test_an_answer_over_its_budget_is_rejected():
    with pytest.raises(InvalidInput, match="tokens"):
        parse(GOOD, max_tokens=10)


def test_the_schema_is_json_with_the_eight_keys():
    keys = MEMORY_SCHEMA["properties"]["memory_json"]["required"]
    assert keys == [*CATEGORIES, "tags"]
    assert json.loads(json.dumps(MEMORY_SCHEMA)) == MEMORY_SCHEMA
    assert compact({"tags": ["é"]}) == '{"tags":["é"]}'


def test_ids_ignore_case_and_spaces():
    assert normal("  Lives  in PORTO ") == "lives in porto"
    assert (
        item_id("facts", "Lives in Porto")
        == item_id("facts", " lives  in porto")
        != item_id("people", "lives in porto")
    )
