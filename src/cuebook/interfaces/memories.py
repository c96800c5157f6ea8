"""Structs of the store of cross-conversation memories, by place. A place belongs to its owner.

A conversation is due for delivery while it has posts or a summary after its delivery mark.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from cuebook.memory.scopes import SHARING_ALLOWED, Policy, PolicyTerms
from cuebook.records.conversation import Conversation, Post
from cuebook.records.key import Key, LongTermMemory
from cuebook.records.memory import Correction, Dense, Item, Memory, Place, Summary


class CorrectionInput(Struct, frozen=True, kw_only=True):
    """A summary without the newest corrections, and its items, ended ones too."""

    conversation: Conversation
    summary: Summary
    items: tuple[Item, ...]
    corrections: tuple[Correction, ...]  # all of the conversation's, in order of creation
    epoch: int  # number of erasures in the conversation


class MemoryLook(Struct, frozen=True, kw_only=True):
    """A turn's query for memories: the request's policy, and numbers by relevance and without a query."""

    control: Mapping[str, Any] = {}
    defaults: Policy = Policy()
    user: str | None = None
    persona: str = ""
    otherwise: str = ""  # the persona if neither the request nor the conversation names one
    organization: str | None = None
    text: str = ""
    limit: int = 24


class MemoryQuery(Struct, frozen=True, kw_only=True):
    """A search among memories valid now or at a time (Unix seconds)."""

    text: str
    dense: Dense | None = None  # its vector: memories close to it match too
    at: float | None = None
    limit: int = 24  # of each place by words, and as many by meaning
    standing: int = 24  # of each place without a match


class MemoryMatches(Struct, frozen=True, kw_only=True):
    """Memories of places. `found` are the numbers of matches, best first; the others are durable ones.

    `cosines` are theirs with the query, by number. `held` is the number of memories in the places. `frequencies` count
    the memories that contain a word of the query, if counted. `keys` are search keys dated in UTC, by number, where
    available.
    """

    memories: tuple[Memory, ...] = ()
    found: tuple[int, ...] = ()
    cosines: Mapping[int, float] = {}
    held: int = 0
    frequencies: Mapping[str, int] = {}
    keys: Mapping[int, str] = {}
    mean_cosine: float = 0.0  # of all with a vector
    akin: float = 1.0


class MemoryContext(MemoryMatches, frozen=True, kw_only=True):
    """Memory that a turn may use from other conversations: the effective policy, and the memories of its places."""

    policy: Policy
    places: tuple[Place, ...] = ()
    settings: LongTermMemory = SHARING_ALLOWED  # of the named organization


class CitedPost(Struct, frozen=True):
    """A post for judging items from it: its sender, and the policy terms.

    `own_name`: the sender is TaskWeaver's "User", or has the name that the user started the conversation with, and
    nobody else took part then. `terms` are those of the turns that answered it, else of the turn that stored it, else
    of the last one before it, or none.
    """

    role: str
    sender: str
    own_name: bool = False
    terms: tuple[PolicyTerms, ...] = ()


class DeliveryInput(Struct, frozen=True, kw_only=True):
    """Input of a delivery: posts after the last one, and items that a pass has changed since.

    `left`: the head's path no longer contains the delivered posts; withdraw those first. `again`: the input was
    delivered before.
    """

    conversation: Conversation
    seq: int  # last loaded post
    version: int  # the current summary of the head
    done: tuple[int, int]  # seq and version delivered before
    left: bool = False
    again: bool = False
    settings: Mapping[str, LongTermMemory] = {}  # of the receiving organizations, by id
    keys: Mapping[str, Key | None] = {}  # API keys of the messages, by id; None: missing in the tenant
    before: tuple[Post, ...] = ()
    posts: tuple[Post, ...] = ()
    items: tuple[Item, ...] = ()
    cited: Mapping[str, CitedPost] = {}  # by id: the loaded posts, and the sources of the items
    corrections: tuple[Correction, ...] = ()  # manual ones of the conversation


class PlaceChange(Struct, frozen=True, kw_only=True):
    """Changes of a place by a delivery or by hand, based on this generation."""

    place: Place
    generation: int
    memories: tuple[Memory, ...]  # final state, new ones included, with all their sources
    corrections: tuple[Correction, ...] = ()  # manual changes in the source conversations
