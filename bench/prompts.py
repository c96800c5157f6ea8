"""What choosing and taking back prompts come to, simulated with fixed seeds beside the notes' figures (4a, 4b).

The notes tell their worlds in words; these are made to the words, so figures should agree in size, not in digits.
"""

import random
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bench.measure import Figure, Run, cpu, shown
from bench.trials import NEVER, Detector, World, bets, breaks, guard, nulls, past, watched
from cuebook.prompts.learn import Posterior, aligned, ema, score, update
from cuebook.prompts.rollback import UNAIDED, SigmaSettings
from cuebook.prompts.select import EPSILON, Variant, declared, epsilon_greedy, features, thompson
from cuebook.prompts.trial import GuardSettings
from cuebook.records.prompt import TaskOutcome

TURNS = 3000
_BREAK = TURNS // 2
_TASKS = ("task_coding", "task_planning", "task_casual", "task_reflection")
_LAST = 500
_OBSERVATIONS = 2000
_BAR = 0.01  # false rollbacks of an unchanged prompt over 2,000 observations

#: Notes, 4a: regret and share of the best variant in the last 500 turns.
_REGRET: Mapping[str, Mapping[str, tuple[int, float]]] = {
    "epsilon_greedy": {"S1": (51, 0.46), "S2": (105, 0.56), "S3": (272, 0.21), "S4": (55, 0.57)},
    "thompson": {"S1": (18, 0.87), "S2": (32, 0.85), "S3": (53, 0.80), "S4": (45, 0.83)},
}
_WORLDS = {
    "S1": "no context",
    "S2": "the author's weights are right",
    "S3": "they are swapped",
    "S4": "the best breaks at turn 1500",
}


def prompts(run: Run) -> Iterator[Figure]:
    """Time and regret of choosing; false alarms and delays of taking back."""
    yield _time()
    yield from _regret(2 if run.quick else 8)
    yield from _by_round(6 if run.quick else 40)
    yield from _by_conversation(run)


# ---- taking back ----------------------------------------------------------------------------------------------------


def _by_round(times: int) -> Iterator[Figure]:
    """Reproduce the notes' table, whose unit is the round."""
    notes = {
        "betting": ("0 / 0 / 0 %", "604 / 144 / 51 / 696"),
        "asymptotic": ("0 / 0 / 0 %", "626 / 112 / 34 / 718"),
        "detector": ("0 / 0 / 0 %", "524 / 175 / 73 / 153"),
    }
    worlds = Worlds(nulls(1, _OBSERVATIONS), breaks(1, _OBSERVATIONS, 1000), times, times)
    yield from _table("rounds: {}", bets, notes, worlds)
    window = SigmaSettings(window=30, baseline=100)
    told = {"1 sd, window 30": ("0.3 / 34 / 46 %", "330 (34%) / 74 / 29 / 77")}
    by_past = past(window, "1 sd, window 30", looks_around=False)
    yield from _table("rounds: {}", by_past, told, worlds)
    wrong = World(units=_OBSERVATIONS, sessions=True, sticky=True)
    found = watched(bets, wrong, max(times, 40), 3)
    for name, said in (("asymptotic", "20.3 %"), ("betting", "3 %")):
        share = f"{found.get(name, NEVER).share:.1%}"
        yield Figure(f"rounds of one version's conversations: {name}", share, f"notes {said}", note="the wrong unit")


