"""Serve `/api/memories` and `/learning/knowledge`: the caller's memories across conversations."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

import msgspec
from litestar import Response, get, patch, post
from litestar.params import FromPath, JSONBody, QueryParameter
from litestar.response.base import ASGIResponse
from msgspec import Meta

from cuebook.app.json_shapes import Wire
from cuebook.app.memories import json_shapes as shapes
from cuebook.errors import NotFound
from cuebook.records.memory import Memory
from cuebook.server.api.types import In, answers, seconds_of
from cuebook.server.authorization import AnyRequest, caller_of, cue_of, user_of
from cuebook.server.guard import name_in
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import PageCursor, UserQuery, json_of, listed
from cuebook.server.streaming import Start, StreamResponse, encoded

ALL = "/api/memories"
ONE = ALL + "/{memory:str}"
KNOWLEDGE = "/learning/knowledge"
#: Bytes per piece of a streamed answer.
PIECE = 64 * 1024
_JSON = Start(200, encoded([("content-type", "application/json")]))
_encode = msgspec.json.Encoder().encode

PersonaQuery = Annotated[str | None, QueryParameter(name="personaId", description="Only memories of this persona")]
OrganizationQuery = Annotated[str | None, QueryParameter(name="organizationId", description="Of this organization")]
Category = Annotated[str | None, QueryParameter(name="category", description="Only this category")]
Ended = Annotated[bool, QueryParameter(name="ended", description="Include ended memories")]
AsOf = Annotated[str | None, QueryParameter(name="asOf", description="Memories valid at this date or time, ISO 8601")]
Most = Annotated[int, QueryParameter(name="limit", ge=1, le=1000, description="Page size")]
Query = Annotated[str | None, QueryParameter(name="q", description="Search query, matched by words and by meaning")]


class MemoryAnswer(In, frozen=True, kw_only=True):
    """A memory."""

    id: str
    kind: str
    scope: str
    category: str
    text: str
    confidence: float


class CorrectBody(In, frozen=True, kw_only=True):
    """The corrected text of a memory."""

    text: Annotated[str, Meta(min_length=1)]
    user_id: str | None = None
    organization_id: str | None = None


class KnowledgeBody(In, frozen=True, kw_only=True):
    """A piece of knowledge of a user or of the project, unique by category and key."""

    category: str
    key: Annotated[str, Meta(min_length=1)]
    value: Annotated[str, Meta(min_length=1)]
    user_id: str | None = None
    confidence: Annotated[float, Meta(ge=0, le=1)] | None = None


class KnowledgeAnswer(In, frozen=True, kw_only=True):
    """The memory's ID, its confidence, and how often it was used or repeated."""

    id: str
    confidence: float
    usage_count: int


@get(ALL, responses=answers(dict[str, Any]))
async def list_memories(
    request: AnyRequest,
    *,
    user_id: UserQuery = None,
    persona: PersonaQuery = None,
    organization: OrganizationQuery = None,
    category: Category = None,
    ended: Ended = False,
    as_of: AsOf = None,
    limit: Most = 50,
    cursor: PageCursor = None,
) -> Response[bytes]:
    """List memories across conversations, oldest first."""
    page = await cue_of(request).memories.page(
        user=user_of(request, None, user_id),
        persona=persona,
        organization=organization,
        category=category,
        ended=ended,
        as_of=moment(as_of),
        limit=limit,
        cursor=cursor,
    )
    return listed([shapes.memory(each) for each in page.items if may_know(request, each)], page.cursor)


@get(ALL + "/export", responses=answers(dict[str, Any]))
async def export_memories(
    request: AnyRequest, user_id: UserQuery = None, organization: OrganizationQuery = None
) -> ASGIResponse:
    """Return all memories of a user or an organization with history and sources, as one streamed list."""
    found = cue_of(request).memories.export(user=user_of(request, None, user_id), organization=organization)
    return StreamResponse(request.app.state.running, exported(request, found))


async def exported(request: AnyRequest, found: AsyncGenerator[Memory, None]) -> AsyncGenerator[Start | bytes, None]:
    """Yield the response head once the store has answered, then pieces of about PIECE bytes."""
    piece, begun = bytearray(b'{"items":['), False
    async with aclosing(found):
        async for memory in found:
            if not may_know(request, memory):
                continue
            piece += b"," if begun else b""
            piece += _encode(shapes.memory(memory))
            if not begun:
                begun = True
                yield _JSON
            if len(piece) >= PIECE:
                yield bytes(piece)
                piece.clear()
    if not begun:
        yield _JSON
    yield bytes(piece) + b"]}"


