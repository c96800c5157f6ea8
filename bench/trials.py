"""False alarms and delays of rollback, over simulated conversations (notes on prompts, 4b).

A score has mean 0.704 and sd 0.132. With `sessions` the eight rounds of a conversation share an effect of sd 0.07. A
dip takes 0.08 from every version for 200 rounds, as a provider's bad hour does. Drops hit the new version only.
"""

import math
import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from cuebook.prompts.rollback import SigmaSettings, either, halved, judged, sigma
from cuebook.prompts.trial import GuardSettings, Pair, Trial, margin, tried, wealth

MEAN, NOISE, SHARED, DIP = 0.704, 0.132, 0.07, 0.08
ROUNDS = 8  # of a conversation


@dataclass(frozen=True)
class World:
    """What happens to a new version. A unit is a round or, by its mean, a conversation."""

    units: int
    rounds: int = 1  # in a unit
    drop: float = 0.0
    since: int = 0  # unit in which it begins
    sessions: bool = False
    dip: bool = False
    sticky: bool = False  # all rounds of a conversation are one version's

    def scores(self, dice: random.Random) -> Iterator[tuple[int, float]]:
        """Give for each unit the score it would have without a drop."""
        length, shared = ROUNDS // self.rounds, 0.0
        begin = self.units * 3 // 10
        end = begin + 200 // self.rounds
        for at in range(self.units):
            if self.sessions and at % length == 0:
                shared = dice.gauss(0.0, SHARED)
            fallen = DIP if self.dip and begin <= at < end else 0.0
            yield at, MEAN - fallen + shared + dice.gauss(0.0, NOISE / math.sqrt(self.rounds))

    def score(self, dice: random.Random) -> float:
        """Give one unit's score before anything happened."""
        shared = dice.gauss(0.0, SHARED) if self.sessions else 0.0
        return clipped(MEAN + shared + dice.gauss(0.0, NOISE / math.sqrt(self.rounds)))


Detector = Callable[[World, random.Random], dict[str, int]]  # what fired -> after how many units


def clipped(score: float) -> float:
    """Keep a score in [0, 1]."""
    return min(max(score, 0.0), 1.0)


def bets(world: World, dice: random.Random) -> dict[str, int]:
    """Watch with half and half: betting, the asymptotic sequence and the detector, each by itself."""
    settings, trial, fired = GuardSettings(promote_after=0), Trial(), dict[str, int]()
    new = False
    for at, score in world.scores(dice):
        if not world.sticky or at % ROUNDS == 0:
            new = dice.random() < 0.5
        drop = world.drop if new and at >= world.since else 0.0
        trial = tried(trial, Pair(new=new, share=0.5, mean=clipped(score - drop)), settings)
        if trial.n < settings.least or min(trial.new, trial.control) < settings.least_arm:
            continue
        if wealth(trial) >= 1.0 / settings.alpha:
            fired.setdefault("betting", at + 1)
        if margin(trial, settings) > 0.0:
            fired.setdefault("asymptotic", at + 1)
        if statistics.fmean(trial.detector) >= settings.arl:
            fired.setdefault("detector", at + 1)
        if len(fired) == 3:
            break
    return fired


def guard(settings: GuardSettings, name: str = "guarded") -> Detector:
    """Watch as it is shipped: a canary, then a promotion, by the verdict's own share; half the stake on openings.

    A conversation's first round varies around its mean as a round does.
    """
    half = halved(settings)

    def watch(world: World, dice: random.Random) -> dict[str, int]:
        means, firsts, share = Trial(), Trial(), settings.canary
        own = NOISE * math.sqrt(1.0 - 1.0 / world.rounds)
        for at, score in world.scores(dice):
            new = dice.random() < share
            said = score - (world.drop if new and at >= world.since else 0.0)
            means = tried(means, Pair(new=new, share=share, mean=clipped(said)), half)
            firsts = tried(firsts, Pair(new=new, share=share, mean=clipped(said + dice.gauss(0.0, own))), half)
            verdict = either(judged(firsts, half), judged(means, half))
            if verdict.decision == "rollback":
                return {name: at + 1}
            share = verdict.share
        return {}

    return watch


def past(settings: SigmaSettings, name: str, *, looks_around: bool) -> Detector:
    """Watch by the past. Judged only where the window could fire: it must lie below by the least drop."""

    def watch(world: World, dice: random.Random) -> dict[str, int]:
        baseline = [world.score(dice) for _ in range(settings.baseline)]
        before = [world.score(dice) for _ in range(settings.baseline)]
        level = statistics.fmean(baseline) - settings.least_drop
        recent: list[float] = []
        beside: list[float] = []
        for (at, score), (_, other) in zip(world.scores(dice), world.scores(dice), strict=True):
            recent.append(clipped(score - (world.drop if at >= world.since else 0.0)))
            beside.append(clipped(other))
            window = recent[-settings.window :]
            if len(window) < settings.window or sum(window) / settings.window > level:
                continue
            others = [(before, beside[-settings.window :])] if looks_around else []
            if sigma(baseline, recent, settings, others=others).decision == "rollback":
                return {name: at + 1}
        return {}

    return watch


@dataclass(frozen=True)
class Found:
    """What became of a detector in one world."""

    share: float  # of the runs in which it fired
    early: float  # of the runs in which it fired before anything happened
    delay: float  # units from the break on, the median of those that fired after it

    def __str__(self) -> str:
        if self.share == 0.0:
            return "never"
        missed = f" ({self.share:.0%})" if self.share < 0.995 else ""
        return f"{self.delay:.0f}{missed}"


def watched(detector: Detector, world: World, times: int, seed: int) -> dict[str, Found]:
    """Run a detector in many worlds of one kind."""
    # Every detector meets the same worlds.
    runs = [detector(world, random.Random(f"{seed} {number}")) for number in range(times)]  # noqa: S311
    found: dict[str, Found] = {}
    for name in sorted({name for run in runs for name in run}):
        at = [run[name] for run in runs if name in run]
        late = [each - world.since for each in at if each > world.since]
        found[name] = Found(
            share=len(at) / times,
            early=(len(at) - len(late)) / times,
            delay=statistics.median(late) if late else math.nan,
        )
    return found


NEVER = Found(0.0, 0.0, math.nan)


def nulls(rounds: int, units: int) -> list[World]:
    """Give the worlds in which nothing is wrong with the version: chance alone, sessions, a dip."""
    calm = World(units=units, rounds=rounds)
    return [calm, replace(calm, sessions=True), replace(calm, sessions=True, dip=True)]


def breaks(rounds: int, units: int, since: int) -> list[World]:
    """Give the worlds in which it is worse by .05, .10, .20 from the start, and by .10 from `since` on."""
    calm = World(units=units, rounds=rounds, sessions=rounds > 1)
    return [*(replace(calm, drop=drop) for drop in (0.05, 0.1, 0.2)), replace(calm, drop=0.1, since=since)]
