"""The conversation data model: a tree of lossless posts (messages), read as paths and rounds, and content digests.

A stored post never changes. `message` is its text; `parts` keep everything else in order. `wire` is the message
verbatim as a client or provider sent it, so that signatures, call ids and unknown fields are returned unchanged.
"""

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from cuebook.validate import Argument

Role = Literal["user", "assistant", "tool", "system", "summary"]
PostState = Literal["complete", "interrupted", "erased"]
RoundState = Literal["created", "finished", "failed"]

ASSISTANT: Final = "assistant"
TOOL: Final = "tool"
SYSTEM: Final = "system"

#: TaskWeaver's attachment types and those the OpenAI wire needs beside them. Anything else loads as `opaque`.
PART_TYPES = frozenset({
    "plan", "current_plan_step", "plan_reasoning", "stop",
    "thought", "reply_type", "reply_content", "verification",
    "code_error", "execution_status", "execution_result", "artifact_paths", "revise_message",
    "function", "web_exploring_plan", "web_exploring_screenshot", "web_exploring_link",
    "session_variables", "shared_memory_entry", "invalid_response", "text", "image_url",
    "reasoning", "file", "audio", "refusal", "opaque",
})  # fmt: skip
#: Removed types, which are skipped when loaded (D, "Backward Compatibility").
REMOVED_PART_TYPES = frozenset({"init_plan"})
#: Old names of renamed types.
RENAMED_PART_TYPES = {"python": "reply_content", "sample": "text"}

#: Characters of a tool call that search reads, and calls of a post.
CALL_TEXT = 400
MOST_CALLS = 8

CALL = "function"
RESULT = "execution_result"
ERROR = "code_error"


class Part(Struct, frozen=True, omit_defaults=True, metaclass=Argument):
    """One ordered part of a post.

    A D attachment, a tool call or result, an image, a file, or an unknown object kept verbatim.
    """

    type: str
    content: str
    extra: Any = None
    id: str = ""

    @property
    def call_id(self) -> str | None:
        """Return the id of the tool call that this part makes or answers, or None."""
        call = self.extra.get("callId") if isinstance(self.extra, dict) else None
        return call if isinstance(call, str) else None


def text_with_calls(message: str, parts: Iterable[Part]) -> str:
    """Return the text of a post that search reads: its message, and the beginnings of its tool calls, a line each."""
    calls = islice((part.content for part in parts if part.type == CALL), MOST_CALLS)
    return "\n".join(filter(None, (message, *(_call_text(content)[:CALL_TEXT] for content in calls))))


class _Call(Struct):
    name: str
    arguments: str = ""


def _call_text(content: str) -> str:
    """Return the name and the arguments of a tool call, without escapes; what is no JSON as it is."""
    call = None
    with suppress(ValueError, RecursionError):
        call = msgspec.json.decode(content, type=_Call)
    if call is None:
        return content
    arguments = call.arguments
    with suppress(ValueError, RecursionError):
        arguments = msgspec.json.encode(msgspec.json.decode(arguments)).decode()
    return f"{call.name} {arguments}"


def calls_in(parts: Iterable[Part]) -> set[str]:
    """Return the ids of the tool calls that the parts make or answer."""
    return {call for part in parts if part.type in (CALL, RESULT, ERROR) and (call := part.call_id)}


class Post(Struct, frozen=True, kw_only=True):
    """One message between two roles, as stored.

    `seq` is gap-free in the conversation; `parent` is a seq, 0 at a root.
    """

    id: str
    seq: int
    parent: int
    round: int  # seq of the post that opened the round; 0 before the first round
    sender: str
    recipient: str
    role: Role
    message: str
    created_at: float  # Unix seconds
    tokens: int  # estimate of the whole rendered message
    parts: tuple[Part, ...] = ()
    wire: bytes | None = None
    state: PostState = "complete"
    digest: bytes = b""

    @property
    def calls(self) -> tuple[Part, ...]:
        """Return the ids of the tool calls that this post makes."""
        return tuple(part for part in self.parts if part.type == CALL)

    @property
    def result_of(self) -> str | None:
        """Return the id of the tool call that this post answers, if any."""
        calls = (part.call_id for part in self.parts if part.type in (RESULT, ERROR))
        return next((call for call in calls if call is not None), None)


class PathPost(Struct, frozen=True, gc=False):
    """A lean post for prompt assembly: `message` is None if only the compressed form was read."""

    seq: int
    id: str
    round: int
    role: Role
    sender: str
    message: str | None
    tokens: int
    small: str | None
    small_tokens: int
    path_tokens: int  # running sum of tokens along the path, this post included
    created_at: float
    parts: bytes | None = None  # JSON of the parts, None for plain text
    wire: bytes | None = None
    state: str = "complete"


