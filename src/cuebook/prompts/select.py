"""Select the variant of a prompt: the document's exact epsilon-greedy, and linear Thompson sampling.

Both exclude rolled-back variants and sort the others (slug, `main` first, branch, number), so that equal totals and
rolls always select the same variant, and return the probability of each variant's selection. Randomness is an argument.


**epsilon_greedy** is B ("Scoring", "Epsilon-Greedy Selection"). It counts every name its author gave a weight, known
or not. Two of its habits are kept and worth knowing: a variant without weights is compared by its edge weight, one
with them by half of it, so that a good contextual variant loses to a worse general one where nothing matches; and a
wrong weight can never be unlearnt, as half of the total is the author's.

**thompson** is the recommended one (Agrawal & Goyal 2013; discounted as Russac et al. 2019). For each variant the score
is a linear function of x = (1, the known signals any variant has a weight for), its coefficients N(A⁻¹b, 0.13² A⁻¹).
Before any evidence A = 4 I and the mean is 0.5 for the constant and 0.2 w_j / Σ|w| for a signal: the author's opinion
is worth four observations, and evidence overrides it. One draw each, the highest speaks; one time in twenty any of
them. Names that are no signals are ignored. Measured against epsilon_greedy: docs/design/007.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import mul
from typing import Any

from msgspec import Struct, field, structs

from cuebook.errors import InvalidInput, NotFound
from cuebook.prompts.learn import Posterior, aligned, finite
from cuebook.records.answer import as_answer
from cuebook.records.prompt import MAIN, Branch, Version

#: B, "Context Signals": each in [0, 1], tasks 0 or 1.
SIGNALS = (
    "user_pleased",
    "sentiment_high",
    "user_frustrated",
    "correction_rate_high",
    "topic_shift_high",
    "energy_high",
    "task_coding",
    "task_planning",
    "task_casual",
    "task_crisis",
    "task_reflection",
)
#: Two names of one signal: either finds the other.
ALIASES = {"sentiment_high": "user_pleased", "user_pleased": "sentiment_high"}
_CANONICAL = {name: "user_pleased" if name in ALIASES else name for name in SIGNALS}

#: Names that a caller may pass; those that are no signals are stored with an observation and teach nothing.
MOST_SIGNALS = 100
EPSILON = 0.2
NOISE = 0.13  # sd of a score given the signals; .132 measured for the document's score (notes: 4a)
PRIOR = 4.0  # weight of the prior in observations, in each direction
PRIOR_MEAN = 0.5
PRIOR_REACH = 0.2  # how far the author's weights move the prior mean
FLOOR = 0.05


#: The active version of a branch, as a candidate.
Variant = tuple[Version, Branch]


class Choice(Struct, frozen=True, kw_only=True, rename="camel"):
    """A variant with its scores for these signals. Under thompson, `total_score` is its expected score."""

    slug: str
    branch: str
    number: int = field(name="version")
    edge_weight: float
    context_fit: float
    total_score: float
    propensity: float = 0.0


class Selection(Struct, frozen=True, kw_only=True):
    """The selected variant, and the candidates.

    `explored`: under epsilon_greedy the roll meant exploration, whatever it selected; under thompson the selected
    variant does not have the highest expected score. `variants` are sorted.
    """

    selected: Choice
    propensity: float
    explored: bool
    variants: tuple[Choice, ...]


def context_fit(weights: Mapping[str, float], signals: Mapping[str, float]) -> float:
    """Return dot(weights, signals) / sum(|weights|) (B); 0 without weights. In [-1, 1] for signals in [0, 1]."""
    known = {name: finite(weight, f"context_weights.{name}") for name, weight in weights.items()}
    largest = max(map(abs, known.values()), default=0.0)
    if largest == 0.0:
        return 0.0
    if largest > 1e300 or largest < 1e-290:  # their sum would overflow, or their products lose digits
        known = {name: weight / largest for name, weight in known.items()}
    dot = math.fsum(weight * _value(name, signals) for name, weight in known.items())
    return dot / math.fsum(map(abs, known.values()))


def epsilon_greedy(
    variants: Sequence[Variant], signals: Mapping[str, float], *, epsilon: float = EPSILON, roll: float
) -> Selection:
    """Select the variant with the highest total, or any with probability `epsilon` (B). O(variants x weights).

    `roll` is one number in [0, 1) and decides both: below `epsilon` it explores, and its position there selects which.
    Raises InvalidInput naming a weight that is not finite or a signal outside [0, 1], NotFound if no variant is left.
    """
    strengths = checked(signals)
    choices = [_scored(version, branch, strengths) for version, branch in _eligible(variants)]
    best = max(range(len(choices)), key=lambda at: (choices[at].total_score, -at))
    even = epsilon / len(choices)
    chances = [even + (1.0 - epsilon if at == best else 0.0) for at in range(len(choices))]
    explored = roll < epsilon
    picked = min(int(roll / epsilon * len(choices)), len(choices) - 1) if explored else best
    return _selection(choices, chances, picked, explored=explored)


def thompson(
    variants: Sequence[Variant],
    signals: Mapping[str, float],
    posteriors: Mapping[str, Posterior],
    *,
    uniform: Callable[[], float],
    gauss: Callable[[float, float], float],
    floor: float = FLOOR,
) -> Selection:
    """Draw each variant's score for these signals and select the highest; with probability `floor` select any.

    `posteriors` are by branch; a missing one counts as a version without observations. It draws once or twice from
    `uniform`, in [0, 1), and once per variant from `gauss` (mean, sd). The propensities are integrals, exact to 1e-5,
    and need no draws. 20 variants with 6 signals: about 1 ms. Raises like `epsilon_greedy`.
    """
    strengths, offered = checked(signals), _eligible(variants)
    evidence = [posteriors.get(branch.name, Posterior()) for _, branch in offered]
    names = tuple(sorted({*declared(variants), *(name for each in evidence for name in each.signals)}))
    x = features(names, strengths)
    beliefs = [
        _belief(aligned(each, names), _prior(names, version.context_weights), x)
        for each, (version, _) in zip(evidence, offered, strict=True)
    ]
    chances = [floor / len(offered) + (1.0 - floor) * chance for chance in win_chances(beliefs)]
    if uniform() < floor:
        picked = min(int(uniform() * len(offered)), len(offered) - 1)
    else:
        drawn = [gauss(mean, sd) for mean, sd in beliefs]
        picked = drawn.index(max(drawn))
    choices = [
        structs.replace(_scored(*each, strengths), total_score=mean)
        for each, (mean, _) in zip(offered, beliefs, strict=True)
    ]
    expected = max(mean for mean, _ in beliefs)
    return _selection(choices, chances, picked, explored=beliefs[picked][0] < expected)


def declared(variants: Sequence[Variant]) -> tuple[str, ...]:
    """Return the known signals for which a variant has a weight, sorted, `sentiment_high` under its first name."""
    return known_signals(name for version, _ in variants for name in version.context_weights)


def known_signals(names: Iterable[str]) -> tuple[str, ...]:
    """Return the signals among these names, sorted, each once and under its first name; others teach nothing."""
    return tuple(sorted({_CANONICAL[name] for name in names if name in _CANONICAL}))


def features(names: Sequence[str], signals: Mapping[str, float]) -> tuple[float, ...]:
    """Return x = (1, the signals of these names), each within [0, 1], 0 if missing."""
    return (1.0, *(min(max(_value(name, signals), 0.0), 1.0) for name in names))


def win_chances(beliefs: Sequence[tuple[float, float]]) -> list[float]:
    """Return for independent normal draws (mean, sd > 0) the probability that each is the highest; they sum to 1.

    It is ∫ φ_i Π_{j≠i} Φ_j by the trapezoidal rule, which converges exponentially on such smooth functions: with
    steps of 0.75 of the smallest sd the error is below 1e-5, while 256 draws would have 0.03.
    """
    low = max(mean - 5.0 * sd for mean, sd in beliefs)  # the highest draw is almost never below it
    high = max(mean + 5.0 * sd for mean, sd in beliefs)
    rivals = [at for at, (mean, sd) in enumerate(beliefs) if mean + 5.0 * sd > low]
    step = max(0.75 * min(beliefs[at][1] for at in rivals), (high - low) / 400.0)
    chances = [0.0] * len(beliefs)
    for at in range(int((high - low) / step) + 2):
        scaled = [(low + at * step - beliefs[each][0]) / beliefs[each][1] for each in rivals]
        below = [0.5 * math.erfc(-z * math.sqrt(0.5)) for z in scaled]
        all_below = math.prod(below)
        for each, z, own in zip(rivals, scaled, below, strict=True):
            chances[each] += math.exp(-0.5 * z * z) / beliefs[each][1] * all_below / own
    total = math.fsum(chances)
    return [chance / total for chance in chances]


# ---- scoring --------------------------------------------------------------------------------------------------------


def _value(name: str, signals: Mapping[str, float]) -> float:
    value = signals.get(name)
    if value is None and name in ALIASES:
        value = signals.get(ALIASES[name])
    return value or 0.0


def checked(signals: Mapping[str, Any]) -> dict[str, float]:
    """Return the signals as numbers from 0 to 1 (B, "Context Signals"); True and False are 1 and 0.

    Raises InvalidInput naming one that is not, and for more names than `MOST_SIGNALS`.
    """
    if len(signals) > MOST_SIGNALS:
        msg = f"signals: {len(signals)} signals exceed the limit of {MOST_SIGNALS}. Send fewer."
        raise InvalidInput(msg, where="signals")
    strengths: dict[str, float] = {}
    for name, value in signals.items():
        strengths[name] = float(value) if isinstance(value, bool) else finite(value, f"signals.{name}")
        if not 0.0 <= strengths[name] <= 1.0:
            msg = f"signals.{name}: {value!r} is out of range. Use a number from 0 to 1."
            raise InvalidInput(msg, where=f"signals.{name}")
    return strengths


def _eligible(variants: Sequence[Variant]) -> list[Variant]:
    """Return the variants that were not rolled back, sorted."""
    if not variants:
        raise NotFound("No variant to select from. Pass at least one.")
    offered = sorted(
        ((version, branch) for version, branch in variants if version.number not in branch.rolled_back),
        key=lambda each: (each[0].slug, each[0].branch != MAIN, each[0].branch, each[0].number),
    )
    slug = variants[0][0].slug
    if not offered:
        raise NotFound(f"Every variant of prompt {slug!r} was rolled back. Clear one, or add a version.")
    places = {version.place for version, _ in offered}
    if len(places) < len(offered) or {slug for slug, _ in places} != {slug}:
        msg = f"variants: expected each branch of prompt {slug!r} at most once. Remove the others."
        raise InvalidInput(msg, where="variants")
    return offered


def _scored(version: Version, branch: Branch, signals: Mapping[str, float]) -> Choice:
    """Return a variant's scores (B): half edge weight, half fit; the edge weight alone if it has no weights."""
    weights = version.context_weights
    edge, fit = finite(branch.weight, f"edge_weight of {version.slug}@{branch.name}"), context_fit(weights, signals)
    total = 0.5 * edge + 0.5 * fit if any(weights.values()) else edge
    return as_answer(Choice, version, edge_weight=edge, context_fit=fit, total_score=total)


