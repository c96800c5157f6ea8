"""Serve memory search, `/api/settle` (wait for background jobs) and the health checks."""

from typing import Annotated

import msgspec
from litestar import Response, get, post
from litestar.params import JSONBody, QueryParameter

from cuebook.app import json_shapes as shapes
from cuebook.errors import BackendError
from cuebook.server.api import types as wire
from cuebook.server.authorization import AnyRequest, cue_of, user_of
from cuebook.server.json_body import JsonBody

UserQuery = Annotated[str | None, QueryParameter(name="userId", description="The acting user, if not in the body")]

_encode = msgspec.json.Encoder().encode


@post("/api/memories/search", dto=JsonBody[wire.SearchBody], status_code=200, responses=wire.answers(wire.Hits))
async def search(request: AnyRequest, data: JSONBody[wire.SearchBody], user_id: UserQuery = None) -> Response[bytes]:
    """Search messages and memories, best first; with `tokenBudget` packed by value per token."""
    hits = await cue_of(request).memory.search(
        data.query,
        conversation=data.conversation_id,
        user=user_of(request, data.user_id, user_id),
        persona=data.persona_id,
        organization=data.organization_id,
        scopes=data.scopes,
        as_of=None if data.as_of is None else wire.seconds_of(data.as_of, "asOf"),
        limit=data.limit,
        token_budget=data.token_budget,
        time_zone=data.time_zone,
    )
    return Response(_encode({"hits": [shapes.hit(each) for each in hits]}), media_type="application/json")


@post("/api/settle", dto=JsonBody[wire.SettleBody], status_code=200, responses=wire.answers(wire.Due, pending=True))
async def settle(request: AnyRequest, data: JSONBody[wire.SettleBody | None] = None) -> Response[bytes]:
    """Wait for pending background jobs: 200 if none is left, else 202 with those left."""
    body = data or wire.SettleBody()
    work = cue_of(request).settle(conversation=body.conversation_id, timeout=body.timeout)
    due = await request.app.state.running.until_gone(request.receive, work)
    return Response(_encode({"due": due}), media_type="application/json", status_code=202 if due else 200)


@get("/healthz", responses=wire.answers(wire.Health), sync_to_thread=False)
def healthz() -> dict[str, str]:
    """Check that the server is alive. Does not query the store."""
    return {"status": "alive"}


@get("/readyz", responses=wire.answers(wire.Ready))
async def readyz(request: AnyRequest) -> Response[bytes]:
    """Check that the store answers, and report the model. A model or an embedder is not required."""
    try:
        data = await cue_of(request).check()
    except BackendError as error:
        raise BackendError(f"The store does not answer: {error}", retryable=True) from error
    if await cue_of(request).keys.configured():
        data |= {"store": {}, "model": "", "upstream": None, "personas": []}  # this route needs no key
        data["embedderError"] = data["embedderError"] and "failed. See the server log."
    return Response(_encode({"status": "ready", **data}), media_type="application/json")


ROUTES = [search, settle, healthz, readyz]
