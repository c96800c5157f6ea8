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

POSTS = ("p1", "p2", "p3")


def memory(**changes):
    empty = dict.fromkeys((*CATEGORIES, "tags"))
    return {key: [] for key in empty} | changes


def answer(**changes):
    return {"summary_markdown": "## Facts\n- Lives in Porto", "memory_json": memory(**changes)}


def parsed(text, posts=POSTS, max_tokens=900):
    return parse_answer(text, posts=posts, known={"old"}, max_tokens=max_tokens, count=lambda part: len(part) // 4)


def parse(text, **more):
    return parsed(text, **more).memory


@given(st.text(max_size=200))
def test_any_text_is_rejected(text):
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
            assert set(item["sources"]) <= {*POSTS, "old"}
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
    ("sources", "ids"),
    [
        (["old", "P1"], ["old", "p1"]),
        ([2, "3", 1.0], ["p2", "p3", "p1"]),
        (["#2", "[p3]", "turn 1"], ["p2", "p3", "p1"]),
        ("p1, p3", ["p1", "p3"]),
        ([{"id": "p1"}, None, True, ["p2"]], ["p1"]),
    ],
)
def test_an_item_may_cite_by_id_number_or_place(sources, ids):
    assert parse(json.dumps(answer(facts=[item(sources=sources)])))["facts"][0]["sources"] == ids


def test_random_ids_are_cited_by_place_or_by_a_part():
    posts = ("post-0f1e2d3c4b5a69788796", "post-a1b2c3d4e5f60718293a")
    found = parse(json.dumps(answer(facts=[item(sources=[2, "post-0f1e2d", "post-"])])), posts=posts)
    assert found["facts"][0]["sources"] == [posts[1], posts[0]]


@pytest.mark.parametrize(
    ("sources", "ids"),
    [
        (["turn u2"], ["u2"]),
        (["#U2."], ["u2"]),
        (["u1; see a1"], ["u1", "a1"]),
        ([3], ["u2"]),  # the third post: both u3 and a3 would be "3"
        (["turn 3"], ["u2"]),
        (["u9"], []),
        (["zz2"], []),
        (["q1"], []),
    ],
)
def test_a_number_never_cites_a_post_with_another_id(sources, ids):
    posts = ("u1", "a1", "u2", "a2", "u3", "a3")
    text = json.dumps(answer(facts=[item(sources=sources), item(text="y", sources=["u1"])]))
    found = parsed(text, posts=posts).memory["facts"]
    assert [each["sources"] for each in found if each["text"] == "x"] == ([ids] if ids else [])


@pytest.mark.parametrize(
    "raw",
    [
        {"text": "I like tea.", "source_ids": ["p2"]},
        {"text": "I like tea.", "evidence": "p2"},
        "I like tea. (p2)",
        {"text": "I like tea. [p2]", "sources": []},
    ],
)
def test_another_key_or_the_text_itself_may_cite(raw):
    assert parse(json.dumps(answer(facts=[raw])))["facts"] == [{"text": "I like tea.", "sources": ["p2"]}]


def test_both_parts_may_have_another_key():
    raw = answer(facts=[{"text": "I like tea.", "sources": ["p2"]}])
    found = parsed(json.dumps({"summary": "- Tea", "memory": raw["memory_json"]}))
    assert (found.summary, len(found.memory["facts"])) == ("- Tea", 1)


def test_only_items_that_cite_no_post_are_dropped():
    facts = [item(), item(text="\0y", sources=["p9", "2024-01-05"]), "z", item(text=None), item(confidence=7), None]
    found = parsed(json.dumps(answer(facts=facts, todo=item(more=1), people=[item(notes=None)])))
    assert [each["text"] for each in found.memory["facts"]] == ["x", "x"]
    assert (found.memory["todo"], found.memory["people"]) == ([item()], [{"name": "x", "sources": ["p1"]}])
    assert found.dropped == (
        "memory_json.facts[1] cites no post of the conversation: 'y'",
        "memory_json.facts[2] cites no post of the conversation: 'z'",
        "memory_json.facts[3] has no text",
    )


@pytest.mark.parametrize(
    "broken",
    [
        "[1]",
        "{}",
        json.dumps(answer() | {"summary_markdown": " "}),
        json.dumps(answer(facts=[{"text": "no sources"}, item(sources=["p9"])])),
    ],
)
def test_an_answer_without_a_usable_part_is_rejected(broken):
    with pytest.raises(InvalidInput, match=r"no JSON object|no items|cites no post"):
        parse(broken)


@pytest.mark.parametrize(
    ("summary", "cut"),
    [
        ("Lives in Porto. Has two cats. Likes the sea very much indeed.", "Lives in Porto. Has two cats."),
        ("- Lives in Porto\n- Has two cats and likes the sea very much", "- Lives in Porto"),
        ("他住在波尔图。他有两只猫。" * 6, "他住在波尔图。他有两只猫。" * 3),
    ],
)
def test_a_long_summary_is_cut_at_a_sentence(summary, cut):
    assert parsed(json.dumps(answer() | {"summary_markdown": summary}), max_tokens=20).summary == cut


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
