"""Tests of revised observations: correcting a score equals having recorded the right score at first."""

import random

import pytest

from cuebook.prompts.learn import Posterior, ema, ema_revised, update, update_revised


def folded(scores, xs):
    weight, evidence = 0.5, Posterior(signals=("energy_high", "task_coding"), A=(0.0,) * 9, b=(0.0,) * 3)
    for score, x in zip(scores, xs, strict=True):
        weight, evidence = ema(weight, score), update(evidence, x, score)
    return weight, evidence


@pytest.mark.parametrize("at", [0, 1, 48, 49, 50, 99, 119])
def test_a_correction_equals_learning_the_corrected_scores(at):
    dice = random.Random(at)
    xs = [(1.0, dice.random(), dice.random()) for _ in range(120)]
    scores = [dice.random() for _ in xs]
    weight, evidence = folded(scores, xs)
    changed = [*scores[:at], 1.0 - scores[at], *scores[at + 1 :]]
    wanted_weight, wanted = folded(changed, xs)
    change, later = changed[at] - scores[at], len(xs) - at - 1
    assert ema_revised(weight, change, later) == pytest.approx(wanted_weight)
    found = update_revised(evidence, xs[at], change, later)
    assert found.b == pytest.approx(wanted.b)
    assert (found.A, found.n, found.signals) == (wanted.A, wanted.n, wanted.signals)


def test_a_weight_stays_within_its_bounds():
    assert ema_revised(0.01, -1.0, 0) == 0.0
    assert ema_revised(0.99, 1.0, 0) == 1.0
