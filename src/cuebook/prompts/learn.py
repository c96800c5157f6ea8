"""Learn from observations: compute their score, update the edge weight, and update the evidence for score predictions.

Score and weight follow the document exactly (B, "Observation Scoring", "EMA Edge Weight Updates"). A correction costs
only 0.03 of the score. A weight rises from 0.5 to 0.9 in 16 perfect observations (w = 1 - 0.5 * 0.9^n), not in 22 as
the document says.
"""

import math
from collections.abc import Sequence

from msgspec import Struct, structs

from cuebook.errors import InvalidInput
from cuebook.records.prompt import Missing, Observation, TaskOutcome

SUCCESS: dict[TaskOutcome | None, float] = {"success": 1.0, "partial": 0.5, "failure": 0.0, "unknown": 0.0, None: 0.0}
#: A prompt's evidence halves in about 700 of its observations: 0.999 each, applied every 50 (notes: RLinTS).
FOLD_EVERY = 50
FOLD = 0.999**FOLD_EVERY
#: At most a fifth of a shared prompt's newest 50 observations counts per user.
CAP_WINDOW = 50
CAP_SHARE = 0.2


class Posterior(Struct, frozen=True, kw_only=True):
    """The sums over a version's observations, without a prior.

    `A` is the sum of x xᵀ (row by row, d x d), `b` the sum of y x, for x = (1, the signals in order), older ones
    discounted. The prior is added at selection, so that an author may change weights, and a prompt its signals, without
    a change of stored data. `n` counts observations without discount.
    """

    signals: tuple[str, ...] = ()
    A: tuple[float, ...] = (0.0,)
    b: tuple[float, ...] = (0.0,)
    n: int = 0


def score(
    sentiment: float, corrections: int = 0, outcome: TaskOutcome | None = None, *, missing: Missing = "zero"
) -> float:
    """Return a round's score in [0, 1]: 0.5 sentiment + 0.3 (1 - min(0.1 corrections, 1)) + 0.2 task success (B).

    Without a report of success (None, "unknown") the document counts a failure, so 0.8 is the maximum. `renormalise`
    omits the term instead and divides by the remaining 0.8.
    """
    without_task = 0.5 * sentiment + 0.3 * (1.0 - min(corrections, 10) * 0.1)
    if missing == "renormalise" and outcome in (None, "unknown"):
        return without_task / 0.8
    return without_task + 0.2 * SUCCESS[outcome]


def ema(weight: float, scored: float) -> float:
    """Return an edge weight after one observation: 0.9 weight + 0.1 score (B). All values are in [0, 1]."""
    return 0.9 * weight + 0.1 * scored


def update(posterior: Posterior, x: Sequence[float], y: float) -> Posterior:
    """Add one observation: A += x xᵀ, b += y x; every 50th also multiplies the sums by 0.999^50. O(d²).

    `x` is what `select.features` returns for the posterior's signals.
    """
    n = posterior.n + 1
    keep = FOLD if n % FOLD_EVERY == 0 else 1.0
    products = (one * other for one in x for other in x)
    return Posterior(
        signals=posterior.signals,
        A=tuple((old + new) * keep for old, new in zip(posterior.A, products, strict=True)),
        b=tuple((old + y * new) * keep for old, new in zip(posterior.b, x, strict=True)),
        n=n,
    )


def ema_revised(weight: float, change: float, later: int) -> float:
    """Return the weight as if an observation's score had been higher by `delta`; `later` observations followed it.

    Exact up to rounding: the effect of one score on a weight shrinks by a tenth with each later observation.
    """
    return min(max(weight + 0.1 * change * 0.9**later, 0.0), 1.0)


def update_revised(posterior: Posterior, x: Sequence[float], change: float, later: int) -> Posterior:
    """Return the evidence as if an observation's score had been higher; `later` observations followed it. O(d).

    `x` is as for `update`; later discounts apply to the change, too.
    """
    own = max(posterior.n - later, 1)
    folds = posterior.n // FOLD_EVERY - (own - 1) // FOLD_EVERY
    moved = change * FOLD**folds
    return structs.replace(posterior, b=tuple(old + moved * new for old, new in zip(posterior.b, x, strict=True)))


def aligned(posterior: Posterior, signals: Sequence[str]) -> Posterior:
    """Return the evidence extended to these signals; a signal that it did not have counts as 0 in the past."""
    names = tuple(sorted({*signals, *posterior.signals}))
    if names == posterior.signals:
        return posterior
    place = {name: at for at, name in enumerate(posterior.signals, 1)}
    old = [0, *(place.get(name, -1) for name in names)]
    wide = len(posterior.b)
    return Posterior(
        signals=names,
        A=tuple(posterior.A[i * wide + j] if i >= 0 and j >= 0 else 0.0 for i in old for j in old),
        b=tuple(posterior.b[i] if i >= 0 else 0.0 for i in old),
        n=posterior.n,
    )


def capped(recent: Sequence[tuple[str, float]], user: str) -> float:
    """Return how much an observation of a shared prompt counts: 1, or 0 if its user's share is used up.

    `recent` are the version's last observations as (user, how much it counted), oldest first; the newest 49 are used.
    An observation counts unless ten of its user's count among them. So at most ten of any 50 in a row are one user's,
    and one user alone moves a weight by at most 1 - 0.9^10 = 65 % of the way while all can move it by 99.5 %. One that
    does not count is stored all the same. Unnamed users ("") are one user. This is a cap, not a barrier: a user who
    posts without limit can wait until the window moves on; one observation per round keeps that slow.
    """
    window = recent[-(CAP_WINDOW - 1) :]
    counted = sum(1 for name, weight in window if name == user and weight > 0)
    return 1.0 if counted < CAP_WINDOW * CAP_SHARE else 0.0


def trail(observations: Sequence[Observation]) -> list[float]:
    """Return the edge weight after each of a version's observations, oldest first, starting from 0.5.

    Exact if no observation is missing or changed, up to rounding if one was corrected.
    """
    weight, results = 0.5, list[float]()
    counts: list[tuple[str, float]] = []
    for each in observations:
        who = each.user or (each.conversation if each.turn else "")
        counted = capped(counts, who) if who else 1.0
        counts.append((who, counted))
        weight = ema(weight, each.score) if counted else weight
        results.append(weight)
    return results


def finite(value: object, name: str) -> float:
    """Return a checked number; raise InvalidInput naming a value that is no number, too large, NaN or infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"{name}: {value!r} is not a number. Use a number.", where=name)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidInput(f"{name}: {number!r} is not finite. Use a finite number.", where=name)
    return number
