"""Tests of variant selection: the scores of the specification, exact propensities, and Thompson sampling."""

import math
import random
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.errors import InvalidInput, NotFound
from cuebook.prompts import select
from cuebook.prompts.learn import Posterior, aligned, ema, update
from cuebook.prompts.select import (
    SIGNALS,
    Variant,
    context_fit,
    declared,
    epsilon_greedy,
    features,
    win_chances,
)
from cuebook.records.prompt import Branch, Version

WEIGHTS = {"user_frustrated": 0.9, "task_coding": 0.8, "energy_high": -0.3}  # B, "Context-Aware Selection"


def thompson(offered, signals, known, dice, **options):
    return select.thompson(offered, signals, known, uniform=dice.random, gauss=dice.gauss, **options)


def offer(
    name: str = "main", weight: float = 0.5, weights: dict[str, float] | None = None, *, slug: str = "p", rolled_back=()
) -> Variant:
    version = Version(slug=slug, branch=name, number=1, metadata={"context_weights": weights or {}})
    branch = Branch(
        name=name, head=1, active=1, semver="", digest="", weight=weight, observations=0, rolled_back=rolled_back
    )
    return version, branch


# ---- the specification ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "signals", "edge", "fit", "total"),
    [
        (WEIGHTS, {"user_frustrated": 1, "task_coding": 1, "energy_high": 0}, 0.5, 0.85, 0.675),
        (WEIGHTS, {"user_frustrated": 0.7, "task_coding": 1, "energy_high": 0.4}, 0.6, 0.655, 0.6275),
        (WEIGHTS, {"energy_high": 1.0}, 0.8, -0.15, 0.325),
        (WEIGHTS, {}, 0.8, 0.0, 0.4),
        ({"task_coding": -1.0}, {"task_coding": True}, 0.5, -1.0, -0.25),
        ({}, {"task_coding": 1}, 0.73, 0.0, 0.73),
        ({"task_coding": 0.0, "energy_high": 0.0}, {"task_coding": 1}, 0.73, 0.0, 0.73),
        ({"weather_hot": 0.5, "task_coding": 0.5}, {"task_coding": 1}, 0.5, 0.5, 0.5),  # unknown names count in B
        ({"weather_hot": 0.5}, {"weather_hot": 0.4}, 0.5, 0.4, 0.45),
        ({"sentiment_high": 0.5}, {"user_pleased": 0.8}, 0.5, 0.8, 0.65),  # two names of the same signal
        ({"user_pleased": 0.5}, {"sentiment_high": 0.8}, 0.5, 0.8, 0.65),
    ],
)
def test_scores_match_the_specification_exactly(weights, signals, edge, fit, total) -> None:
    chosen = epsilon_greedy([offer(weight=edge, weights=weights)], signals, roll=0.9).selected
    assert chosen.edge_weight == edge
    assert chosen.context_fit == pytest.approx(fit, abs=1e-9)
    assert chosen.total_score == pytest.approx(total, abs=1e-9)


def test_the_best_is_picked_unless_exploring() -> None:
    offered = [offer("c", 0.4), offer("main", 0.2), offer("b", 0.9), offer("a", 0.3)]
    best = epsilon_greedy(offered, {}, roll=0.2)
    assert (best.selected.branch, best.explored) == ("b", False)
    assert best.propensity == pytest.approx(0.8 + 0.05, abs=1e-12)
    explored = [epsilon_greedy(offered, {}, roll=roll) for roll in (0.0, 0.06, 0.11, 0.19)]
    assert [each.selected.branch for each in explored] == ["main", "a", "b", "c"]
    assert all(each.explored for each in explored)
    assert [each.propensity for each in explored] == pytest.approx([0.05, 0.05, 0.85, 0.05], abs=1e-12)


def test_ties_go_to_main_then_by_name() -> None:
    offered = [offer("b"), offer("a"), offer("main")]
    for number in range(6):
        random.Random(number).shuffle(offered)
        assert epsilon_greedy(offered, {}, roll=0.5).selected.branch == "main"
        others = [(version, branch) for version, branch in offered if branch.name != "main"]
        assert epsilon_greedy(others, {}, roll=0.5).selected.branch == "a"


