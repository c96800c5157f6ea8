"""Measures how much of a resent summary is recognized in another layout, and that other texts stay apart."""

import html
import random
import textwrap
from collections.abc import Callable, Iterator

from cuebook.engine.turn.history import (
    LEAST,
    SHARE,
    contains_summary,
    letters,
    share_of,
)

#: Headings that all summaries of a program have.
HEADINGS = (
    "Primary Request and Intent", "Key Technical Concepts", "Files and Code Sections", "Errors and fixes",
    "Problem Solving", "All user messages", "Pending Tasks", "Current Work", "Optional Next Step",
)  # fmt: skip
#: A hundred seeds give the same figures in 20 s.
SEEDS = range(6)
SYLLABLES = "ba den for gim kel lo mar nis pol ret sum tan vey wor zil qua".split()


def sentences(dice: random.Random, count: int) -> list[str]:
    def word() -> str:
        return "".join(dice.choices(SYLLABLES, k=dice.randint(1, 3)))

    made = [" ".join(word() for _ in range(dice.randint(6, 14))) for _ in range(count)]
    return [f'{each.capitalize()} in "{word()}.py" at {dice.randint(1, 999)}.' for each in made]


def summary(seed: int) -> str:
    """Return a summary with the headings that all have, and one to four sentences under each."""
    dice = random.Random(seed)  # not for security
    parts = (f"{n}. {each}:\n" + "\n".join(f"   - {line}" for line in sentences(dice, dice.randint(1, 4)))
             for n, each in enumerate(HEADINGS, 1))  # fmt: skip
    return "\n".join(parts)


def a_third(text: str) -> str:
    return text[: len(text) // 3]


LAYOUTS: dict[str, Callable[[str], str]] = {
    "prefixed": lambda text: f"This session continues an earlier one.\n\n{text}\n\nGo on.",
    "truncated": lambda text: text[-len(text) // 3 :],
    "quoted": lambda text: "\n".join(f"> {line}" for line in text.splitlines()),
    "indented": lambda text: textwrap.indent(text, "        "),
    "wrapped": lambda text: textwrap.fill(text, 60),
    "one line": lambda text: " ".join(text.split()),
    "typographic": lambda text: text.replace('"', "”").replace("-", "–"),
    "markup": lambda text: f"<summary>\n{html.escape(text)}\n</summary>",
    "list items": lambda text: "\n".join(f"* **{line.strip(' -')}**" for line in text.splitlines()),
    "upper case": str.upper,
    "a wrapped third in markup": lambda text: f"<context>{html.escape(textwrap.fill(a_third(text), 50))}</context>",
}


def others(seed: int) -> Iterator[str]:
    """Yield texts that resend no summary: another one with the same headings, its headings, and a quoted sentence."""
    text = summary(seed)
    yield summary(seed + 10_000)
    yield "\n".join(HEADINGS) * 3
    yield f"What does this mean? {text.splitlines()[1]} " + "Tell me more about the plan of the town. " * 20


def test_a_summary_in_another_layout_is_recognized_and_others_are_not() -> None:
    resent = {
        name: min(share_of(letters(summary(seed)), letters(layout(summary(seed)))) for seed in SEEDS)
        for name, layout in LAYOUTS.items()
    }
    foreign = max(share_of(letters(summary(seed)), letters(text)) for seed in SEEDS for text in others(seed))
    assert min(resent.values()) >= 1.2 * SHARE, resent
    assert foreign <= SHARE / 1.2, foreign
    for seed in SEEDS:
        assert all(contains_summary(layout(summary(seed)), summary(seed)) for layout in LAYOUTS.values())
        assert not any(contains_summary(text, summary(seed)) for text in others(seed))


def test_a_few_sentences_of_an_answer_are_no_summary() -> None:
    text = "The user plans a trip from Bergen to Oslo by train. They prefer a window seat."
    assert len(text) < LEAST
    assert not contains_summary(f"Look: {text}", text)
