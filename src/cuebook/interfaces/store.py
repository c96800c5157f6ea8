"""Structs of the store: the queries and results of turns, conversations and background jobs.

Every method of the store takes the caller's Scope; another scope's object is NotFound. Writes are durable when they
return. A write based on an earlier read is a compare-and-set: it raises Conflict (or LeaseLost) after a concurrent
change, and changes nothing.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from cuebook.interfaces.prompts import Family
from cuebook.memory.scopes import SHARING_ALLOWED, Policy, PolicyTerms
from cuebook.records.audit import Record
from cuebook.records.conversation import Conversation, Draft, PathPost, Post, Stretch
from cuebook.records.key import Key, LongTermMemory
from cuebook.records.memory import Correction, Dense, Item, Memory, Place, Scope, SearchResult, Summary
from cuebook.records.mind import Reflection
from cuebook.records.prompt import Outcome
from cuebook.records.tuning import TuningState
from cuebook.records.turn import Manifest, Turn, TurnOn, TurnState, Usage, WorkUsage

#: Instead of a parent's id: the post has none and starts the conversation again.
ROOT = ""


# ---- cross-conversation memories ------------------------------------------------------------------------------------


class CorrectionInput(Struct, frozen=True, kw_only=True):
    """A summary without the newest corrections, and its items, ended ones too."""

    conversation: Conversation
    summary: Summary
    items: tuple[Item, ...]
    corrections: tuple[Correction, ...]  # all of the conversation's, in order of creation
    epoch: int  # number of erasures in the conversation


class MemoryLook(Struct, frozen=True, kw_only=True):
    """A turn's query for memories: the request's policy, and who asks."""

    control: Mapping[str, Any] = {}
    defaults: Policy = Policy()
    user: str | None = None
    persona: str = ""
    otherwise: str = ""  # the persona if neither the request nor the conversation names one
    organization: str | None = None
    text: str = ""


class MemoryQuery(Struct, frozen=True, kw_only=True):
    """A search among memories valid now or at a time (Unix seconds)."""

    text: str
    dense: Dense | None = None  # its vector: memories close to it match too
    at: float | None = None
    limit: int = 24  # of each place by words, and as many by meaning
    standing: int = 100  # of each place without a match


class MemoryMatches(Struct, frozen=True, kw_only=True):
    """Memories of places. `found` are the numbers of matches, best first; the others are standing ones.

    `cosines` are theirs with the query, by number. `held` is the number of memories in the places. `frequencies` count
    the memories that contain a word of the query, if counted. `keys` are search keys dated in UTC, by number, where
    available. `unread` is the number of standing memories beyond the query's limit.
    """

    memories: tuple[Memory, ...] = ()
    found: tuple[int, ...] = ()
    cosines: Mapping[int, float] = {}
    held: int = 0
    frequencies: Mapping[str, int] = {}
    keys: Mapping[int, str] = {}
    mean_cosine: float = 0.0  # of all with a vector
    cosine_deviation: float = 0.0  # their standard deviation
    akin: float = 1.0
    unread: int = 0
    policy: Policy = Policy()  # of a turn: its effective policy,
    places: tuple[Place, ...] = ()  # the places that it may read,
    settings: LongTermMemory = SHARING_ALLOWED  # and those of the named organization


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


# ---- turns and background jobs ---------------------------------------------------------------------------------------


class SearchLook(Struct, frozen=True, kw_only=True):
    """A full-text query: `limit` posts at most, and their neighbors."""

    text: str
    limit: int = 200
    dense: Dense | None = None  # its vector: posts close to it match too
    until: float | None = None  # words match only posts that are not newer


class PathQuery(Struct, frozen=True, kw_only=True):
    """A turn's query to the store. Limits apply to the path: newer posts in full, then compressed forms."""

    conversation: str
    parent: int | None = None  # continue after this post; None = the head
    full_tokens: int = 0
    small_tokens: int = 0
    small_after: int = 0  # `small_tokens` applies after this many in full; 0 = after `full_tokens`
    post_tokens: int = 0  # most tokens of one post counted in `full_tokens`: no window shows more of it; 0 = no limit
    search: SearchLook | None = None
    quotes: bool = False  # search even if the memory policy recalls nothing
    use_summary: bool = True
    whole: bool = False  # load the path from its start; by default from the summary's mark
    prompts: tuple[str, ...] = ()  # prompts for the system prompt, including the project's own
    project: str | None = None  # the requested project; None = the conversation's, else `otherwise`
    otherwise: str = ""
    memory: MemoryLook | None = None  # query for cross-conversation memories; None = none
    summary_version: int | None = None  # the summary of an open turn's first step, 0 for none; None = the newest
    steady_posts: int = 0  # keep the last used summary while at most this many posts follow it (prompt cache)