def _by_conversation(run: Run) -> Iterator[Figure]:
    """Measure what is shipped, whose unit is the conversation."""
    times, many = (6, 60) if run.quick else (40, 600)
    still, broken = nulls(8, _OBSERVATIONS // 8), breaks(8, 1000, 300)
    told = {"betting": ("", ""), "detector": ("", ""), "asymptotic": ("0 / - / 0 %", "295 / 41 / 20 / 362")}
    yield from _table("conversations, half and half: {}", bets, told, Worlds(nulls(8, 1000), broken, times, times))
    for name, around, by, said in (
        ("sigma, baseline 12, looks at no other", False, SigmaSettings(baseline=12), "- / 4.8 / 74 to 98 %"),
        ("sigma, looks at no other", False, SigmaSettings(), "- / 0.3 / 74 to 98 %"),
        ("sigma", True, SigmaSettings(), "- / 0.3 / - %"),
        ("unaided, looks at no other", False, UNAIDED, ""),
    ):
        worlds = Worlds(still, broken if around or by is UNAIDED else [], many, times)
        by_past = past(by, name, looks_around=around)
        yield from _table("conversations: {}", by_past, {name: (said, "")}, worlds)
    for name, settings in (
        ("guarded", GuardSettings()),
        ("guarded, promoted to 80 %", GuardSettings(promoted=0.8)),
        ("guarded, asymptotic", GuardSettings(method="asymptotic")),
    ):
        told, worlds = {name: ("0 / 0 / 0 %", "")}, Worlds(still, broken, many, times)
        yield from _table("conversations: {}", guard(settings, name), told, worlds, bar=_BAR)


@dataclass(frozen=True)
class Worlds:
    """In what a detector is tried, and how often each."""

    still: list[World]
    broken: list[World]
    false_runs: int
    runs: int


def _table(
    what: str,
    detector: Detector,
    notes: Mapping[str, tuple[str, str]],
    worlds: Worlds,
    *,
    bar: float | None = None,
) -> Iterator[Figure]:
    false = [watched(detector, world, worlds.false_runs, 1) for world in worlds.still]
    late = [watched(detector, world, worlds.runs, 2) for world in worlds.broken]
    for name, (said_false, said_late) in notes.items():
        shares = [each.get(name, NEVER).share for each in false]
        yield Figure(
            f"{what.format(name)}: false",
            " / ".join(f"{100 * share:.2g}" for share in shares) + " %",
            f"notes {said_false}" if said_false else "",
            ratio=max(shares) if bar else None,
            bar=bar,
            unit="",
            note=f"chance / sessions / dip, {worlds.false_runs} runs of {worlds.still[0].units}",
        )
        if late:
            early = late[-1].get(name, NEVER).early
            yield Figure(
                "   a drop of .05 / .10 / .20 / a late .10 found",
                " / ".join(str(each.get(name, NEVER)) for each in late),
                f"notes {said_late}" if said_late else "",
                note=f"{worlds.runs} runs of {worlds.broken[0].units}" + (f", {early:.0%} too early" if early else ""),
            )


# ---- choosing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Play:
    """The variants of a prompt and what is truly in them."""

    name: str
    variants: tuple[Variant, ...]

    def quality(self, at: int, signals: Mapping[str, float], turn: int) -> float:
        """Say how good a variant is in these signals."""
        if self.name in ("S1", "S4"):
            broken = self.name == "S4" and at == 0 and turn >= _BREAK
            return 0.45 if broken else (0.6, 0.575, 0.55, 0.5, 0.45)[at]
        return 0.6 if at == len(_TASKS) else 0.68 if signals[_TASKS[at]] else 0.53


def play(name: str) -> Play:
    """Make one of the notes' four worlds."""
    if name in ("S1", "S4"):
        return Play(name, tuple(Variant(slug="p", branch=branch) for branch in ("main", *"abcd")))
    shift = 1 if name == "S3" else 0
    weights = [{_TASKS[(at + shift) % len(_TASKS)]: 0.8, "user_frustrated": 0.9} for at in range(len(_TASKS))]
    special = [Variant(slug="p", branch=each, context_weights=own) for each, own in zip("abcd", weights, strict=True)]
    return Play(name, (*special, Variant(slug="p")))


def scored(dice: random.Random, quality: float) -> float:
    """Draw the score of a round: mean .70 and sd .135 where the quality is .6 (notes: .704 and .132)."""
    sentiment = min(max(dice.gauss(quality, 0.225), 0.0), 1.0)
    corrections = (dice.random() < 1 - quality) + (dice.random() < (1 - quality) * 0.3)
    luck = dice.random()
    outcome: TaskOutcome = "success" if luck < quality - 0.2 else "partial" if luck < quality + 0.15 else "failure"
    return score(sentiment, corrections, outcome)


def played(policy: str, world: Play, seed: int, turns: int = TURNS) -> tuple[float, float]:
    """Play a world; answers with the regret and the share of the best variant in the last turns."""
    dice = random.Random(f"{world.name} {seed}")  # noqa: S311  # the same worlds in every run are the point
    weights = {each.branch: each.edge_weight for each in world.variants}
    names, order = declared(world.variants), [each.branch for each in world.variants]
    known = {branch: aligned(Posterior(), names) for branch in order}
    regret, best = 0.0, 0
    for turn in range(turns):
        task, frustrated = dice.choice(_TASKS), dice.random()
        signals = {name: float(name == task) for name in _TASKS} | {"user_frustrated": frustrated}
        if policy == "thompson":
            selection = thompson(world.variants, signals, known, dice)
        else:
            epsilon = 1.0 if policy == "uniform" else EPSILON
            selection = epsilon_greedy(_offered(world, weights), signals, epsilon=epsilon, roll=dice.random())
        picked = order.index(selection.selected.branch)
        said = scored(dice, world.quality(picked, signals, turn))
        branch = order[picked]
        weights[branch] = ema(weights[branch], said)
        known[branch] = update(known[branch], features(names, signals), said)
        means = [_mean(world.quality(at, signals, turn)) for at in range(len(order))]
        regret += max(means) - means[picked]
        best += turn >= turns - _LAST and means[picked] == max(means)
    return regret, best / _LAST


def _offered(world: Play, weights: Mapping[str, float]) -> list[Variant]:
    return [
        Variant(slug=one.slug, branch=one.branch, edge_weight=weights[one.branch], context_weights=one.context_weights)
        for one in world.variants
    ]


_MEANS: dict[float, float] = {}


def _mean(quality: float) -> float:
    """Give the mean score of a quality, drawn once."""
    if quality not in _MEANS:
        dice = random.Random(1)  # noqa: S311
        _MEANS[quality] = statistics.fmean(scored(dice, quality) for _ in range(20_000))
    return _MEANS[quality]


def _time() -> Figure:
    """Measure one choice among twenty variants, each with 200 observations of six signals."""
    dice = random.Random(7)  # noqa: S311
    names = (*_TASKS, "user_frustrated", "energy_high")
    offered = [Variant(slug="p", branch=f"b{at}", context_weights=dict.fromkeys(names, 0.5)) for at in range(20)]
    known: dict[str, Posterior] = {}
    for each in offered:
        seen = aligned(Posterior(), names)
        for _ in range(200):
            heard = {name: dice.random() for name in names}
            seen = update(seen, features(seen.signals, heard), dice.random())
        known[each.branch] = seen
    signals = {name: dice.random() for name in names}
    took = cpu(200, lambda: thompson(offered, signals, known, dice))
    return Figure("thompson among 20 variants with 6 signals (CPU)", shown(took), ratio=took, bar=0.002, unit=" s")


def _regret(times: int) -> Iterator[Figure]:
    for name, what in _WORLDS.items():
        sums: dict[str, float] = {}
        for policy in ("uniform", *_REGRET):
            runs = [played(policy, play(name), seed) for seed in range(times)]
            sums[policy] = statistics.fmean(regret for regret, _ in runs)
            share = statistics.fmean(best for _, best in runs)
            thompsons = policy == "thompson"
            said = "notes {} (best in the end {:.0%})".format(*_REGRET[policy][name]) if policy in _REGRET else ""
            yield Figure(
                f"{name} {what}: {policy}",
                f"{sums[policy]:.0f}",
                said,
                ratio=sums[policy] / sums["epsilon_greedy"] if thompsons else None,
                bar=1.0 if thompsons else None,
                note=f"regret over {TURNS} turns, {times} runs; best in the end {share:.0%}",
            )
