"""Structs of the prompt store: versions to write, prompts with their branches.

A tenant's prompts are its own. Names are case-sensitive and exact; `prompts.names` has the valid ones.
"""

from collections.abc import Mapping

from msgspec import Struct

from cuebook.prompts.learn import Posterior
from cuebook.prompts.names import SYNC
from cuebook.records.audit import Record
from cuebook.records.prompt import MAIN, Branch, Label, Version


class Write(Struct, frozen=True, kw_only=True):
    """A version to store. `base` is the head that its writer saw, None for any; a new branch names its start."""

    version: Version
    base: int | None = None
    begins: tuple[str, int] | None = None  # branch and number from which a new branch is forked
    if_changed: bool = False  # do not store an unchanged text
    named: bool = False  # the author chose the semantic version: Conflict if another text has it, else the next free
    audit: Record | None = None  # joins the chain in the same transaction
    at: float = 0.0  # creation time of an imported version; 0 for now


class Family(Struct, frozen=True, kw_only=True):
    """A prompt: its branches, their active versions, and its labels."""

    slug: str
    branches: tuple[Branch, ...]
    active: tuple[Version, ...]  # in the order of `branches`
    labels: tuple[Label, ...] = ()
    evidence: Mapping[str, Posterior] = {}  # by branch: statistics of its active version

    @property
    def variants(self) -> tuple[tuple[Version, Branch], ...]:
        """Return the active versions to select from, with their branches.

        A branch of prompt sync is none: its version is another project's, and nobody here has accepted it.
        """
        pairs = zip(self.active, self.branches, strict=True)
        return tuple((version, branch) for version, branch in pairs if not branch.name.startswith(SYNC))

    def branch(self, name: str = MAIN) -> Branch | None:
        """Return a branch by its name."""
        return next((each for each in self.branches if each.name == name), None)

    def version(self, branch: str = MAIN) -> Version | None:
        """Return a branch's active version."""
        return next((each for each in self.active if each.branch == branch), None)