class Scene(Struct, frozen=True, kw_only=True):
    """A consistent snapshot of everything that a turn decides on."""

    conversation: Conversation
    parent: int = 0
    path: tuple[PathPost, ...] = ()  # oldest first, after the summary's mark
    unread: tuple[Stretch, ...] = ()  # older posts after the mark beyond the limits, oldest first
    path_count: int = 0  # number of all posts on the path
    summary: Summary | None = None
    waiting_turn: Turn | None = None  # waits for tool results
    previous: Manifest | None = None  # the last step's window in this conversation
    found: SearchResult = SearchResult()
    speakers: tuple[str, ...] = ()
    told: Mapping[str, Any] = {}  # metadata of the newest turn, with its selections
    last_turn: TurnOn | None = None  # the newest turn on the loaded path; another branch may have a newer one
    reflection: Reflection | None = None  # the newest mood state on the loaded path
    tuning: TuningState | None = None  # the conversation's tuning, None before its first run
    work: tuple[WorkUsage, ...] = ()  # usage of background model calls for the conversation
    known: MemoryMatches | None = None  # cross-conversation memories, if requested
    families: Mapping[str, Family] = {}  # the existing requested prompts, with their ancestors
    epoch: int = 0  # number of erasures in the tenant
    corrected: int = 0  # the newest correction of the conversation, if it has a summary

    @property
    def has_new_summary(self) -> bool:
        """Return whether the previous step had another summary or none."""
        before = self.previous.summary_version if self.previous else 0
        return self.summary is not None and self.summary.version != before


class Batch(Struct, frozen=True, kw_only=True):
    """Posts to store together, all or none."""

    conversation: str
    drafts: tuple[Draft, ...]
    now: float
    user: str | None = None
    persona: str | None = None
    parent: str | None = None  # id of the post before the first one; None = the head, ROOT = none
    delivers: bool = False  # the posts are delivered beyond the conversation
    time_zone: str | None = None  # stored in the conversation's metadata; None changes nothing
    metadata: Mapping[str, Any] = {}  # likewise, by name
    begins: bool = True  # create a missing conversation; else NotFound


class MetapromptTask(Struct, frozen=True, array_like=True):
    """A task of a reflection: a metaprompt's id, and the reason: `event:NAME`, `interval:N`, `manual` or `llm`."""

    metaprompt: str
    trigger: str


#: New posts after a stored post (its seq; 0: the root), apart from the path that goes on there.
Insertion = tuple[int, tuple[Draft, ...]]


class StepStart(Struct, frozen=True, kw_only=True):
    """A step to open, based on the head and last seq of a scene."""

    conversation: str
    expected_head: int
    expected_last_seq: int
    parent: int  # seq that the first draft follows
    drafts: tuple[Draft, ...]
    manifest: Manifest
    texts: dict[str, str]  # digest (hex) -> text of the manifest's derived blocks
    now: float
    lease_s: float
    insertions: tuple[Insertion, ...] = ()  # stored after the drafts
    user: str | None = None
    persona: str | None = None
    turn: int = 0  # a waiting turn that this step continues; 0 opens a new one
    query_seq: int = 0  # the answered post
    moves_head: bool = True
    parallel: bool = False  # a turn beside the one that holds the conversation's lease
    metadata: dict[str, Any] = {}
    mode: str | None = None  # stored in the conversation's metadata; None changes nothing
    time_zone: str | None = None  # likewise
    policy: Mapping[str, Any] | None = None  # likewise
    delivers: bool = False  # the posts are delivered beyond the conversation
    utility: bool = False  # the turn is a utility call, and so is its conversation
    frame: tuple[bytes, bytes] | None = None  # digests of the first and last words of a conversation's first message
    project: str | None = None  # likewise
    idempotency: tuple[str, bytes] | None = None  # key and digest of the request
    audit: tuple[Record, ...] = ()  # rendered prompts; these join the chain
    calls: tuple[MetapromptTask, ...] = ()  # tasks of the turn's reflection; empty = none requested
    work: tuple[WorkUsage, ...] = ()  # usage of the model that selected experiences
    outcome: tuple[int, Outcome] | None = None  # feedback of the caller's message on an earlier turn, by its number
    epoch: int | None = None  # of the scene, to detect a later erasure; None disables the check


