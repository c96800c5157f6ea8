"""What tests of Cuebook and of backends for it need: doubles of the ports, and a reference a store is compared with.

The contract every store keeps is `cuebook.testing.store_contract`; it needs pytest and is imported there only.
"""

from cuebook.testing.doubles import FrozenClock, LoadedDice, Script, ScriptedModel
from cuebook.testing.makers import draft, drafts, manifest, opening, opening_at, said_digest
from cuebook.testing.reference import Reference

__all__ = [
    "FrozenClock",
    "LoadedDice",
    "Reference",
    "Script",
    "ScriptedModel",
    "draft",
    "drafts",
    "manifest",
    "opening",
    "opening_at",
    "said_digest",
]
