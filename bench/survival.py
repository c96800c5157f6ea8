"""How many facts outlive the compactions that cover them, and how clean what is shown as current is: no model."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Figure, Run
from cuebook.app.evaluate import Evaluation, evaluate
from cuebook.app.evaluate.survival import Survival

#: Beside the conversation that ships: one of 316 posts in the OpenAI form, roles alone, with its gold list.
_TALKS = Path(__file__).parent / "talks"
_WHOSE = {"gold": "gold facts that hold", "user": "values in the user's posts"}


def survival(run: Run) -> Iterator[Figure]:
    """Gold facts and values after 1, 5 and 20 compactions; what is shown as current; with --quick one conversation."""
    bees = asyncio.run(evaluate(_TALKS / "bees.json", gold=_TALKS / "bees.gold.json"))
    for report in [*bees, *([] if run.quick else asyncio.run(evaluate()))]:
        yield Figure(report.title, f"{report.posts}", f"posts, {report.compactions} compactions")
        for row in report.survival:
            if row.whose in _WHOSE:
                yield _survived(row)
        yield from _current(report)


def _survived(row: Survival) -> Figure:
    kept = row.held if row.whose == "gold" else row.held + row.ended
    note = f"lost since the mark before: {len(row.dropped)}"
    if row.whose == "user":
        note = f"{row.ended} of them ended by what came later; {note}"
    return Figure(
        f"   {_WHOSE[row.whose]}, after {row.compactions}",
        f"{kept}",
        f"of {row.facts} remembered",
        ratio=kept / row.facts,
        unit="",
        note=note,
    )


def _current(report: Evaluation) -> Iterator[Figure]:
    facts, items = report.current_facts, report.items
    if facts is not None:
        share = facts.shown / facts.current
        yield Figure(
            "   gold facts at the end, in an item", f"{facts.shown}", f"of {facts.current}", ratio=share, unit=""
        )
        share = facts.superseded_shown / facts.superseded
        yield Figure(
            "   superseded, in an item all the same",
            f"{facts.superseded_shown}",
            f"of {facts.superseded}",
            ratio=share,
            bar=0.0,
            unit="",
        )
    note = f"{len(items.duplicates)} duplicates, {len(items.contradictions)} contradictions"
    share = len(items.junk) / items.items
    yield Figure("   junk at most", f"{len(items.junk)}", f"of {items.items} items", ratio=share, unit="", note=note)
