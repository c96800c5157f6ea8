"""Tests of relevance scores: BrowserOS's table of boosts, and the batch scores equal the single scores."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.memory.judgement import DAY_S, HOUR_S, Scores, at_least, clamped, recency, standing

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("text", "role", "points"),
    [
        ("a plain sentence of some length", "user", 50),
        ("the upload failed with an ERROR", "user", 65),
        ("see https://example.com/a for it", "user", 60),
        ("the selector is #go, its xpath too", "user", 60),
        ("the password is kept elsewhere", "user", 70),
        ("this is Important and critical", "user", 65),
        ("too short a text", "user", 30),
        ("ok", "user", 0),
        ("thanks, that is what I was after", "user", 20),
        ("notice how the history looks here", "user", 50),
        ("a plain sentence of some length", "system", 60),
        ("a plain sentence of some length", "tool", 65),
    ],
)
def test_points_that_do_not_depend_on_age(text: str, role: str, points: int) -> None:
    assert standing(text, role) == points


@pytest.mark.parametrize(
    ("age", "points"), [(-5, 20), (0, 20), (HOUR_S, 20), (HOUR_S + 1, 10), (DAY_S, 10), (DAY_S + 1, -10)]
)
def test_points_for_recent_posts(age: float, points: int) -> None:
    assert recency(age) == points


POSTS = st.lists(st.tuples(st.integers(0, 200_000), st.integers(-70, 145)), max_size=60)


@given(POSTS, st.integers(0, 300_000))
def test_batch_scores_equal_single_scores(posts: list[tuple[int, int]], now: int) -> None:
    scores = Scores()
    for number, (when, points) in enumerate(posts):
        scores.add(number, when=float(when), points=points)
    alone = [clamped(points + recency(now - when)) for when, points in posts]
    assert list(scores.by_number(float(now))) == alone
    assert sorted(scores.at(float(now))) == sorted(alone)
    assert at_least(scores.at(float(now)), 30) == sum(score >= 30 for score in alone)


def test_scores_change_with_the_clock() -> None:
    scores = Scores()
    scores.add(0, when=NOW, points=50)
    assert [scores.at(NOW + age)[0] for age in (0.0, HOUR_S + 1, DAY_S + 1)] == [70, 60, 40]
