"""Texts that people judged: GoEmotions (Demszky et al., ACL 2020) and the snippets of VADER's authors.

Neither is in the repository. GoEmotions: `train.tsv`, `dev.tsv`, `test.tsv` and `labels.txt` as google-research
publishes them. VADER's: `tweets_GroundTruth.txt`, `amazonReviewSnippets_GroundTruth.txt` of its additional resources.
"""

from pathlib import Path

_POSITIVE = frozenset(
    "admiration amusement approval caring desire excitement gratitude joy love optimism pride relief".split()
)
_NEGATIVE = frozenset(
    "anger annoyance disappointment disapproval disgust embarrassment fear grief nervousness remorse sadness".split()
)


def read_emotions(folder: Path, split: str) -> list[tuple[int, str]]:
    """Read a split as -1, 0 or 1 and the text; texts of mixed or ambiguous emotions (surprise …) are left out."""
    names = (folder / "labels.txt").read_text("utf-8").split()
    signs = {name: 1 if name in _POSITIVE else -1 if name in _NEGATIVE else 0 for name in names}
    found = []
    for line in (folder / f"{split}.tsv").read_text("utf-8").strip("\n").split("\n"):
        text, labels, _ = line.split("\t")
        emotions = {names[int(label)] for label in labels.split(",")}
        if not emotions <= _POSITIVE | _NEGATIVE | {"neutral"}:
            continue
        kinds = {signs[emotion] for emotion in emotions}
        if len(kinds) == 1:
            found.append((kinds.pop(), text))
    return found


def read_rated(file: Path) -> list[tuple[float, str]]:
    """Read snippets and what people gave them, -4..4 on average."""
    rows = (line.split("\t") for line in file.read_text("utf-8").strip("\n").split("\n"))
    return [(float(mean), text.rstrip("\r")) for _, mean, text in rows]
