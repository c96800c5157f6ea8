"""Memory records: scopes, summaries, items, long-term memories, and search results."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from cuebook.records.answer import Answer, Time
from cuebook.records.conversation import Role

DEFAULT_TENANT = "default"
#: The name of the fallback that answers when no model is configured.
NO_MODEL = "cuebook-recall"
#: The label of an answer made without a model, which tells readers and keeps it out of memory.
NO_MODEL_LABEL = "[no model configured · recalled]"

Category = Literal["facts", "preferences", "people", "projects", "decisions", "open_loops", "todo"]
#: AgentOS's eight keys of `memory_json`: seven with items, and `tags`, plain strings.
CATEGORIES: tuple[Category, ...] = ("facts", "preferences", "people", "projects", "decisions", "open_loops", "todo")
#: BrowserOS's categories of knowledge; memories in them have a key.
KNOWLEDGE: Final = ("domain", "execution_pattern", "user_preference", "website_knowledge", "error_pattern")
#: All categories: those of items, and those of knowledge.
KINDS: Final = (*CATEGORIES, *KNOWLEDGE)
#: Id of an item among memories: ITEM + conversation + ":" + its id.
ITEM: Final = "item:"
#: Source of a memory's block in a window: MEMORY + its id.
MEMORY: Final = "memory:"
#: The same of a recalled post.
POST: Final = "post:"
#: Whose words an item repeats; a participant is anybody but the conversation's user.
Trust = Literal["user", "participant", "assistant", "tool"]
HitKind = Literal["post", "item", "knowledge", "summary"]


class Scope(Struct, frozen=True):
    """The caller's access scope, which every store method takes.

    `tenant` is part of every key, and a named user sees only their conversations. `proven`: authenticated by a key;
    then conversations without an owner are invisible to users.
    """

    tenant: str = DEFAULT_TENANT
    user: str | None = None
    proven: bool = False


class Line(Struct, frozen=True, kw_only=True):
    """One post as memory extraction reads it: sender, text and time. Sequences are ordered oldest first."""

    id: str
    seq: int
    role: str
    speaker: str
    text: str
    when: float  # Unix seconds
    round: int = 0
    calls: bool = False  # makes tool calls
    own: bool = True  # of a user's post: the conversation's user sent it, not another participant


class Item(Struct, frozen=True, kw_only=True):
    """One remembered fact with its source posts. `valid_to` set = it is no longer valid."""

    id: str
    category: Category
    text: str
    sources: tuple[str, ...]
    subject: str = ""  # normalized topic; newer items supersede older ones of the same subject
    trust: Trust = "user"
    confidence: float = 0.5
    valid_from: float = 0.0
    valid_to: float | None = None
    supersedes: str | None = None
    superseded_by: str | None = None  # the newer quote that contradicts it; this one remains true of its time
    name: str = ""  # people and projects
    status: str = ""  # projects
    seq: int = 0  # the newest source's seq
    weight: float = 0.0  # priority in a short summary, in [0, 1]
    speaker: str = ""  # the person whose words it repeats

    @property
    def voice(self) -> str:
        """Return the participant who states it, "" for the conversation's user and for what nobody states."""
        return self.speaker if self.trust == "participant" else ""


class Summary(Struct, frozen=True, kw_only=True):
    """An immutable rolling summary of a path. It covers all posts of the path up to `upto_seq`."""

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
    tainted: str = ""  # lines from tools or web pages: only for the fenced block, never the system prompt
    prompt: str = ""  # the prompt version used, `prompt:SLUG@BRANCH:NUMBER`; "" for none
    corrected: int = 0  # the last correction that it includes


class Correction(Struct, frozen=True, kw_only=True):
    """A manual replacement for the content of some posts of a conversation; "" = forgotten."""

    conversation: str
    posts: tuple[str, ...]
    marks: tuple[str, ...]  # hashes of the replaced words
    text: str
    before: str = ""  # the replaced text; not stored
    no: int = 0  # the row number in the store, in order of creation


class Place(Struct, frozen=True, order=True):
    """The owner of long-term memories: a user, a user's persona, an organization, or a custom kind."""

    kind: str
    id: str


class Source(Struct, frozen=True, order=True):
    """The source of a memory: a post of a conversation; a manual memory has none."""

    conversation: str
    post: str


class Memory(Struct, frozen=True, kw_only=True):
    """One long-term memory of an owner, across conversations. `valid_to` set = it is no longer valid."""

    id: str  # 16 hex digits over category and text, or category and key
    kind: str  # of its place
    owner: str  # id of its place
    category: str  # one of CATEGORIES, or of BrowserOS's five for knowledge
    text: str
    name: str = ""  # the key of knowledge; the name of people and projects
    subject: str = ""
    status: str = ""
    trust: Trust = "user"
    confidence: float = 0.5
    weight: float = 0.0
    uses: int = 0
    used_at: float = 0.0  # when it was last stated, repeated or written; Unix seconds
    decayed_at: float = 0.0
    valid_from: float = 0.0
    valid_to: float | None = None
    supersedes: str | None = None
    ended_by: str | None = None  # the memory that ended it, if any
    repeated_at: float = 0.0  # when it was last stated; 0 = no later than `valid_from`
    created_at: float = 0.0
    updated_at: float = 0.0
    written: bool = False  # written by hand: it is kept without sources
    sources: tuple[Source, ...] = ()
    no: int = 0  # the row number in the store
    said: int = 0  # the number of its text in the store, for its vector

    @property
    def place(self) -> Place:
        """Return the place of its owner."""
        return Place(self.kind, self.owner)


