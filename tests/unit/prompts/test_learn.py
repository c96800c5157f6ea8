"""Tests of learning from observations: scores and weights match the specification, and one user's influence is
capped."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.prompts.learn import FOLD, Posterior, aligned, capped, ema, score, update


@pytest.mark.parametrize(
    ("sentiment", "corrections", "outcome", "expected", "renormalised"),
    [
        (1.0, 0, "success", 1.0, 1.0),
        (0.0, 0, "failure", 0.3, 0.3),
        (0.7, 0, "partial", 0.75, 0.75),
        (0.6, 1, "success", 0.77, 0.77),
        (0.6, 3, "unknown", 0.51, 0.6375),
        (1.0, 0, None, 0.8, 1.0),
        (0.5, 10, "success", 0.45, 0.45),
        (0.5, 99, "failure", 0.25, 0.25),
    ],
)
def test_scores_match_the_specification_exactly(sentiment, corrections, outcome, expected, renormalised) -> None:
    assert score(sentiment, corrections, outcome) == pytest.approx(expected, abs=1e-9)
    assert score(sentiment, corrections, outcome, missing="renormalise") == pytest.approx(renormalised, abs=1e-9)


def test_sixteen_perfect_observations_raise_a_weight_to_90_percent() -> None:
    weight, steps = 0.5, []
    for _ in range(22):
        weight = ema(weight, 1.0)
        steps.append(weight)
    assert steps[14] < 0.9 < steps[15]
    assert steps == pytest.approx([1 - 0.5 * 0.9**n for n in range(1, 23)], abs=1e-9)
    assert ema(0.62, 0.41) == pytest.approx(0.599, abs=1e-9)


@given(weight=st.floats(0, 1), scored=st.floats(0, 1))
def test_a_weight_moves_towards_the_score(weight, scored) -> None:
    assert min(weight, scored) - 1e-12 <= ema(weight, scored) <= max(weight, scored) + 1e-12


seen = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=49)


@given(pairs=seen)
def test_unfolded_evidence_is_an_order_independent_sum(pairs) -> None:
    there = back = aligned(Posterior(), ("energy_high",))
    for signal, said in pairs:
        there = update(there, (1.0, signal), said)
    for signal, said in reversed(pairs):
        back = update(back, (1.0, signal), said)
    assert there.n == back.n == len(pairs)
    assert (*there.A, *there.b) == pytest.approx((*back.A, *back.b), abs=1e-9)
    assert there.A[0] == len(pairs)
    assert there.A[1] == there.A[2]


def test_every_fiftieth_observation_folds_the_evidence() -> None:
    known = Posterior()
    for _ in range(50):
        known = update(known, (1.0,), 0.5)
    assert (known.A, known.b, known.n) == ((50 * FOLD,), (25 * FOLD,), 50)
    for _ in range(20_000):
        known = update(known, (1.0,), 0.5)
    assert known.A[0] < 1_000.0  # the evidence never exceeds a thousand observations


def test_a_posterior_round_trips() -> None:
    known = update(aligned(Posterior(), ("energy_high", "task_coding")), (1.0, 0.25, 1.0), 0.75)
    assert msgspec.json.decode(msgspec.json.encode(known), type=Posterior) == known


def test_new_signals_are_added_and_old_ones_stay() -> None:
    known = update(aligned(Posterior(), ("task_coding",)), (1.0, 1.0), 0.75)
    wide = aligned(known, ("energy_high",))
    assert wide.signals == ("energy_high", "task_coding")
    assert wide.A == (1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0)
    assert wide.b == (0.75, 0.0, 0.75)
    assert wide.n == 1
    assert aligned(wide, ()) is wide


@given(users=st.lists(st.sampled_from("aaaaaabc"), max_size=200))
def test_at_most_ten_of_fifty_observations_per_user_count(users) -> None:
    told: list[tuple[str, float]] = []
    for user in users:
        told.append((user, capped(told, user)))
    for start in range(max(1, len(told) - 49)):
        window = told[start : start + 50]
        assert all(sum(counts for name, counts in window if name == user) <= 10 for user in "abc")


def test_one_user_has_limited_influence_on_a_shared_weight() -> None:
    told: list[tuple[str, float]] = []
    weight = 0.9
    for _ in range(50):
        counts = capped(told, "mallory")
        told.append(("mallory", counts))
        weight = ema(weight, 0.0) if counts else weight
    assert weight == pytest.approx(0.9 * 0.9**10, abs=1e-9)
    assert capped(told, "ann") == 1.0