def _selection(choices: list[Choice], chances: list[float], picked: int, *, explored: bool) -> Selection:
    known = tuple(structs.replace(one, propensity=chance) for one, chance in zip(choices, chances, strict=True))
    return Selection(selected=known[picked], propensity=known[picked].propensity, explored=explored, variants=known)


# ---- the linear model -----------------------------------------------------------------------------------------------


def _prior(names: Sequence[str], weights: Mapping[str, float]) -> tuple[float, ...]:
    """Return the prior coefficients that an author's weights stand for."""
    own = dict.fromkeys(names, 0.0)
    values = {
        name: finite(weight, f"context_weights.{name}")
        for name, weight in weights.items()
        if _CANONICAL.get(name) in own
    }
    largest = max(map(abs, values.values()), default=0.0)
    for name, weight in values.items():
        # Divided first: the sum of a signal's weight and its alias's could overflow.
        own[_CANONICAL[name]] += weight / largest if largest else 0.0
    total = math.fsum(map(abs, own.values()))
    if total == 0.0:
        return (PRIOR_MEAN, *own.values())
    return (PRIOR_MEAN, *(PRIOR_REACH * weight / total for weight in own.values()))


def _belief(evidence: Posterior, prior: Sequence[float], x: Sequence[float]) -> tuple[float, float]:
    """Return mean and sd of x·θ: with u = (A + 4 I)⁻¹ x they are u·b and 0.13 sqrt(x·u). O(d³)."""
    solved = _solve(evidence.A, x)
    mean = sum((seen + PRIOR * own) * u for seen, own, u in zip(evidence.b, prior, solved, strict=True))
    return mean, NOISE * math.sqrt(sum(map(mul, x, solved)))


def _solve(a: Sequence[float], x: Sequence[float]) -> list[float]:
    """Return u that solves (A + 4 I) u = x by Cholesky's decomposition; A is positive semidefinite, row by row."""
    size = len(x)
    rows: list[list[float]] = []
    half: list[float] = []
    for i in range(size):
        row: list[float] = []
        for j, other in enumerate(rows):
            row.append((a[i * size + j] - sum(map(mul, row, other))) / other[j])
        row.append(math.sqrt(a[i * size + i] + PRIOR - sum(map(mul, row, row))))
        half.append((x[i] - sum(map(mul, row, half))) / row[i])
        rows.append(row)
    solved = [0.0] * size
    for i in reversed(range(size)):
        behind = sum(rows[k][i] * solved[k] for k in range(i + 1, size))
        solved[i] = (half[i] - behind) / rows[i][i]
    return solved
