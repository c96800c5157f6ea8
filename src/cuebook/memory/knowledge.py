"""Compute a memory's confidence: repeats and uses raise it, idle time lowers it (C)."""

import math
from typing import Final

from msgspec.structs import replace

from cuebook.memory.item_keys import normal
from cuebook.records.memory import KNOWLEDGE, Memory

FIRST: Final = 0.5
REPEAT: Final = 0.1
USE: Final = 0.05
#: Loss per 30 days without a use or a repeat. A memory below LEAST is deleted.
LOSS: Final = 0.1
PERIOD_S: Final = 30 * 86_400.0
LEAST: Final = 0.1


def raised(confidence: float, by: float) -> float:
    """Return the raised confidence, at most 1."""
    return min(1.0, round(confidence + by, 6))


def decayed(memory: Memory, now: float) -> Memory | None:
    """Return a memory with its current confidence: minus LOSS per whole idle period. None if it is to be deleted.

    Repeated calls within a period return the same: the loss is counted from `decayed_at`.
    """
    since = max(memory.used_at, memory.decayed_at)
    periods = math.floor(max(0.0, now - since) / PERIOD_S)
    if periods == 0:
        return memory
    left = round(memory.confidence - LOSS * periods, 6)
    return None if left < LEAST else replace(memory, confidence=left, decayed_at=since + periods * PERIOD_S)


def standing(memory: Memory) -> float:
    """Return a memory's priority for unprompted use, in [0, 1]."""
    return memory.confidence * (0.5 + 0.5 * max(memory.weight, 0.5 if memory.category in KNOWLEDGE else 0.0))


def same(one: str, other: str) -> bool:
    """Return whether two values are equal, ignoring case and whitespace."""
    return normal(one) == normal(other)