@get(ONE, responses=answers(MemoryAnswer))
async def get_memory(
    request: AnyRequest, memory: FromPath[str], user_id: UserQuery = None, organization: OrganizationQuery = None
) -> Response[bytes]:
    """Return a memory with its source posts."""
    found = await read_memory(request, name_in(memory), user_of(request, None, user_id), organization)
    return json_of(shapes.memory(found))


@patch(ONE, dto=JsonBody[CorrectBody], status_code=200, responses=answers(MemoryAnswer))
async def correct_memory(
    request: AnyRequest, memory: FromPath[str], data: JSONBody[CorrectBody], user_id: UserQuery = None
) -> Response[bytes]:
    """Correct a memory's text. The old text is deleted, and the ID changes with the text."""
    user = user_of(request, data.user_id, user_id)
    found = await correct_one(request, name_in(memory), data.text, user, data.organization_id)
    return json_of(shapes.memory(found))


@get(KNOWLEDGE, responses=answers(dict[str, Any]))
async def list_knowledge(
    request: AnyRequest,
    *,
    user_id: UserQuery = None,
    q: Query = None,
    category: Category = None,
    limit: Most = 20,
    cursor: PageCursor = None,
) -> Response[bytes]:
    """List knowledge, or search it by words and by meaning."""
    memories, user = cue_of(request).memories, user_of(request, None, user_id)
    found, more = await memories.knowledge(q, category=category, user=user, limit=limit, cursor=cursor)
    return listed([shapes.knowledge(each) for each in found], more)


@post(KNOWLEDGE, dto=JsonBody[KnowledgeBody], status_code=201, responses=answers(KnowledgeAnswer, 201))
async def put_knowledge(
    request: AnyRequest, data: JSONBody[KnowledgeBody], user_id: UserQuery = None
) -> Response[bytes]:
    """Store knowledge. Repeating it raises its confidence; another value supersedes it and keeps the history."""
    user = user_of(request, data.user_id, user_id)
    memories = cue_of(request).memories
    memory = await memories.put(data.category, data.key, data.value, user=user, confidence=data.confidence)
    return json_of(_counted(shapes.knowledge(memory)), 201)


@post(KNOWLEDGE + "/{memory:str}/use", status_code=200, responses=answers(KnowledgeAnswer))
async def use_knowledge(request: AnyRequest, memory: FromPath[str], user_id: UserQuery = None) -> Response[bytes]:
    """Count a use, which raises the confidence by 0.05."""
    result = await cue_of(request).memories.use(name_in(memory), user=user_of(request, None, user_id))
    return json_of(_counted(shapes.knowledge(result)))


async def read_memory(request: AnyRequest, name: str, user: str | None, organization: str | None) -> Memory:
    """Return a memory if the caller may read it. Raises NotFound."""
    memory = await cue_of(request).memories.get(name, user=user, organization=organization)
    if not may_know(request, memory):
        msg = f"Unknown memory {name!r}. List memories with `cuebook memory list`."
        raise NotFound(msg)
    return memory


async def correct_one(request: AnyRequest, name: str, text: str, user: str | None, organization: str | None) -> Memory:
    """Correct a memory if the caller may. Raises NotFound, Denied, InvalidInput."""
    if organization:
        caller_of(request).need("admin", "Correcting an organization's memory")
    elif user is None:
        caller_of(request).need("owner", "Correcting other users' memories")
    return await cue_of(request).memories.correct(name, text, user=user, organization=organization)


def moment(as_of: str | None) -> float | None:
    """Parse `asOf` to Unix seconds; None for now. Raises InvalidInput."""
    return seconds_of(as_of.strip(), "asOf") if as_of and as_of.strip() else None


def may_know(request: AnyRequest, memory: Memory) -> bool:
    """Return whether the caller may read a memory; an organization's only with its own keys."""
    return memory.place.kind != "organization" or caller_of(request).belongs_to(memory.place.id)


def _counted(data: Wire) -> Wire:
    return {name: data[name] for name in ("id", "confidence", "usageCount")}


ROUTES = [
    list_memories,
    export_memories,
    get_memory,
    correct_memory,
    list_knowledge,
    put_knowledge,
    use_knowledge,
]
