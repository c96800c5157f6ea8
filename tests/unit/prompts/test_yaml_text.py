"""Tests of the YAML subset of prompt files: documents round-trip, and unsupported YAML is rejected with its line."""

import math
import time

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from cuebook.errors import InvalidInput, TooLarge
from cuebook.prompts.yaml_text import MAX_CHARS, MAX_DEPTH, Node, dump, load, plain

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20) | st.sampled_from(
    "NO yes true null ~ 1.10 0123 1e5 0x1F 12:30:45 2025-06-20 .inf <<  --- a:b a: #x - ? & * ! | > % @ ` = y n".split(
        " "
    )
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(-(2**53) + 1, 2**53 - 1)
    | st.floats(1e21, allow_infinity=False)
    | TEXTS
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
)


def read(text):
    return {key: plain(node) for key, node in load(text, where="x.md").items()}


@given(st.dictionaries(TEXTS, VALUES, max_size=5))
@example({"a": [[{"b": [[], {}, [[1]]]}]], "": "", "<<": None})
def test_documents_round_trip(document):
    text = dump(document, where="x")
    assert read(text) == document
    assert dump(read(text), where="x") == text


@given(st.dictionaries(TEXTS, TEXTS | st.booleans() | st.none() | st.integers(-(10**9), 10**9), max_size=5))
def test_other_yaml_parsers_agree(document):
    assert (yaml.safe_load(dump(document, where="x")) or {}) == document


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("NO", "NO"),
        ("yes", "yes"),
        ("1.10", "1.10"),
        ("0123", "0123"),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2025-06-20", "2025-06-20"),
        ("1e5", "1e5"),
        (".5", ".5"),
        ("-0", "-0"),
        ("0x1F", "0x1F"),
        ("True", "True"),
        ("9" * 41, "9" * 41),
        ('"true"', "true"),
        ("'7'", "7"),
        ("true", True),
        ("7", 7),
        ("-0.5", -0.5),
        ("1e+22", "1e+22"),
        ("1.0e+22", 1e22),
        ("1.0e+16", "1.0e+16"),
        (str(2**53 - 1), 2**53 - 1),
        (str(2**53), str(2**53)),
        ("null", None),
        ("", None),
        ('""', ""),
        ("|\n  two\n  lines", "two\nlines"),
    ],
)
def test_a_scalar_has_the_written_value(written, value):
    assert read(f"a: {written}") == {"a": value}
    assert type(read(f"a: {written}")["a"]) is type(value)


def test_scalars_stay_strings_with_their_line():
    assert load("a: 1.10\nb:\n  - NO", where="x.md", first_line=5) == {
        "a": Node("1.10", 5),
        "b": Node([Node("NO", 7)], 7),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x 1\nb: *x", "x.md: line 1: anchors and aliases"),
        ("a: 1\nb:\n  c: *x", "x.md: line 3: anchors and aliases"),
        ("a: !!python/object:os.system x", "line 1: tags (`!…`) are not supported"),
        ("a: ! x", "line 1: tags"),
        ("%YAML 1.2\n---\na: b", "line 1: directives"),
        ("a: 1\n...\n---\nb: 2", "line 3: directives and a second document"),
        ("a: 1\nb: 2\na: 3", "line 3: 'a' is a duplicate of line 1"),
        ("b:\n  a: 1\n  'a': 2", "line 3: 'a' is a duplicate of line 2"),
        ("<<: {a: 1}", "line 1: merge keys"),
        ("[a, b]: 1", "line 1: a key must be a string"),
        ("?\n: 1", "line 1: merge keys and empty keys"),
        ("- a", "line 1: expected `key: value` lines"),
        ("just a text", "line 1: expected `key: value` lines"),
        ("a: 1\nb: c: d", "line 2: mapping values are not allowed here"),
        ("a: [1,\n2", "line 1: unclosed bracket. Close it."),
        ("a: 1\n\tb: 2", "line 2: tab in the indentation. Indent with spaces."),
        ("a: @x", "line 1: found character '@'"),
        ("a: 1\nb: \x00", r"line 2: U+0000 is not allowed in YAML"),
        ("a: 1\nb: \u0007", r"line 2: U+0007"),
        ('a: "\\U0011FFFF"', "line 1: invalid YAML"),
        ('a: "\n', "line 1: unclosed quote. Close it."),
    ],
)
def test_unsupported_yaml_is_rejected_with_its_line(text, message):
    with pytest.raises(InvalidInput) as caught:
        load(text, where="x.md")
    assert message in str(caught.value)
    assert (caught.value.where or "").startswith("x.md:")


@pytest.mark.parametrize(
    "bomb",
    [
        "[" * 60_000,
        "a: " + "{" * 60_000,
        "- " * 30_000,
        "? " * 30_000,
        "".join(f"{' ' * n}a{n}:\n" for n in range(200)),
        "a: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(20)),
        "x" * (MAX_CHARS + 1),
    ],
)
def test_a_yaml_bomb_is_rejected(bomb):
    began = time.thread_time()
    with pytest.raises(InvalidInput):
        load(bomb, where="x.md")
    assert time.thread_time() - began < 10


def test_the_deepest_writable_document_is_parsed():
    document = value = {}
    for _ in range(MAX_DEPTH - 1):
        value["a"] = value = {}
    assert read(dump(document, where="x")) == document
    value["a"] = {}
    with pytest.raises(InvalidInput, match="nests deeper than 32"):
        dump(document, where="x")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"a": {"b": math.nan}}, r"x\.a\.b: nan is not a JSON number"),
        ({"a": [1, {2}]}, r"x\.a\[1\]: set is not a JSON type"),
        ({"a": 10**50}, r"x\.a: 1\d* is beyond 2\^53"),
        ({"a": {1: 2}}, r"x\.a: the key 1 is not a string"),
        ({"a": "\ud800"}, r"x\.a: contains a lone surrogate"),
    ],
)
def test_unwritable_documents_are_rejected(document, message):
    with pytest.raises(InvalidInput, match=message):
        dump(document, where="x")


@pytest.mark.parametrize("value", ["x" * MAX_CHARS, ["x" * 100] * 700, [0] * 300_000, "\0" * MAX_CHARS])
def test_too_large_documents_are_rejected_quickly(value):
    began = time.thread_time()
    with pytest.raises(TooLarge):
        dump({"a": value}, where="x")
    assert time.thread_time() - began < 4


def test_invisible_characters_are_written_as_escapes():
    assert dump({"a": "b\u202ec\u200bd\xa0e"}, where="x") == 'a: "b\\u202ec\\u200bd\\u00a0e"\n'


def test_written_files_give_readable_diffs():
    shared = ["a", 'b: "c"']
    document = {
        "version": "1.2.0",
        "sentence": " ".join(["long"] * 50),
        "lines": "first\n  second\n",
        "texts": ["NO", "1.10", "0123", "true", " x", "", "7"],
        "values": [7, 0.5, True, None],
        "long": ["x" * 60, "y" * 60],
        "twice": shared,
        "maps": [{"b": shared, "a": {}}, "東京 😀"],
    }
    assert dump(document, where="x") == (
        """\
version: 1.2.0
sentence: """
        + " ".join(["long"] * 50)
        + """
lines: |
  first
    second
texts: ['NO', '1.10', '0123', 'true', ' x', '', '7']
values: [7, 0.5, true, null]
long:
"""
        + f"- {'x' * 60}\n- {'y' * 60}\n"
        + """\
twice: [a, 'b: "c"']
maps:
- b: [a, 'b: "c"']
  a: {}
- 東京 😀
"""
    )
