"""What the prompt book needs of a store: coarse calls, each one transaction.

A tenant's prompts are its own. Names are case-sensitive and exact; `prompts.names` says which are names at all.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from cuebook.prompts.learn import Posterior
from cuebook.records.audit import Record
from cuebook.records.memory import Scope
from cuebook.records.outcome import Outcome, StoredOutcome
from cuebook.records.prompt import MAIN, Branch, Label, Observation, Version

#: Ancestors are followed so far and no farther.
DEPTH = 8
EventKind = Literal["write", "branch", "label", "rollback", "clear"]


class Once(Struct, frozen=True, kw_only=True):
    """An Idempotency-Key as it is kept, and the digest of its request; `answer` reads of a call's result what is told.

    It is bound in the transaction of the effect. Where it stands already nothing is done: Conflict.
    """

    key: str
    digest: bytes
    at: float
    user: str | None = None  # each user's keys are their own
    answer: Callable[[Any], Any] = lambda result: result  # to something JSON can say

    def telling(self, answer: Callable[[Any], Any]) -> "Once":
        """Return it with what is told of a result."""
        return replace(self, answer=answer)


class Write(Struct, frozen=True, kw_only=True):
    """A version to store. `base` is the head its writer saw, None for whatever stands; a new branch names its start."""

    version: Version
    base: int | None = None
    begins: tuple[str, int] | None = None  # branch and number a new branch is forked from
    if_changed: bool = False  # the same text again is no version
    audit: Record | None = None  # joins the chain where the version is stored
    at: float = 0.0  # when it was written, where it comes from another book; 0 for now


class Family(Struct, frozen=True, kw_only=True):
    """A prompt as it stands: its branches, the active version of each, its labels."""

    slug: str
    branches: tuple[Branch, ...]
    active: tuple[Version, ...]  # in the order of `branches`
    labels: tuple[Label, ...] = ()
    evidence: Mapping[str, Posterior] = {}  # by branch: what its active version's observations say

    def branch(self, name: str = MAIN) -> Branch | None:
        """Return a branch by its name."""
        return next((each for each in self.branches if each.name == name), None)

    def version(self, branch: str = MAIN) -> Version | None:
        """Return a branch's active version."""
        return next((each for each in self.active if each.branch == branch), None)


class PromptEvent(Struct, frozen=True, kw_only=True):
    """What was done to a prompt, by whom and when."""

    kind: EventKind
    branch: str
    number: int
    to: int = 0  # the version that is active or labelled now
    label: str = ""
    by: str = ""
    reason: str = ""
    at: float = 0.0
    evidence: Mapping[str, Any] = {}


class FamilyPage(Struct, frozen=True):
    """A page of prompts by name, and how to go on."""

    items: tuple[Family, ...]
    next: str | None = None


