"""Tests of erasing thousands of memories: the cost is linear and no link to them remains."""

import time

import pytest
from turn_helpers import cue_on

from cuebook.interfaces.store import PlaceChange
from cuebook.records.memory import Memory, Place, Scope

ANN = Place("user", "ann")
MANY = 8_000
#: Seconds. If each deletion scanned all memories of the owner, it would take more than ten.
SOON = 4.0


def memories(number: int) -> list[Memory]:
    """Return memories that each follow and supersede the previous one."""
    return [
        Memory(
            id=f"m{n}", kind=ANN.kind, owner=ANN.id, category="facts", text=f"My number is {n}.", written=True,
            valid_from=float(n), valid_to=None if n == number - 1 else float(n + 1),
            supersedes=f"m{n - 1}" if n else None, ended_by=None if n == number - 1 else f"m{n + 1}",
        )
        for n in range(number)
    ]  # fmt: skip


@pytest.mark.slow
async def test_thousands_of_memories_are_forgotten_quickly(tmp_path):
    async with cue_on(tmp_path) as cue:
        store = cue.services.store.memories
        assert await store.save(Scope(), PlaceChange(place=ANN, generation=0, memories=tuple(memories(MANY))), now=1.0)
        began = time.process_time()
        receipt = await cue.memory.forget(user="ann")
        assert (receipt.counts["memories"], time.process_time() - began < SOON) == (MANY, True)


async def test_remaining_memories_do_not_link_to_forgotten_ones(tmp_path):
    async with cue_on(tmp_path) as cue:
        store = cue.services.store.memories
        assert await store.save(Scope(), PlaceChange(place=ANN, generation=0, memories=tuple(memories(6))), now=1.0)
        await cue.memory.forget(memories=["m1", "m2", "m4"])
        remaining = (await cue.memory.list(user="ann", ended=True)).items
        assert [(each.id, each.supersedes, each.superseded_by) for each in remaining] == [
            ("m0", None, None),
            ("m3", None, None),
            ("m5", None, None),
        ]
