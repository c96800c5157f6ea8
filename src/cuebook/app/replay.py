"""Replay a recorded conversation through the whole pipeline, with its recorded times, ids and answers."""

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.app.transcripts.transcript import Transcript
from cuebook.engine.core.drafts import Posted, role_of, sender_of
from cuebook.records.answer import as_answer
from cuebook.records.conversation import Post
from cuebook.testing.doubles import FrozenClock
from cuebook.testing.upstream import HttpReply
from cuebook.wire.chat_messages import read_message, write_message

#: Start time of a conversation without times: arbitrary, but the same in every run.
UNDATED = datetime(2026, 1, 5, 9, 0, tzinfo=UTC).timestamp()
#: Seconds between posts without times.
STEP_S = 60.0


class RecordedPost(Struct, frozen=True, kw_only=True):
    """A recorded post: its id and time, and its OpenAI chat message."""

    id: str
    when: float
    sender: str
    message: Mapping[str, Any]
    kind: str = ""  # "listened": written by another person; the user's next post begins a call

    @property
    def role(self) -> str:
        """The role of the chat message."""
        return str(self.message["role"])

    def posted(self) -> Posted:
        """Return the post to store."""
        return as_answer(Posted, read_message(self.message), sender=self.sender, id=self.id, created_at=self.when)


def is_dated(transcript: Transcript) -> bool:
    """Return whether any post of a transcript has a time."""
    return any(_time_of(value) is not None for value in transcript.posts)


def posts_of(transcript: Transcript) -> list[RecordedPost]:
    """Return a transcript's posts as chat messages. A post without a time gets one shortly after its predecessor."""
    recorded_posts: list[RecordedPost] = []
    times = _times([_time_of(raw) for raw in transcript.posts])
    people = all(
        isinstance(post, Posted) and role_of(post.sender, transcript.persona) == "user" for post in transcript.posts
    )
    for number, (raw, when) in enumerate(zip(transcript.posts, times, strict=True), 1):
        if isinstance(raw, Posted):
            recorded_posts.append(_recorded_post(raw, f"post-{number}", when, transcript, people=people))
            continue
        fields = {key: value for key, value in raw.items() if key != "timestamp"}
        id_ = str(fields.pop("id", None) or f"post-{number}")
        recorded_posts.append(
            RecordedPost(id=id_, when=when, sender=sender_of(read_message(fields), transcript.user), message=fields)
        )
    return recorded_posts


def _time_of(value: Posted | Mapping[str, Any]) -> float | None:
    when = value.created_at if isinstance(value, Posted) else value.get("timestamp")
    return float(when) if isinstance(when, int | float) else None


def _times(known: Sequence[float | None]) -> list[float]:
    """Fill in unknown times: STEP_S after the previous post, or before the first known time."""
    first = next((number for number, when in enumerate(known) if when is not None), None)
    begins = UNDATED if first is None else (known[first] or 0.0) - first * STEP_S
    results: list[float] = []
    for when in known:
        results.append(when if when is not None else results[-1] + STEP_S if results else begins)
    return results


def _recorded_post(posted: Posted, id_: str, when: float, transcript: Transcript, *, people: bool) -> RecordedPost:
    role = posted.role or role_of(posted.sender, transcript.persona)
    place = {"id": posted.id or id_, "seq": 0, "parent": 0, "round": 0, "tokens": 0, "state": "complete"}
    post = as_answer(Post, posted, **place, role=role, created_at=when)
    message = msgspec.json.decode(write_message(post, user=transcript.user))
    kind = "listened" if people and posted.sender != transcript.user else ""
    return RecordedPost(id=post.id, when=post.created_at, sender=posted.sender, message=message, kind=kind)


def is_system(post: RecordedPost) -> bool:
    """Return whether a post is system text."""
    return post.role in ("system", "developer")


def advance_to(clock: FrozenClock, when: float) -> None:
    """Advance a clock to a post's time; it never goes back."""
    clock.set(max(clock.now(), when))


class ReplayDice:
    """An id generator that returns the recorded ids."""

    def __init__(self) -> None:
        self.ids: deque[str] = deque()
        self._made = 0

    def new_id(self, prefix: str) -> str:
        """Return the next recorded id, or a numbered one if none is left."""
        if prefix == "post" and self.ids:
            return self.ids.popleft()
        self._made += 1
        return f"{prefix}-{self._made}"


def recorded_answer(message: Mapping[str, Any], model: str = "") -> HttpReply:
    """Return a recorded message as an upstream's whole answer; `model` is the model name in it."""
    calls = bool(message.get("tool_calls"))
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    named = {"model": model} if model else {}
    return HttpReply(pieces=[msgspec.json.encode({"object": "chat.completion", **named, "choices": [choice]})])


class RecordedCall(Struct, frozen=True):
    """One model call of a recording: the new messages that were sent, and the answer (None: no answer)."""

    new: tuple[RecordedPost, ...]
    answer: RecordedPost | None


def calls_of(posts: Sequence[RecordedPost]) -> list[RecordedCall]:
    """Split a recording into model calls: each assistant message is the answer to the messages before it."""
    recorded_calls: list[RecordedCall] = []
    new: list[RecordedPost] = []
    for post in posts:
        if (post.role == "assistant" or post.kind) and new:
            recorded_calls.append(RecordedCall(tuple(new), post))
            new = []
        else:
            new.append(post)
    if new:
        recorded_calls.append(RecordedCall(tuple(new), None))
    return recorded_calls