class Nearby(Answer, frozen=True, kw_only=True):
    """A message next to a hit that belongs to it, such as the question before an answer. A long one is an excerpt.

    `tokens` are those of its line in the hit's text.
    """

    id: str  # of the post, in the hit's conversation
    seq: int
    speaker: str
    text: str
    tokens: int
    timestamp: Time

    @property
    def source(self) -> str:
        """Return the source of its block in a window."""
        return f"{POST}{self.id}"

    def label(self, seq: int) -> str:
        """Return what precedes its text in the text of the hit at `seq`."""
        return f"\n({'before' if self.seq < seq else 'after'}) {self.speaker}: "


class Hit(Answer, frozen=True, kw_only=True):
    """One search hit; `why` explains its score. `sources` are the ids of posts that its text quotes or comes from.

    `conversationId` contains these posts; null for several conversations and for an organization's knowledge. `day` is
    the day of its time in the time zone of the search. `newer` is the next version of the same statement. A memory that
    is no longer valid has `ended_at`, and `ended_by` if another memory ended it. `nearby` are messages beside a post
    that match only together with it, in order. They are also lines at the end of `text`, such as "(before) Ann: Where
    did you go?", and counted in `sources` and `tokens`.
    """

    memory_id: str
    kind: HitKind
    text: str
    score: float
    scope: str
    conversation: str | None = field(default=None, name="conversationId")
    sources: tuple[str, ...]
    tokens: int
    timestamp: Time
    why: str = ""
    seq: int = 0
    speaker: str = ""
    day: str = ""
    newer: str | None = None
    ended_at: Time | None = None
    ended_by: str | None = None
    nearby: tuple[Nearby, ...] = ()

    @property
    def memory(self) -> str:
        """Return the memory's id."""
        return self.memory_id

    @property
    def line(self) -> str:
        """Return its text after its speaker or kind."""
        return f"{self.speaker or self.kind}: {self.text}"

    def beside(self, nearby: Sequence[Nearby]) -> "Hit":
        """Return a hit without messages nearby with these."""
        return replace(
            self,
            text=self.text.rstrip() + self._lines_of(nearby) if nearby else self.text,
            sources=(*self.sources, *(each.id for each in nearby)),
            tokens=self.tokens + sum(each.tokens for each in nearby),
            nearby=tuple(nearby),
        )

    @property
    def alone(self) -> "Hit":
        """Return the hit without the messages nearby."""
        return replace(
            self,
            text=self.text.removesuffix(self._lines_of(self.nearby)),
            sources=self.sources[: len(self.sources) - len(self.nearby)],
            tokens=self.tokens - sum(each.tokens for each in self.nearby),
            nearby=(),
        )

    def _lines_of(self, nearby: Sequence[Nearby]) -> str:
        return "".join(f"{each.label(self.seq)}{each.text}" for each in nearby)

    @property
    def source(self) -> str:
        """Return the source of its block in a window."""
        return self.memory_id if self.kind == "post" else f"{MEMORY}{self.memory_id}"


class Dense(Struct, frozen=True):
    """A query's vector (float32, little endian, length 1) and its model; `akin` is the embedder's threshold.

    `sentences` are the vectors of its sentences, if it has several.
    """

    model: str
    vector: bytes
    akin: float
    sentences: tuple[bytes, ...] = ()


class RecallCandidate(Struct, frozen=True):
    """A text that may answer a query: a post or a memory. `seq` grows along a path."""

    seq: int
    sender: str
    created_at: float  # Unix seconds
    key: str  # its indexed words (`key_text`)
    previous: int = 0  # seq of the post before it on the path, 0 for none
    no: int = 0  # the conversation's row number; sessions and neighbors never cross conversations
    cosine: float | None = None  # between the closest of its vectors and the query's, if both exist
    part: int = 0  # the passage that has this vector
    role: Role = "user"
    text: str = ""


class PostMatch(RecallCandidate, frozen=True, kw_only=True):
    """A post found by full-text search, or a neighbor of one (`direct` false)."""

    id: str
    tokens: int
    direct: bool
    conversation: str = ""


class SearchResult(Struct, frozen=True, kw_only=True):
    """Candidates on the path, with statistics of the search scope."""

    found: tuple[PostMatch, ...] = ()
    posts: int = 0  # posts in scope
    speakers: tuple[str, ...] = ()  # the first ones of the conversations, as far as they are stored
    frequencies: Mapping[str, int] = {}  # term -> posts in scope that contain it
    mean_cosine: float = 0.0  # of the posts in scope with a vector
    cosine_deviation: float = 0.0  # their standard deviation
    akin: float = 1.0