def test_epsilon_0_never_explores_and_1_always_does() -> None:
    offered = [offer("main", 0.9), offer("a", 0.1)]
    assert not epsilon_greedy(offered, {}, epsilon=0.0, roll=0.0).explored
    last = epsilon_greedy(offered, {}, epsilon=1.0, roll=math.nextafter(1.0, 0.0))
    assert (last.selected.branch, last.explored, last.propensity) == ("a", True, 0.5)


odd = st.floats(-1e308, 1e308) | st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 1e308, 1.7e308, 1e-308])
named = st.sampled_from([*SIGNALS, "weather_hot"])


@given(
    weights=st.lists(st.dictionaries(named, odd), min_size=1, max_size=6),
    signals=st.dictionaries(named, st.floats(0, 1) | st.booleans()),
    roll=st.floats(0, 1, exclude_max=True),
    epsilon=st.floats(0, 1),
)
def test_odd_weights_give_bounded_fits_and_valid_probabilities(weights, signals, roll, epsilon) -> None:
    offered = [offer(f"b{at}", 0.5, each) for at, each in enumerate(weights)]
    for chosen in (
        epsilon_greedy(offered, signals, epsilon=epsilon, roll=roll),
        thompson(offered, signals, {}, random.Random(1)),
    ):
        assert all(-1.0 <= each.context_fit <= 1.0 for each in chosen.variants)
        assert all(math.isfinite(each.total_score) for each in chosen.variants)
        assert math.fsum(each.propensity for each in chosen.variants) == pytest.approx(1.0, abs=1e-9)
        assert chosen.selected in chosen.variants
        assert chosen.propensity == chosen.selected.propensity


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 10**400, "0.8", None, True])
def test_a_non_numeric_weight_is_rejected_by_name(bad) -> None:
    offered = [offer(weights={"task_coding": bad})]
    for strategy in (
        lambda: epsilon_greedy(offered, {}, roll=0.5),
        lambda: thompson(offered, {}, {}, random.Random(1)),
    ):
        with pytest.raises(InvalidInput, match=r"context_weights\.task_coding") as raised:
            strategy()
        assert raised.value.where == "context_weights.task_coding"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.1, 1.5, "much"])
def test_an_out_of_range_signal_is_rejected_by_name(bad) -> None:
    with pytest.raises(InvalidInput, match=r"signals\.energy_high"):
        epsilon_greedy([offer()], {"energy_high": bad}, roll=0.5)
    with pytest.raises(InvalidInput, match=r"signals\.energy_high"):
        thompson([offer()], {"energy_high": bad}, {}, random.Random(1))


def test_a_rolled_back_variant_is_neither_picked_nor_explored() -> None:
    offered = [offer("main", 0.3), offer("a", 0.99, rolled_back=(1,)), offer("b", 0.2)]
    dice = random.Random(3)
    for _ in range(200):
        greedy = epsilon_greedy(offered, {}, roll=dice.random())
        drawn = thompson(offered, {}, {}, dice, floor=0.5)
        assert "a" not in {greedy.selected.branch, drawn.selected.branch}
    assert [each.branch for each in greedy.variants] == ["main", "b"]
    with pytest.raises(NotFound, match="rolled back"):
        epsilon_greedy([offered[1]], {}, roll=0.5)
    with pytest.raises(NotFound):
        thompson([], {}, {}, dice)


def test_duplicate_branches_or_two_prompts_are_rejected() -> None:
    for offered in ([offer(), offer()], [offer(), offer("a", slug="q")]):
        with pytest.raises(InvalidInput, match="variants"):
            epsilon_greedy(offered, {}, roll=0.5)


def test_a_fit_without_weights_is_0() -> None:
    assert context_fit({}, {"task_coding": 1.0}) == 0.0


# ---- Thompson sampling ----------------------------------------------------------------------------------------------


