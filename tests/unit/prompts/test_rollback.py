"""Tests of automatic rollback: the sigma rule, the guarded trial with a control, and no oscillation."""

import math
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.prompts.rollback import (
    DAY,
    ITSELF,
    UNAIDED,
    RollbackStatus,
    SigmaSettings,
    either,
    halved,
    judged,
    openings,
    refusal,
    share_of,
    sigma,
    talks,
    units,
)
from cuebook.prompts.rollback_evidence import Docket
from cuebook.prompts.trial import GuardSettings, Trial, ratio_p, tried, wealth
from cuebook.records.answer import Time
from cuebook.records.prompt import Observation, PromptEvent


def drawn(seed: int, count: int, *, drop: float = 0.0, noise: float = 0.084) -> list[float]:
    """Draw the mean scores of conversations of eight rounds (standard deviation of a score .132, shared .07)."""
    dice = random.Random(seed)
    return [min(max(dice.gauss(0.704 - drop, noise), 0.0), 1.0) for _ in range(count)]


# ---- sigma ----------------------------------------------------------------------------------------------------------


def test_a_sustained_drop_beyond_one_sigma_is_rolled_back() -> None:
    verdict = sigma(drawn(1, 50), drawn(2, 30, drop=0.2))
    assert verdict.decision == "rollback"
    evidence = verdict.evidence
    assert evidence.n == {"baseline": 50, "recent": 30, "window": 30}
    assert evidence.statistics["drop"] == pytest.approx(evidence.means["baseline"] - evidence.means["window"])
    assert evidence.statistics["drop"] > evidence.thresholds["drop"]


@pytest.mark.parametrize(("baseline", "recent"), [(49, 30), (50, 29), (0, 0)])
def test_too_few_conversations_cause_no_rollback(baseline, recent) -> None:
    assert sigma(drawn(1, baseline), drawn(2, recent, drop=0.4)).decision == "wait"


def test_a_constant_baseline_causes_no_rollback() -> None:
    verdict = sigma([0.5] * 60, [0.1] * 40)
    assert verdict.decision == "hold"
    assert "vary" in verdict.reason


def test_only_the_newest_window_counts() -> None:
    assert sigma(drawn(1, 50), [*drawn(2, 30, drop=0.3), *drawn(3, 30)]).decision == "keep"


def test_a_small_drop_causes_no_rollback() -> None:
    assert sigma(drawn(1, 50, noise=0.001), drawn(2, 30, drop=0.025, noise=0.001)).decision == "keep"
    assert sigma(drawn(1, 50, noise=0.001), drawn(2, 30, drop=0.035, noise=0.001)).decision == "rollback"


def test_a_prompt_that_dropped_with_another_is_not_rolled_back() -> None:
    before, now = drawn(1, 50), drawn(2, 30, drop=0.15)
    fell, steady = (drawn(3, 50), drawn(4, 30, drop=0.12)), (drawn(5, 50), drawn(6, 30))
    assert sigma(before, now, others=[steady]).decision == "rollback"
    assert sigma(before, now, others=[steady, fell]).decision == "hold"
    little = [(drawn(seed, 50), drawn(seed + 1, 4, drop=0.1)) for seed in range(10, 30, 2)]  # each alone is too few
    assert sigma(before, now, others=little).decision == "hold"
    assert sigma(before, now, others=[([], []), ([0.5], [0.1])]).decision == "rollback"


# ---- guarded --------------------------------------------------------------------------------------------------------


def trial(
    seed: int,
    count: int,
    *,
    drop: float = 0.0,
    since: int = 0,
    dip: bool = False,
    settings: GuardSettings | None = None,
) -> tuple[RollbackStatus, int]:
    """Serve a version to its share of conversations until it is rolled back or all are over."""
    dice, chosen = random.Random(seed), settings or GuardSettings()
    state, verdict = Trial(), judged(Trial(), chosen)
    share = chosen.canary
    for at in range(count):
        new = dice.random() < share
        fallen = 0.08 if dip and count // 3 <= at < count // 3 + 25 else 0.0
        score = dice.gauss(0.704 - fallen - (drop if new and at >= since else 0.0), 0.084)
        state = tried(state, chosen, new=new, share=share, mean=min(max(score, 0.0), 1.0))
        verdict = judged(state, chosen)
        if verdict.decision == "rollback":
            return verdict, at + 1
        share = share_of(verdict, chosen)
    return verdict, count


def guarded(pairs, settings: GuardSettings | None = None) -> RollbackStatus:
    """Judge conversations in the order of their beginning."""
    chosen, state = settings or GuardSettings(), Trial()
    for pair in pairs:
        state = tried(state, chosen, **pair)
    return judged(state, chosen)


