"""The answers of conversation and turn operations as JSON shows them: posts, rounds, summaries, windows, replays."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import UNSET, Struct, UnsetType, field

from cuebook.records.answer import Answer, Time, as_answer, to_wire
from cuebook.records.conversation import Conversation, Post, PostState, Role, Round, RoundState, SharedEntry
from cuebook.records.memory import Summary
from cuebook.records.mind import ReflectionEntry
from cuebook.records.turn import RETRY_OF, Anchor, Block, Dropped, Step, Turn, TurnState, Usage, Window

#: BrowserOS's marker of the message that replaces compressed ones.
CONTEXT_SUMMARY = "[CONTEXT SUMMARY]"


class ChatAnswer(Answer, frozen=True, kw_only=True):
    """An answer and its metadata."""

    text: str
    text_plain: str
    conversation: str = field(name="conversationId")
    turn: int
    metadata: dict[str, Any]


class ConversationEntry(Answer, frozen=True, kw_only=True):
    """A conversation; `head` is the ID of the post that the next one follows.

    `title` is the start of its first user post. `metadata` has the state of the rolling summary
    (`rollingSummaryState`), except in lists.
    """

    COLUMNS: ClassVar = ("id", "title", "user", "persona", "posts", "turns", "changed")

    id: str
    title: str
    user: str | None = field(name="userId")
    persona: str | None = field(name="personaId")
    participants: tuple[str, ...]
    head: str | None
    last_seq: int
    turns: int
    created_at: Time
    updated_at: Time
    metadata: dict[str, Any]

    @property
    def posts(self) -> int:
        """Return the number of posts on all branches."""
        return self.last_seq

    @property
    def changed(self) -> Time:
        """Return the time of its last change."""
        return self.updated_at


class SummaryState(Answer, frozen=True, kw_only=True):
    """A rolling summary in AgentOS's form; `prompt` is the prompt version that a model wrote it with."""

    created_at: Time = field(name="updatedAt")
    markdown: str = field(name="summaryText")
    memory_json: dict[str, Any] = field(name="summaryJson")
    upto_at: Time = field(name="summaryUptoTimestamp")
    upto_seq: int = field(name="summaryUptoSeq")
    version: int
    made_by: str
    prompt: str | UnsetType = UNSET


