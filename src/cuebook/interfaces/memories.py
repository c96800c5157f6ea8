"""What keeps memories across conversations, by place. Every method takes the Scope of who asks; a place is its owner's.

Deliveries are level-triggered: a conversation is due while posts or a summary lie behind what was delivered of it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from cuebook.memory.scopes import Policy, PolicyTerms
from cuebook.records.conversation import Conversation, Post
from cuebook.records.key import Key
from cuebook.records.memory import Correction, Dense, Item, Memory, Place, Scope, Summary


class Correcting(Struct, frozen=True, kw_only=True):
    """A summary that does not know of the newest corrections, with its items, ended ones too."""

    conversation: Conversation
    summary: Summary
    items: tuple[Item, ...]
    corrections: tuple[Correction, ...]  # all of the conversation's, in the order they were made
    epoch: int  # how often something in the conversation was erased


class Corrected(Struct, frozen=True, kw_only=True):
    """What comes in a summary's place: one of the same posts, and its items as they are to stand."""

    read: Correcting
    summary: Summary
    added: tuple[Item, ...]
    gone: tuple[Item, ...]
    now: float
    sinks: tuple[str, ...] = ()


class CorrectionStore(Protocol):
    """Keeps corrections of conversations."""

    async def of(self, scope: Scope, conversation: str) -> tuple[Correction, ...]:
        """Return a conversation's corrections, in the order they were made. Raises NotFound."""
        ...

    async def keep(self, scope: Scope, correction: Correction) -> None:
        """Keep a correction. Raises NotFound."""
        ...

    async def said_in(self, scope: Scope, conversation: str, posts: Sequence[str]) -> list[Memory]:
        """Return memories of users and personas that come from some of a conversation's posts."""
        ...

    async def due(self, *, limit: int = 100) -> list[tuple[str, str]]:
        """Name conversations whose head's summary does not know of their newest correction: tenant and id."""
        ...

    async def read(self, scope: Scope, conversation: str, *, upto: int | None = None) -> Correcting | None:
        """Read the summary that ends at a post, the head's without one; None where it knows of all corrections."""
        ...

    async def save(self, scope: Scope, corrected: Corrected) -> bool:
        """Keep a corrected summary; False, and nothing is kept, where a pass or another correction came first."""
        ...


class MemoryLook(Struct, frozen=True, kw_only=True):
    """What a turn wants of memories: what the request says of the policy, and how many by query and by standing."""

    control: Mapping[str, Any] = {}
    defaults: Policy = Policy()
    user: str | None = None
    persona: str = ""
    otherwise: str = ""  # the persona where neither the request nor the conversation names one
    organization: str | None = None
    text: str = ""
    limit: int = 24


class MemoryQuery(Struct, frozen=True, kw_only=True):
    """What is looked for among memories: those that hold, or that held at a time (Unix seconds)."""

    text: str
    dense: Dense | None = None  # its vector: memories close to it are found beside those that share its words
    at: float | None = None
    limit: int = 24  # of each place by words, and as many by meaning
    standing: int = 24  # of each place that stand by themselves


class Matched(Struct, frozen=True, kw_only=True):
    """Memories of places. `found` are the numbers of those that answer, best first; the others stand by themselves.

    `cosines` are theirs with the query, by number. `held` counts the memories of the places; `frequencies` say in how
    many a word of the query stands, where they were counted; `keys` are search keys dated in UTC, by number, of those
    whose keys are at hand.
    """

    memories: tuple[Memory, ...] = ()
    found: tuple[int, ...] = ()
    cosines: Mapping[int, float] = {}
    held: int = 0
    frequencies: Mapping[str, int] = {}
    keys: Mapping[int, str] = {}
    mean_cosine: float = 0.0  # of all that have a vector
    akin: float = 1.0


class MemoryContext(Matched, frozen=True, kw_only=True):
    """What a turn may know from other conversations: the policy that holds, and the memories of its places."""

    policy: Policy
    places: tuple[Place, ...] = ()
    settings: Mapping[str, Any] = {}  # of the organization named


