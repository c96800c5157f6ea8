"""What a turn is: the ask, the window it was answered from, its steps.

And the manifest that lets it be shown and replayed.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from cuebook.records.conversation import Part

TurnState = Literal["running", "finished", "failed", "interrupted"]
BlockKind = Literal["persona", "addon", "section", "summary", "post", "mind", "memory", "experience", "query"]
Form = Literal["full", "compressed", "cut"]
#: The key of a turn's metadata that says its window was never said: the client's own request went upstream.
SHADOW = "shadow"
#: The source of what the client's own system messages say.
CLIENT = "client:system"
#: The key of a turn's metadata under which each step keeps what its request said of itself and its answer tells again.
ASKED = "asked"


class Ask(Struct, frozen=True):
    """What a caller asks. Only `text` and `conversation` are needed."""

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
    project: str | None = None  # whose own prompts stand for the others, kept in the conversation; "" = nobody's
    time_zone: str | None = None  # whose days "yesterday" and the rest are, an IANA name, kept in the conversation
    #: What the caller reads of the round: prompts' variants are chosen by it.
    signals: dict[str, Annotated[float, Meta(ge=0, le=1)]] | None = None
    authenticated: bool = False  # the user is who a key says: A's server defaults hold
    may_publish: bool = True  # the caller may write to the organization's memory
    key: str = ""  # the id of the key that asks; none where no keys are configured


class Block(Struct, frozen=True, kw_only=True):
    """A piece of the prompt and where it comes from. Its tokens count the text as the window holds it."""

    kind: BlockKind
    source: str
    role: str
    tokens: int
    text: str
    form: Form = "full"
    seq: int = 0
    message: bytes = b""  # the wire message, for posts and the query; empty where blocks join into one message


class Dropped(Struct, frozen=True, kw_only=True):
    """What was left out and why: one thing by `source`, or a range of posts by `first` and `last` seq.

    Both included.
    """

    kind: str
    reason: str
    tokens: int
    count: int = 1
    source: str = ""
    first: int = 0
    last: int = 0


class Anchor(Struct, frozen=True):
    """A place for a provider's cache breakpoint.

    After message number `after` (0 = the first) of the rendered messages.
    """

    name: Literal["system", "summary", "previous", "last", "step"]
    after: int


class Window(Struct, frozen=True, kw_only=True):
    """The prompt of one step: blocks in order, what was left out, and the places where caching can hold on."""

    blocks: Sequence[Block]
    dropped: tuple[Dropped, ...]
    anchors: tuple[Anchor, ...]
    messages: tuple[bytes, ...]  # one JSON object each, as they go on the wire
    tokens: int
    budget: int
    tools_tokens: int = 0
    stable_prefix_ratio: float = 1.0
    cache: dict[str, Any] = field(default_factory=dict)


class ManifestRange(Struct, frozen=True, array_like=True):
    """Posts `first`..`last` of the path, both included, in one form."""

    first: int
    last: int
    form: Form
    tokens: int


class ManifestText(Struct, frozen=True, array_like=True):
    """A block that is not a post: its text lies content-addressed under `digest` (hex)."""

    kind: BlockKind
    source: str
    role: str
    tokens: int
    digest: str


class Cut(Struct, frozen=True, array_like=True):
    """How a post was cut: so many characters of its text's front, a marker, so many of its end; what that weighs."""

    tokens: int
    head: int
    marker: str
    tail: int


class Manifest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Enough to render a window again: O(what changed), not O(window).

    `digest` is over the rendered messages' bytes.
    """

    renderer: int
    budget: int
    tokens: int
    front: tuple[ManifestText, ...]
    path: tuple[ManifestRange, ...]
    volatile: tuple[ManifestText, ...]
    query: int  # seq of the post the volatile block stands beside, 0 for none
    fence: str
    dropped: tuple[Dropped, ...]
    anchors: tuple[Anchor, ...]
    digest: str
    stable_prefix_ratio: float = 1.0
    cut: dict[int, Cut] = field(default_factory=dict)  # by seq
    tools_digest: str = ""
    tools_tokens: int = 0
    summary_version: int = 0  # the summary the path is read behind, shown or not


class Usage(Struct, frozen=True, omit_defaults=True):
    """Tokens as a provider counted them, None where it did not say."""

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None


class Step(Struct, frozen=True, kw_only=True):
    """One model call of a turn."""

    n: int
    state: TurnState
    manifest: Manifest
    reply_seq: int = 0
    usage: Usage | None = None
    error: str = ""


class TurnOn(Struct, frozen=True, kw_only=True):
    """A turn as it stands on a path: which post it answered, how it ended, and what it told of itself."""

    n: int
    state: TurnState
    query_seq: int
    reply_seq: int = 0  # 0 where nothing was said
    error: str = ""  # of its newest step, where it failed or broke off
    metadata: Mapping[str, Any] = {}


class Turn(Struct, frozen=True, kw_only=True):
    """One round answered: its steps, its state, and what was decided once for all of them."""

    n: int
    round: int
    state: TurnState
    query_seq: int
    created_at: float
    steps: tuple[Step, ...] = ()
    reply_seq: int = 0
    metadata: dict[str, Any] = {}
    closed_at: float | None = None
    waiting: bool = False  # the model asked for tools; the next step has not come yet
    partial: str = ""
