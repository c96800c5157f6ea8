"""Serve the export of memories as a stream, `/api/settle` (wait for background jobs) and the health checks."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from litestar import get, post
from litestar.params import JSONBody, QueryParameter
from litestar.response.base import ASGIResponse

from cuebook.errors import BackendError, InvalidInput
from cuebook.records.answer import to_json
from cuebook.records.memory_answers import StoredMemory
from cuebook.server.api import types as wire
from cuebook.server.api.chat import StreamsToo
from cuebook.server.caller import OPEN, AnyRequest, caller_of, cue_of, user_of
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import UserQuery, json_of
from cuebook.server.streaming import Start, StreamResponse, encoded

#: Bytes per piece of a streamed answer.
PIECE = 64 * 1024
_JSON = Start(200, encoded([("content-type", "application/json")]))
ARCHIVE = "application/zip"
_ZIP = Start(
    200,
    encoded([("content-type", ARCHIVE), ("content-disposition", 'attachment; filename="personal-data.zip"')]),
)

OrganizationQuery = Annotated[str | None, QueryParameter(name="organizationId", description="Of this organization")]

EverythingQuery = Annotated[bool, QueryParameter(description="Return a zip archive of all data stored about the user")]


@dataclass
class ArchivesToo(StreamsToo):
    """An operation that also returns a zip archive."""

    ALSO: ClassVar = ARCHIVE


@get("/api/memories/export", role="viewer", responses=wire.answers(dict[str, Any]), operation_class=ArchivesToo)
async def export_memories(
    request: AnyRequest,
    user_id: UserQuery = None,
    organization: OrganizationQuery = None,
    *,
    everything: EverythingQuery = False,
) -> ASGIResponse:
    """Return all memories of a user or an organization with history and sources, as one streamed list.

    With `everything`, return a zip archive of all data stored about the user: messages, memories, prompts, feedback.
    """
    user, caller = user_of(request, None, user_id), caller_of(request)
    if everything:
        if organization:
            raise InvalidInput("organizationId: not allowed with everything. Omit it.", where="organizationId")
        pieces = cue_of(request).memory.export_everything(user=user, caller=caller)
        return StreamResponse(request.app.state.running, archived(pieces))
    found = cue_of(request).memory.export(user=user, organization=organization, caller=caller)
    return StreamResponse(request.app.state.running, exported(found))


async def archived(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[Start | bytes, None]:
    """Yield the response head once the export has begun, then the pieces of the archive."""
    begun = False
    async with aclosing(pieces):
        async for piece in pieces:
            if not begun:
                begun = True
                yield _ZIP
            yield piece


async def exported(found: AsyncGenerator[StoredMemory, None]) -> AsyncGenerator[Start | bytes, None]:
    """Yield the response head once the store has answered, then pieces of about PIECE bytes."""
    piece, begun = bytearray(b'{"items":['), False
    async with aclosing(found):
        async for memory in found:
            piece += b"," if begun else b""
            piece += to_json(memory)
            if not begun:
                begun = True
                yield _JSON
            if len(piece) >= PIECE:
                yield bytes(piece)
                piece.clear()
    if not begun:
        yield _JSON
    yield bytes(piece) + b"]}"


@post(
    "/api/settle",
    role="agent",
    dto=JsonBody[wire.SettleBody],
    status_code=200,
    responses=wire.answers(wire.Due, pending=True),
)
async def settle(request: AnyRequest, data: JSONBody[wire.SettleBody | None] = None) -> ASGIResponse:
    """Wait for pending background jobs: 200 if none is left, else 202 with those left."""
    body = data or wire.SettleBody()
    work = cue_of(request).settle(conversation=body.conversation_id, timeout=body.timeout)
    due = await request.app.state.running.until_gone(request.receive, work)
    return json_of({"due": due}, 202 if due else 200)


@get("/healthz", role=OPEN, responses=wire.answers(wire.Health), sync_to_thread=False)
def healthz() -> dict[str, str]:
    """Check that the server is alive. Does not query the store."""
    return {"status": "alive"}


@get("/readyz", role=OPEN, responses=wire.answers(wire.Ready))
async def readyz(request: AnyRequest) -> ASGIResponse:
    """Check that the store answers, and report the model. A model or an embedder is not required.

    The status is `degraded` while the disk is full: reads and erasures work. 503 while the store does not answer.
    """
    try:
        data = await cue_of(request).check()
    except BackendError as error:
        raise BackendError(f"The store does not answer: {error}", retryable=True) from error
    status = "degraded" if data["store"]["full"] else "ready"
    if await cue_of(request).keys.configured():
        data |= {"store": {}, "model": "", "personas": []}  # this route needs no key
        data["upstream"] = data["upstream"] and "configured"
        data["embedderError"] = data["embedderError"] and "failed. See the server log."
    return json_of({"status": status, **data})


ROUTES = [export_memories, settle, healthz, readyz]
