"""Tests of the window optimizer: BrowserOS's steps, ranges and emergency mode."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.config import BudgetConfig
from cuebook.records.tuning import TuningState
from cuebook.window.budget import tuned, untuned


def parameters(tuning: TuningState) -> tuple[float, int, float]:
    return tuning.compression_trigger, tuning.full_message_window, tuning.min_relevance


@pytest.mark.parametrize(
    ("usage", "savings", "expected"),
    [
        (0.65, 0.5, (0.7, 30, 0.3)),
        (0.75, 0.5, (0.7, 30, 0.3)),
        (0.76, 0.05, (0.65, 28, 0.35)),
        (0.50, 0.0, (0.7, 30, 0.3)),
        (0.49, 0.0, (0.725, 31, 0.275)),
        (0.66, 0.049, (0.6, 30, 0.4)),
        (0.76, 0.0, (0.55, 28, 0.45)),
        (0.65, 0.0, (0.7, 30, 0.3)),
    ],
)
def test_one_tuning_step(usage: float, savings: float, expected: tuple[float, int, float]) -> None:
    assert parameters(tuned(untuned(BudgetConfig()), usage=usage, savings=savings)) == expected


@pytest.mark.parametrize(
    ("usage", "savings", "expected"),
    [(0.76, 0.05, (0.7, 30, 0.3)), (0.76, 0.0, (0.7, 30, 0.3)), (0.66, 0.049, (0.7, 30, 0.3)),
     (0.49, 0.0, (0.725, 31, 0.275))],
)  # fmt: skip
def test_nothing_is_reduced_while_a_user_is_poorly_served(
    usage: float, savings: float, expected: tuple[float, int, float]
) -> None:
    start = untuned(BudgetConfig())
    assert parameters(tuned(start, usage=usage, savings=savings, served=0.49)) == expected
    well = tuned(start, usage=usage, savings=savings, served=0.5)
    assert well == tuned(start, usage=usage, savings=savings)


def steps(tuning: TuningState, many: int, *, usage: float, savings: float) -> TuningState:
    for _ in range(many):
        tuning = tuned(tuning, usage=usage, savings=savings)
    return tuning


def test_tuning_respects_its_limits() -> None:
    start = untuned(BudgetConfig())
    assert parameters(steps(start, 50, usage=0.9, savings=0.5)) == (0.4, 10, 0.6)
    assert parameters(steps(start, 50, usage=0.9, savings=0.0)) == (0.35, 10, 0.7)
    assert parameters(steps(start, 50, usage=0.1, savings=0.0)) == (0.85, 50, 0.15)


def test_usage_over_target_is_not_relaxed_after_an_emergency() -> None:
    low = steps(untuned(BudgetConfig()), 50, usage=0.9, savings=0.0)
    assert parameters(tuned(low, usage=0.9, savings=0.5)) == (0.35, 10, 0.7)


@given(st.lists(st.tuples(st.floats(0, 1.5), st.floats(0, 1)), max_size=80))
def test_parameters_stay_in_their_ranges(runs: list[tuple[float, float]]) -> None:
    tuning = untuned(BudgetConfig())
    for usage, savings in runs:
        tuning = tuned(tuning, usage=usage, savings=savings)
        assert 0.35 <= tuning.compression_trigger <= 0.85
        assert 10 <= tuning.full_message_window <= 50
        assert 0.15 <= tuning.min_relevance <= 0.70
        assert tuning.target_usage_ratio == 0.65


def test_out_of_range_settings_change_only_inwards() -> None:
    wide = untuned(BudgetConfig(trigger=0.95, window_posts=5))
    assert parameters(tuned(wide, usage=0.1, savings=0.0)) == (0.95, 6, 0.275)
    assert parameters(tuned(wide, usage=0.9, savings=0.5)) == (0.9, 5, 0.35)
