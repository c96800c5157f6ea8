"""Trains the classifier of sentiment and writes what it learned: needs numpy and GoEmotions, takes about a minute.

    python -m bench.train_sentiment FOLDER [OUT] [--scores FILE]     FOLDER: bench/emotions.py says what it holds

What is learned is the only minimum of a convex function, so another run gives the same to the precision kept.
"""

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.emotions import read_emotions
from cuebook.signals.classifier import FILE, Weights, features, pack, probabilities

KEPT = 20_000  # features: of 52,000 those that weigh most; with all of them it is no better (measured on dev.tsv)
LEAST = 2  # texts a feature is in
STRENGTH = 2.0  # scikit-learn's C: the loss's share against the weights' square. 1 to 4 were tried on dev.tsv
ROUNDS = 400
CLASSES = (-1, 0, 1)

Numbers = NDArray[np.float64]


class Matrix:
    """Texts as rows of features, sparse: `values[k]` in column `columns[k]` of row `rows[k]`."""

    def __init__(self, texts: Sequence[Counter[str]], idf: dict[str, float]) -> None:
        place = {feature: number for number, feature in enumerate(idf)}
        rows, columns, values = [], [], []
        for row, text in enumerate(texts):
            found = [(place[each], (1 + math.log(times)) * idf[each]) for each, times in text.items() if each in place]
            norm = math.sqrt(sum(value * value for _, value in found)) or 1.0
            rows += [row] * len(found)
            columns += [column for column, _ in found]
            values += [value / norm for _, value in found]
        self.rows, self.columns, self.values = np.array(rows), np.array(columns), np.array(values)
        self.shape = (len(texts), len(idf))

    def times(self, weights: Numbers) -> Numbers:
        """Multiply with a column of weights."""
        return np.bincount(self.rows, self.values * weights[self.columns], minlength=self.shape[0])

    def transposed_times(self, rows: Numbers) -> Numbers:
        """Multiply the transposed matrix with a column."""
        return np.bincount(self.columns, self.values * rows[self.rows], minlength=self.shape[1])


def train(rows: Sequence[tuple[int, str]]) -> Weights:
    """Learn from texts and their classes: once with all features, then with those that weighed most."""
    texts = [Counter(features(text)) for _, text in rows]
    labels = np.array([label for label, _ in rows])
    idf = idf_of(texts)
    first, _ = fit(Matrix(texts, idf), labels)
    weight = np.abs(first - first[1]).max(axis=0)
    names = list(idf)
    kept = sorted(names[column] for column in np.argsort(-weight, kind="stable")[:KEPT])
    idf = {each: idf[each] for each in kept}
    learned, biases = fit(Matrix(texts, idf), labels)
    positive, negative = learned[2] - learned[1], learned[0] - learned[1]
    return Weights(
        {each: (idf[each], float(positive[at]), float(negative[at])) for at, each in enumerate(kept)},
        float(biases[2] - biases[1]),
        float(biases[0] - biases[1]),
    )


def idf_of(texts: Iterable[Counter[str]]) -> dict[str, float]:
    """Give the inverse document frequency, smoothed, of every feature that is in `LEAST` texts."""
    found: Counter[str] = Counter()
    count = 0
    for text in texts:
        count += 1
        found.update(text.keys())
    return {each: math.log((1 + count) / (1 + times)) + 1 for each, times in sorted(found.items()) if times >= LEAST}


def fit(matrix: Matrix, labels: NDArray[np.int64]) -> tuple[Numbers, Numbers]:
    """Fit multinomial logistic regression, each class weighing the same: weights by class, and biases."""
    count, width = matrix.shape
    truth = np.stack([labels == each for each in CLASSES]).astype(float)
    weigh = count / (len(CLASSES) * truth.sum(axis=1)) @ truth

    def loss(at: Numbers) -> tuple[float, Numbers]:
        weights, biases = at[:-3].reshape(3, width), at[-3:]
        scores = np.stack([matrix.times(each) for each in weights]) + biases[:, None]
        scores -= scores.max(axis=0)
        logs = scores - np.log(np.exp(scores).sum(axis=0))
        wrong = (np.exp(logs) - truth) * weigh * STRENGTH
        slope = np.concatenate([*(matrix.transposed_times(each) for each in wrong), wrong.sum(axis=1)])
        slope[:-3] += at[:-3]
        return float(-STRENGTH * (weigh * (truth * logs).sum(axis=0)).sum() + 0.5 * (at[:-3] ** 2).sum()), slope

    found = descend(loss, np.zeros(3 * width + 3))
    return found[:-3].reshape(3, width), found[-3:]


def descend(loss: Callable[[Numbers], tuple[float, Numbers]], at: Numbers) -> Numbers:
    """Find the minimum of a convex function by L-BFGS (Nocedal & Wright, algorithm 7.4)."""
    steps: list[tuple[Numbers, Numbers]] = []
    value, slope = loss(at)
    for _ in range(ROUNDS):
        if np.abs(slope).max() < 1e-3:
            break
        way, shares = -slope, []
        for step, change in reversed(steps):
            shares.append(step @ way / (step @ change))
            way = way - shares[-1] * change
        if steps:
            way *= steps[-1][0] @ steps[-1][1] / (steps[-1][1] @ steps[-1][1])
        for (step, change), share in zip(steps, reversed(shares), strict=True):
            way = way + (share - change @ way / (step @ change)) * step
        length = 1.0 if steps else 1.0 / np.abs(slope).sum()
        while (there := loss(at + length * way))[0] > value + 1e-4 * length * (slope @ way):
            length /= 2
        steps = [*steps[-9:], (length * way, there[1] - slope)]
        at, (value, slope) = at + length * way, there
    return at


def main() -> None:
    """Train, write, and say how well it does on the texts kept apart."""
    parser = argparse.ArgumentParser(prog="python -m bench.train_sentiment", description=__doc__)
    parser.add_argument("folder", type=Path, help="holds train.tsv, dev.tsv and labels.txt of GoEmotions")
    parser.add_argument("out", type=Path, nargs="?", default=Path("src/cuebook/signals") / FILE)
    parser.add_argument("--scores", type=Path, metavar="FILE", help="each line's text gets its score before the tab")
    given = parser.parse_args()
    weights = train(read_emotions(given.folder, "train"))
    given.out.write_bytes(pack(weights))
    if given.scores:
        texts = [line.split("\t")[-1] for line in given.scores.read_text("utf-8").splitlines()]
        found = [probabilities(features(text), weights) for text in texts]
        lines = [
            f"{positive - negative:.6f}\t{text}" for text, (negative, _, positive) in zip(texts, found, strict=True)
        ]
        given.scores.write_text("\n".join(lines) + "\n", encoding="utf-8")
    apart = read_emotions(given.folder, "dev")
    said = [probabilities(features(text), weights) for _, text in apart]
    right = sum(CLASSES[each.index(max(each))] == label for each, (label, _) in zip(said, apart, strict=True))
    print(f"{given.out}: {len(weights.features):,} features, {given.out.stat().st_size:,} bytes")
    print(f"dev.tsv: {right / len(apart):.4f} of {len(apart):,} right")


if __name__ == "__main__":
    main()