class Cited(Struct, frozen=True):
    """A post as what came of it is judged: who said it, and under which terms.

    `own_name`: the sender is D's "User", or of the name a user's message opened the conversation under, and nobody but
    the user took part then. `terms` are those of the turns that answered its round, else of the
    turn that brought it, else of the last one before it; none where there was none.
    """

    role: str
    sender: str
    own_name: bool = False
    terms: tuple[PolicyTerms, ...] = ()


class Delivering(Struct, frozen=True, kw_only=True):
    """What a delivery reads of a conversation: posts behind the last one, and items a pass has touched since.

    `left`: the head's path has left what was delivered; nothing is read before that is withdrawn. `again`: what is read
    was delivered before.
    """

    conversation: Conversation
    seq: int  # up to which posts are read
    version: int  # the summary that stands for the head
    done: tuple[int, int]  # seq and version delivered before
    left: bool = False
    again: bool = False
    settings: Mapping[str, Mapping[str, Any]] = {}  # of the organizations that were told, by id
    keys: Mapping[str, Key | None] = {}  # by which they were told, by id; None: there is none of it in the tenant
    before: tuple[Post, ...] = ()
    posts: tuple[Post, ...] = ()
    items: tuple[Item, ...] = ()
    cited: Mapping[str, Cited] = {}  # by id: the posts read, and those the items come from
    more: bool = False  # posts are left behind `seq`
    corrections: tuple[Correction, ...] = ()  # of the conversation, made by hand


class PlaceChange(Struct, frozen=True, kw_only=True):
    """What a delivery or a hand does to a place, decided on a state of that generation."""

    place: Place
    generation: int
    memories: tuple[Memory, ...]  # as they are to stand, new ones among them, with all their sources
    corrections: tuple[Correction, ...] = ()  # what a hand changes in the conversations they come from


class Delivered(Struct, frozen=True, kw_only=True):
    """The result of a delivery: all places, and the mark, or nothing where something moved on."""

    conversation: str
    no: int
    done: tuple[int, int]
    seq: int
    version: int
    changes: tuple[PlaceChange, ...]
    now: float
    kept: Any = None  # the policy the conversation kept when it was decided,
    settings: Mapping[str, Mapping[str, Any]] = {}  # what organizations allowed,
    keys: Mapping[str, Key | None] = {}  # and the keys by which they were told
    more: bool = False
    corrected: int = 0  # the newest correction there was


class MemoryStore(Protocol):
    """Keeps memories of places."""

    @property
    def corrections(self) -> CorrectionStore: ...

    # behind the reply
    async def undelivered(self, *, limit: int = 100) -> list[tuple[str, str]]: ...
    async def delivering(self, scope: Scope, conversation: str, *, limit: int) -> Delivering | None: ...
    async def deliver(self, scope: Scope, delivered: Delivered) -> bool: ...
    async def withdraw(self, scope: Scope, left: Delivering, *, now: float) -> bool: ...
    async def outbox(self, *, sinks: Sequence[str], limit: int = 100) -> list[tuple[int, str, str, str, int]]: ...
    async def crossed_off(self, nos: Sequence[int]) -> None: ...
    async def idle(
        self, scope: Scope, *, before: float, categories: Sequence[str], limit: int = 500
    ) -> list[tuple[str, Memory]]: ...

    # reading
    async def places(self, scope: Scope, user: str) -> list[Place]: ...
    async def place(
        self, scope: Scope, place: Place, *, near: Sequence[str] | None = None, ids: Sequence[str] = ()
    ) -> tuple[int, list[Memory]]: ...
    async def find(self, scope: Scope, places: Sequence[Place], asked: MemoryQuery) -> Matched: ...
    async def page(
        self,
        scope: Scope,
        places: Sequence[Place] | None,
        *,
        ended: bool = False,
        category: str | None = None,
        after: int = 0,
        limit: int = 50,
    ) -> list[Memory]: ...
    async def get(self, scope: Scope, id: str, *, places: Sequence[Place] | None = None) -> list[Memory]: ...  # noqa: A002
    async def settings(self, scope: Scope, organization: str) -> Mapping[str, Any]: ...

    # changing
    async def save(self, scope: Scope, change: PlaceChange, *, now: float) -> bool: ...
    async def remove(self, scope: Scope, gone: Sequence[Memory]) -> int: ...
