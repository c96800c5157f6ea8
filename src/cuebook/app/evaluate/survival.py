"""Which facts outlive the compactions that cover their posts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from cuebook.app.evaluate.facts import FactToken
from cuebook.app.gold import Fact
from cuebook.records.memory import Item

#: After how many compactions it is looked, the one that covers the post being the first (QUALITY, "fact survival").
MARKS = (1, 5, 20)
#: Whose facts: gold facts that hold at the end, values in the user's posts, values in the assistant's and tools' posts.
Whose = Literal["gold", "user", "others"]
WHOSE: tuple[Whose, ...] = ("gold", "user", "others")
#: Where a fact stands: in the summary or a current item; in an item that was ended; in a hit of a search; nowhere.
Fate = Literal["held", "ended", "found", "lost"]


class Survival(Struct, frozen=True, kw_only=True, rename="camel"):
    """Where facts stand after so many compactions; the same facts at every mark.

    `held` in the summary or a current item, `ended` in an item that something later ended, `found` in none of these
    but in the first hits of a search for it, `lost` nowhere. `dropped` names those that were held or ended (gold facts:
    held, for they hold at the end) at the mark before and are no longer.
    """

    whose: Whose
    compactions: int
    facts: int
    held: int
    ended: int
    found: int
    lost: int
    dropped: tuple[str, ...]

    def plus(self, other: "Survival") -> "Survival":
        """Add another conversation's."""
        return Survival(
            whose=self.whose,
            compactions=self.compactions,
            facts=self.facts + other.facts,
            held=self.held + other.held,
            ended=self.ended + other.ended,
            found=self.found + other.found,
            lost=self.lost + other.lost,
            dropped=self.dropped + other.dropped,
        )


class Known(Struct, frozen=True):
    """A fact that is looked for again, and what is searched for it."""

    whose: Whose
    fact: Fact | FactToken
    query: str

    @property
    def name(self) -> str:
        """What it is called in a report."""
        return self.fact.fact if isinstance(self.fact, Fact) else f"{self.fact.value} ({self.fact.sentence})"


class Held(Struct, frozen=True):
    """What memory holds at a moment, as texts."""

    current: tuple[str, ...]
    ended: tuple[str, ...]

    def fate(self, known: Known) -> Fate:
        """Tell where a fact stands; "lost" before it is searched for."""
        if any(known.fact.in_text(text) for text in self.current):
            return "held"
        return "ended" if any(known.fact.in_text(text) for text in self.ended) else "lost"


def held(summary: str, items: Iterable[Item]) -> Held:
    """Read what memory holds: the summary's lines and the items."""
    every = list(items)
    return Held(
        tuple(line for line in summary.splitlines() if line) + tuple(i.text for i in every if i.valid_to is None),
        tuple(item.text for item in every if item.valid_to is not None),
    )


class Fates(Struct):
    """The fates seen so far: of the facts of each pass, by compactions lived through."""

    seen: dict[tuple[int, int], list[tuple[Known, Fate]]] = {}

    def report(self, passes: int, *, first: bool = False) -> list[Survival]:
        """Add up those of all passes that lived through the last mark that was reached, or of the first pass alone."""
        marks = [mark for mark in MARKS if mark <= passes]
        if not marks:
            return []
        lived = [1] if first else range(1, passes - marks[-1] + 2)
        found: list[Survival] = []
        for whose in WHOSE:
            before: Mapping[tuple[int, str], Fate] = {}
            for mark in marks:
                now = {
                    (number, known.name): fate
                    for number in lived
                    for known, fate in self.seen.get((number, mark), ())
                    if known.whose == whose
                }
                if now:
                    found.append(_survival(whose, mark, now, before))
                before = now
        return found


def _survival(
    whose: Whose, mark: int, now: Mapping[tuple[int, str], Fate], before: Mapping[tuple[int, str], Fate]
) -> Survival:
    fates = list(now.values())
    kept = ("held",) if whose == "gold" else ("held", "ended")  # a gold fact that holds must not be ended
    return Survival(
        whose=whose,
        compactions=mark,
        facts=len(fates),
        held=fates.count("held"),
        ended=fates.count("ended"),
        found=fates.count("found"),
        lost=fates.count("lost"),
        dropped=tuple(key[1] for key, fate in before.items() if fate in kept and now.get(key) not in kept),
    )


def added(one: Sequence[Survival], two: Sequence[Survival]) -> list[Survival]:
    """Add up two conversations' rows; a mark that only one of them reached is left out: it would be of other facts."""
    others = {(each.whose, each.compactions): each for each in two}
    keys = others.keys() & {(each.whose, each.compactions) for each in one}
    return [each.plus(others[each.whose, each.compactions]) for each in one if (each.whose, each.compactions) in keys]
