"""Choosing and rendering a prompt as the book and its history grow: it costs its ancestors and variants, no more."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack

from bench.measure import AsyncRound, Figure, Run, compared, interleave_async
from cuebook import Cuebook
from cuebook.config import build
from cuebook.records.prompt import Version

_FEW, _MANY = 100, 10_000
_VARIANTS, _AT_ONCE = 20, 500


def graph(run: Run) -> Iterator[Figure]:
    """Select and render a prompt of three ancestors and twenty variants."""
    return iter(asyncio.run(_graph(run)))


async def _graph(run: Run) -> list[Figure]:
    many = _MANY // 5 if run.quick else _MANY
    async with AsyncExitStack() as stack:
        sides: dict[str, AsyncRound] = {}
        for name, versions in (("few", _FEW), ("many", many)):
            folder = run.fast / f"prompts-{name}"  # of its own: the audit's mirror lies there too
            folder.mkdir()
            settings = build(arguments={"store.url": str(folder / "book.db")}, folder=str(folder))
            book = await stack.enter_async_context(Cuebook.open(settings, worker=False))
            await _fill(book, versions)
            sides[name] = _chooses(book)
        found = await interleave_async(run.rounds(60), sides)
    what, beside = f"select and render among {many:,} versions", f"among {_FEW}"
    return [
        compared(
            what,
            found["many"],
            beside,
            found["few"],
            bar=1.3,
            note="half of them its own; 3 ancestors, 20 variants; CPU",
        )
    ]


async def _fill(book: Cuebook, versions: int) -> None:
    for slug, parent in (("root", None), ("middle", "root"), ("low", "middle"), ("leaf", "low")):
        weights = {"context_weights": {"task_coding": 0.5}} if slug == "leaf" else {}
        await book.prompts.save(
            slug, {"body": f"{slug} for $user."}, params=["user"], inherits=parent, metadata=weights
        )
    for number in range(1, _VARIANTS):
        await book.prompts.fork("leaf", f"variant-{number}")
    others = [
        Version(slug=f"other/{number % (versions // 20)}", sections={"body": f"Text number {number}."})
        for number in range(versions // 2 - _VARIANTS - 3)
    ]
    others += [
        Version(
            slug="leaf",
            branch=f"variant-{1 + number % (_VARIANTS - 1)}",
            sections={"body": f"leaf {number} for $user."},
            inherits="low",
        )
        for number in range(versions // 2)
    ]
    for start in range(0, len(others), _AT_ONCE):
        await book.prompts.store(others[start : start + _AT_ONCE])


def _chooses(book: Cuebook) -> AsyncRound:
    async def one() -> float:
        began = time.process_time()
        chosen = await book.prompts.select("leaf", {"task_coding": 1.0}, seed=1)
        await book.prompts.render("leaf", {"user": "Ann"}, branch=chosen.selected.branch)
        return time.process_time() - began

    return one
