"""What memory is: scopes, summaries, remembered items, and the hits a search returns."""

from typing import Any, Literal

from msgspec import Struct

from cuebook.records.conversation import Role

DEFAULT_TENANT = "default"
#: The name of what answers where no model is configured.
NO_MODEL = "cuebook-recall"
#: What an answer made without a model says first, so that nobody takes it for one, and memory never takes it in again.
NO_MODEL_LABEL = "[no model configured · recalled]"

Category = Literal["facts", "preferences", "people", "projects", "decisions", "open_loops", "todo"]
#: A's eight keys of `memory_json` (seed 000): seven with items, and `tags`, plain strings.
CATEGORIES: tuple[Category, ...] = ("facts", "preferences", "people", "projects", "decisions", "open_loops", "todo")
Trust = Literal["user", "assistant", "tool"]
HitKind = Literal["post", "item", "knowledge", "summary"]


class Scope(Struct, frozen=True):
    """Who asks. Every store method takes one.

    `tenant` leads every key, and a named user sees only their conversations. `proven`: a key says so; what is nobody's
    is no user's then.
    """

    tenant: str = DEFAULT_TENANT
    user: str | None = None
    proven: bool = False


class Line(Struct, frozen=True, kw_only=True):
    """One post as memory reads it: who said what when, oldest first in any sequence of them."""

    id: str
    seq: int
    role: str
    speaker: str
    text: str
    when: float  # Unix seconds
    round: int = 0
    tokens: int = 0
    calls: bool = False  # makes tool calls
    failed: bool = False  # a tool result that reports an error


class Item(Struct, frozen=True, kw_only=True):
    """One remembered thing with the posts it came from. `valid_to` set = it held once and no longer does."""

    id: str
    category: Category
    text: str
    sources: tuple[str, ...]
    subject: str = ""  # what it is about, normalised; items of one subject supersede each other
    trust: Trust = "user"
    confidence: float = 0.5
    valid_from: float = 0.0
    valid_to: float | None = None
    supersedes: str | None = None
    superseded_by: str | None = None  # the newer quote that says otherwise; it still holds what was said then
    name: str = ""  # people and projects
    status: str = ""  # projects
    seq: int = 0  # the newest source's seq
    weight: float = 0.0  # how much it deserves a place in a short summary, in [0, 1]


class Summary(Struct, frozen=True, kw_only=True):
    """A path's rolling digest, immutable. It covers every post of the path up to `upto_seq`, all of them."""

    version: int
    upto_seq: int
    upto_at: float
    path_digest: bytes
    markdown: str
    memory_json: dict[str, Any]
    profile: str
    made_by: str  # "quotes", "caller" or the model's name
    created_at: float
    tokens: int = 0
    tainted: str = ""  # lines that come from tools or pages: for the fenced block only, never the system prompt
    prompt: str = ""  # the version a model was told, `prompt:SLUG@BRANCH:NUMBER`; "" where none was
    corrected: int = 0  # the last correction it knows of


class Correction(Struct, frozen=True, kw_only=True):
    """What somebody wrote by hand in the place of what posts of a conversation said; "" = it is forgotten."""

    conversation: str
    posts: tuple[str, ...]
    marks: tuple[str, ...]  # the words it said, as hashes
    text: str
    before: str = ""  # what it said until now; not kept
    no: int = 0  # the store's own number, in the order they were made


class Place(Struct, frozen=True, order=True):
    """Who owns memories that outlive a conversation: a user, a user's persona, an organization, or an own kind."""

    kind: str
    id: str


class Source(Struct, frozen=True, order=True):
    """Why a memory is there: a post of a conversation; without one somebody put it."""

    conversation: str
    post: str


class Memory(Struct, frozen=True, kw_only=True):
    """One remembered thing of a place, across conversations. `valid_to` set = it held once and no longer does."""

    id: str  # 16 hex digits over category and text, or category and key
    place: Place
    category: str  # one of CATEGORIES, or of C's five for knowledge
    text: str
    name: str = ""  # the key of knowledge; of people and projects their name
    subject: str = ""
    status: str = ""
    trust: Trust = "user"
    confidence: float = 0.5
    weight: float = 0.0
    uses: int = 0
    used_at: float = 0.0  # when it was last said, repeated or put; Unix seconds
    decayed_at: float = 0.0
    valid_from: float = 0.0
    valid_to: float | None = None
    supersedes: str | None = None
    ended_by: str | None = None  # the memory of its place that ended it, where one did
    repeated_at: float = 0.0  # when it was said last; 0 = no later than `valid_from`
    created_at: float = 0.0
    updated_at: float = 0.0
    written: bool = False  # by hand: it stays without sources
    sources: tuple[Source, ...] = ()
    no: int = 0  # the store's own number


class Hit(Struct, frozen=True, kw_only=True):
    """One found memory. `sources` are ids of posts whose words the text holds or was derived from.

    `conversation` is the one they lie in; "" where they lie in several, and of what an organization knows.
    """

    memory_id: str
    kind: HitKind
    text: str
    score: float
    scope: str
    sources: tuple[str, ...]
    tokens: int
    timestamp: float
    seq: int = 0
    speaker: str = ""
    why: str = ""
    conversation: str = ""

    @property
    def memory(self) -> str:
        """The memory's id."""
        return self.memory_id


class Dense(Struct, frozen=True):
    """A query's vector (float32, little endian, length 1) and the model it is of; `akin` as its Embedder says."""

    model: str
    vector: bytes
    akin: float


class Found(Struct, frozen=True):
    """A post full text search brought, or a neighbour of one (`direct` false)."""

    seq: int
    id: str
    role: Role
    sender: str
    text: str
    created_at: float
    tokens: int
    previous: int  # the post before it on the path, 0 for none
    direct: bool
    conversation: str = ""
    key: str = ""  # the post's words as the index holds them
    no: int = 0  # the conversation's number
    cosine: float | None = None  # between its vector and the query's, where both have one


class SearchResult(Struct, frozen=True, kw_only=True):
    """Candidates on the path with the statistics of their scope."""

    found: tuple[Found, ...] = ()
    posts: int = 0  # posts in scope
    mean_words: float = 1.0
    frequencies: dict[str, int] = {}  # term -> posts of the scope that hold it
    mean_cosine: float = 0.0  # of the posts in scope that have a vector
    akin: float = 1.0
