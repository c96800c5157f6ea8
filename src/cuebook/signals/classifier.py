"""The sentiment classifier: scores English text with a model trained on GoEmotions (words and word pairs).

TF-IDF (sublinear, norm 1) feeds a multinomial logistic regression over negative, neutral and positive, with balanced
classes. `scripts/train_sentiment.py` writes `weights.bin` in this folder (docs/design/012-sentiment.md). Training and
prediction share `features`.
"""

import math
import struct
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import Final

from msgspec import Struct

from cuebook.languages import reads
from cuebook.records.expression import Expression
from cuebook.records.mind import Polarity, Sentiment
from cuebook.signals.machine_text import spoken
from cuebook.signals.tone import intensity_of, plain, sentences, tempered, without_matter

NAME: Final = "trained_classifier"
FILE: Final = "weights.bin"
#: The file's magic number: its kind and format version.
MAGIC: Final = b"cuebook sentiment 1\n"
#: Tokens: letters and digits with apostrophes, a run of ! and ?, and each character beyond ASCII (emoji).
_TOKEN: Final = Expression(r"[^\W_]+(?:'[^\W_]+)*|[!?]+|[^\w\s\x00-\x7f]")
#: The weight from which a single word sounds bad.
_BAD: Final = 2.0


class Weights(Struct, frozen=True):
    """Trained weights: per feature its idf and its weights of positive and negative against neutral; and the biases."""

    features: dict[str, tuple[float, float, float]]
    positive: float
    negative: float


def by_classifier(text: str) -> Sentiment:
    """Compute the sentiment of English text. About 5 µs a word; the first text loads the weights (20 ms)."""
    content = plain(spoken(text))
    if not reads(("en",), content):
        return Sentiment(method=NAME)
    weights, parts = shipped(), sentences(content)
    results = features("\n".join(without_matter(each) for each in parts))
    if weights.features.keys().isdisjoint(results):
        return Sentiment(polarity="neutral", intensity=intensity_of(content, 0.0), method=NAME)
    negative, neutral, positive = probabilities(results, weights)
    score = round(tempered(positive - negative, content, parts), 4) + 0.0
    known = [weights.features[each] for each in results if " " not in each and each in weights.features]
    bad = sum(against - max(0.0, up) > _BAD for _, up, against in known)
    if score < 0 < positive - negative:  # irony
        negative, bad = 1.0, max(1, bad)
    likeliest = max(negative, neutral, positive)
    polarity: Polarity = "neutral" if likeliest == neutral else "positive" if likeliest == positive else "negative"
    return Sentiment(
        score=score, intensity=intensity_of(content, abs(score)), polarity=polarity, method=NAME, negatives=bad
    )


def features(text: str) -> list[str]:
    """Return the features of a text: its words and the pairs of adjacent words."""
    words = _TOKEN.findall(text.replace("\u2019", "'").lower())
    return [*words, *(f"{one} {two}" for one, two in pairwise(words))]


def probabilities(results: Sequence[str], weights: Weights) -> tuple[float, float, float]:
    """Return the probabilities of negative, neutral and positive. Without a known feature: those of the biases."""
    length = positive = negative = 0.0
    for feature, times in Counter(results).items():
        known = weights.features.get(feature)
        if known is None:
            continue
        value = (1 + math.log(times)) * known[0]
        length += value * value
        positive += value * known[1]
        negative += value * known[2]
    norm = math.sqrt(length) or 1.0
    up, down = math.exp(positive / norm + weights.positive), math.exp(negative / norm + weights.negative)
    whole = 1 + up + down
    return down / whole, 1 / whole, up / whole


def pack(weights: Weights) -> bytes:
    """Return weights in file format: half-precision numbers, compressed. `unpack` reverses it."""
    names = "\n".join(weights.features).encode()
    columns = list(zip(*weights.features.values(), strict=True))
    count = len(weights.features)
    numbers = b"".join(struct.pack(f"<{count}e", *column) for column in columns)
    biases = struct.pack("<2d", weights.positive, weights.negative)
    return MAGIC + zlib.compress(struct.pack("<2I", count, len(names)) + biases + names + numbers, level=9)


def unpack(data: bytes) -> Weights:
    """Return the weights that `pack` wrote."""
    if not data.startswith(MAGIC):
        raise ValueError(f"{FILE}: expected {MAGIC!r} at the start, got {data[:20]!r}. Reinstall cuebook.")
    content = zlib.decompress(data[len(MAGIC) :])
    count, size = struct.unpack_from("<2I", content)
    positive, negative = struct.unpack_from("<2d", content, 8)
    names = content[24 : 24 + size].decode().split("\n")
    numbers = struct.unpack_from(f"<{3 * count}e", content, 24 + size)
    columns = zip(numbers[:count], numbers[count : 2 * count], numbers[2 * count :], strict=True)
    return Weights(dict(zip(names, columns, strict=True)), positive, negative)


@cache
def shipped() -> Weights:
    """Load the built-in weights, on the first text."""
    return unpack(resources.files(__package__).joinpath(FILE).read_bytes())
