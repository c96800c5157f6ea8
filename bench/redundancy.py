"""Benchmarks of redundancy (older posts that a newer post repeats) and relevance (batch scores): cost and result."""

import json
import random
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.measure import Figure, Run, Sample, compared, cpu, interleave, shown
from bench.peers import install
from cuebook.memory.judgement import Scores, clamped, recency, standing
from cuebook.memory.redundancy import LEAST_CHARACTERS, Redundancy

PEER = "SetSimilaritySearch"
#: The approximate words of a text; the share of texts that repeat an older text with one word changed.
SHORT, LONG, AGAIN = 14, 51, 0.1
NOW = 200_000.0

# ---- redundancy -----------------------------------------------------------------------------------------------------


def made_up(many: int, words: int, *, seed: int = 3) -> list[str]:
    """Return texts over words as rare as in a language. Some repeat an older text with one word changed."""
    dice = random.Random(seed)  # noqa: S311  # not for secrets
    texts: list[str] = []
    for _ in range(many):
        if texts and dice.random() < AGAIN:
            said = dice.choice(texts).split()
            said[dice.randrange(len(said))] = f"changed{dice.randrange(99)}"
        else:
            said = [f"word{int(dice.paretovariate(0.5))}" for _ in range(dice.randrange(words // 2, words * 3 // 2))]
        texts.append(" ".join(said))
    return texts


def flagged(texts: Sequence[str]) -> set[int]:
    """Return the numbers of the texts that a newer one repeats."""
    index = Redundancy()
    return {older for number, text in enumerate(texts) for older in index.add(number, text)}


def by_all_pairs(texts: Sequence[str]) -> set[int]:
    """Return the same by comparing all pairs."""
    sets = [set(text.lower().split()) if len(text) >= LEAST_CHARACTERS else set() for text in texts]
    found = set()
    for newer, words in enumerate(sets):
        for older in range(newer):
            both = len(words & sets[older])
            if both and 10 * both >= 9 * (len(words) + len(sets[older]) - both):
                found.add(older)
    return found


def redundancy(run: Run) -> Iterator[Figure]:
    """Compare the cost per message with a short list, all pairs, and SetSimilaritySearch."""
    for words in (SHORT, LONG):
        texts = made_up(run.many, words)
        few = texts[:1000]
        parts = [texts[first : first + 1000] for first in range(0, len(texts), 1000)]
        sides = interleave(
            5,
            {
                "many": lambda texts=texts: cpu(1, lambda: flagged(texts)) / len(texts),  # type: ignore[misc]
                "few": lambda parts=parts: sum(cpu(1, lambda p=p: flagged(p)) for p in parts) / run.many,  # type: ignore[misc]
            },
        )
        what = f"a message of {words} words among {run.many:,}"
        yield compared(what, sides["many"], "among 1,000", sides["few"], bar=1.5)
        pairs = Sample((cpu(1, lambda few=few: by_all_pairs(few)) / 1000,))  # type: ignore[misc]
        same = flagged(few) == by_all_pairs(few)
        note = f"the same {len(flagged(few))} flagged" if same else "NOT EQUAL"
        ours = Sample((cpu(10, lambda few=few: flagged(few)) / 1000,))  # type: ignore[misc]
        yield compared(f"1,000 texts of {words} words, each", ours, "all pairs", pairs, inverse=True, note=note)
    if run.peers:
        yield from _peer(run)


def _peer(run: Run) -> Iterator[Figure]:
    python = install(run.fast / "pairs", PEER)
    if python is None:
        yield Figure(what=f"{PEER}", ours="", note="installation failed")
        return
    for many, words in ((20_000, SHORT), (5_000, LONG)):
        texts = [text for text in made_up(many, words, seed=5) if len(text) >= LEAST_CHARACTERS]
        file = run.fast / "texts.json"
        file.write_text(json.dumps(texts))
        script = Path(__file__).with_name("peer_pairs.py")
        said = subprocess.run([python, str(script), str(file)], check=True, capture_output=True, text=True).stdout
        theirs = json.loads(said)
        ours = Sample(tuple(cpu(1, lambda texts=texts: flagged(texts)) for _ in theirs["seconds"]))  # type: ignore[misc]
        same = sorted(flagged(texts)) == theirs["flagged"]
        note = "the same flagged" if same else "NOT EQUAL"
        what = f"{len(texts):,} texts of {words} words, all"
        yield compared(what, ours, PEER, Sample(tuple(theirs["seconds"])), bar=5.0, inverse=True, note=note)


# ---- relevance ------------------------------------------------------------------------------------------------------


def relevance(run: Run) -> Iterator[Figure]:
    """Compare scoring all posts again with plain Python for each post."""
    posts = [(NOW - number, text) for number, text in enumerate(reversed(made_up(run.many, SHORT)))][::-1]
    scores = Scores()

    def read() -> float:
        nonlocal scores
        scores = Scores()

        def add() -> None:
            for number, (when, text) in enumerate(posts):
                scores.add(number, when=when, points=standing(text, "user"))

        return cpu(1, add)

    def plain() -> list[int]:
        return [clamped(standing(text, "user") + recency(NOW - when)) for when, text in posts]

    reading = read()
    sides = interleave(
        run.rounds(10), {"ours": lambda: cpu(20, lambda: scores.at(NOW)), "plain": lambda: cpu(1, plain)}
    )
    note = "equal" if list(scores.at(NOW)) == plain() else "NOT EQUAL"
    note += f"; reading each post once takes {shown(reading)}"
    what = f"re-scoring of {run.many:,} posts"
    yield compared(what, sides["ours"], "plain Python", sides["plain"], bar=0.02, note=note)
