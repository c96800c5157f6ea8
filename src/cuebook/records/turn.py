"""Turn records: the request (Ask), the prompt window, the steps, the manifest for replay, and token usage."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field, json

from cuebook.records.conversation import Conversation, Part, Role
from cuebook.validate import Argument

TurnState = Literal["running", "finished", "failed", "interrupted"]
BlockKind = Literal["persona", "addon", "section", "summary", "post", "mind", "memory", "experience", "query"]
Form = Literal["full", "compressed", "cut"]
#: Metadata key of a shadow turn: its window was not sent, the client's own request was forwarded.
SHADOW = "shadow"
#: The source of the client's own system messages.
CLIENT = "client:system"
#: Metadata key of the memories that a turn recalled.
RECALLED = "longTermMemoryRetrieval"
#: Metadata key under which each step stores request fields that its answer repeats.
ASKED = "asked"
#: Metadata key of a turn that is not on the conversation's path, and its value.
BRANCH = "branch"
SIDE = "side"
#: Metadata key of a turn that repeats failed ones: their numbers, oldest first.
RETRY_OF = "retryOf"
#: Maximum length of a conversation's title, in characters.
TITLE = 60


class Ask(Struct, frozen=True, metaclass=Argument):
    """A caller's request. Only `text` and `conversation` are required."""

    text: str
    conversation: str
    user: str | None = None
    persona: str | None = None
    mode: str | None = None
    organization: str | None = None
    memory_control: dict[str, Any] | None = None
    attachments: tuple[Part, ...] = ()
    idempotency_key: str | None = None
    token_budget: Annotated[int, Meta(ge=1, description="a number of tokens")] | None = None
    project: str | None = None  # project whose prompts override the others, stored in the conversation; "" = none
    time_zone: str | None = None  # IANA time zone of "yesterday" and other dates, stored in the conversation
    #: Signals of the round, measured by the caller; they select the variants of prompts.
    signals: dict[str, Annotated[float, Meta(ge=0, le=1)]] | None = None
    authenticated: bool = False  # the user is authenticated by a key: AgentOS's server defaults apply
    may_publish: bool = True  # the caller may write to the organization's memory
    key: str = ""  # the id of the API key; "" if no keys are configured
    relayed: bool = False  # from a client of the proxy
    utility: bool = False  # a utility call: stored apart, with nothing added


class Block(Struct, frozen=True, kw_only=True):
    """A piece of the prompt and its source. Its tokens count the text as rendered in the window."""

    kind: BlockKind
    source: str
    role: str = "system"
    tokens: int = 0
    text: str
    form: Form = "full"
    seq: int = 0
    message: bytes = b""  # the wire message of a post or of the client's system text; empty for blocks that are joined


class Dropped(Struct, frozen=True, kw_only=True):
    """An omission and its reason: one object by `source`, or the posts with seqs `first` to `last`, inclusive."""

    kind: str
    reason: str
    tokens: int
    count: int = 1
    source: str = ""
    first: int = 0
    last: int = 0


class Anchor(Struct, frozen=True):
    """A position for a provider's cache breakpoint: after rendered message number `after` (0 = the first)."""

    name: Literal["system", "summary", "previous", "last", "step"]
    after: int


