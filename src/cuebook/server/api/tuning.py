"""Serve `/learning/memory` and `/learning/optimizer`: analyze posts, report budgets and statistics, tune."""

from typing import Annotated

from litestar import Response, get, post
from litestar.params import JSONBody, QueryParameter

from cuebook.app.paging import short_page
from cuebook.app.turns.optimizer import MOST, OptimizerStatus, snapshot
from cuebook.server.api.types import RunBody, SnapshotAnswer, SnapshotList, answers
from cuebook.server.authorization import AnyRequest, cue_of, user_of
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import PageCursor, UserQuery, json_of, listed

ConversationQuery = Annotated[
    str | None, QueryParameter(name="conversationId", min_length=1, description="Only this conversation")
]
SnapshotLimit = Annotated[int, QueryParameter(name="limit", ge=1, le=MOST, description="Maximum number of items")]


@get("/learning/optimizer/status", responses=answers(OptimizerStatus))
async def status(
    request: AnyRequest, conversation_id: ConversationQuery = None, user_id: UserQuery = None
) -> Response[bytes]:
    """Return the totals of all optimizer runs, and the current parameters."""
    return json_of(await cue_of(request).optimizer.status(conversation_id, user=user_of(request, user_id)))


@post(
    "/learning/optimizer/run",
    dto=JsonBody[RunBody],
    status_code=200,
    responses=answers(SnapshotAnswer),
)
async def run(request: AnyRequest, data: JSONBody[RunBody | None] = None, user_id: UserQuery = None) -> Response[bytes]:
    """Run the optimizer on a conversation, or on all that changed since their last run. Waits for the result."""
    body = data or RunBody()
    user = user_of(request, body.user_id, user_id)
    return json_of(snapshot(await cue_of(request).optimizer.run(body.conversation_id, user=user)))


@get("/learning/optimizer/history", responses=answers(SnapshotList))
async def history(
    request: AnyRequest,
    conversation_id: ConversationQuery = None,
    user_id: UserQuery = None,
    limit: SnapshotLimit = 20,
    cursor: PageCursor = None,
) -> Response[bytes]:
    """Return optimizer runs, newest first."""
    user = user_of(request, user_id)
    snapshots = await cue_of(request).optimizer.history(conversation_id, user=user, limit=MOST)
    page = short_page(snapshots, f"runs {conversation_id}", limit=limit, cursor=cursor, grows=True)
    return listed([snapshot(each) for each in page.items], page.next)


ROUTES = [status, run, history]
