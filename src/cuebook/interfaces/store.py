"""What keeps everything: one coarse method for each thing a turn, a door or the work behind needs.

Every method takes the Scope of who asks; another scope's object is NotFound. Writes are durable when they return. A
method that writes what was decided on an earlier read compares and sets: it raises Conflict (or LeaseLost) when the
state has moved on, and changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from cuebook.interfaces.erasure import AuditStore, ErasureStore
from cuebook.interfaces.keys import KeyStore, OrganizationStore
from cuebook.interfaces.memories import MemoryContext, MemoryLook, MemoryStore
from cuebook.interfaces.prompts import Family, OutcomeStore, PromptStore
from cuebook.interfaces.reflections import MetapromptTask, ReflectionStore, TuningStore
from cuebook.interfaces.vectors import VectorStore
from cuebook.records.audit import Record
from cuebook.records.conversation import Conversation, Draft, PathPost, Post, RoundState, Stretch
from cuebook.records.conversation_list import Answering, ConversationSummaries, PostPlace, PostRun
from cuebook.records.memory import Correction, Dense, Found, Item, Scope, SearchResult, Summary
from cuebook.records.mind import Reflection
from cuebook.records.outcome import Outcome
from cuebook.records.tuning import Tuning
from cuebook.records.turn import Manifest, Turn, TurnOn, TurnState, Usage
from cuebook.records.usage import ShadowedCall, Spent


class TalkStore(Protocol):
    """Reads conversations as lists and readers see them."""

    async def written(self) -> tuple[int, int]:
        """Return a reader and its mark: read again by the same reader it differs when anything was written meanwhile.

        By whichever process, and to whichever tenant: it says when to look again, and nothing else.
        """
        ...

    async def find(
        self, scope: Scope, words: Sequence[str], *, limit: int, cursor: str | None = None
    ) -> ConversationSummaries:
        """List conversations who asks takes part in, the most recent first.

        With `words` those that have each of them, in either case, in their id, their user or how their first post
        begins. Raises InvalidInput for a cursor that is none.
        """
        ...

    async def runs(self, scope: Scope, conversation: str) -> list[PostRun]:
        """Return the runs of a conversation's tree, by their first post. Raises NotFound."""
        ...

    async def answering(self, scope: Scope, conversation: str, *, first: int, last: int) -> list[Answering]:
        """Return the turns of the rounds `first`..`last`, both included, oldest first. Raises NotFound."""
        ...

    async def answers(self, scope: Scope, conversation: str, rounds: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return the turn and step of each answer in some rounds, by its seq. Raises NotFound."""
        ...

    async def places(self, scope: Scope, conversation: str, ids: Sequence[str]) -> dict[str, PostPlace]:
        """Return the places of posts by id; of a post that is not there, nothing. Raises NotFound."""
        ...


class ShadowStore(Protocol):
    """Reads the calls that were kept in shadow."""

    async def calls(self, scope: Scope, conversation: str | None) -> list[ShadowedCall]:
        """Return the calls of a conversation, or of all that who asks takes part in, oldest first. Raises NotFound."""
        ...


class SpentStore(Protocol):
    """Reads what model calls took."""

    async def calls(self, scope: Scope, conversation: str, *, first: int, last: int) -> list[Spent]:
        """Return the calls of turns `first`..`last` of a conversation, both included. Raises NotFound."""
        ...


__all__ = [
    "ROOT",
    "Alignment",
    "Appended",
    "Batch",
    "Closing",
    "Compacted",
    "CompactionInput",
    "DueConversation",
    "Found",
    "Lease",
    "Look",
    "Opening",
    "PageOfConversations",
    "PathPost",
    "PostSpot",
    "Scene",
    "SearchLook",
    "SearchResult",
    "Store",
    "StoredAnswer",
    "Stretch",
    "TurnOn",
]


#: In the place of a parent's id: there is none, the post begins the conversation anew.
ROOT = ""


class SearchLook(Struct, frozen=True, kw_only=True):
    """A question put to full text, as it was asked; `limit` posts at most, and their neighbours beside them."""

    text: str
    limit: int = 200
    dense: Dense | None = None  # its vector: posts close to it are found beside those that share its words


class Look(Struct, frozen=True, kw_only=True):
    """What a turn wants to read. Caps bound what is read of the path: newer posts in full, then compressed forms."""

    conversation: str
    parent: int | None = None  # continue after this post; None = the head
    full_tokens: int = 0
    small_tokens: int = 0
    small_after: int = 0  # `small_tokens` counts what lies behind so many tokens in full; 0 = behind `full_tokens`
    post_tokens: int = 0  # a larger post counts as this much of `full_tokens`: no window shows more of it; 0 = as it is
    search: SearchLook | None = None
    use_summary: bool = True
    prompts: tuple[str, ...] = ()  # prompts that may stand in front of the path; a project's own of them are read too
    project: str | None = None  # the project asked for; None = the one the conversation keeps, else `otherwise`
    otherwise: str = ""
    memory: MemoryLook | None = None  # what other conversations may tell; None asks for nothing
    summary_version: int | None = None  # the summary an open round's first step used, 0 for none; None = the newest
    steady_posts: int = 0  # the summary shown last stays while so many posts or fewer lie behind it (prompt cache)


class Scene(Struct, frozen=True, kw_only=True):
    """One consistent read of everything a turn decides on."""

    conversation: Conversation | None
    parent: int = 0
    path: tuple[PathPost, ...] = ()  # oldest first, behind the summary's mark
    unread: tuple[Stretch, ...] = ()  # older posts behind the mark that the caps left out, oldest first
    path_count: int = 0  # posts on the path in all
    summary: Summary | None = None
    open_turn: Turn | None = None
    previous: Manifest | None = None  # the last step's window in this conversation
    found: SearchResult = SearchResult()
    speakers: tuple[str, ...] = ()
    told: Mapping[str, Any] = {}  # the metadata of the newest turn: what was chosen for it
    last_turn: TurnOn | None = None  # the newest on the path that is read; the newest of all may be on another branch
    reflection: Reflection | None = None  # the newest on a turn of the path that is read
    tuning: Tuning | None = None  # how the conversation is tuned, None before its first run
    known: MemoryContext | None = None  # what other conversations tell, where it was asked for
    families: Mapping[str, Family] = {}  # the prompts asked for, those that are, with their ancestors
    epoch: int = 0  # how often something of the tenant was forgotten
    corrected: int = 0  # the newest correction of the conversation, where it has a summary


class Batch(Struct, frozen=True, kw_only=True):
    """Posts to store at once, all or none."""

    conversation: str
    drafts: tuple[Draft, ...]
    now: float
    user: str | None = None
    persona: str | None = None
    parent: str | None = None  # id of the post the first one follows; None = the head, ROOT = none
    idempotency: tuple[str, bytes] | None = None  # key and digest of the request
    delivers: bool = False  # what is said goes to places beyond the conversation
    time_zone: str | None = None  # kept in the conversation's metadata; None leaves what is there
    metadata: Mapping[str, Any] = {}  # likewise, by name
    begins: bool = True  # begin the conversation where it is not there; else NotFound


class Appended(Struct, frozen=True):
    """How many posts were new, and the conversation's last seq."""

    stored: int
    last_seq: int


class Opening(Struct, frozen=True, kw_only=True):
    """A step about to be spoken, decided on a scene whose head and last seq it names."""

    conversation: str
    expected_head: int
    expected_last_seq: int
    parent: int  # seq the first draft follows
    drafts: tuple[Draft, ...]
    manifest: Manifest
    texts: dict[str, str]  # digest (hex) -> text of the manifest's derived blocks
    now: float
    lease_s: float
    user: str | None = None
    persona: str | None = None
    turn: int = 0  # a waiting turn this step continues; 0 opens a new one
    query_seq: int = 0  # the post that is answered
    moves_head: bool = True
    metadata: dict[str, Any] = {}
    mode: str | None = None  # kept in the conversation's metadata; None leaves what is there
    time_zone: str | None = None  # likewise
    policy: Mapping[str, Any] | None = None  # likewise
    delivers: bool = False  # what is said goes to places beyond the conversation
    uses: tuple[int, ...] = ()  # memories newly said, by number
    project: str | None = None  # likewise
    idempotency: tuple[str, bytes] | None = None
    audit: tuple[Record, ...] = ()  # what was rendered; joins the chain
    calls: tuple[MetapromptTask, ...] = ()  # what the reflection on the turn is to do; none = none is asked for
    outcome: tuple[int, Outcome] | None = None  # what the caller's message says of a turn before it, by its number
    epoch: int | None = None  # of the scene: something may have been forgotten since; None does not ask


class Lease(Struct, frozen=True, kw_only=True):
    """The right to speak in a conversation until `until`; `fence` outdates every earlier one."""

    scope: Scope
    conversation: str
    no: int
    turn: int
    step: int
    fence: int
    until: float
    last_seq: int


class Closing(Struct, frozen=True, kw_only=True):
    """How a step ended. Without `reply` nothing was said."""

    state: TurnState
    now: float
    reply: Draft | None = None
    waiting: bool = False  # the model asked for tools
    usage: Usage | None = None
    error: str = ""
    metadata: dict[str, Any] = {}
    others: tuple[Draft, ...] = ()  # further choices: siblings of the reply
    audit: tuple[Record, ...] = ()


class PostSpot(Struct, frozen=True, array_like=True):
    """Where a post stands in its tree: the post it follows, its number on its path from 1, the first of its run."""

    parent: int
    depth: int
    run: int


class Alignment(Struct, frozen=True):
    """Where a resent history lies in a stored tree: by message number the seqs of the posts that say the same.

    `posts` places each of them and the head; `runs` says of the first post of each run on their ways to the root which
    post the run follows, and the first of that post's run: (0, 0) at a root.
    """

    conversation: Conversation
    places: tuple[tuple[int, ...], ...]
    posts: dict[int, PostSpot]
    runs: dict[int, tuple[int, int]]


class CompactionInput(Struct, frozen=True, kw_only=True):
    """What one pass reads: posts behind the mark up to `upto` on the head's path, the summary before, and its items."""

    conversation: Conversation
    scope: Scope
    posts: tuple[Post, ...]
    previous: Summary | None
    items: tuple[Item, ...]  # ended ones too, with `valid_to`
    before: Post | None = None  # the last post under the summary
    failures: int = 0
    last_at: float = 0.0
    epoch: int = 0  # how often something in the conversation was erased
    corrections: tuple[Correction, ...] = ()  # made by hand, in their order

    @property
    def corrected(self) -> int:
        """The number of the newest correction, 0 for none."""
        return self.corrections[-1].no if self.corrections else 0

    @property
    def lags(self) -> bool:
        """Whether the summary before does not know of the newest corrections."""
        return self.previous is not None and self.previous.corrected < self.corrected


class Compacted(Struct, frozen=True, kw_only=True):
    """The result of a pass, to be stored if the head still descends from what it covers."""

    conversation: str
    previous_version: int
    summary: Summary
    added: tuple[Item, ...]
    ended: tuple[Item, ...]
    repeated: tuple[Item, ...]
    now: float
    no: int = 0  # the conversation's number as it was read: one deleted and begun again is another; 0 does not ask
    idempotency: tuple[str, bytes] | None = None  # key and digest of the request
    audit: tuple[Record, ...] = ()  # what a model was told; joins the chain where the summary is kept
    sinks: tuple[str, ...] = ()  # who else is to have it
    epoch: int = 0  # of the input: a pass over what was erased since is refused


class DueConversation(Struct, frozen=True):
    """A conversation with posts behind no summary."""

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
    no: int = 0  # the store's own number
    trigger: float | None = None  # the tuned usage from which profile `budget` compacts


class StoredAnswer(Struct, frozen=True):
    """What an Idempotency-Key stands for: its request's digest, and the step it opened or the answer it got.

    A key whose step ended without a whole answer is free for the same request again.
    """

    digest: bytes
    conversation: str = ""
    turn: int = 0
    response: bytes = b""
    step: int = 0


class PageOfConversations(Struct, frozen=True):
    """A page of conversations and the cursor of the next, if there is more."""

    items: tuple[Conversation, ...]
    cursor: str | None = None


class Store(Protocol):
    """Keeps conversations, turns, memory, prompts and their audit."""

    @property
    def prompts(self) -> PromptStore: ...
    @property
    def outcomes(self) -> OutcomeStore: ...
    @property
    def audit(self) -> AuditStore: ...
    @property
    def vectors(self) -> VectorStore: ...
    @property
    def tuning(self) -> TuningStore: ...
    @property
    def erasure(self) -> ErasureStore: ...
    @property
    def keys(self) -> KeyStore: ...
    @property
    def organizations(self) -> OrganizationStore: ...
    @property
    def memories(self) -> MemoryStore: ...
    @property
    def reflections(self) -> ReflectionStore: ...
    @property
    def shadow(self) -> ShadowStore: ...
    @property
    def usage(self) -> SpentStore: ...
    @property
    def talks(self) -> TalkStore: ...
    # the turn
    async def scene(self, scope: Scope, look: Look) -> Scene: ...
    async def append(self, scope: Scope, batch: Batch) -> Appended: ...
    async def open(self, scope: Scope, opening: Opening) -> Lease: ...
    async def checkpoint(self, lease: Lease, partial: Draft | None, *, now: float, lease_s: float) -> None: ...
    async def close(self, lease: Lease, closing: Closing) -> int: ...
    async def align(
        self, scope: Scope, digests: Sequence[bytes], *, conversation: str | None, anchors: Sequence[bytes] = ()
    ) -> list[Alignment]: ...
    async def answered(self, scope: Scope, key: str) -> StoredAnswer | None: ...

    # reading
    async def conversation(self, scope: Scope, conversation: str) -> Conversation: ...
    async def conversations(self, scope: Scope, *, limit: int, cursor: str | None = None) -> PageOfConversations: ...
    async def posts(
        self, scope: Scope, conversation: str, *, path: bool = True, last: int | None = None, head: int | None = None
    ) -> list[Post]: ...
    async def posts_behind(
        self, scope: Scope, conversation: str, *, after: int, limit: int, path: bool = True, head: int | None = None
    ) -> list[Post]: ...
    async def posts_in(self, scope: Scope, conversation: str, ranges: Sequence[tuple[int, int]]) -> list[PathPost]: ...
    async def round_states(self, scope: Scope, conversation: str) -> dict[int, RoundState]: ...
    async def turn(self, scope: Scope, conversation: str, n: int) -> Turn: ...
    async def turns(self, scope: Scope, conversation: str, *, last: int) -> list[Turn]: ...
    async def texts(self, scope: Scope, digests: Sequence[str]) -> dict[str, str]: ...
    async def summary(self, scope: Scope, conversation: str, *, version: int | None = None) -> Summary | None: ...
    async def items(self, scope: Scope, conversation: str, *, ended: bool = False) -> list[Item]: ...
    async def search(self, scope: Scope, look: SearchLook, *, conversation: str | None) -> SearchResult: ...

    # changing
    async def move_head(self, scope: Scope, conversation: str, post: str, *, now: float) -> Conversation: ...
    async def participate(
        self, scope: Scope, conversation: str, users: Sequence[str], *, audit: Sequence[Record] = ()
    ) -> Conversation: ...
    async def delete(self, scope: Scope, conversation: str) -> dict[str, int]: ...

    # the work behind
    async def expire(
        self, *, now: float, lease_s: float | None = None, wait_s: float | None = None, limit: int = 100
    ) -> int: ...
    async def due(
        self, *, limit: int = 100, least: int = 1, after: DueConversation | None = None, conversation: str | None = None
    ) -> list[DueConversation]: ...
    async def compaction(self, scope: Scope, conversation: str, *, limit: int) -> CompactionInput | None: ...
    async def save_summary(self, scope: Scope, compacted: Compacted) -> bool: ...
    async def postpone(self, scope: Scope, conversation: str, *, until: float, failed: bool, mark: int) -> None: ...
    async def forget_keys(self, *, before: float, limit: int = 1000) -> int: ...

    async def check(self, *, whole: bool = False) -> dict[str, Any]: ...
    async def aclose(self) -> None: ...
