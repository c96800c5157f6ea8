"""How messages sound: our methods beside bare VADER, on texts that people judged, and what reading one costs.

With `--data DIR`: `DIR/sentiment` and `DIR/goemotions` (bench/emotions.py says what they hold). Always: sentences of
our own from people who are helped, with software and else, and of many languages (tests/rooms/signals).
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from vader import SentimentIntensityAnalyzer

from bench.emotions import read_emotions, read_rated
from bench.measure import Figure, Run, cpu, shown
from cuebook.records.mind import Sentiment
from cuebook.signals.polarity import polarity_of
from cuebook.signals.sentiment import analyzers_of

_OWN: Final = Path(__file__).parents[1] / "tests" / "rooms" / "signals"
_SIGNS: Final = {"negative": -1, "neutral": 0, "positive": 1, "unknown": 0}
_NEUTRAL: Final = 0.5  # of -4..4: what people gave on average and called neither good nor bad
_RATED: Final = {"tweets": "tweets_GroundTruth.txt", "Amazon reviews": "amazonReviewSnippets_GroundTruth.txt"}

Read = Callable[[str], Sentiment]


def sentiment(run: Run) -> Iterator[Figure]:
    """Correlation and accuracy of each method; of three classes, and of two where neither side says neutral."""
    methods = _methods()
    for file in ("support_tuned", "support_held_out", "everyday_held_out"):
        rows = _labelled(f"{file}.tsv")
        texts = [text for _, text in rows]
        yield from _rows(f"{file} ({len(rows)})", texts, [_SIGNS[label] for label, _ in rows], methods)
    for file in ("languages", "languages_held_out"):
        yield _languages(file, methods["lexicon_based"])
    if run.data is None:
        yield Figure("texts that people judged", "", "not asked for (--data DIR)")
    else:
        few = 1_000 if run.quick else 1_000_000
        for what, name in _RATED.items():
            rated = read_rated(run.data / "sentiment" / name)[:few]
            yield from _rows(
                f"{what} ({len(rated):,})", [text for _, text in rated], [mean for mean, _ in rated], methods
            )
        judged = read_emotions(run.data / "goemotions", "test")[:few]
        texts = [text for _, text in judged]
        yield from _rows(f"GoEmotions ({len(judged):,})", texts, [label for label, _ in judged], methods)
    yield from _costs(run, methods)


def _methods() -> dict[str, Read]:
    bare = SentimentIntensityAnalyzer(curated=False)

    def read(text: str) -> Sentiment:
        score = bare.polarity_scores(text)["compound"]
        return Sentiment(score=score, polarity=polarity_of(score), method="VADER")

    return {"VADER": read, **{name: each.read for name, each in analyzers_of().items()}}


def _labelled(file: str) -> list[list[str]]:
    return [line.split("\t") for line in (_OWN / file).read_text("utf-8").strip("\n").split("\n")]


def _rows(what: str, texts: Sequence[str], truth: Sequence[float], methods: dict[str, Read]) -> Iterator[Figure]:
    """Give a line a method; the first is what the others are held against."""
    classes = [(each > _NEUTRAL) - (each < -_NEUTRAL) for each in truth]
    against: tuple[float, float] | None = None
    for name, read in methods.items():
        found = [read(text) for text in texts]
        said = [_SIGNS[each.polarity] for each in found]
        together = statistics.correlation(truth, [each.score for each in found])
        right = statistics.fmean(one == other for one, other in zip(classes, said, strict=True))
        clear = [(one, other) for one, other in zip(classes, said, strict=True) if one and other]
        sides = statistics.fmean(one == other for one, other in clear)
        against = against or (together, right)
        yield Figure(
            f"{what}: {name}",
            f"r {together:.3f}",
            f"right {right:.3f} of three classes, {sides:.3f} of two",
            ratio=together / against[0],
            bar=None if name in {"VADER", "trained_classifier"} else 1.0,
            least=True,
            note=f"F1 {_f1(classes, said):.3f}; {right - against[1]:+.3f} right",
        )


def _f1(truth: Sequence[int], said: Sequence[int]) -> float:
    found = []
    for kind in (-1, 0, 1):
        hits = sum(one == other == kind for one, other in zip(truth, said, strict=True))
        found.append(2 * hits / max(1, truth.count(kind) + said.count(kind)))
    return statistics.fmean(found)


def _languages(file: str, read: Read) -> Figure:
    rows = _labelled(f"{file}.tsv")
    right = sum((read(text).polarity == "unknown") != (language == "en") for language, text in rows)
    of = len({language for language, _ in rows})
    share = right / len(rows)
    return Figure(f"{file}: English or not", f"{right}", f"of {len(rows)} short texts, {of} languages", share, unit="")


def _costs(run: Run, methods: dict[str, Read]) -> Iterator[Figure]:
    texts = [text for _, text in _labelled("support_held_out.tsv")]
    long = " ".join(texts)
    for name, read in methods.items():
        read(long)  # what it loads is loaded
        short = min(cpu(1, lambda read=read: [read(text) for text in texts]) for _ in range(run.rounds(10))) / len(
            texts
        )  # type: ignore[misc]
        whole = min(cpu(1, lambda read=read: read(long)) for _ in range(run.rounds(10)))  # type: ignore[misc]
        words = len(long.split())
        yield Figure(
            f"reading a message: {name}", shown(short), f"of {words // len(texts)} words; {shown(whole)} of {words:,}"
        )