def test_an_unchanged_prompt_is_not_rolled_back_in_a_dip() -> None:
    fired = sum(trial(seed, 250, dip=True)[0].decision == "rollback" for seed in range(50))
    assert fired == 0


def watched(seed: int, count: int, *, pleased: float = 0.45, displeased: float = 0.2, worse: float = 0.0) -> int:
    """Observe next messages under default settings. Return the number of conversations until a rollback, 0 for none.

    A message is pleased, displeased or neutral; users differ, and a fifth of the conversations has one in a bad mood.
    """
    dice, now = random.Random(seed), 0.0
    docket, share = Docket("t", 2, 1, 1e9, settings=GuardSettings()), 0.5
    for at in range(20 + count):
        on_trial = at >= 20
        new = on_trial and dice.random() < share
        mood = dice.gauss(-0.3 if dice.random() < 0.2 else 0.05, 0.1) - (worse if new else 0.0)
        now = (1e9 if on_trial else 0.0) + at * 7_200.0
        said = []
        for turn in range(dice.randint(2, 7)):
            roll = dice.random()
            score = 0.97 if roll < pleased + mood else 0.35 if roll > 1.0 - displeased + mood else 0.55
            one = Observation(slug="a", branch="main", number=2 if new else 1, score=score, sentiment=score)
            own = {"share": share if new else 1.0 - share} if on_trial else {}
            said.append(msgspec.structs.replace(one, conversation=f"c{at}", at=now + 60.0 * turn, **own))
        docket.add(said, at + 1, now + 3_600.0)
        if on_trial and docket.verdict().decision == "rollback":
            return at - 19
        share = share_of(docket.verdict(), GuardSettings())
    return 0


@pytest.mark.slow
def test_next_messages_take_back_a_worse_prompt_and_no_unchanged_one() -> None:
    assert docket_bound() == 0.01
    assert sum(watched(seed, 150) > 0 for seed in range(60)) == 0
    found = sorted(watched(seed, 400, worse=0.35) for seed in range(9))
    assert found[0] > 0
    assert found[4] < 100


def docket_bound() -> float:
    """Return the bound on a false rollback: the sum of both halves' chances (Ville)."""
    return 2.0 * halved(GuardSettings()).alpha


def test_worse_versions_are_rolled_back_and_better_ones_promoted() -> None:
    found = [trial(seed, 400, drop=0.2) for seed in range(10)]
    assert all(verdict.decision == "rollback" for verdict, _ in found)
    assert sorted(at for _, at in found)[5] < 80
    better, _ = trial(1, 400, drop=-0.05)
    assert (better.decision, share_of(better, GuardSettings())) == ("keep", 0.9)


def test_a_version_that_degrades_after_promotion_is_found() -> None:
    found = [trial(seed, 900, drop=0.15, since=350) for seed in range(5)]
    assert all(verdict.decision == "rollback" and at > 350 for verdict, at in found)
    assert any("promotion" in verdict.reason for verdict, _ in found)


def test_suspicion_makes_the_control_larger() -> None:
    settings = GuardSettings(promote_after=100)
    state, dice = Trial(), random.Random(3)
    for at in range(200):
        state = tried(state, settings, new=at % 2 == 0, share=0.5, mean=dice.uniform(0.6, 0.8))
    assert share_of(judged(state, settings), settings) == 0.9
    while share_of(judged(state, settings), settings) == 0.9:
        state = tried(state, settings, new=dice.random() < 0.9, share=0.9, mean=dice.uniform(0.6, 0.8) - 0.3)
        state = tried(state, settings, new=False, share=0.9, mean=dice.uniform(0.6, 0.8))
    verdict = judged(state, settings)
    assert share_of(verdict, settings) == 0.5


def test_one_degrading_variant_is_found_among_others() -> None:
    drops = {"a": 0.0, "b": 0.0, "c": 0.15, "d": 0.0}
    verdicts = {name: trial(seed, 300, drop=drop)[0] for seed, (name, drop) in enumerate(drops.items())}
    assert [name for name, verdict in verdicts.items() if verdict.decision == "rollback"] == ["c"]


@pytest.mark.parametrize(("new", "control"), [(9, 9), (50, 7), (7, 50)])
def test_a_too_small_trial_decides_nothing(new, control) -> None:
    pairs = [{"new": True, "share": 0.5, "mean": 0.0}] * new + [{"new": False, "share": 0.5, "mean": 1.0}] * control
    assert guarded(pairs).decision == "wait"


