"""What judging posts costs: finding what is said again, scoring anew with age, and what the compressor keeps."""

import json
import random
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.measure import Figure, Run, Sample, compared, cpu, interleave, shown
from bench.peers import install
from cuebook.memory.compress import compress
from cuebook.memory.facts import facts_in
from cuebook.memory.redundancy import LEAST_CHARACTERS, Redundancy
from cuebook.memory.relevance import Scores, clamped, recency, standing

PEER = "SetSimilaritySearch"
#: Words of a text, about; the share of texts that say an older one again with one word changed.
SHORT, LONG, AGAIN = 14, 51, 0.1
NOW = 200_000.0


def judge(run: Run) -> Iterator[Figure]:
    """Redundancy, relevance and the compressor."""
    yield from _redundancy(run)
    yield from _relevance(run)
    yield from _compressor()


# ---- redundancy -----------------------------------------------------------------------------------------------------


def made_up(many: int, words: int, *, seed: int = 3) -> list[str]:
    """Give texts over words as rare as in a language; some say an older one again."""
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
    """Give the older texts that a newer one says again."""
    index = Redundancy()
    return {older for number, text in enumerate(texts) for older in index.add(number, text)}


def by_all_pairs(texts: Sequence[str]) -> set[int]:
    """Give the same the simple way."""
    sets = [set(text.lower().split()) if len(text) >= LEAST_CHARACTERS else set() for text in texts]
    found = set()
    for newer, words in enumerate(sets):
        for older in range(newer):
            both = len(words & sets[older])
            if both and 10 * both >= 9 * (len(words) + len(sets[older]) - both):
                found.add(older)
    return found


def _redundancy(run: Run) -> Iterator[Figure]:
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
        yield compared(what, sides["many"], "in thousands", sides["few"], bar=1.5)
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
        yield Figure(what=f"{PEER}", ours="", note="could not be installed")
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


def _relevance(run: Run) -> Iterator[Figure]:
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
    note += f"; reading each post once took {shown(reading)}"
    what = f"scoring {run.many:,} posts anew"
    yield compared(what, sides["ours"], "plain Python, each", sides["plain"], bar=0.02, note=note)


# ---- the compressor -------------------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """What a form keeps: the share of the characters, and that of the facts."""

    ratio: float
    recall: float


class Compressed(NamedTuple):
    """What 40 texts come to: ours, C's own code, and how many of ours got longer."""

    lines: int
    facts: int
    ours: Kept
    theirs: Kept
    longer: int


#: C's eight kinds of facts, in the plainest form: what is counted as kept is not found by the code that keeps it.
_GOLD = [
    re.compile(pattern)
    for pattern in (
        r"https?://[^\s,;)\"']+", r"[\w.+-]+@[\w-]+\.[\w.-]*\w", r"Error: [^\n]+", r"selector: '[^'\n]+'",
        r'class="[^"\n]+"', r'id="[^"\n]+"', r"\d+\.\d+\.\d+\.\d+", r"(?<![\w.])\d{3,}(?![\w.])",
    )
]  # fmt: skip


def _log(dice: random.Random, lines: int, facts: int) -> str:
    """Give a tool's output: lines of words, with facts somewhere between."""
    made = [" ".join(dice.choice(_WORDS) for _ in range(dice.randrange(8, 16))) for _ in range(lines)]
    for n in range(facts):
        fact = (
            f"https://example.com/{dice.randrange(10**6)}/page", f"user{dice.randrange(10**4)}@example.com",
            f"Error: element {dice.randrange(900)} not found", f"selector: '#go-{dice.randrange(900)}'",
            f'class="btn-{dice.randrange(900)}"', f'id="f{dice.randrange(10**4)}"',
            f"10.{dice.randrange(250)}.{dice.randrange(250)}.7", f"port {dice.randrange(1000, 60_000)}",
        )[n % 8]  # fmt: skip
        at = dice.randrange(1, max(2, lines - 1))
        made[at % len(made)] += f" {fact}"
    return "\n".join(made)


_WORDS = (
    "the page was loaded and then a button could be seen near its header while we waited for some other part of it to"
    " come back from that slow server again"
).split()


def _found(text: str) -> set[str]:
    return {each for pattern in _GOLD for each in pattern.findall(text)}


def _as_seed_c(text: str) -> str:
    """Shorten as C's own code does (notes/seed-origins.md 3.1): five facts at the most, whatever there is."""
    lines = text.strip().splitlines()
    return f"{lines[0][:200]}\n... {lines[-1][:200]}\n[preserved: {', '.join(facts_in(text)[:5])}]"


def compressed() -> Iterator[Compressed]:
    """Compress made-up texts of five kinds."""
    dice = random.Random(11)  # noqa: S311
    for lines, facts in ((4, 4), (12, 12), (40, 12), (40, 40), (120, 60)):
        texts = [_log(dice, lines, facts) for _ in range(40)]
        short = [compress(text) or text for text in texts]
        longer = sum(len(form) > len(text) for form, text in zip(short, texts, strict=True))
        yield Compressed(lines, facts, _keeps(texts, short), _keeps(texts, map(_as_seed_c, texts)), longer)


def _compressor() -> Iterator[Figure]:
    for lines, facts, ours, theirs, longer in compressed():
        what = f"{lines} lines with {facts} facts: share of them kept"
        said = f"at most five facts {theirs.recall:.0%} of them in {theirs.ratio:.0%} of the text"
        note = f"in {ours.ratio:.0%} of the text; longer than it: {longer}"
        yield Figure(what=what, ours=f"{ours.recall:.0%}", against=said, note=note)


def _keeps(texts: Sequence[str], short: Iterator[str] | Sequence[str]) -> Kept:
    forms = list(short)
    gold = [_found(text) for text in texts]
    kept = sum(sum(fact in form for fact in facts) for facts, form in zip(gold, forms, strict=True))
    size = sum(map(len, forms)) / sum(map(len, texts))
    return Kept(size, kept / sum(map(len, gold)))
