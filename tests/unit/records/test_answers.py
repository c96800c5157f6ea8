"""Tests of JSON in model answers: which defects are repaired, which JSON must be valid, and the cost of a repair."""

import json
import subprocess
import sys
from contextlib import suppress
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.errors import InvalidInput
from cuebook.records.answer import Time, in_words
from cuebook.records.answers import MAX_BRACKETS, MAX_BROKEN, MAX_OBJECT, MAX_OBJECT_BRACKETS, read_object, repair_json

FENCE = "```"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "false"}', {"a": "false"}),
        ('["a", 1]', ["a", 1]),
        (f'First.\n{FENCE}json\n{{"a": [1]}}\n{FENCE}\nLast.', {"a": [1]}),
        ('Of [all] these: {"a": 1}.', {"a": 1}),
        ("{'a': 'it\\'s', b: None, /* c */ \"d\": [1, 2,], // e\n}", {"a": "it's", "b": None, "d": [1, 2]}),
        (f"{FENCE}\n['a', 'b'\n{FENCE}", ["a", "b"]),
        ('{"a": 1,} {"b": 2}', [{"a": 1}, {"b": 2}]),
        ("no brackets", None),
        ('"a"', None),
        ("", None),
    ],
)
def test_json_in_an_answer_is_extracted_and_repaired(text: str, value: object) -> None:
    assert repair_json(text) == value


def test_long_and_nested_texts_are_not_repaired() -> None:
    assert repair_json("[" * MAX_BRACKETS) is not None
    assert repair_json("[" * (MAX_BRACKETS + 1)) is None
    assert repair_json("['a'," + " " * MAX_BROKEN) is None
    assert repair_json('{"a": "' + "b" * MAX_BROKEN + '"}') == {"a": "b" * MAX_BROKEN}


@given(
    st.lists(st.sampled_from(["{", "}", "[", "]", "(", '"', "'", ":", ",", "\\", "/*", "#", "```json", "a", "1", "\n"]))
)
def test_repairing_never_raises(pieces: list[str]) -> None:
    assert isinstance(repair_json("".join(pieces)), dict | list | None)


#: Beginnings and repeated pieces of texts in which json-repair looks ahead again and again.
HOSTILE = [
    ("[{", "{a1"), ("[{", '\\"null'), ("[{", "\\u{a"), ("[{", "true,\\"), ("[{", "/*“"), ("[{", "[{a"),
    ('{"a":', '":"a"b"/*'), ("{", "'“"), ("{", "],{"), ("[", "'“"), ("[", '{"a":["'), ('{"a":["', '-{"a":["'),
]  # fmt: skip


def hostile(begin: str, piece: str, *, brackets: int, length: int) -> str:
    text = begin * (brackets // sum(map(begin.count, "[{")))
    flat = piece.translate({ord("["): None, ord("{"): None}) or "a"
    return (text + flat * length)[:length]


@pytest.mark.parametrize(("begin", "piece"), HOSTILE)
def test_a_repair_ends_after_a_bounded_number_of_reads(begin: str, piece: str) -> None:
    text = hostile(begin, piece, brackets=MAX_BRACKETS, length=MAX_BROKEN)
    begun = process_time()
    assert isinstance(repair_json(text), dict | list | None)
    assert process_time() - begun < 1


@pytest.mark.slow
@pytest.mark.parametrize(("begin", "piece"), HOSTILE)
def test_a_repair_of_an_object_ends_soon(begin: str, piece: str) -> None:
    text = "{" + hostile(begin, piece, brackets=MAX_OBJECT_BRACKETS - 1, length=MAX_OBJECT - 1)
    begun = process_time()
    with suppress(InvalidInput):
        read_object(text)
    assert process_time() - begun < 5  # 0.5 s on the machine that measured the limit


def test_a_long_broken_summary_is_repaired() -> None:
    items = [{"text": f'Ann said "keep {n}" and left.', "sources": [f"p{n}"]} for n in range(90)]
    text = json.dumps({"summary_markdown": "Ann left.", "memory_json": {"facts": items}})
    for broken in (text.replace("}]", ",}]"), text[:-150], text.replace('\\"', '"'), text.replace("}, {", "} {")):
        assert len(read_object(broken)["memory_json"]["facts"]) >= 88


@pytest.mark.parametrize(
    "text",
    [
        f'Here: {FENCE}json\n{{"a": 1}}\n{FENCE}',
        f"{FENCE}json\n{{'a': 1,}}\n{FENCE} Done [1].",
        '<think>{"b": 2}</think> As in [1]: {"a": 1,',
        '[{"a": 1}]',
    ],
)
def test_an_object_in_an_answer_is_extracted_and_repaired(text: str) -> None:
    assert read_object(text) == {"a": 1}


@pytest.mark.parametrize("text", ["[1]", "", "no", "[" * 50_000, '{"a": ' * 50_000, "{" + "x" * 20_000])
def test_an_answer_without_an_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="no JSON object"):
        read_object(text)


@pytest.mark.slow
def test_the_repair_library_is_imported_at_the_first_broken_answer() -> None:
    program = "import sys; from cuebook import Cuebook; Cuebook; sys.exit('json_repair' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (0.5, "0.5"),
        (0.63333, "0.63"),
        (0.00123, "0.0012"),
        (1234.5, "1,234.5"),
        (3, "3"),
        (Time(0), "1970-01-01 00:00"),
        (("a", 0.25), "a, 0.25"),
        (None, ""),
    ],
)
def test_tables_show_values_as_people_read_them(value: object, text: str) -> None:
    assert in_words(value) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"result": {"score": 1}}', {"score": 1}),
        ('{"note": "x", "result": {"score": 1}}', {"score": 1}),
        ('{"score": {"score": 1}}', {"score": {"score": 1}}),
        ('{"a": {"score": 1}, "b": {"score": 0}}', {"a": {"score": 1}, "b": {"score": 0}}),
    ],
)
def test_an_answer_may_be_inside_another_object(text: str, value: object) -> None:
    assert read_object(text, keys=["score", "intensity"]) == value