def test_a_sample_ratio_mismatch_decides_nothing() -> None:
    dice = random.Random(1)
    pairs = [{"new": at % 4 == 0, "share": 0.5, "mean": 0.2 if at % 4 == 0 else dice.random()} for at in range(100)]
    verdict = guarded(pairs)
    assert verdict.decision == "hold"
    assert "25 of 100" in verdict.reason
    assert verdict.evidence.statistics["ratio_p"] < 1e-3


def test_the_sample_ratio_is_a_chi_square_test() -> None:
    state = Trial(new=60, control=40, drawn=50.0, spread=25.0)
    assert ratio_p(state) == pytest.approx(0.0455002638963584, abs=1e-12)  # χ² = 4, one degree of freedom


def test_a_constant_control_causes_no_rollback() -> None:
    pairs = [{"new": at % 2 == 0, "share": 0.5, "mean": 0.1 if at % 2 == 0 else 0.5} for at in range(200)]
    assert guarded(pairs).decision == "hold"
    assert guarded([{"new": at % 2 == 0, "share": 0.5, "mean": 0.5} for at in range(200)]).decision == "hold"


def test_a_verdict_includes_its_evidence() -> None:
    verdict, _ = trial(5, 400, drop=0.2)
    evidence = verdict.evidence
    assert evidence.method == "betting"
    assert evidence.n["conversations"] == evidence.n["new"] + evidence.n["control"]
    assert evidence.means["new"] < evidence.means["control"]
    assert evidence.statistics["wealth"] >= evidence.thresholds["wealth"] == 100.0
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=RollbackStatus) == verdict


def test_a_stored_trial_continues() -> None:
    settings, dice = GuardSettings(promote_after=10), random.Random(6)
    pairs = [{"new": dice.random() < 0.5, "share": 0.5, "mean": dice.random()} for _ in range(40)]
    state = Trial()
    for pair in pairs:
        state = msgspec.json.decode(msgspec.json.encode(tried(state, settings, **pair)), type=Trial)
    assert judged(state, settings) == guarded(pairs, settings)


@given(
    means=st.lists(st.tuples(st.booleans(), st.floats(0.01, 0.99), st.floats(0, 1)), max_size=60),
)
def test_any_scores_and_shares_keep_the_bets_solvent(means) -> None:
    state = Trial()
    for new, share, mean in means:
        state = tried(state, GuardSettings(), new=new, share=share, mean=mean)
    assert all(map(math.isfinite, state.wealth))
    assert wealth(state) >= 0.0
    verdict = judged(state, GuardSettings())
    assert all(map(math.isfinite, verdict.evidence.statistics.values()))


def test_bets_are_fair_if_nothing_is_worse_than_delta() -> None:
    """No bet gains on average over the random assignment, for any scores (a supermartingale)."""
    settings = GuardSettings()
    state = tried(Trial(), settings, new=True, share=0.3, mean=0.6)
    for p in (0.1, 0.5, 0.9):
        for score in (0.0, 0.3, 0.7, 1.0):
            worse = max(score - settings.delta, 0.0)
            new = tried(state, settings, new=True, share=p, mean=worse).wealth
            old = tried(state, settings, new=False, share=p, mean=score).wealth
            for before, one, other in zip(state.wealth, new, old, strict=True):
                assert p * math.exp(one - before) + (1 - p) * math.exp(other - before) <= 1.0 + 1e-12


def test_sigma_settings_match_the_design_notes() -> None:
    settings = SigmaSettings()
    assert (settings.sigma, settings.floor, settings.window, settings.baseline) == (1.0, 0.02, 30, 50)


# ---- conversations and permissions ----------------------------------------------------------------------------------


def observe(conversation: str, at: float, score: float = 0.5, number: int = 1) -> Observation:
    return Observation(
        slug="p", branch="main", number=number, score=score, sentiment=score, conversation=conversation, at=at
    )


def test_conversations_count_by_first_rounds_in_start_order() -> None:
    heard = [observe("b", 10 + at, 1.0) for at in range(8)] + [observe("a", at, at / 10) for at in range(12)]
    found = units(heard, 100.0)
    assert [(each.conversation, each.at) for each in found] == [("a", 0), ("b", 10)]
    assert found[0].score == pytest.approx(0.35)


def test_later_conversations_wait_for_an_open_one_until_it_is_idle() -> None:
    heard = [observe("open", 0.0), *(observe("done", 1.0 + at) for at in range(8))]
    assert units(heard, 100.0) == ()
    assert [each.conversation for each in units(heard, 1_800.0)] == ["open", "done"]


