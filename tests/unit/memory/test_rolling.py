"""Tests of rolling summaries: when a pass is due, where it ends, and that calls stay with their results."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.memory.rolling import (
    BUDGET,
    LONGEST_S,
    OFF,
    SHIPPED,
    STANDARD,
    Compaction,
    CompactionProfile,
    backoff_s,
    covered,
    due,
    held_together,
    least_backlog,
)
from cuebook.records.memory import Line

NOW = 1_700_000_000.0


def is_due(profile=STANDARD, *, backlog=24, tokens=0, now=NOW, last_at=0.0, not_before=0.0, hurry=False):
    return due(
        profile, backlog=backlog, backlog_tokens=tokens, room=1000, trigger_ratio=0.7, now=now, last_at=last_at,
        not_before=not_before, hurry=hurry,
    )  # fmt: skip


def test_a_pass_is_due_with_enough_posts_before_the_tail():
    assert is_due(backlog=0) == "no_messages"
    assert is_due(backlog=23) == "below_threshold"
    assert is_due(backlog=24) == "due"
    assert is_due(OFF, backlog=999) == "disabled"


def test_the_budget_profile_waits_until_the_window_fills():
    assert is_due(BUDGET, backlog=200, tokens=700) == "below_threshold"
    assert is_due(BUDGET, backlog=200, tokens=701) == "due"
    assert is_due(BUDGET, backlog=41, tokens=10_000) == "below_threshold", "the tail and the minimum stay"


def test_the_cooldown_separates_passes():
    assert is_due(last_at=NOW - 59) == "cooldown"
    assert is_due(last_at=NOW - 60) == "due"
    assert is_due(backlog=12 + 48, last_at=NOW - 1) == "cooldown"
    assert is_due(backlog=12 + 49, last_at=NOW - 1) == "due", "more than a pass continues immediately"
    assert is_due(last_at=NOW + 500) == "due", "a clock set back does not stop the passes"
    assert is_due(last_at=NOW - 1, hurry=True) == "due"


def test_a_failure_delays_the_next_attempt():
    assert is_due(backlog=999, not_before=NOW + 30) == "cooldown"
    assert is_due(not_before=NOW + 30, hurry=True) == "due"
    assert [backoff_s(n, 60_000) for n in range(4)] == [60, 120, 240, 480]
    assert backoff_s(0, 0) == 1
    assert backoff_s(10_000, 60_000) == LONGEST_S


def test_the_most_eager_profile_sets_what_is_checked():
    assert least_backlog(SHIPPED) == 24
    assert least_backlog(Compaction(profiles={"off": OFF})) == 1
    eager = CompactionProfile(id="eager", tail=0, least=0)
    assert least_backlog(Compaction(profiles={"eager": eager, "off": OFF})) == 1


def lines_of(*kinds):
    """Return lines by letter: u user, a assistant, c assistant with calls, t tool result."""
    roles = {"u": "user", "a": "assistant", "c": "assistant", "t": "tool"}
    lines, round_ = [], 0
    for seq, kind in enumerate("".join(kinds), 1):
        round_ = seq if kind == "u" else round_
        lines.append(
            Line(
                id=f"p{seq}", seq=seq, role=roles[kind], speaker="", text="x", when=0.0, round=round_, calls=kind == "c"
            )
        )
    return lines


def profile(most=48, tail=12):
    return msgspec.structs.replace(STANDARD, most=most, tail=tail)


def test_a_pass_ends_at_a_round_end():
    lines = lines_of("uauauauaua")
    assert covered(lines, profile(most=5, tail=2), backlog=10) == 4
    assert covered(lines, profile(most=48, tail=2), backlog=10) == 8
    assert covered(lines, profile(most=48, tail=12), backlog=10) == 0


def test_inside_a_long_round_it_ends_between_steps():
    lines = lines_of("u" + "ctt" * 10)
    assert covered(lines, profile(most=9, tail=2), backlog=31) == 7
    assert covered(lines, profile(most=2, tail=2), backlog=31) == 1, "the pass covers only the query"
    assert covered(lines_of("ctttttttt"), profile(most=3, tail=2), backlog=9) == 9, (
        "it exceeds its limit as little as possible"
    )


kinds = st.lists(st.sampled_from(["u", "a", "ua", "uct", "uctt", "ucta", "uctcttta", "c"]), min_size=1, max_size=30)


@given(kinds, st.integers(1, 60), st.integers(0, 20), st.integers(0, 10))
def test_calls_and_results_stay_together(some, most, tail, unread):
    lines = lines_of(*some)
    end = covered(lines, profile(most=most, tail=tail), backlog=len(lines) + unread)
    assert 0 <= end <= len(lines)
    if 0 < end < len(lines):
        assert lines[end].role != "tool"
    if 0 < end <= most:
        assert end <= len(lines) + unread - tail


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=2), st.lists(st.integers(0, 5), max_size=2)), max_size=12)
)
def test_unsplittable_places_are_between_call_and_results(posts):
    """With reused call ids, a result belongs to the newest earlier call of its id."""
    calls = {n: (list(map(str, made)), list(map(str, answered))) for n, (made, answered) in enumerate(posts)}
    expected = set()
    for n, (_, answered) in enumerate(posts):
        for call in answered:
            start = next((m for m in range(n - 1, -1, -1) if call in posts[m][0]), n - 1)
            expected |= set(range(start + 1, n + 1))
    assert held_together(calls) == expected


@pytest.mark.parametrize("held", [{4}, {4, 3}])
def test_no_pass_ends_at_an_unsplittable_place(held):
    lines = lines_of("uauauaua")
    assert covered(lines, profile(most=5, tail=2), backlog=8, held=held) == 2
