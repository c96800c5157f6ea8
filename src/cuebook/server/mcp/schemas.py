"""Define the results of MCP tools, and the JSON Schemas of their arguments and results."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import cache
from inspect import signature
from typing import Annotated, Any, get_type_hints

import msgspec
from litestar import Request
from msgspec import Meta, Struct

from cuebook import Cuebook
from cuebook.records.answer import Answer, Wire, schema_of_time
from cuebook.records.conversation_answers import BlockEntry, DroppedEntry
from cuebook.records.key import Caller
from cuebook.records.memory import KNOWLEDGE, Hit
from cuebook.server.caller import caller_of, cue_of, header

# ---- the caller -----------------------------------------------------------------------------------------------------


class Asker(Struct, frozen=True, kw_only=True):
    """A project as a caller sees it. `named` are users that the request names besides the tool's argument."""

    cue: Cuebook
    caller: Caller
    named: tuple[str | None, ...] = ()

    def user(self, given: str | None = None) -> str | None:
        """Return the acting user. Raises Denied if the key belongs to one user and another is named."""
        return self.caller.acts_as(given, *self.named)


class CallContext(Struct, frozen=True, kw_only=True):
    """Functions of a message's context: return the caller, check it again, and reserve a live connection."""

    now: Callable[[Any], Asker]
    later: Callable[[Any], Awaitable[Asker]]  # raises Unproven for a revoked or expired key
    seat: Callable[[Any], AbstractContextManager[None]]  # raises Busy


def asker_of(scope: Any) -> Asker:
    """Return the caller of an authorized request."""
    request = Request[Any, Any, Any](scope)
    named = (request.query_params.get("userId"), header(scope, b"x-user-id"))
    return Asker(cue=cue_of(request), caller=caller_of(request), named=named)


Text = Annotated[str, Meta(min_length=1)]
Number = Annotated[int, Meta(ge=1)]
User = Annotated[str | None, Meta(description="User whose memory it is. Default: the project's own.")]
Conversation = Annotated[Text, Meta(description="Conversation ID.")]
Category = Annotated[
    str | None,
    Meta(
        description="Kind of knowledge. Default: user_preference for a user, else domain.",
        extra_json_schema={"enum": [*KNOWLEDGE, None]},
    ),
]


class RememberResult(Answer, frozen=True, kw_only=True):
    """Location of the stored text: `id` names the memory, `conversationId` and `seq` the post."""

    kept: str
    id: str | None = None
    category: str | None = None
    key: str | None = None
    confidence: float | None = None
    conversation_id: str | None = None
    seq: int | None = None


class Recalled(Answer, frozen=True, kw_only=True):
    """Search results, best first; `sources` are the IDs of their source posts."""

    hits: list[Hit]


class MemoryCandidate(Answer, frozen=True, kw_only=True):
    """A memory that matches the query."""

    id: str
    text: str
    category: str


class ForgetResult(Answer, frozen=True, kw_only=True):
    """The signed receipt; or, for a query, candidates (nothing was forgotten)."""

    receipt: dict[str, Any] | None = None
    candidates: tuple[MemoryCandidate, ...] = ()


class Explained(Answer, frozen=True, kw_only=True):
    """A turn: the blocks of its prompt, what was left out, and why. Without blocks the prompt is not available.

    The texts of the blocks are previews unless `full` is set.
    """

    conversation_id: str
    turn: int
    state: str
    query: str
    reply: str
    tokens: int | None
    budget: int | None
    blocks: tuple[BlockEntry, ...]
    dropped: tuple[DroppedEntry, ...]
    why: list[str]
    replay: str


class TranscriptPost(Answer, frozen=True, kw_only=True):
    """A post; `cut` is true if its message is truncated."""

    id: str
    seq: int
    send_from: str
    role: str
    message: str
    timestamp: str | None
    cut: bool = False


class TranscriptResult(Answer, frozen=True, kw_only=True):
    """Posts of the branch of the conversation's head, oldest first."""

    conversation_id: str
    posts: list[TranscriptPost]


def arguments_of(function: Callable[..., Any]) -> type[Struct]:
    """Return the struct of a tool's arguments: the parameters of its function after the caller."""
    hints = get_type_hints(function, include_extras=True)
    fields: list[Any] = [
        (each.name, hints[each.name]) if each.default is each.empty else (each.name, hints[each.name], each.default)
        for each in list(signature(function).parameters.values())[1:]
    ]
    options: Any = {"frozen": True, "kw_only": True, "forbid_unknown_fields": True}
    return msgspec.defstruct(function.__name__.title(), fields, **options)


@cache
def schema_of(kind: type[Struct], *, without: str | None = None) -> Wire:
    """Return a type's JSON Schema with `object` at its root, omitting property `without`."""
    [made], named = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}", schema_hook=schema_of_time)
    data: Wire = dict(named.pop(made["$ref"].removeprefix("#/$defs/")))
    if kind.__struct_config__.forbid_unknown_fields:  # a request
        data["properties"] = {name: _plain(each) for name, each in data["properties"].items() if name != without}
    return data | ({"$defs": named} if named else {})


def _plain(data: Wire) -> Wire:
    """Return an optional property's schema without null (still accepted), because many clients expect one type."""
    types = [each for each in data.get("anyOf", ()) if each != {"type": "null"}]
    if len(types) != 1:
        return data
    fields: Wire = {name: each for name, each in data.items() if name not in ("anyOf", "default")} | types[0]
    if "enum" in fields:
        fields["enum"] = [each for each in fields["enum"] if each is not None]
    return fields