class PartEntry(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a post besides its message."""

    type: str
    content: str
    extra: Any = None


class PostEntry(Answer, frozen=True, kw_only=True):
    """A post; `parent` is the ID of the post that it follows."""

    id: str
    seq: int
    parent: str | None
    sender: str = field(name="sendFrom")
    recipient: str = field(name="sendTo")
    role: Role
    message: str
    parts: tuple[PartEntry, ...] = field(name="attachments")
    created_at: Time = field(name="timestamp")
    tokens: int
    state: PostState


class RoundEntry(Answer, frozen=True, kw_only=True):
    """A user query and the posts that answer it."""

    id: str
    seq: int
    user_query: str
    state: RoundState
    posts: tuple[PostEntry, ...]


class SharedNote(Answer, frozen=True, kw_only=True):
    """A note that one role shares with the others."""

    COLUMNS: ClassVar = ("sender", "type", "scope", "content")

    id: str
    type: str
    scope: str
    content: str
    sender: str = field(name="sendFrom")


class SessionMessage(Answer, frozen=True, kw_only=True):
    """A message of a BrowserOS session."""

    role: str
    content: str
    timestamp: Time
    token_count: int
    is_compressed: bool


class BlockEntry(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """A block of a prompt and its source."""

    kind: str
    source: str
    role: str
    tokens: int
    text: str
    cut: bool = False
    compressed: bool = False


class DroppedEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part left out of a prompt and the reason: one object by `source`, or the posts `from` to `to`."""

    kind: str
    first: int | UnsetType = field(default=UNSET, name="from")
    last: int | UnsetType = field(default=UNSET, name="to")
    source: str | UnsetType = UNSET
    count: int
    tokens: int
    reason: str


class CoveredPosts(Struct, frozen=True, kw_only=True):
    """Posts of a branch that the window's summary covers."""

    first: int = field(name="from")
    last: int = field(name="to")
    count: int


class WindowEntry(Answer, frozen=True, kw_only=True):
    """A prompt: its blocks with sources and tokens, and what was left out and why.

    `covered` lists the posts that the summary covers, shown or not.
    """

    tokens: int
    budget: int
    tools_tokens: int
    stable_prefix_ratio: float
    cache: dict[str, Any]
    anchors: tuple[Anchor, ...]
    blocks: tuple[BlockEntry, ...]
    dropped: tuple[DroppedEntry, ...]
    covered: tuple[CoveredPosts, ...] | UnsetType = UNSET


class StepEntry(Answer, frozen=True, kw_only=True):
    """A model call of a turn."""

    step: int
    state: TurnState
    tokens: int
    budget: int
    usage: Usage | None
    error: str | UnsetType = UNSET


class ListedTurn(Answer, frozen=True, kw_only=True):
    """A turn without its prompt."""

    COLUMNS: ClassVar = ("turn", "state", "attempts", "calls", "tokens", "started", "error")

    turn: int
    attempts: int  # with the failed turns whose request it repeats
    state: TurnState
    metadata: dict[str, Any]
    created_at: Time
    closed_at: Time | None
    steps: tuple[StepEntry, ...]

    @property
    def calls(self) -> int:
        """Return the number of model calls."""
        return len(self.steps)

    @property
    def tokens(self) -> int:
        """Return the tokens of the last prompt."""
        return self.steps[-1].tokens if self.steps else 0

    @property
    def started(self) -> Time:
        """Return the time of the query."""
        return self.created_at

    @property
    def error(self) -> str:
        """Return the error of the last model call."""
        return self.steps[-1].error or "" if self.steps else ""


class TurnDetail(ListedTurn, frozen=True, kw_only=True):
    """A turn with the prompt of one of its steps; `replay` is the verdict of rendering it again.

    `observation` is the feedback on the turn; without feedback it has only `by` (null) and a `reason`.
    """

    query: str
    reply: str
    window: WindowEntry | None
    replay: str
    step: int
    observation: dict[str, Any]
    reflections: tuple[ReflectionEntry, ...]


class WindowChange(Answer, frozen=True, kw_only=True):
    """Tokens of a turn's original and changed window; null if it could not be assembled."""

    before: int
    after: int | None
    change: int | None


class PostsLeftOut(Answer, frozen=True, kw_only=True):
    """Number of the branch's posts left out of the window, before and after."""

    before: int
    after: int


class WhatIfEntry(Answer, frozen=True, kw_only=True):
    """A turn's original and changed first window.

    `leftOut` lists blocks only in the original, `letIn` only in the changed one, `changed` those with a different text.
    `reproduced`: assembling it again without changes gave the recorded bytes. `refused`: why it could not be
    assembled. `answer`: the model's answer, if it was called.
    """

    tokens: WindowChange
    left_out: tuple[BlockEntry, ...]
    let_in: tuple[BlockEntry, ...]
    changed: tuple[BlockEntry, ...]
    posts_left_out: PostsLeftOut
    reproduced: bool
    refused: str | None
    answer: str | None
    before: WindowEntry
    after: WindowEntry | None


class ReplayEntry(Answer, frozen=True, kw_only=True):
    """A turn's window, re-rendered and compared with the digest of what was sent; with changes, a what-if replay."""

    verdict: str
    digest: str
    reason: str
    window: WindowEntry | None
    counterfactual: WhatIfEntry | UnsetType = UNSET


def conversation_entry(
    value: Conversation, *, head: str | None = None, title: str = "", summary: Summary | None = None
) -> ConversationEntry:
    """Return a conversation as an answer, with AgentOS's state in its metadata."""
    metadata = dict(value.metadata)
    if summary is not None:
        metadata["rollingSummaryState"] = to_wire(summary_state(summary))
    return as_answer(ConversationEntry, value, head=head, title=title, metadata=metadata)


def session_of(
    posts: Sequence[Post], summary: Summary | None, *, count: Callable[[str], int], include_compressed: bool
) -> list[SessionMessage]:
    """Return a path, oldest first, as a BrowserOS session: the summary first, then the messages kept verbatim.

    Messages that the summary covers are omitted, or with `include_compressed` marked.
    """
    reach = summary.upto_seq if summary else 0
    messages = [
        SessionMessage(
            role=post.role,
            content=post.message,
            timestamp=Time(post.created_at),
            token_count=post.tokens,
            is_compressed=post.seq <= reach,
        )
        for post in posts
        if include_compressed or post.seq > reach
    ]
    if summary is None:
        return messages
    text = f"{CONTEXT_SUMMARY}\n{summary.markdown}"
    first = SessionMessage(
        role="system",
        content=text,
        timestamp=Time(summary.created_at),
        token_count=count(text),
        is_compressed=False,
    )
    return [first, *messages]


def summary_state(value: Summary) -> SummaryState:
    """Return a rolling summary as an answer."""
    return as_answer(SummaryState, value, prompt=value.prompt or UNSET)


def post_entry(value: Post, ids: Mapping[int, str]) -> PostEntry:
    """Return a post as an answer; `ids` maps the seq of its parent to an ID."""
    parts = tuple(as_answer(PartEntry, each) for each in value.parts)
    return as_answer(PostEntry, value, parent=ids.get(value.parent), parts=parts)


def round_entry(value: Round, ids: Mapping[int, str]) -> RoundEntry:
    """Return a round as an answer."""
    return as_answer(RoundEntry, value, posts=tuple(post_entry(each, ids) for each in value.posts))


def shared_note(value: SharedEntry) -> SharedNote:
    """Return a note as an answer."""
    return as_answer(SharedNote, value, sender="" if value.sender is UNSET else value.sender)


def ids_of(posts: Sequence[Post]) -> dict[int, str]:
    """Return post IDs by seq."""
    return {each.seq: each.id for each in posts}


def window_entry(
    value: Window, *, cache: dict[str, Any] | None = None, covered: Sequence[tuple[int, int]] | None = None
) -> WindowEntry:
    """Return a window as an answer. `covered` are ranges of posts, inclusive."""
    return as_answer(
        WindowEntry,
        value,
        cache=value.cache if cache is None else cache,
        blocks=tuple(map(block_entry, value.blocks)),
        dropped=tuple(map(dropped_entry, value.dropped)),
        covered=UNSET
        if covered is None
        else tuple(CoveredPosts(first=first, last=last, count=last - first + 1) for first, last in covered),
    )


def block_entry(value: Block) -> BlockEntry:
    """Return a block as an answer, with its form."""
    return as_answer(BlockEntry, value, cut=value.form == "cut", compressed=value.form == "compressed")


def dropped_entry(value: Dropped) -> DroppedEntry:
    """Return an omission as an answer."""
    absent = {"source": UNSET} if value.first else {"first": UNSET, "last": UNSET}
    return as_answer(DroppedEntry, value, **absent)


def listed_turn(value: Turn) -> ListedTurn:
    """Return a turn as an answer, without its window."""
    return as_answer(ListedTurn, value, **turn_fields(value))


def turn_fields(value: Turn) -> dict[str, Any]:
    """Return the fields of a listed turn that differ from those of the record."""
    attempts = len(value.metadata.get(RETRY_OF, ())) + 1
    return {"turn": value.n, "attempts": attempts, "steps": tuple(map(_step_entry, value.steps))}


def _step_entry(value: Step) -> StepEntry:
    manifest = value.manifest
    error = value.error or UNSET
    return as_answer(StepEntry, value, step=value.n, tokens=manifest.tokens, budget=manifest.budget, error=error)
