"""Serve `/api/shadow`: the shadow mode report of what Cuebook would have sent and saved."""

from litestar import Response, get

from cuebook.app.reports.shadow import ShadowReport
from cuebook.server.api.tuning import ConversationQuery
from cuebook.server.api.types import answers
from cuebook.server.authorization import AnyRequest, cue_of, user_of
from cuebook.server.route_parts import UserQuery, json_of


@get("/api/shadow", responses=answers(ShadowReport))
async def shadow(
    request: AnyRequest, conversation_id: ConversationQuery = None, user_id: UserQuery = None
) -> Response[bytes]:
    """Return totals of shadow calls: tokens, cost, and posts that either prompt lacks."""
    return json_of(await cue_of(request).shadow.report(conversation_id, user=user_of(request, user_id)))


ROUTES = [shadow]
