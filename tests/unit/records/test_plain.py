"""Tests of the conversion from Markdown to plain text."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cuebook.records.plain_text import plain

MARKS = [
    "*", "**", "_", "__", "`", "```", "~~", "#", "- ", "1. ", "> ", "[", "](", ")", "![", "<", ">", "|", "---", "\n",
    "\n\n", "    ", "a", "word", "\\", "&amp;", "[x]: y", "http://x.y", "\t", "é", "中", "😀", "\x00", "\ud800",
]  # fmt: skip
documents = st.one_of(st.text(), st.lists(st.sampled_from(MARKS), max_size=40).map("".join))
words = st.text("abcxyzäλж中", min_size=1, max_size=8)
names = st.from_regex(
    r"[a-z]{1,6}(?:_[a-z]{1,6}){1,3}|__[a-z]{1,8}__|[0-9]{1,3}(?:\*{1,2}[0-9]{1,3}){1,3}", fullmatch=True
)


@given(documents)
@example("![" * 3_000 + "](x)" * 3_000)
@example("> " * 5_000 + "- " * 5_000 + "x")
@example("<http://\ud800> [a](\ud800)")
def test_any_string_converts_to_stripped_plain_text(markdown):
    assert plain(markdown) == plain(markdown).strip()


@given(st.lists(st.lists(words, min_size=1), min_size=1))
def test_prose_is_unchanged(paragraphs):
    lines = [" ".join(paragraph) for paragraph in paragraphs]
    assert plain("\n\n\n".join(lines)) == "\n\n".join(lines)


@given(st.lists(st.one_of(words, names), min_size=1))
def test_names_and_formulas_are_unchanged(pieces):
    text = "x " + " ".join(pieces)
    assert plain(text) == text


@given(words, words, st.sampled_from(["*", "**", "_", "__", "***", "~~"]))
def test_emphasis_loses_its_marks(before, word, mark):
    assert plain(f"{before} {mark}two {word}{mark}.") == f"{before} two {word}."


@given(st.text("ab *_#[]<>|\\\n", max_size=30))
def test_code_keeps_its_text(code):
    lines = [line.rstrip() for line in code.split("\n")]
    assert plain(f"```\n{code}\n```") == "\n".join(lines).strip()


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("", ""),
        ("# Title *one*\n\nText", "Title one\n\nText"),
        ("Title\n=====\ntext", "Title\n\ntext"),
        ("my_var_name and 2*3*4 and List<String>", "my_var_name and 2*3*4 and List<String>"),
        ("a < b and c > d, __init__, x.__name__", "a < b and c > d, __init__, x.__name__"),
        ("f(*args, **kwargs) is x**2", "f(*args, **kwargs) is x**2"),
        ("__Bold text__ and 这是**粗体**文字, **API**s", "Bold text and 这是粗体文字, APIs"),
        ("`a_b*c*` and ``x`y``", "a_b*c* and x`y"),
        ("[text](http://x.y 'title') and [ref][1]\n\n[1]: http://z", "text and ref"),
        ("<http://x.y/?a=1> or <ana@x.y>", "http://x.y/?a=1 or ana@x.y"),
        ("![alt *text*](a.png) [![badge](b.svg)](c)", "alt text badge"),
        ("- a\n* b\n  1. c\n  2. d\n", "- a\n\n- b\n  1. c\n  2. d"),
        ("3. c\n4. d\n   continued", "3. c\n4. d\n   continued"),
        ("- a\n\n- b\n\n  more", "- a\n\n- b\n\n  more"),
        ("- [ ] todo\n- [x] done", "- [ ] todo\n- [x] done"),
        ("text\n- a\n\n\nafter", "text\n\n- a\n\nafter"),
        ("> quoted\n> more\n\nown", "quoted\nmore\n\nown"),
        ("```python\ndef f():\n\n    return 1\n```\nend", "def f():\n\n    return 1\n\nend"),
        ("| a | b |\n|---|--:|\n| 1 | **2** |\n| 3 | |", "a, b\n1, 2\n3,"),
        ("a\n\n---\n\nb", "a\n\nb"),
        ("one  \ntwo\\\nthree", "one\ntwo\nthree"),
        ("<div>html</div> &lt;b&gt; \\*", "<div>html</div> <b> *"),
        ("~~gone~~ ~/path", "gone ~/path"),
    ],
)
def test_markup_is_removed_and_text_stays(markdown, text):
    assert plain(markdown) == text


@pytest.mark.parametrize(
    "unit", ["> ", "- ", "[", "![", "*a ", "`a", "|", "&", "<a", "\\", "_a __", "[a](", "\n- a", "\n> b"]
)
def test_deep_nesting_takes_linear_time(unit):
    """20 kB take half a second. In quadratic time they would take minutes."""
    start = time.thread_time()
    plain((unit * 20_000)[:20_000])
    assert time.thread_time() - start < 40
