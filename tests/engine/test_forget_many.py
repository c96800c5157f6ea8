"""Thousands of memories are forgotten at a cost that grows with their number, and nothing left names one of them."""

import time

from stage import cue_on

from cuebook.interfaces.memories import PlaceChange
from cuebook.records.memory import Memory, Place, Scope

ANN = Place("user", "ann")
MANY = 8_000
#: Seconds; where each memory was looked for in all of its place, it were more than ten.
SOON = 4.0


def memories(number: int) -> list[Memory]:
    """Give memories of which each came after the one before it, and ended it."""
    return [
        Memory(
            id=f"m{n}", place=ANN, category="facts", text=f"My number is {n}.", written=True, valid_from=float(n),
            valid_to=None if n == number - 1 else float(n + 1), supersedes=f"m{n - 1}" if n else None,
            ended_by=None if n == number - 1 else f"m{n + 1}",
        )
        for n in range(number)
    ]  # fmt: skip


async def test_thousands_of_memories_go_soon(tmp_path):
    async with cue_on(tmp_path) as cue:
        store = cue.desk.store.memories
        assert await store.save(Scope(), PlaceChange(place=ANN, generation=0, memories=tuple(memories(MANY))), now=1.0)
        began = time.process_time()
        receipt = await cue.memory.forget(user="ann")
        assert (receipt.counts["memories"], time.process_time() - began < SOON) == (MANY, True)


async def test_what_stays_names_none_of_those_that_went(tmp_path):
    async with cue_on(tmp_path) as cue:
        store = cue.desk.store.memories
        assert await store.save(Scope(), PlaceChange(place=ANN, generation=0, memories=tuple(memories(6))), now=1.0)
        await cue.memory.forget(memories=["m1", "m2", "m4"])
        left = (await cue.memories.page(user="ann", ended=True)).items
        assert [(each.id, each.supersedes, each.ended_by) for each in left] == [
            ("m0", None, None),
            ("m3", None, None),
            ("m5", None, None),
        ]