class Stretch(Struct, frozen=True):
    """Posts `first`..`last` of a path, consecutive seqs, that were not read: `count` posts with `tokens` in total."""

    first: int
    last: int
    count: int
    tokens: int


class Draft(Struct, frozen=True, kw_only=True):
    """A post ready to be stored: secrets are replaced and derived columns are computed.

    The store assigns its seq.
    """

    id: str
    sender: str
    recipient: str
    role: Role
    message: str
    created_at: float
    tokens: int
    digest: bytes  # 16 bytes over the message's content; equal digest = same message
    parts: tuple[Part, ...] = ()
    wire: bytes | None = None
    small: str | None = None  # T8's compressed form, None if it would not be smaller
    small_tokens: int = 0  # tokens of the compressed form, or `tokens`
    key: str = ""  # text for the full-text index: speaker, date and text
    state: PostState = "complete"

    @property
    def is_result(self) -> bool:
        """Return whether the post is a tool result (INTERFACE, Posts)."""
        return self.role == TOOL or (
            self.role != ASSISTANT and any(part.type in (RESULT, ERROR) for part in self.parts)
        )


class Round(Struct, frozen=True, kw_only=True):
    """One user query and the posts that answer it."""

    id: str
    seq: int
    user_query: str
    state: RoundState
    posts: tuple[Post, ...] = ()


class Conversation(Struct, frozen=True, kw_only=True):
    """A conversation's row: its participants, its head and its counters."""

    id: str
    no: int = 0  # the row number in the store; 0 = not stored yet
    user: str | None = None
    persona: str | None = None
    participants: tuple[str, ...] = ()
    head: int = 0
    last_seq: int = 0
    turns: int = 0
    generation: int = 0  # incremented with every change of the tree or of derived data
    created_at: float = 0.0
    updated_at: float = 0.0
    metadata: dict[str, Any] = {}
    lease_until: float = 0.0
    fence: int = 0
    backlog: int = 0  # posts on the head's path after the newest summary
    backlog_tokens: int = 0
    mark: int = 0  # last seq covered by the newest summary on the head's path
    open_round: int = 0  # seq of the open round, 0 for none
    utility: bool = False  # a utility call of a client: a title, tags, a rewritten query …


def is_guest(conversation: Conversation, user: str | None) -> bool:
    """Return whether a user is a guest in another user's conversation."""
    return user is not None and conversation.user not in (None, user)


class LoadedConversation(Struct, frozen=True, kw_only=True):
    """A conversation with its posts, and the rounds of its head's path unless the posts are of all branches."""

    conversation: Conversation
    posts: tuple[Post, ...] = ()
    rounds: tuple[Round, ...] = ()


class SharedEntry(Struct, frozen=True):
    """A note that one role shares with the others.

    Scope `conversation` is always valid, `round` only in the last round.
    """

    type: str
    scope: Literal["round", "conversation"]
    content: str
    id: str = ""
    sender: str | UnsetType = UNSET


# ---- digests ---------------------------------------------------------------------------------------------------------


#: Bytes of a digest: 128 bits, collision-free for any number of posts on one machine.
SIZE = 16


def digest_of(body: bytes) -> bytes:
    """Return the digest of a body."""
    return hashlib.blake2b(body, digest_size=SIZE).digest()


def keyed_digest(body: bytes, key: bytes) -> bytes:
    """Return the keyed digest of a body, which cannot be guessed without the key."""
    return hashlib.blake2b(body, digest_size=SIZE, key=key[:64]).digest()


def text_digest(text: str) -> str:
    """Return the digest of a text in hex, as used in manifests."""
    return digest_of(text.encode("utf-8", "surrogatepass")).hex()


def chain(start: bytes, digests: Iterable[bytes]) -> bytes:
    """Return the digest of a path from the digest of the path before it and those of the following posts."""
    hasher = hashlib.blake2b(start, digest_size=SIZE)
    for digest in digests:
        hasher.update(digest)
    return hasher.digest()


def messages_digest(messages: Sequence[bytes]) -> str:
    """Return the digest (hex) of rendered messages, each prefixed with its length to mark boundaries.

    Truncated SHA-256: the input is large, and processors have instructions for it.
    """
    hasher = hashlib.sha256(msgspec.json.encode(list(map(len, messages))))
    hasher.update(b"".join(messages))
    return hasher.digest()[:SIZE].hex()


def fence_of(nonce: str, key: bytes) -> str:
    """Return the fence of a rendering's volatile block from its nonce: keyed, so that no text can contain it.

    It has 18 decimal digits, because all such numbers have the same number of tokens. No card number begins with 0.
    """
    return f"{int.from_bytes(keyed_digest(nonce.encode(), key)) % 10**17:018d}"


class Appended(Struct, frozen=True, rename="camel"):
    """Number of new posts, and the conversation's last seq."""

    stored: int
    last_seq: int
