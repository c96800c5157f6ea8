"""Sequential test of a new version against its control: bets on conversations, updated one at a time.

The old version keeps a randomized share of the conversations. For each conversation let A = 1 if the new version was
used, p its probability, Y in [0, 1] the mean score and m the mean of all before:

    D = (A/p - (1-A)/(1-p)) (Y - m)

has the mean mu_new - mu_old whatever else drifts, because A was randomized and m is known before. From it:

- betting: W = mean over 12 bets l of Π (1 + l (-D - delta)/B), B = max(1/p, 1/(1-p)) max(m, 1-m) + delta. While the new
  version is at most `delta` worse W is a supermartingale, so that P(W ever reaches 1/alpha) <= alpha: the bound on
  false rollbacks over the version's whole life (Ville; Waudby-Smith & Ramdas 2024; Howard et al. 2021).
- detector: M <- (M + 1) factor of the same bets, from the promotion on: finds a version that breaks late, which W, its
  stake lost, cannot. The mean time to a false alarm is at least 1e4 conversations, and P(one within n) <= n/1e4 (Shin,
  Ramdas & Rinaldo).

p may depend on all that was seen before, so a suspected version gets the canary's share (again): that decides
sooner and does not affect the bound.

Measured: docs/design/007.
"""

import math
import statistics

from msgspec import Struct, structs

BETS = (0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.95)
_HUGE = 1e300


class GuardSettings(Struct, frozen=True, kw_only=True):
    """The notes' recommended defaults. With `promoted` at 0.8 a late break is found sooner, with a larger control."""

    alpha: float = 0.01  # bound on a false rollback over a version's life
    delta: float = 0.02  # a negligible drop of the mean score
    least: int = 20  # minimum conversations before a decision
    least_arm: int = 8  # minimum per version
    canary: float = 0.5  # a new version's share of conversations
    promoted: float = 0.9  # its share after `promote_after` clean ones
    promote_after: int = 200
    arl: float = 1e4  # minimum mean conversations between two false alarms of the detector
    ratio_p: float = 1e-3  # below this p the arms do not match the randomization: no decision


class Trial(Struct, frozen=True, kw_only=True):
    """The state of a trial; adding a conversation takes constant time."""

    new: int = 0
    control: int = 0
    drawn: float = 0.0  # sum of p
    spread: float = 0.0  # sum of p (1 - p)
    sum_new: float = 0.0
    sum_control: float = 0.0
    least_control: float = math.inf
    most_control: float = -math.inf
    effect: float = 0.0  # sum of D
    wealth: tuple[float, ...] = (0.0,) * len(BETS)  # logarithms
    detector: tuple[float, ...] = (0.0,) * len(BETS)

    @property
    def n(self) -> int:
        """Return the number of conversations."""
        return self.new + self.control


def tried(trial: Trial, settings: GuardSettings, *, new: bool, share: float, mean: float) -> Trial:
    """Return the trial with one more conversation, which was randomized.

    `new` is whether it used the new version, `share` that version's probability in (0, 1), `mean` its score in [0, 1].
    """
    p, y = share, mean
    m = (trial.sum_new + trial.sum_control) / trial.n if trial.n else 0.5
    d = (1.0 / p if new else -1.0 / (1.0 - p)) * (y - m)
    bound = max(1.0 / p, 1.0 / (1.0 - p)) * max(m, 1.0 - m) + settings.delta
    gain = (-d - settings.delta) / bound
    factors = [1.0 + bet * gain for bet in BETS]
    watching = trial.n >= settings.promote_after
    arm: dict[str, float] = (
        {"new": trial.new + 1, "sum_new": trial.sum_new + y}
        if new
        else {
            "control": trial.control + 1,
            "sum_control": trial.sum_control + y,
            "least_control": min(trial.least_control, y),
            "most_control": max(trial.most_control, y),
        }
    )
    return structs.replace(
        trial,
        drawn=trial.drawn + p,
        spread=trial.spread + p * (1.0 - p),
        effect=trial.effect + d,
        wealth=tuple(held + math.log(factor) for held, factor in zip(trial.wealth, factors, strict=True)),
        detector=tuple(min((held + 1.0) * factor, _HUGE) for held, factor in zip(trial.detector, factors, strict=True))
        if watching
        else trial.detector,
        **arm,
    )


def wealth(trial: Trial) -> float:
    """Return W, the mean wealth of the bets from a stake of 1."""
    return statistics.fmean(math.exp(min(held, 690.0)) for held in trial.wealth)


def ratio_p(trial: Trial) -> float:
    """Return the p of a chi-square test (one degree of freedom) that the arm sizes match the randomization."""
    if trial.spread == 0.0:
        return 1.0
    return math.erfc(abs(trial.new - trial.drawn) / math.sqrt(2.0 * trial.spread))