def posteriors_after(scores: dict[str, tuple[float, int]], names: tuple[str, ...] = ()) -> dict[str, Posterior]:
    """Teach each branch one score the given number of times."""
    known = {}
    for branch, (said, times) in scores.items():
        known[branch] = aligned(Posterior(), names)
        for _ in range(times):
            known[branch] = update(known[branch], features(names, {}), said)
    return known


@pytest.mark.parametrize("beliefs", [[(0.5, 0.1), (0.55, 0.2)], [(0.9, 0.004), (0.5, 0.2)], [(0.5, 0.065)] * 2])
def test_probabilities_of_two_match_the_closed_form(beliefs) -> None:
    (mean, sd), (other, other_sd) = beliefs
    closed = 0.5 * math.erfc((other - mean) / math.hypot(sd, other_sd) / math.sqrt(2))
    assert win_chances(beliefs) == pytest.approx([closed, 1 - closed], abs=1e-5)


def test_probabilities_of_many_match_random_draws() -> None:
    beliefs = [(0.6, 0.01), (0.58, 0.05), (0.5, 0.13), (0.61, 0.004), (0.2, 0.02)]
    dice, draws = random.Random(5), 20_000
    wins = Counter(max(range(5), key=[dice.gauss(*each) for each in beliefs].__getitem__) for _ in range(draws))
    assert [wins[at] / draws for at in range(5)] == pytest.approx(win_chances(beliefs), abs=0.012)


@given(beliefs=st.lists(st.tuples(st.floats(-1, 2), st.floats(0.003, 0.3)), min_size=1, max_size=20))
def test_probabilities_sum_to_one(beliefs) -> None:
    chances = win_chances(beliefs)
    assert math.fsum(chances) == pytest.approx(1.0, abs=1e-9)
    assert min(chances) >= 0.0


@pytest.mark.slow
def test_propensities_equal_pick_frequencies() -> None:
    offered = [offer("main"), offer("a", weights={"task_coding": 0.8}), offer("b")]
    known = posteriors_after({"main": (0.6, 30), "a": (0.55, 20), "b": (0.3, 40)})
    dice, times = random.Random(11), 4_000
    picked = Counter(thompson(offered, {"task_coding": 1}, known, dice).selected.branch for _ in range(times))
    told = thompson(offered, {"task_coding": 1}, known, dice).variants
    assert [picked[each.branch] / times for each in told] == pytest.approx([each.propensity for each in told], abs=0.03)
    assert min(each.propensity for each in told) >= 0.05 / 3


def test_greedy_propensities_equal_pick_frequencies() -> None:
    offered = [offer("main", 0.6), offer("a", 0.7), offer("b", 0.3)]
    dice, times = random.Random(12), 4_000
    results = [epsilon_greedy(offered, {}, epsilon=0.3, roll=dice.random()) for _ in range(times)]
    picked = Counter(each.selected.branch for each in results)
    assert [picked[each.branch] / times for each in results[0].variants] == pytest.approx([0.1, 0.8, 0.1], abs=0.03)


def test_evidence_overrides_the_authors_weights() -> None:
    offered = [offer("main"), offer("a", weights={"task_coding": 0.8})]
    fresh = {each.branch: each for each in thompson(offered, {"task_coding": 1}, {}, random.Random(1)).variants}
    assert fresh["a"].total_score == pytest.approx(0.7, abs=1e-12)
    assert fresh["main"].total_score == pytest.approx(0.5, abs=1e-12)
    assert fresh["a"].propensity > 0.8
    names, known = declared(offered), {"main": Posterior(), "a": Posterior()}
    x = features(names, {"task_coding": 1})
    for _ in range(30):
        for branch, said in (("main", 0.7), ("a", 0.3)):
            known[branch] = update(aligned(known[branch], names), x, said)
    told = {each.branch: each for each in thompson(offered, {"task_coding": 1}, known, random.Random(1)).variants}
    assert told["main"].total_score > 0.65
    assert told["a"].total_score < 0.4
    assert told["main"].propensity > 0.97


