"""Trains the sentiment classifier on GoEmotions and writes `weights.bin`. Needs numpy and about a minute.

    python scripts/train_sentiment.py FOLDER [OUT] [--scores FILE]

FOLDER holds `train.tsv`, `dev.tsv` and `labels.txt` of GoEmotions (Demszky et al., ACL 2020) as google-research
publishes them; they are not in the repository. The loss is convex, so a new run learns almost the same weights: in
November 2026 it replaced 2 of 20,000 features of the shipped file and moved probabilities by less than 0.001.
"""

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cuebook.signals.classifier import FILE, Weights, features, pack, probabilities

KEPT = 20_000  # features with the largest weights, of 52,000; using all is not better (measured on dev.tsv)
LEAST = 2  # texts that contain a feature
STRENGTH = 2.0  # scikit-learn's C: weight of the loss against the squared weights. 1 to 4 were tried on dev.tsv
ROUNDS = 400
CLASSES = (-1, 0, 1)
POSITIVE = frozenset(
    "admiration amusement approval caring desire excitement gratitude joy love optimism pride relief".split()
)
NEGATIVE = frozenset(
    "anger annoyance disappointment disapproval disgust embarrassment fear grief nervousness remorse sadness".split()
)

Numbers = NDArray[np.float64]


def read_emotions(folder: Path, split: str) -> list[tuple[int, str]]:
    """Load a split as pairs of class (-1, 0, 1) and text, without texts of mixed or ambiguous emotions."""
    names = (folder / "labels.txt").read_text("utf-8").split()
    classes = {name: 1 if name in POSITIVE else -1 if name in NEGATIVE else 0 for name in names}
    rows = []
    for line in (folder / f"{split}.tsv").read_text("utf-8").strip("\n").split("\n"):
        text, labels, _ = line.split("\t")
        emotions = {names[int(label)] for label in labels.split(",")}
        if not emotions <= POSITIVE | NEGATIVE | {"neutral"}:
            continue
        of_text = {classes[emotion] for emotion in emotions}
        if len(of_text) == 1:
            rows.append((of_text.pop(), text))
    return rows


class Matrix:
    """A sparse matrix with a row per text: `values[k]` is in column `columns[k]` of row `rows[k]`."""

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
    """Compute the weights from texts and their classes: first with all features, then with the `KEPT` largest."""
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
    """Return the smoothed inverse document frequency of every feature that at least `LEAST` texts contain."""
    found: Counter[str] = Counter()
    count = 0
    for text in texts:
        count += 1
        found.update(text.keys())
    return {each: math.log((1 + count) / (1 + times)) + 1 for each, times in sorted(found.items()) if times >= LEAST}


def fit(matrix: Matrix, labels: NDArray[np.int64]) -> tuple[Numbers, Numbers]:
    """Fit multinomial logistic regression with equal class weights. Return weights by class, and biases."""
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
    """Train on train.tsv, write the weights, and print the accuracy on dev.tsv."""
    parser = argparse.ArgumentParser(
        prog="scripts/train_sentiment.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder with the files of GoEmotions")
    default = Path(__file__).resolve().parents[1] / "src/cuebook/signals" / FILE
    parser.add_argument(
        "out", type=Path, metavar="OUT", nargs="?", default=default, help=f"default: the shipped {FILE}"
    )
    parser.add_argument(
        "--scores", type=Path, metavar="FILE", help="write the score before the text of each line of FILE"
    )
    arguments = parser.parse_args()
    weights = train(read_emotions(arguments.folder, "train"))
    arguments.out.write_bytes(pack(weights))
    if arguments.scores:
        texts = [line.split("\t")[-1] for line in arguments.scores.read_text("utf-8").splitlines()]
        found = [probabilities(features(text), weights) for text in texts]
        lines = [
            f"{positive - negative:.6f}\t{text}" for text, (negative, _, positive) in zip(texts, found, strict=True)
        ]
        arguments.scores.write_text("\n".join(lines) + "\n", encoding="utf-8")
    held_out = read_emotions(arguments.folder, "dev")
    found = [probabilities(features(text), weights) for _, text in held_out]
    right = sum(CLASSES[each.index(max(each))] == label for each, (label, _) in zip(found, held_out, strict=True))
    print(f"{arguments.out}: {len(weights.features):,} features, {arguments.out.stat().st_size:,} bytes")
    print(f"dev.tsv: {right / len(held_out):.4f} of {len(held_out):,} correct")


if __name__ == "__main__":
    main()
