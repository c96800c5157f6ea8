"""`/api/shadow`: what Cuebook would have sent, beside what clients sent."""

from litestar import Response, get

from cuebook.app.reports.shadow import ShadowReport
from cuebook.server.api.tuning import ConversationQuery
from cuebook.server.api.types import answers
from cuebook.server.authorization import AnyRequest, book_of, user_of
from cuebook.server.route_parts import UserQuery, json_of


@get("/api/shadow", responses=answers(ShadowReport))
async def shadow(
    request: AnyRequest, conversation_id: ConversationQuery = None, user_id: UserQuery = None
) -> Response[bytes]:
    """Sum up the calls that passed in shadow mode: tokens, cost, and what either prompt would have lacked."""
    return json_of(await book_of(request).shadow.report(conversation_id, user=user_of(request, user_id)))


ROUTES = [shadow]
