"""Decide on automatic rollbacks: by the document's sigma rule, or by evidence from a control group.

The unit is the conversation: rounds of one conversation share its user and topic, and counting them individually turned
a promised 1 % of false rollbacks into 20 % (notes: 4b). `units` groups observations into conversations.

**sigma** (B, "Auto-Rollback") compares with the past: the mean of the version's newest 30 conversations is more than
one standard deviation of the old version's conversations below their mean. It cannot distinguish a worse prompt from a
worse week of the model provider, so it refuses if another prompt fell at the same time.

**guarded** compares with the present: the old version stays active in a randomized share of the conversations. The new
one is rolled back when bets that it is worse have turned a stake of 1 into 1/alpha. A version that is not worse is
rolled back with probability alpha at most, however long it is watched and whatever its users or the provider do
meanwhile. After its promotion a detector for late breaks is added, with one false alarm in 10,000 conversations at
most. `trial` has the maths. Half of the stake is bet on how conversations began, which is known at once (`openings`),
half on their means, which are more informative but known only at their end (`units`): `either` combines both.

**unaided** is the fallback without randomization, for example for a program that selects versions itself. It compares
with the past, and fires on a drop that neither chance nor a bad hour explains (`UNAIDED`).

Measured: docs/design/007.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct, structs

from cuebook.prompts.trial import GuardSettings, Trial, ratio_p, wealth
from cuebook.records.prompt import Observation, PromptEvent

Decision = Literal["rollback", "keep", "wait", "hold", "off", "none", "refused", "lost"]

DAY = 86_400.0
#: Author of automatic rollbacks, in events and the audit log.
ITSELF = "cuebook"
#: Observations by which a conversation counts, and seconds after which it is over.
ROUNDS, IDLE_S = 8, 1_800.0
_STILL = 1e-9  # smaller differences count as equal
_SUSPECT = 0.2  # of the detector's alarm level: 1 % of an unchanged version's conversations are above it (simulated)


class SigmaSettings(Struct, frozen=True, kw_only=True):
    """Sigma settings from the notes: with a baseline of 12 conversations 4.8 % fire falsely, with 50 0.3 %."""

    sigma: float = 1.0  # sd of the baseline's conversation means
    floor: float = 0.02  # minimum assumed sd
    window: int = 30  # conversations
    baseline: int = 50  # conversations, at least
    least_drop: float = 0.03
    others_share: float = 1 / 3  # another prompt fell with ours: by this much of our drop, and beyond a standard error


SIGMA = SigmaSettings()
#: Without a control group. In 600 runs of 2,000 observations of an unchanged version, without conversation names and
#: without another prompt for comparison, 0 / 0 / 0.3 % fire by chance / in sessions / in a dip.
UNAIDED = SigmaSettings(sigma=2.5, window=20, baseline=30, least_drop=0.15)


class Evidence(Struct, frozen=True, kw_only=True):
    """The basis of a verdict, stored with the edge."""

    method: str
    n: Mapping[str, int]
    means: Mapping[str, float]
    statistics: Mapping[str, float]
    thresholds: Mapping[str, float]


class RollbackStatus(Struct, frozen=True, kw_only=True):
    """The rollback state of a branch's newest version: done, or the reason why not, with the evidence so far.

    `wait`: too early; `hold`: the data is not reliable enough; `off`: no automatic rollback; `none`: nothing to roll
    back to; `refused`: worse, but not allowed now; `lost`: another process rolled it back first.
    """

    decision: Decision
    reason: str
    evidence: Evidence | None = None


def units(observations: Iterable[Observation], now: float) -> tuple[Observation, ...]:
    """Return conversations as one observation each, with the mean score, in the order of their beginning.

    A conversation counts by its first `ROUNDS` observations, or those before it was first idle for `IDLE_S` seconds; a
    counted result never changes. Conversations wait for earlier ones that are still open, so that their length under a
    version does not bias the result. Ignored are conversations with several versions, and observations without one.
    """
    return EvidenceUnits().add_observations(sorted(observations, key=lambda each: each.at), now)


class EvidenceUnits:
    """Groups observations into units incrementally; each observation is read once."""

    def __init__(self) -> None:
        self._open: dict[str, list[Observation]] = {}  # in order of their beginning
        self._counted: set[str] = set()

    def add_observations(self, observations: Iterable[Observation], now: float) -> tuple[Observation, ...]:
        """Add observations in order of arrival. Return the conversations that count from now on."""
        for each in observations:
            if each.conversation and each.conversation not in self._counted:
                self._open.setdefault(each.conversation, []).append(each)
        found: list[Observation] = []
        while self._open:
            name, talk = next(iter(self._open.items()))
            counted = self._whole(talk, now)
            if not counted:
                break
            del self._open[name]
            self._counted.add(name)
            found += _joined(counted)
        return tuple(found)

    def _whole(self, observations: Sequence[Observation], now: float) -> Sequence[Observation]:
        """Return the observations of a conversation that count, none while it is open."""
        gaps = (at for at in range(1, len(observations)) if observations[at].at - observations[at - 1].at >= IDLE_S)
        counted = observations[: min(next(gaps, len(observations)), ROUNDS)]
        is_open = len(counted) == len(observations) < ROUNDS and now - observations[-1].at < IDLE_S
        return () if is_open else counted


def openings(observations: Iterable[Observation]) -> tuple[Observation, ...]:
    """Return conversations by their first observation alone, in order, which is known at once."""
    found: dict[str, Observation] = {}
    for each in sorted(observations, key=lambda each: each.at):
        if each.conversation and each.conversation not in found:
            found[each.conversation] = each
    return tuple(found.values())


def talks(observations: Iterable[Observation]) -> tuple[Observation, ...]:
    """Return conversations by their observations so far, in the order of their beginning.

    An observation without a conversation is one of its own; a conversation with several versions is ignored.
    """
    results: dict[tuple[str, int], list[Observation]] = {}
    for at, each in enumerate(sorted(observations, key=lambda each: each.at)):
        results.setdefault((each.conversation, 0 if each.conversation else at), []).append(each)
    return tuple(joined for talk in results.values() for joined in _joined(talk))


def _joined(talk: Sequence[Observation]) -> list[Observation]:
    """Return a conversation as one observation with the mean score; none if it used several versions."""
    if len({(each.slug, each.branch, each.number) for each in talk}) > 1:
        return []
    return [structs.replace(talk[0], score=statistics.fmean(each.score for each in talk))]


def sigma(
    baseline: Sequence[float],
    recent: Sequence[float],
    settings: SigmaSettings = SIGMA,
    *,
    others: Sequence[tuple[Sequence[float], Sequence[float]]] = (),
) -> RollbackStatus:
    """Judge a version against the past: conversation means of the old and of the new one, oldest first.

    `others` are other prompts' means before and during the window: none may have fallen noticeably, and the drop minus
    their common drop must still be too large. It never fires on a baseline without variance, which measured nothing.
    """
    window = recent[-settings.window :]
    base, sd = _mean(baseline), statistics.pstdev(baseline) if baseline else 0.0
    drop = base - _mean(window)
    needed = max(settings.sigma * max(sd, settings.floor), settings.least_drop)
    evidence = Evidence(
        method="sigma",
        n={"baseline": len(baseline), "recent": len(recent), "window": len(window)},
        means={"baseline": base, "window": _mean(window)},
        statistics={"sd": sd, "drop": drop},
        thresholds={"drop": needed, "sigma": settings.sigma, "window": settings.window, "baseline": settings.baseline},
    )
    decision: Decision = "keep"
    reason = f"{drop:.3f} below the baseline; {needed:.3f} would trigger a rollback"
    if len(baseline) < settings.baseline or len(window) < settings.window:
        decision = "wait"
        reason = (
            f"{len(baseline)} of {settings.baseline} earlier"
            f" and {len(window)} of {settings.window} current conversations observed"
        )
    elif sd < _STILL:
        decision, reason = "hold", "the baseline's scores do not vary, so they measure nothing"
    elif drop >= needed and _fell_too(others, least=drop * settings.others_share, most=drop - needed):
        decision, reason = "hold", "another prompt fell at the same time: the model may be the cause"
    elif drop >= needed:
        decision, reason = "rollback", f"{drop:.3f} below the baseline over {len(window)} conversations"
    return RollbackStatus(decision=decision, reason=reason, evidence=evidence)


def halved(settings: GuardSettings) -> GuardSettings:
    """Return the settings for each of two tests of one trial, so that together they keep the error bound of one."""
    return structs.replace(settings, alpha=settings.alpha / 2.0, arl=settings.arl * 2.0)


def either(*verdicts: RollbackStatus) -> RollbackStatus:
    """Return the combined verdict of several tests of one trial: rollback first, then hold, then wait."""
    order: tuple[Decision, ...] = ("rollback", "hold", "wait", "keep")
    return min(verdicts, key=lambda each: order.index(each.decision))


def share_of(verdict: RollbackStatus, settings: GuardSettings) -> float:
    """Return the new version's share of new conversations: a suspected or new version has the canary's."""
    return settings.promoted if verdict.decision == "keep" else settings.canary


def judged(trial: Trial, settings: GuardSettings) -> RollbackStatus:
    """Return the verdict of the trial."""
    results = {
        "effect": trial.effect / trial.n if trial.n else 0.0,
        "wealth": wealth(trial),
        "detector": statistics.fmean(trial.detector),
        "ratio_p": ratio_p(trial),
    }
    decision, reason = _decided(trial, settings, results)
    evidence = Evidence(
        method="betting",
        n={"conversations": trial.n, "new": trial.new, "control": trial.control},
        means={
            "new": trial.sum_new / trial.new if trial.new else 0.0,
            "control": trial.sum_control / trial.control if trial.control else 0.0,
        },
        statistics=results,
        thresholds={
            "wealth": 1.0 / settings.alpha,
            "detector": settings.arl,
            "ratio_p": settings.ratio_p,
            "alpha": settings.alpha,
            "delta": settings.delta,
        },
    )
    return RollbackStatus(decision=decision, reason=reason, evidence=evidence)


def _decided(trial: Trial, settings: GuardSettings, results: Mapping[str, float]) -> tuple[Decision, str]:
    """Return the first decision whose rule applies."""
    n, worse = trial.n, f"{-results['effect']:.3f} worse than the version beside it over {trial.n} conversations"
    few = n < settings.least or min(trial.new, trial.control) < settings.least_arm
    ruined = results["wealth"] >= 1.0 / settings.alpha
    suspected = results["wealth"] > 1.0 or results["detector"] >= settings.arl * _SUSPECT
    needed = f"{n} of {settings.least} conversations observed, at least {settings.least_arm} of each version needed"
    drawn = f"the new version had {trial.new} of {n} conversations where {trial.drawn:.0f} were drawn"
    rules: tuple[tuple[bool, Decision, str], ...] = (
        (few, "wait", needed),
        (results["ratio_p"] < settings.ratio_p, "hold", drawn),
        (
            trial.most_control - trial.least_control < _STILL,
            "hold",
            "the control's scores do not vary, so they measure nothing",
        ),
        (ruined, "rollback", f"{worse}: W = {results['wealth']:.3g}"),
        (
            results["detector"] >= settings.arl,
            "rollback",
            f"{worse}; since its promotion M = {results['detector']:.3g}",
        ),
        (
            n < settings.promote_after,
            "wait",
            f"no evidence against it in {n} conversations; it is promoted after {settings.promote_after}",
        ),
        (suspected, "wait", "possibly worse: a larger control group decides sooner"),
    )
    return next(((said, why) for holds, said, why in rules if holds), ("keep", f"nothing wrong in {n} conversations"))


def refusal(history: Sequence[PromptEvent], now: float, *, number: int, target: int) -> str:
    """Return why a branch may not be rolled back automatically from `number` to `target`, "" if it may.

    `history` has the branch's rollbacks. At most once in 24 hours; never away from a version that a rollback restored,
    and never to one that was rolled back: between two bad versions a person decides.
    """
    late = [each for each in history if each.by == ITSELF and now - each.at < DAY]
    if late:
        return f"version {late[-1].number} was rolled back less than 24 hours ago"
    if any(each.to == number for each in history):
        return f"version {number} was itself restored by a rollback"
    if target == number or any(each.number == target for each in history):
        return f"version {target} was itself rolled back"
    return ""


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else 0.0


def _fell_too(others: Sequence[tuple[Sequence[float], Sequence[float]]], *, least: float, most: float) -> bool:
    """Return whether one of the others fell by `least` and a standard error, or all together by more than `most`."""
    values = [(before, during) for before, during in others if len(before) > 1 and len(during) > 1]
    for before, during in values:
        drop = _mean(before) - _mean(during)
        error = math.sqrt(statistics.variance(before) / len(before) + statistics.variance(during) / len(during))
        if drop >= least and drop > error:
            return True
    together = [_mean(before) - value for before, during in values for value in during]
    return bool(together) and _mean(together) > most