class PromptStore(Protocol):
    """Where prompts are kept."""

    async def families(self, scope: Scope, slugs: Sequence[str], *, ancestors: bool = True) -> dict[str, Family]:
        """Return prompts by name, those that are, and with `ancestors` all they inherit from."""
        ...

    async def page(self, scope: Scope, *, prefix: str = "", limit: int = 50, after: str = "") -> FamilyPage:
        """List prompts by name."""
        ...

    async def versions(
        self, scope: Scope, slug: str, *, branch: str | None = None, numbers: Sequence[int] = ()
    ) -> list[Version]:
        """Return versions of a prompt by branch and number, oldest first; all of them unless numbers are named."""
        ...

    async def save(
        self, scope: Scope, writes: Sequence[Write], *, by: str, now: float, once: Once | None = None
    ) -> list[Version]:
        """Store versions, all or none, and make each its branch's head and active.

        Answers with the versions as stored, those unchanged as they stand. Raises Conflict where a head has moved on
        from its `base`, NotFound where a branch would begin at what is not there.
        """
        ...

    async def move_label(
        self, scope: Scope, slug: str, label: Label, *, audit: Record | None = None, once: Once | None = None
    ) -> Label:
        """Point a label at a version, and note who did. Answers with the label. Raises NotFound."""
        ...

    async def activate(
        self, scope: Scope, slug: str, event: PromptEvent, *, audit: Record | None = None, once: Once | None = None
    ) -> Branch:
        """Make another version of a branch active: a rollback, or the clearing of one. Raises NotFound, Conflict."""
        ...

    async def events(
        self, scope: Scope, slug: str, *, branch: str | None = None, limit: int = 100
    ) -> list[PromptEvent]:
        """Return what was done to a prompt, or to one branch but for its labels, the newest first."""
        ...

    async def observe(
        self, scope: Scope, observation: Observation, *, audit: Record | None = None, once: Once | None = None
    ) -> Branch:
        """Keep an observation and fold it into its branch, in one transaction. Raises NotFound."""
        ...

    async def log(self, scope: Scope, record: Record, *, once: Once) -> Record:
        """Chain a record of the audit under a key, in one transaction. Answers with it as chained."""
        ...

    async def tell(self, scope: Scope, once: Once, result: Any) -> None:
        """Tell another answer than that of the effect's own transaction where the key is repeated."""
        ...

    async def observed(self, scope: Scope, *, after: int) -> tuple[list[str], int]:
        """Name the prompts that were observed behind a mark, 0 for the beginning, and give the mark now."""
        ...

    async def tenants(self) -> list[str]:
        """Name the tenants of which something was observed."""
        ...

    async def observations_since(
        self, scope: Scope, slug: str, branch: str, numbers: tuple[int, int], *, after: int, limit: int
    ) -> tuple[list[Observation], int, int]:
        """Return observations of two versions behind a mark, 0 for the beginning: in the order they came, the newest
        `limit` of them. Answers with the mark now, too, and with a number that grows where one that lies before it
        was corrected: who has read them reads them anew.
        """
        ...

    async def observations(
        self, scope: Scope, slug: str, *, branch: str | None = None, since: float = 0.0, limit: int = 5000
    ) -> list[Observation]:
        """Return observations of a prompt, oldest first, the newest `limit` of them."""
        ...


class DueOutcome(Struct, frozen=True):
    """A turn whose prompts have not been taught its outcome."""

    tenant: str
    conversation: str
    turn: int


class Lesson(Struct, frozen=True, kw_only=True):
    """An observation to be folded in, and its record for the audit."""

    observation: Observation
    audit: Record | None = None


class OutcomeStore(Protocol):
    """Keeps one outcome a turn. `Opening.outcome` adds that of the turn before; one that stands is left as it is."""

    async def get(self, scope: Scope, conversation: str, turn: int) -> StoredOutcome | None:
        """Return a turn's outcome, None where nothing was heard. Raises NotFound for a conversation of others."""
        ...

    async def lately(self, scope: Scope, conversation: str, *, limit: int) -> list[Outcome]:
        """Return the outcomes of a conversation's newest turns that have one, newest first. Raises NotFound."""
        ...

    async def give(
        self, scope: Scope, conversation: str, turn: int, outcome: Outcome, *, once: Once | None
    ) -> StoredOutcome:
        """Put an outcome in the place of what stands; what was taught of it is due to be corrected.

        Raises NotFound where there is no such turn, Conflict while it runs.
        """
        ...

    async def due(self, *, limit: int) -> list[DueOutcome]:
        """Return turns whose outcome is due, in a fixed order."""
        ...

    async def fold(
        self, scope: Scope, conversation: str, turn: int, known: StoredOutcome, lessons: Sequence[Lesson]
    ) -> StoredOutcome | None:
        """Fold an outcome's observations in, and note that, in one transaction.

        A version that was taught this outcome before has its observation corrected. None, and nothing is done, where
        the outcome has changed since it was read, or is gone.
        """
        ...
