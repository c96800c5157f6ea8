"""How sure a memory is, and for how long: C's confidence, raised by repeats and uses, lost by lying idle."""

import math
from typing import Final

from msgspec.structs import replace

from cuebook.memory.item_keys import normal
from cuebook.records.memory import Memory

#: C's categories of knowledge; a memory of one of them has a key.
KNOWLEDGE: Final = ("domain", "execution_pattern", "user_preference", "website_knowledge", "error_pattern")
FIRST: Final = 0.5
REPEAT: Final = 0.1
USE: Final = 0.05
#: Lost for each period of 30 days without a use or a repeat; below LEAST a memory goes.
LOSS: Final = 0.1
PERIOD_S: Final = 30 * 86_400.0
LEAST: Final = 0.1


def raised(confidence: float, by: float) -> float:
    """Return a confidence raised, at most 1."""
    return min(1.0, round(confidence + by, 6))


def decayed(memory: Memory, now: float) -> Memory | None:
    """Return a memory as it stands now: LOSS for each whole period since it was last touched, once; None when it goes.

    However often it is called within a period the answer is the same: what is lost is counted from `decayed_at`.
    """
    since = max(memory.used_at, memory.decayed_at)
    periods = math.floor(max(0.0, now - since) / PERIOD_S)
    if periods == 0:
        return memory
    left = round(memory.confidence - LOSS * periods, 6)
    return None if left < LEAST else replace(memory, confidence=left, decayed_at=since + periods * PERIOD_S)


def standing(memory: Memory) -> float:
    """Return how much a memory deserves to be said unasked, in [0, 1]."""
    return memory.confidence * (0.5 + 0.5 * max(memory.weight, 0.5 if memory.category in KNOWLEDGE else 0.0))


def same(one: str, other: str) -> bool:
    """Whether two values say the same, apart from case and spaces."""
    return normal(one) == normal(other)
