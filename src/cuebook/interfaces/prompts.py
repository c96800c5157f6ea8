"""Protocol of the prompt store: versions, branches, labels and observations. Each call is one transaction.

A tenant's prompts are its own. Names are case-sensitive and exact; `prompts.names` has the valid ones.
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

#: Maximum depth of ancestors.
DEPTH = 8
EventKind = Literal["write", "branch", "label", "rollback", "clear"]


class StoredKey(Struct, frozen=True, kw_only=True):
    """A stored Idempotency-Key with its request's digest. `answer` converts a result to the stored answer.

    It is stored in the transaction of the effect. If it exists already, nothing is done: Conflict.
    """

    key: str
    digest: bytes
    at: float
    user: str | None = None  # each user's keys are separate
    answer: Callable[[Any], Any] = lambda result: result  # to a JSON value

    def telling(self, answer: Callable[[Any], Any]) -> "StoredKey":
        """Return it with the answer for a result."""
        return replace(self, answer=answer)


class Write(Struct, frozen=True, kw_only=True):
    """A version to store. `base` is the head that its writer saw, None for any; a new branch names its start."""

    version: Version
    base: int | None = None
    begins: tuple[str, int] | None = None  # branch and number from which a new branch is forked
    if_changed: bool = False  # do not store an unchanged text
    audit: Record | None = None  # joins the chain in the same transaction
    at: float = 0.0  # creation time of an imported version; 0 for now


class Family(Struct, frozen=True, kw_only=True):
    """A prompt: its branches, their active versions, and its labels."""

    slug: str
    branches: tuple[Branch, ...]
    active: tuple[Version, ...]  # in the order of `branches`
    labels: tuple[Label, ...] = ()
    evidence: Mapping[str, Posterior] = {}  # by branch: statistics of its active version

    def branch(self, name: str = MAIN) -> Branch | None:
        """Return a branch by its name."""
        return next((each for each in self.branches if each.name == name), None)

    def version(self, branch: str = MAIN) -> Version | None:
        """Return a branch's active version."""
        return next((each for each in self.active if each.branch == branch), None)


class PromptEvent(Struct, frozen=True, kw_only=True):
    """A change of a prompt, with author and time."""

    kind: EventKind
    branch: str
    number: int
    to: int = 0  # the version now active or labeled
    label: str = ""
    by: str = ""
    reason: str = ""
    at: float = 0.0
    evidence: Mapping[str, Any] = {}


class FamilyPage(Struct, frozen=True):
    """A page of prompts by name, with the cursor of the next."""

    items: tuple[Family, ...]
    next: str | None = None


class PromptStore(Protocol):
    """Stores prompts."""

    async def families(self, scope: Scope, slugs: Sequence[str], *, ancestors: bool = True) -> dict[str, Family]:
        """Return the existing prompts among names, and with `ancestors` all that they inherit from."""
        ...

    async def page(self, scope: Scope, *, prefix: str = "", limit: int = 50, after: str = "") -> FamilyPage:
        """Return a page of prompts by name."""
        ...

    async def versions(
        self, scope: Scope, slug: str, *, branch: str | None = None, numbers: Sequence[int] = ()
    ) -> list[Version]:
        """Return versions of a prompt by branch and number, oldest first, by default all."""
        ...

    async def save(
        self, scope: Scope, writes: Sequence[Write], *, by: str, now: float, once: StoredKey | None = None
    ) -> list[Version]:
        """Store versions, all or none, and make each the head and active version of its branch.

        Return the stored versions, or the existing ones if unchanged. Raises Conflict if a head differs from its
        `base`, NotFound for a missing start of a branch.
        """
        ...

    async def move_label(
        self, scope: Scope, slug: str, label: Label, *, audit: Record | None = None, once: StoredKey | None = None
    ) -> Label:
        """Move a label to a version and record the author. Return the label. Raises NotFound."""
        ...

    async def activate(
        self, scope: Scope, slug: str, event: PromptEvent, *, audit: Record | None = None, once: StoredKey | None = None
    ) -> Branch:
        """Activate another version of a branch: a rollback, or the clearing of one. Raises NotFound, Conflict."""
        ...

    async def events(
        self, scope: Scope, slug: str, *, branch: str | None = None, limit: int = 100
    ) -> list[PromptEvent]:
        """Return the events of a prompt, or of one branch without its labels, newest first."""
        ...

    async def observe(
        self, scope: Scope, observation: Observation, *, audit: Record | None = None, once: StoredKey | None = None
    ) -> Branch:
        """Store an observation and update its branch's statistics in one transaction. Raises NotFound."""
        ...

    async def log(self, scope: Scope, record: Record, *, once: StoredKey) -> Record:
        """Append an audit record with an Idempotency-Key in one transaction. Return it as chained."""
        ...

    async def tell(self, scope: Scope, stored_key: StoredKey, result: Any) -> None:
        """Replace the stored answer of a repeated key."""
        ...

    async def observed(self, scope: Scope, *, after: int) -> tuple[list[str], int]:
        """Return the prompts observed after a mark, 0 for all, and the current mark."""
        ...

    async def tenants(self) -> list[str]:
        """Return the tenants with observations."""
        ...

    async def observations_since(
        self, scope: Scope, slug: str, branch: str, numbers: tuple[int, int], *, after: int, limit: int
    ) -> tuple[list[Observation], int, int]:
        """Return observations of two versions after a mark, 0 for all: in order of arrival, the newest `limit`. Return
        the current mark too, and a number that grows when an earlier observation was corrected. Callers then load all
        again.
        """
        ...

    async def observations(
        self, scope: Scope, slug: str, *, branch: str | None = None, since: float = 0.0, limit: int = 5000
    ) -> list[Observation]:
        """Return a prompt's newest `limit` observations, oldest first."""
        ...


class DueOutcome(Struct, frozen=True):
    """A turn with an unprocessed outcome."""

    tenant: str
    conversation: str
    turn: int


class Lesson(Struct, frozen=True, kw_only=True):
    """An observation to store, and its audit record."""

    observation: Observation
    audit: Record | None = None


class OutcomeStore(Protocol):
    """Stores one outcome per turn. `Opening.outcome` adds that of the previous turn; an existing one stays."""

    async def get(self, scope: Scope, conversation: str, turn: int) -> StoredOutcome | None:
        """Return a turn's outcome, or None. Raises NotFound for another user's conversation."""
        ...

    async def lately(self, scope: Scope, conversation: str, *, limit: int) -> list[Outcome]:
        """Return the newest outcomes of a conversation, newest first. Raises NotFound."""
        ...

    async def give(
        self, scope: Scope, conversation: str, turn: int, outcome: Outcome, *, once: StoredKey | None
    ) -> StoredOutcome:
        """Replace an outcome. Its earlier observations become due for correction.

        Raises NotFound for an unknown turn, Conflict while it runs.
        """
        ...

    async def due(self, *, limit: int) -> list[DueOutcome]:
        """Return turns with a due outcome, in a fixed order."""
        ...

    async def fold(
        self, scope: Scope, conversation: str, turn: int, stored_outcome: StoredOutcome, lessons: Sequence[Lesson]
    ) -> StoredOutcome | None:
        """Store an outcome's observations and clear its due mark, in one transaction.

        An earlier observation of the same outcome is corrected. Return None, and do nothing, if the outcome has changed
        since it was loaded, or is gone.
        """
        ...
