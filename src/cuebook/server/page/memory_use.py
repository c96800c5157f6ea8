"""Render the usefulness of memories in answers, and forget the ones that are not useful."""

from typing import Annotated

from litestar import Response, get, post
from litestar.params import QueryParameter
from litestar.response import Redirect

from cuebook.app.reports.memory_use import MOST_TURNS, SAID, TURNS
from cuebook.server.api.forgetting import forget_several
from cuebook.server.api.memory_use import known_of
from cuebook.server.authorization import AnyRequest, caller_of, cue_of, user_of
from cuebook.server.page.memories import ALL, VIEW, ConversationQuery, go, query_of, shown_use
from cuebook.server.page.render import place, show
from cuebook.server.route_parts import UserQuery

OF_USE = ALL + "/of-use"
#: Most memories on a page in each list.
LISTED = 200
#: The reason in the receipt.
REASON = "not useful in the turns whose prompt contained it; confirmed in the inspector"
#: Most characters of an ID in a form.
_MOST = 400
Turns = Annotated[int, QueryParameter(name="turns", ge=1, le=MOST_TURNS, description="Last turns per conversation")]


@get(OF_USE, include_in_schema=False)
async def of_use(
    request: AnyRequest, *, user_id: UserQuery = None, conversation: ConversationQuery = None, turns: Turns = TURNS
) -> Response[bytes]:
    """Render the usefulness of memories in recorded answers, first the ones proposed for deletion."""
    cue, user = cue_of(request), user_of(request, None, user_id)
    named = [conversation] if conversation else []
    async with request.app.state.measures.hold("a memory measurement"):
        found = known_of(request, await cue.memory.utility(named, user=user, turns=turns))
    return show(
        "of_use.html",
        view=VIEW,
        asked={"userId": user_id, "conversationId": conversation, "turns": turns},
        found=found,
        often=SAID,
        most_turns=MOST_TURNS,
        useless=[shown_use(each) for each in found.items if each.prunes][:LISTED],
        others=[shown_use(each) for each in found.items if not each.prunes][:LISTED],
        own=query_of(user_id),
        single=caller_of(request).user is not None,
        changes=caller_of(request).may("editor" if user is not None else "owner"),
    )


@post(OF_USE + "/forget", include_in_schema=False, status_code=303)
async def let_go(request: AnyRequest, user_id: UserQuery = None) -> Redirect:
    """Forget the selected memories, then redirect to the receipt."""
    form = await request.form()
    names = [str(each)[:_MOST] for each in form.getall("memory", [])]
    gone = await forget_several(request, names, user_of(request, None, user_id), REASON)
    return go(f"/page/receipts/{place(gone.id)}{query_of(user_id)}")


ROUTES = [of_use, let_go]