class Window(Struct, frozen=True, kw_only=True):
    """The prompt of one step: ordered blocks, omissions, and positions of cache breakpoints."""

    blocks: Sequence[Block]
    dropped: tuple[Dropped, ...]
    anchors: tuple[Anchor, ...]
    raw_messages: tuple[bytes, ...]  # one JSON object each, as sent
    tokens: int
    budget: int
    tools_tokens: int = 0
    stable_prefix_ratio: float = 1.0
    cache: dict[str, Any] = field(default_factory=dict)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages as an OpenAI client accepts them: `client.chat.completions.create(messages=...)`."""
        return [json.decode(each) for each in self.raw_messages]


class ManifestRange(Struct, frozen=True, array_like=True):
    """Posts `first`..`last` of the path, inclusive, in one form."""

    first: int
    last: int
    form: Form
    tokens: int


class ManifestText(Struct, frozen=True, array_like=True):
    """A block that is not a post: its text is stored content-addressed under `digest` (hex)."""

    kind: BlockKind
    source: str
    role: str
    tokens: int
    digest: str


class Cut(Struct, frozen=True, array_like=True):
    """A truncated post: the number of characters kept at the start and the end around a marker, and the tokens."""

    tokens: int
    head: int
    marker: str
    tail: int


class ManifestCopy(Struct, frozen=True, array_like=True):
    """A post as a client resent it, with other fields than the stored message: its tokens and digest."""

    tokens: int
    digest: str


class Manifest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data to render a window again, stored at the cost of its changes, not of its size.

    `digest` is over the bytes of the rendered messages.
    """

    renderer: int
    budget: int
    tokens: int
    front: tuple[ManifestText, ...]
    path: tuple[ManifestRange, ...]
    volatile: tuple[ManifestText, ...]
    query: int  # seq of the post beside the volatile block, 0 for none
    fence: str
    dropped: tuple[Dropped, ...]
    anchors: tuple[Anchor, ...]
    digest: str
    stable_prefix_ratio: float = 1.0
    cut: dict[int, Cut] = field(default_factory=dict)  # by seq
    copies: dict[int, ManifestCopy] = field(default_factory=dict)  # by seq
    listed: bool = False  # the path has the client's messages, in its order
    tools_digest: str = ""
    tools_tokens: int = 0
    summary_version: int = 0  # the summary after which the path is read, shown or not


class Usage(Struct, frozen=True, omit_defaults=True):
    """Tokens as counted by the provider, None if not reported."""

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None


class TokenReport(Struct, frozen=True):
    """The tokens of a prompt to a model: as the provider reported them, and by our count."""

    conversation: str
    model: str
    reported: int
    tokens: int


class Step(Struct, frozen=True, kw_only=True):
    """One model call of a turn."""

    n: int
    state: TurnState
    manifest: Manifest
    base: int = 0  # the newest post of the request, which the reply follows
    reply_seq: int = 0
    usage: Usage | None = None
    error: str = ""


class TurnOn(Struct, frozen=True, kw_only=True):
    """A turn on a path: the answered post, its state, and its metadata."""

    n: int
    state: TurnState
    query_seq: int
    reply_seq: int = 0  # 0 for no answer
    error: str = ""  # of its newest step, if it failed or broke off
    metadata: Mapping[str, Any] = {}


class Turn(Struct, frozen=True, kw_only=True):
    """One answered round: its steps, its state, and the decisions for all of them."""

    n: int
    round: int
    state: TurnState
    query_seq: int
    created_at: float
    steps: tuple[Step, ...] = ()
    reply_seq: int = 0
    metadata: dict[str, Any] = {}
    closed_at: float | None = None
    waiting: bool = False  # the model called tools; the next step is not there yet
    partial: str = ""


def last_attempts(turns: Sequence[Turn]) -> list[Turn]:
    """Return turns without the failed ones that a later turn repeated."""
    repeated = {n for turn in turns for n in turn.metadata.get(RETRY_OF, ())}
    return [turn for turn in turns if turn.n not in repeated]


# ---- entries of the conversation list and of a transcript ------------------------------------------------------------


class PostRun(Struct, frozen=True):
    """Posts `first`..`last`, each but the first after the one before; the first follows `parent`, 0 at a root."""

    first: int
    last: int
    parent: int


class ConversationSummary(Struct, frozen=True, kw_only=True):
    """A conversation in a list."""

    conversation: Conversation
    said: str = ""  # the start of the first user post
    branches: int = 0  # paths from the root to a leaf of its tree
    tokens: int = 0  # of its newest prompt, by our counter
    state: TurnState | None = None  # of its newest turn; None without one
    shadow: bool = False  # its newest turn ran in shadow mode

    @property
    def title(self) -> str:
        """Return the conversation's title."""
        return title_of(self.said)


