"""Define the request and response types under `/api`, which validate and document them (OpenAPI)."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Any

import msgspec
from litestar.openapi.datastructures import ResponseSpec
from msgspec import Meta, Struct

from cuebook import Posted
from cuebook.errors import InvalidInput
from cuebook.records.answer import Answer
from cuebook.records.conversation import Part
from cuebook.records.portable import part_from_dict
from cuebook.records.turn import Ask
from cuebook.server.error_responses import PROBLEM_TYPE, OpenAIError, Problem

#: Maximum timeout of a settle request, in seconds.
LONGEST_WAIT_S = 3600.0
#: Error statuses that any route may return.
ERRORS = (400, 401, 403, 404, 405, 409, 413, 422, 429, 500, 502, 503, 504, 507)

Text = Annotated[str, Meta(min_length=1)]
Tokens = Annotated[int, Meta(ge=1, le=2**31)]
Time = Annotated[str, Meta(description="ISO 8601; UTC without a zone")]


class In(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A request body; unknown fields are errors."""


class Attachment(In, frozen=True, kw_only=True):
    """A part of a post besides its message. An unknown type is stored as opaque text."""

    type: Text
    content: str
    extra: Any = None


class ChatBody(In, frozen=True, kw_only=True):
    """A message to answer. Without `conversationId` a new conversation starts.

    `project` selects whose own prompts override the shared ones, "" for none; stored in the conversation. `timeZone` is
    an IANA name that dates like "yesterday" refer to; also stored.
    """

    message: str
    conversation_id: Text | None = None
    user_id: str | None = None
    persona_id: str | None = None
    mode: str | None = None
    organization_id: str | None = None
    memory_control: dict[str, Any] | None = None
    attachments: list[Attachment] = []
    token_budget: Tokens | None = None
    project: str | None = None
    time_zone: str | None = None
    signals: dict[str, float] | None = None
    stream: bool | None = None


class PostBody(In, frozen=True, kw_only=True):
    """A post to import: a `message`, or `parts`.

    `parent` names the post it follows. Default: the head; empty: none, which starts the conversation anew.
    """

    send_from: Text
    send_to: str = ""
    message: str | None = None
    parts: list[Attachment] | None = None
    attachments: list[Attachment] = []
    id: Text | None = None
    parent: str | None = None
    timestamp: Time | None = None


class PostsBody(In, frozen=True, kw_only=True):
    """Posts to store, all or none: `posts`, or OpenAI chat `messages`, each with an optional `id` and `timestamp`."""

    posts: list[PostBody] | None = None
    messages: list[dict[str, Any]] | None = None
    user_id: str | None = None
    persona_id: str | None = None
    time_zone: str | None = None


class SettleBody(In, frozen=True, kw_only=True):
    """The conversation to wait for, and the timeout in seconds."""

    conversation_id: Text | None = None
    timeout: Annotated[float, Meta(ge=0, le=LONGEST_WAIT_S)] = 60.0


class AssembleAnswer(Answer, frozen=True, kw_only=True):
    """A prompt: its messages, and its blocks with their sources."""

    messages: list[dict[str, Any]]
    window: dict[str, Any]
    metadata: dict[str, Any]


class Due(Answer, frozen=True, kw_only=True):
    """Pending background jobs by kind; empty when all are done.

    `compaction` and `optimizer` count conversations, `rollback` prompts to judge, `audit` records that the mirror file
    lacks.
    """

    due: dict[str, int]


class Health(Answer, frozen=True, kw_only=True):
    """Liveness of the server."""

    status: str


class Ready(Answer, frozen=True, kw_only=True):
    """Readiness: whether the store answers, the configured model, and the embedder's last error."""

    status: str
    embedder: str | None
    embedder_error: str | None
    has_model: bool
    model: str
    store: dict[str, Any]
    upstream: str | None
    personas: list[str]


def answers(
    good: type[Struct] | type[dict[str, Any]], status: int = 200, *, pending: bool = False
) -> dict[int, ResponseSpec]:
    """Return a route's documented responses: success, and problem documents for ERRORS.

    `pending`: the route may return 202 while work is pending.
    """
    values = {status: ResponseSpec(good, description="Success", generate_examples=False)}
    if pending:
        values[202] = ResponseSpec(good, description="Pending", generate_examples=False)
    problem = ResponseSpec(Problem, description="Error", media_type=PROBLEM_TYPE, generate_examples=False)
    return values | dict.fromkeys(ERRORS, problem)


