"""Tests of the line diff: diffs apply, and non-overlapping edits merge."""

import difflib
import random
import re
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.prompts.difference import CONTEXT, Edit, edits, merge_lines, unified

LINES = st.lists(st.sampled_from("aabbcd") | st.just(""), max_size=14)
LONG = st.lists(st.sampled_from("abcdefghijklmnop"), max_size=40)


def edited(before, changes):
    after = list(before)
    for edit in reversed(changes):
        after[edit.start : edit.end] = edit.new
    return after


def applied(before, hunks):
    """Apply hunks as `patch` does."""
    old = before.split("\n")
    new, at = [], 0
    for line in hunks:
        if match := re.fullmatch(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", line):
            start = int(match[1]) - (match[2] != "0")
            new += old[at:start]
            at = start
            assert len(new) == int(match[3]) - (match[4] != "0")
        elif line[0] == "+":
            new.append(line[1:])
        else:
            assert old[at] == line[1:]
            new += [line[1:]] if line[0] == " " else []
            at += 1
    return "\n".join(new + old[at:])


@given(LINES, LINES)
def test_edits_turn_one_text_into_the_other(before, after):
    changes = edits(before, after)
    assert edited(before, changes) == after
    assert all(one.end < other.start for one, other in pairwise(changes)), "no two edits touch"


@given(LONG, LONG)
def test_a_diff_can_be_applied(before, after):
    old, new = "\n".join(before), "\n".join(after)
    hunks = unified(old, new)
    assert applied(old, hunks) == new
    assert (not hunks) == (old == new)


def test_a_diff_has_the_unified_format():
    before = [f"line {number}" for number in range(40)]
    after = before.copy()
    after[3] = "three"
    after[9:11] = []
    after.insert(30, "new")
    theirs = list(difflib.unified_diff(before, after, lineterm="", n=CONTEXT))[2:]
    assert unified("\n".join(before), "\n".join(after)) == tuple(theirs)


@pytest.mark.parametrize(
    ("before", "after", "hunks"),
    [
        ("a", "b", ("@@ -1 +1 @@", "-a", "+b")),
        ("a", "a\n", ("@@ -1 +1,2 @@", " a", "+")),
        ("", "a", ("@@ -1 +1 @@", "-", "+a")),
        ("same", "same", ()),
    ],
)
def test_small_diffs(before, after, hunks):
    assert unified(before, after) == hunks


@given(LINES, LINES)
def test_edits_of_one_side_are_merged(base, other):
    base, other = "\n".join(base), "\n".join(other)
    assert merge_lines(base, other, base) == other
    assert merge_lines(base, base, other) == other
    assert merge_lines(base, other, other) == other


@given(LINES, LINES, LINES)
def test_a_merge_is_symmetric(base, ours, theirs):
    base, ours, theirs = "\n".join(base), "\n".join(ours), "\n".join(theirs)
    merged = merge_lines(base, ours, theirs)
    assert merged == merge_lines(base, theirs, ours)
    if merged is not None:
        assert len(merged.split("\n")) - len(ours.split("\n")) == len(theirs.split("\n")) - len(base.split("\n")) or (
            set(edits(base.split("\n"), ours.split("\n"))) & set(edits(base.split("\n"), theirs.split("\n")))
        ), "each side's lines are added once, except for an edit that both made"


@given(st.lists(st.integers(0, 3), min_size=12, max_size=12), st.integers(0, 5))
def test_distant_edits_merge(seed, place):
    base = [f"{number} {digit}" for number, digit in enumerate(seed)]
    ours, theirs = base.copy(), base.copy()
    ours[place] = "ours"
    theirs[place + 6 : place + 6] = ["theirs"]
    both = base.copy()
    both[place] = "ours"
    both[place + 6 : place + 6] = ["theirs"]
    assert merge_lines("\n".join(base), "\n".join(ours), "\n".join(theirs)) == "\n".join(both)


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        ("a\nb\nc", "A\nb\nc", "a\nb\nC", "A\nb\nC"),
        ("a\nb", "A\nb", "a\nB", None),
        ("a\nb", "a\nx\nb", "a\ny\nb", None),
        ("a\nb", "a\nx\nb", "a\nx\nb", "a\nx\nb"),
        ("a\nb\nc", "a\nc", "a\nB\nc", None),
        ("a\nb\nc\nd", "a\nc\nd", "a\nb\nc\nd\ne", "a\nc\nd\ne"),
        ("a", "a\nb", "x\na", "x\na\nb"),
        ("", "x", "y", None),
    ],
)
def test_worked_merges(base, ours, theirs, merged):
    assert merge_lines(base, ours, theirs) == merged


@pytest.mark.parametrize("after", ["shuffled", "reversed", "shrunk"])
def test_very_different_texts_are_one_edit_in_bounded_time(after):
    before = [str(number % 1000) for number in range(20_000)]
    other = {"reversed": before[::-1], "shrunk": before[:100] + before[19_000:]}.get(after, before.copy())
    if after == "shuffled":
        random.Random(1).shuffle(other)
    begun = time.thread_time()
    changes = edits(["begin", *before, "end"], ["begin", *other, "end"])
    assert time.thread_time() - begun < 20, "0.2 s on an idle machine"
    assert edited(["begin", *before, "end"], changes) == ["begin", *other, "end"]
    if after == "reversed":
        assert changes == [Edit(1, 20_001, tuple(other))]