def test_the_belief_is_a_bayesian_linear_model() -> None:
    """Compute one signal by hand: A = [[4 + n, k], [k, 4 + k]], b = [2 + Σy, 0.8 + Σy over its rounds]."""
    offered, known = [offer("a", weights={"task_coding": 0.5})], Posterior()
    for said, coding in ((0.9, 1.0), (0.4, 0.0), (0.8, 1.0)):
        known = update(aligned(known, ("task_coding",)), (1.0, coding), said)
    a, b = [[7.0, 2.0], [2.0, 6.0]], [2.0 + 2.1, 4 * 0.2 + 1.7]
    determinant = a[0][0] * a[1][1] - a[0][1] ** 2
    theta = [(a[1][1] * b[0] - a[0][1] * b[1]) / determinant, (a[0][0] * b[1] - a[0][1] * b[0]) / determinant]
    told = thompson(offered, {"task_coding": 1}, {"a": known}, random.Random(1)).selected
    assert told.total_score == pytest.approx(sum(theta), abs=1e-12)
    assert told.propensity == 1.0


def test_unknown_signal_names_are_no_features() -> None:
    offered = [
        offer("a", weights={"weather_hot": 0.9, "sentiment_high": 0.1}),
        offer("b", weights={"energy_high": 0.0}),
    ]
    assert declared(offered) == ("energy_high", "user_pleased")
    assert features(declared(offered), {"sentiment_high": 0.4, "weather_hot": 1.0}) == (1.0, 0.0, 0.4)
    with_it, without = (thompson(offered, each, {}, random.Random(2)) for each in ({"weather_hot": 1.0}, {}))
    assert [one.total_score for one in with_it.variants] == [one.total_score for one in without.variants]


def test_exploring_picks_another_than_the_most_promising() -> None:
    offered, known = [offer("main"), offer("a")], posteriors_after({"main": (0.8, 50), "a": (0.5, 50)})
    dice = random.Random(4)
    seen = [thompson(offered, {}, known, dice, floor=0.5) for _ in range(100)]
    assert {(each.selected.branch, each.explored) for each in seen} == {("main", False), ("a", True)}


def test_the_same_random_seed_gives_the_same_selection() -> None:
    offered = [offer(branch, weights=WEIGHTS) for branch in "abc"]
    signals = {"user_frustrated": 0.6}
    first = thompson(offered, signals, {}, random.Random(9))
    assert first == thompson(offered[::-1], signals, {}, random.Random(9))
    assert msgspec.json.decode(msgspec.json.encode(first), type=type(first)) == first


def regret(pick, turns: int, seed: int) -> float:
    """Simulate S1 of the design notes: five variants, no context, standard deviation of scores .132."""
    dice, lost = random.Random(seed), 0.0
    means = dict(zip(("main", *"abcd"), (0.70, 0.68, 0.66, 0.62, 0.58), strict=True))
    weights, known = dict.fromkeys(means, 0.5), dict.fromkeys(means, Posterior())
    for _ in range(turns):
        branch = pick([offer(name, weight) for name, weight in weights.items()], known, dice)
        said = min(max(dice.gauss(means[branch], 0.132), 0.0), 1.0)
        weights[branch], known[branch] = ema(weights[branch], said), update(known[branch], (1.0,), said)
        lost += means["main"] - means[branch]
    return lost


@pytest.mark.slow
def test_thompson_sampling_has_less_regret_than_epsilon_greedy() -> None:
    greedy = sum(
        regret(lambda offered, _, dice: epsilon_greedy(offered, {}, roll=dice.random()).selected.branch, 1500, seed)
        for seed in range(3)
    )
    linear = sum(
        regret(lambda offered, known, dice: thompson(offered, {}, known, dice).selected.branch, 1500, seed)
        for seed in range(3)
    )
    assert linear < 0.7 * greedy


def test_huge_weights_of_a_signal_and_its_alias_do_not_overflow() -> None:
    offered = [offer("a", 0.5, {"sentiment_high": 1.7e308, "user_pleased": 1.7e308}), offer("b", 0.5, {})]
    chosen = thompson(offered, {"user_pleased": 1.0}, {}, random.Random(1))
    assert all(math.isfinite(each.total_score) for each in chosen.variants)