def openai_answers(good: type[Any], bad: type[Struct] = OpenAIError) -> dict[int, ResponseSpec]:
    """Return a route's documented responses on a provider's wire."""
    error = ResponseSpec(bad, description="Error", generate_examples=False)
    return {200: ResponseSpec(good, description="Success", generate_examples=False)} | dict.fromkeys(ERRORS, error)


def ask_of(body: ChatBody, *, conversation: str, user: str | None, idempotency_key: str | None = None) -> Ask:
    """Convert a request to an Ask. Raises InvalidInput."""
    if not body.message and not body.attachments:
        msg = "message: empty. Send a message or an attachment."
        raise InvalidInput(msg, where="message")
    return Ask(
        text=body.message,
        conversation=conversation,
        user=user,
        persona=body.persona_id or None,
        mode=body.mode,
        organization=body.organization_id,
        memory_control=body.memory_control,
        attachments=tuple(part for each in body.attachments if (part := part_of(each, "attachments"))),
        idempotency_key=idempotency_key,
        token_budget=body.token_budget,
        project=body.project,
        time_zone=body.time_zone,
        signals=body.signals,
    )


def part_of(given: Attachment, where: str) -> Part | None:
    """Convert an attachment to a part; None for a type that no longer exists."""
    return part_from_dict({"type": given.type, "content": given.content, "extra": given.extra}, where=where)


def posted_of(given: PostBody, number: int) -> Posted:
    """Convert a post to its stored form. Raises InvalidInput that names the field."""
    where = f"posts[{number}]"
    if given.parts is not None and given.message is not None:
        msg = f"{where}: has both message and parts. Send one of them, and further parts as attachments."
        raise InvalidInput(msg, where=f"{where}.parts")
    parts = [part for each in (*(given.parts or ()), *given.attachments) if (part := part_of(each, where))]
    message = given.message
    if message is None:
        texts = [part.content for part in parts if part.type == "text"]
        message = "\n".join(texts)
        if len(texts) == 1 and parts[0].type == "text":
            del parts[0]  # a single text is the message (records.openai_messages)
    if not message and not parts:
        msg = f"{where}.message: empty. Send a message or parts."
        raise InvalidInput(msg, where=f"{where}.message")
    return Posted(
        sender=given.send_from,
        recipient=given.send_to,
        message=message,
        parts=tuple(parts),
        id=given.id or "",
        created_at=None if given.timestamp is None else seconds_of(given.timestamp, f"{where}.timestamp"),
    )


def chain_of(posts: list[PostBody]) -> str | None:
    """Return the first post's parent; each further post must follow the previous one. Raises InvalidInput."""
    for number, (before, each) in enumerate(pairwise(posts), 1):
        if each.parent is not None and each.parent != before.id:
            msg = f"posts[{number}].parent: not the previous post of this request. Send branches in separate requests."
            raise InvalidInput(msg, where=f"posts[{number}].parent")
    return posts[0].parent if posts else None


def seconds_of(timestamp: Any, where: str) -> float:
    """Return an ISO 8601 time as Unix seconds. Raises InvalidInput."""
    try:
        when = datetime.fromisoformat(timestamp)
        seconds = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
        _ = datetime.fromtimestamp(seconds, UTC)
    except (TypeError, ValueError, OverflowError):
        msg = f"{where}: not a time: {timestamp!r}. Use ISO 8601, like 2026-01-31T12:00:00Z."
        raise InvalidInput(msg, where=where) from None
    return seconds


def message_with_time(given: dict[str, Any], number: int) -> dict[str, Any]:
    """Return an OpenAI message with its `timestamp` in seconds."""
    if given.get("timestamp") is not None:
        given["timestamp"] = seconds_of(given["timestamp"], f"messages[{number}].timestamp")
    if "id" in given and not isinstance(given["id"], str):
        msg = f"messages[{number}].id: expected `str`, got {msgspec.json.encode(given['id']).decode()}"
        raise InvalidInput(msg, where=f"messages[{number}].id")
    return given