class Lease(Struct, frozen=True, kw_only=True):
    """The lease for a running turn in a conversation until `until`. `fence` invalidates earlier leases.

    The turns of a conversation hold its lease one after another. A `parallel` turn has a lease of its own.
    """

    scope: Scope
    conversation: str
    no: int
    turn: int
    step: int
    fence: int
    until: float
    last_seq: int
    parallel: bool = False


class Spending(Struct, frozen=True):
    """Tokens that an API key has spent on a day, counted from 1970 in UTC."""

    key: str
    day: int
    tokens: int


class StepEnd(Struct, frozen=True, kw_only=True):
    """The end of a step. Without `reply` there was no answer."""

    state: TurnState
    now: float
    reply: Draft | None = None
    waiting: bool = False  # the model called tools
    usage: Usage | None = None
    error: str = ""
    metadata: dict[str, Any] = {}
    others: tuple[Draft, ...] = ()  # further choices: siblings of the reply
    used: tuple[str, ...] = ()  # ids of memories that the reply repeats
    audit: tuple[Record, ...] = ()
    spending: Spending | None = None  # counts toward the daily limit of a key


class PostSpot(Struct, frozen=True, array_like=True):
    """A post's place in its tree: its parent, its number on its path from 1, the first post of its run."""

    parent: int
    depth: int
    run: int


class Alignment(Struct, frozen=True):
    """Alignment of a resent history with a stored tree: by message number the seqs of posts with equal content.

    `posts` has the places of these posts and the head. `runs` maps the first post of each run on their paths to the
    run's parent and the first post of the parent's run: (0, 0) at a root.
    """

    conversation: Conversation
    places: tuple[tuple[int, ...], ...]
    posts: dict[int, PostSpot]
    runs: dict[int, tuple[int, int]]


class StoredPath(Struct, frozen=True):
    """A stored path from the root that equals the start of a history: the seqs of its posts, in order."""

    conversation: Conversation
    seqs: tuple[int, ...]
    leads_to_head: bool


class CompactionInput(Struct, frozen=True, kw_only=True):
    """Input of one summarization pass: posts after the mark up to `upto` on the head's path, the previous summary and
    its items.
    """

    conversation: Conversation
    scope: Scope
    posts: tuple[Post, ...]
    previous: Summary | None
    items: tuple[Item, ...]  # ended ones too, with `valid_to`
    before: Post | None = None  # the last post in the summary
    failures: int = 0
    last_at: float = 0.0
    epoch: int = 0  # number of erasures in the conversation
    corrections: tuple[Correction, ...] = ()  # manual, in order
    speakers: tuple[str, ...] = ()  # the first senders of the conversation, in order

    @property
    def corrected(self) -> int:
        """Return the number of the newest correction, 0 for none."""
        return self.corrections[-1].no if self.corrections else 0

    @property
    def lags(self) -> bool:
        """Return whether the previous summary lacks the newest corrections."""
        return self.previous is not None and self.previous.corrected < self.corrected


class CompactionResult(Struct, frozen=True, kw_only=True):
    """The result of a pass, stored only if the head still descends from the covered posts."""

    conversation: str
    previous_version: int
    summary: Summary
    now: float
    items: tuple[Item, ...] = ()  # new and changed ones
    no: int = 0  # the conversation's number when loaded, because an id may be reused; 0 disables the check
    audit: tuple[Record, ...] = ()  # the model's instructions; joins the chain with the summary
    sinks: tuple[str, ...] = ()  # further receivers
    epoch: int = 0  # of the input: a pass over data erased since is rejected


class DueConversation(Struct, frozen=True):
    """A conversation with unsummarized posts."""

    tenant: str
    conversation: str
    backlog: int
    backlog_tokens: int
    mark: int
    not_before: float
    last_at: float
    failures: int
    updated_at: float
    mode: str = ""
    no: int = 0  # the store's number
    trigger: float | None = None  # the tuned usage from which profile `budget` compacts


class IdempotencyRecord(Struct, frozen=True):
    """The request that used an Idempotency-Key: its digest, and the step that it opened; turn 0 for another request.

    A key whose step ended without a complete answer can be reused for the same request.
    """

    digest: bytes
    conversation: str
    turn: int
    step: int


# ---- reflections -----------------------------------------------------------------------------------------


class DueReflection(Struct, frozen=True, kw_only=True):
    """A due reflection."""

    tenant: str
    conversation: str
    turn: int
    n: int
    count: int = 1  # of the due reflections of its conversation


class ReflectionInput(Struct, frozen=True, kw_only=True):
    """Input of a reflection."""

    conversation: Conversation
    turn: TurnOn
    n: int
    calls: tuple[MetapromptTask, ...]
    before: Reflection | None  # the newest on the turn's path
    epoch: int  # number of erasures in the conversation
