"""Render the usefulness of memories in answers, and forget the ones that are not useful."""

from typing import Annotated

from litestar import Response, get, post
from litestar.params import QueryParameter
from litestar.response import Redirect

from cuebook.app.memories.reading import may_know
from cuebook.app.reports.memory_use import MOST_TURNS, SAID, TURNS
from cuebook.server.authorization import AnyRequest, caller_of, cue_of, user_of
from cuebook.server.page.memories import ALL, VIEW, ConversationQuery, go, query_of, shown_use
from cuebook.server.page.render import place, show
from cuebook.server.route_parts import UserQuery

USEFULNESS = ALL + "/of-use"
#: Maximum number of memories in each list.
LISTED = 200
#: The reason in the receipt.
REASON = "not useful in the turns whose prompt contained it; confirmed in the inspector"
#: Maximum length of an ID in a form, in characters.
_MAX_ID = 400
Turns = Annotated[int, QueryParameter(name="turns", ge=1, le=MOST_TURNS, description="Last turns per conversation")]


@get(USEFULNESS, include_in_schema=False)
async def usefulness(
    request: AnyRequest, *, user_id: UserQuery = None, conversation: ConversationQuery = None, turns: Turns = TURNS
) -> Response[bytes]:
    """Render the usefulness of memories in recorded answers, first the ones proposed for deletion."""
    cue, user = cue_of(request), user_of(request, None, user_id)
    named = [conversation] if conversation else []
    async with request.app.state.measures.hold("a memory measurement"):
        utilities = await cue.memory.utility(named, user=user, turns=turns)
    visible = [each for each in utilities.items if may_know(caller_of(request), each.memory)]
    return show(
        "memory_usefulness.html",
        view=VIEW,
        filters={"userId": user_id, "conversationId": conversation, "turns": turns},
        result=utilities,
        count=len(visible),
        often=SAID,
        most_turns=MOST_TURNS,
        useless=[shown_use(each) for each in visible if each.prunes][:LISTED],
        others=[shown_use(each) for each in visible if not each.prunes][:LISTED],
        owner_query=query_of(user_id),
        single=caller_of(request).user is not None,
        may_edit=caller_of(request).may("editor" if user is not None else "owner"),
    )


@post(USEFULNESS + "/forget", include_in_schema=False, status_code=303)
async def forget_selected(request: AnyRequest, user_id: UserQuery = None) -> Redirect:
    """Forget the selected memories, then redirect to the receipt."""
    form = await request.form()
    names = [str(each)[:_MAX_ID] for each in form.getall("memory", [])]
    user = user_of(request, None, user_id)
    if user is None:
        caller_of(request).need("owner", "Forgetting other users' memories")
    receipt = await cue_of(request).memory.forget(memories=names, reason=REASON, by=user)
    return go(f"/page/receipts/{place(receipt.id)}{query_of(user_id)}")


ROUTES = [usefulness, forget_selected]