def test_counted_conversations_do_not_change() -> None:
    heard = [observe("a", 0.0, 0.2), observe("a", 1.0, 0.4)]
    first = units(heard, 5_000.0)
    assert first == units([*heard, observe("a", 9_000.0, 1.0), observe("a", 9_001.0, 1.0, number=2)], 9_002.0)
    assert first[0].score == pytest.approx(0.3)


def test_mixed_and_unnamed_conversations_are_ignored() -> None:
    heard = [observe("mixed", 0.0), observe("mixed", 1.0, number=2), observe("", 2.0), observe("a", 3.0, number=2)]
    assert [each.conversation for each in units(heard, 1e6)] == ["a"]


def test_a_conversation_begins_with_its_first_observation() -> None:
    heard = [observe("b", 2.0, 0.4), observe("a", 1.0, 0.2), observe("a", 3.0, 0.9, number=2), observe("", 4.0)]
    found = openings(heard)
    assert [(each.conversation, each.number, each.score) for each in found] == [("a", 1, 0.2), ("b", 1, 0.4)]
    assert openings([*heard, observe("b", 5.0, 1.0)]) == found, "counted conversations do not change"


def test_interim_scores_include_open_and_unnamed_conversations() -> None:
    heard = [
        observe("a", 1.0, 0.2),
        observe("", 2.0, 0.5),
        observe("a", 3.0, 0.4),
        observe("", 4.0, 0.7),
        observe("b", 5.0),
    ]
    found = talks([*heard, observe("b", 6.0, number=2)])
    assert [(each.conversation, each.score) for each in found] == [("a", pytest.approx(0.3)), ("", 0.5), ("", 0.7)]


def test_two_checks_share_one_error_budget() -> None:
    settings = GuardSettings()
    half = halved(settings)
    assert (half.alpha, half.arl) == (settings.alpha / 2, settings.arl * 2)
    good = guarded([{"new": at % 2 == 0, "share": 0.5, "mean": 0.5 + at % 3 / 10} for at in range(300)], half)
    bad = guarded([{"new": at % 2 == 0, "share": 0.5, "mean": 0.9 * (at % 2) + at % 3 / 30} for at in range(300)], half)
    early = judged(Trial(), half)
    assert [each.decision for each in (good, early, bad)] == ["keep", "wait", "rollback"]
    assert either(good, early) == either(early, good) == early
    assert either(good, bad) == either(bad, early) == bad


def test_without_a_control_only_a_large_drop_counts() -> None:
    before = [0.8 + at % 3 / 30 for at in range(40)]
    assert sigma(before, [each - 0.12 for each in before], UNAIDED).decision == "keep"
    assert sigma(before, [each - 0.3 for each in before], UNAIDED).decision == "rollback"
    assert sigma(before, [each - 0.3 for each in before], UNAIDED, others=[(before, [0.5, 0.6])]).decision == "hold"


def _rollback(number: int, to: int, at: float, *, by: str = ITSELF) -> PromptEvent:
    return PromptEvent(kind="rollback", branch="main", number=number, to=to, at=Time(at), by=by)


def test_at_most_one_automatic_rollback_a_day() -> None:
    history = [_rollback(2, 1, 1_000.0)]
    assert refusal(history, 1_000.0 + DAY - 1, number=4, target=3)
    assert not refusal(history, 1_000.0 + DAY, number=4, target=3)
    assert refusal(history, 0.0, number=4, target=3)  # a clock that was set back
    by_hand = [_rollback(2, 1, 1_000.0, by="ann")]
    assert not refusal(by_hand, 1_001.0, number=4, target=3)


def test_rollbacks_do_not_oscillate() -> None:
    history = [_rollback(3, 2, 0.0)]
    later = 10 * DAY
    assert "restored" in refusal(history, later, number=2, target=1)
    assert "itself rolled back" in refusal(history, later, number=4, target=3)
    assert not refusal(history, later, number=4, target=2)
    assert refusal([], later, number=4, target=4)


@given(st.lists(st.sampled_from([1, 2, 3, 4]), max_size=30))
def test_repeated_failures_require_a_person(numbers) -> None:
    history: list[PromptEvent] = []
    for at, number in enumerate(numbers):
        for target in (1, 2, 3, 4):
            if target < number and not refusal(history, at * 2 * DAY, number=number, target=target):
                history.append(_rollback(number, target, at * 2 * DAY))
                break
    moved = [(each.number, each.to) for each in history]
    assert not {(restored, number) for number, restored in moved} & set(moved)
    assert all(each.number not in {earlier.to for earlier in history[:at]} for at, each in enumerate(history))