def title_of(said: str) -> str:
    """Return a conversation's title: the first words of its first user post, "" without one."""
    text = " ".join(said.split())
    if len(text) <= TITLE:
        return text
    start = text[: TITLE - 1]
    return f"{start.rpartition(' ')[0] or start}…"


class TurnEntry(Struct, frozen=True, kw_only=True):
    """A turn in a transcript."""

    turn: int
    round: int
    state: TurnState
    query_seq: int
    replies: dict[int, int] = {}  # the step by the seq of its answer
    tokens: int = 0  # of its newest prompt
    error: str = ""  # of its newest step
    shadow: bool = False


class PostPlace(Struct, frozen=True, kw_only=True):
    """The position, sender and time of a post."""

    id: str
    seq: int
    role: Role
    sender: str
    at: float  # Unix seconds


# ---- usage -----------------------------------------------------------------------------------------------------------


class WorkUsage(Struct, frozen=True, kw_only=True, rename="camel"):
    """Model calls of background work, by task and model. A task is the calls' purpose; costs are by currency."""

    task: str
    model: str
    calls: int = 1
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0  # those of the input that the provider read from its cache
    costs: dict[str, float] = {}  # empty for an unknown price


class CallUsageRecord(Struct, frozen=True, kw_only=True):
    """A model call. Tokens are counted by Cuebook, except `usage`, which the provider reported."""

    turn: int
    step: int
    state: TurnState
    tokens: int  # the prompt
    whole: int  # the same with every earlier post verbatim, and without summary and memories
    posts: int  # on the path before the answer
    reply: int  # the answer
    at: float  # when its turn began, in Unix seconds
    usage: Usage | None = None
    cache: dict[str, Any] | None = None  # cache report of the turn's newest step
    model: str = ""  # as reported by the provider; "" if unknown
    shadow: bool = False  # shadow mode: the prompt was not sent


# ---- shadow mode ----------------------------------------------------------------------------------------------------


class CacheEstimate(Struct, frozen=True, omit_defaults=True):
    """Estimated input tokens of a request by cache use: uncached, read, written."""

    uncached: int = 0
    read: int = 0
    write: int = 0


class ShadowCallUsage(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A call in shadow mode. Tokens are counted by Cuebook; posts are those on the path before the call."""

    model: str = ""
    added_ms: float = 0.0
    lost: dict[str, int] = {}  # earlier calls that could not be recorded, by reason
    refused: int = 0  # the upstream's error status; such a call is free and not cached
    unanswered: bool = False  # the upstream could not be reached, or the client left before its answer
    client_tokens: int = 0  # messages and tools as the client sent them
    window_tokens: int = 0  # messages and tools as Cuebook would have sent them
    rule: str = ""  # the cache rule of both estimates; "" = no estimate
    client: CacheEstimate | None = None
    ours: CacheEstimate | None = None
    path: int = 0  # posts before the call
    neither: int = 0  # in neither prompt
    neither_seqs: tuple[int, ...] = ()  # the newest of them
    client_alone: int = 0  # in the client's prompt only
    condensed: int = 0  # in the client's prompt, and in ours covered by the summary
    ours_alone: int = 0  # only in ours (verbatim, covered by the summary or recalled)
    truncated_seqs: tuple[int, ...] = ()  # posts that the client truncates from this call on
    parted: int = 0  # calls without their results in the client's messages, and results without their calls


class ShadowedCall(Struct, frozen=True, kw_only=True):
    """The location of a recorded call, the provider's usage, and the answer's tokens counted by Cuebook."""

    conversation: str
    turn: int
    step: int
    entry: ShadowCallUsage
    usage: Usage | None = None
    reply_tokens: int = 0
