"""Render the memory pages: list, search, one memory with its history, and forms to correct and forget it."""

from typing import Annotated, Any
from urllib.parse import urlencode

from litestar import Response, get, post
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Redirect
from litestar.response.base import ASGIResponse

from cuebook.app.cuebook import Cuebook
from cuebook.app.reports.memory_use import MOST_TURNS, SAID, TURNS, VERDICTS
from cuebook.records.answer import to_wire
from cuebook.records.memory import KINDS
from cuebook.records.memory_answers import ItemEntry, MemorySource, StoredMemory
from cuebook.server.api.memories import OrganizationQuery, exported
from cuebook.server.api.types import seconds_of
from cuebook.server.caller import AnyRequest, caller_of, cue_of, user_of
from cuebook.server.guard import name_in
from cuebook.server.page.render import HEADERS, place, show
from cuebook.server.route_parts import ConversationQuery, UserQuery
from cuebook.server.streaming import StreamResponse

ALL = "/page/memories"
ONE = ALL + "/{memory:str}"
#: Maximum number of memories on a page, and of search results.
LISTED = 50
MAX_RESULTS = 30
#: Maximum number of conversations on the overview, and of memories of each.
CONVERSATIONS = 8
NEWEST = 4
#: Maximum length of a form field in characters.
_MAX_FIELD = 100_000

PersonaQuery = Annotated[str | None, QueryParameter(name="personaId", description="Only memories of this persona")]
AsOf = Annotated[str | None, QueryParameter(name="asOf", description="Memories valid at this date or time, ISO 8601")]


@get(ALL)
async def memories(
    request: AnyRequest,
    *,
    q: FromQuery[str | None] = None,
    user_id: UserQuery = None,
    persona: PersonaQuery = None,
    organization: OrganizationQuery = None,
    conversation: ConversationQuery = None,
    category: FromQuery[str | None] = None,
    ended: FromQuery[bool] = False,
    as_of: AsOf = None,
    cursor: FromQuery[str | None] = None,
) -> Response[bytes]:
    """Render cross-conversation memories, the memories of one conversation, or search results, best first."""
    cue, user = cue_of(request), user_of(request, None, user_id)
    filters = {
        "q": q, "userId": user_id, "personaId": persona, "organizationId": organization,
        "conversationId": conversation, "category": category, "ended": "true" if ended else None,
        "asOf": as_of,
    }  # fmt: skip
    named: Any = {"user": user, "persona": persona or None, "organization": organization or None}
    items: list[dict[str, Any]] = []
    hits: list[dict[str, Any]] | None = None
    at = seconds_of(as_of.strip(), "asOf") if as_of and as_of.strip() else None
    more: str | None = None
    if q:
        found = await cue.memory.search(q, conversation=conversation or None, **named, as_of=at, limit=MAX_RESULTS)
        hits = [{**to_wire(each), "text": each.alone.text, "page": page_of(each.memory_id)} for each in found]
    elif conversation:
        paged = await cue.memory.items(conversation, user=user, ended=ended, as_of=at, limit=LISTED, cursor=cursor)
        items, more = [_item_row(each, conversation) for each in paged], paged.next
    else:
        page = await cue.memory.list(
            **named, category=category or None, ended=ended, as_of=at, limit=LISTED, cursor=cursor,
            caller=caller_of(request),
        )  # fmt: skip
        items, more = [_memory_row(each) for each in page], page.next
    unfiltered = cursor is None and not any(filters[name] for name in filters if name != "userId")
    return show(
        "memories.html",
        filters=filters,
        items=items,
        by_conversation=await _recent_memories(cue, user) if unfiltered else [],
        filtered=any(filters[name] for name in filters if name not in ("q", "userId")),
        hits=hits,
        owner_query=query_of(user_id, organization),
        more=query_of(**filters, cursor=more) if more else "",
        categories=KINDS,
        single=caller_of(request).user is not None,
    )


@get(ONE)
async def memory(
    request: AnyRequest,
    memory: FromPath[str],
    *,
    user_id: UserQuery = None,
    organization: OrganizationQuery = None,
    measured: FromQuery[bool] = False,
) -> Response[bytes]:
    """Render a memory with its sources, the memories it supersedes, and forms to correct and forget it.

    With `measured` also its usefulness, which reads the newest turns of all the caller's conversations.
    """
    cue, name, asker = cue_of(request), name_in(memory), _asker(request, user_id, organization)
    found = await cue.memory.get(name, **asker)
    history = await cue.memory.history(name, **asker)
    use = None
    if measured:
        async with request.app.state.measures.hold("a memory measurement"):
            uses = await cue.memory.utility(user=asker["user"], caller=asker["caller"])
        use = next((each for each in uses.items if each.memory_id == found.id), None)
    return show(
        "memory.html",
        memory=_memory_row(found),
        history=[_memory_row(each) for each in history] if len(history) > 1 else [],
        owner_query=query_of(user_id, organization),
        use=use,
        measured=measured,
        verdicts=VERDICTS,
        measure=query_of(user_id, organization, measured="true"),
        may_edit=caller_of(request).may("editor"),
    )


@get(ALL + "/export")
async def export(
    request: AnyRequest, user_id: UserQuery = None, organization: OrganizationQuery = None
) -> ASGIResponse:
    """Stream all memories of a user or an organization with history and sources, as a file."""
    found = cue_of(request).memory.export(**_asker(request, user_id, organization))
    return StreamResponse(request.app.state.running, exported(found))


@post(ONE + "/correct", role="editor", status_code=303)
async def correct(
    request: AnyRequest, memory: FromPath[str], user_id: UserQuery = None, organization: OrganizationQuery = None
) -> Response[Any]:
    """Replace a memory's text, then redirect to the corrected memory."""
    text = str((await request.form()).get("text", ""))[:_MAX_FIELD]
    new = await cue_of(request).memory.update(name_in(memory), text, **_asker(request, user_id, organization))
    return go(f"{ALL}/{place(new.id)}{query_of(user_id, organization)}")


@get(ONE + "/forget", role="editor")
async def ask_forget(
    request: AnyRequest, memory: FromPath[str], user_id: UserQuery = None, organization: OrganizationQuery = None
) -> Response[bytes]:
    """Render a preview of forgetting a memory, with the form that confirms it."""
    asker = _asker(request, user_id, organization)
    found = await cue_of(request).memory.get(name_in(memory), **asker)
    by = None if organization else asker["user"]
    about = {"view": "Memories", "what": "this memory", "text": found.text}
    page, query = f"{ALL}/{place(found.id)}", query_of(user_id, organization)
    return await forget_page(request, page, query, about, memories=[found.id], by=by)


@post(ONE + "/forget", role="editor", status_code=303)
async def forget(
    request: AnyRequest, memory: FromPath[str], user_id: UserQuery = None, organization: OrganizationQuery = None
) -> Response[Any]:
    """Forget a memory, then redirect to the receipt."""
    receipt = await cue_of(request).memory.delete(name_in(memory), **_asker(request, user_id, organization))
    return go(f"/page/receipts/{place(receipt.id)}{query_of(user_id)}")


@get("/page/receipts/{receipt:str}")
async def receipt(request: AnyRequest, receipt: FromPath[str], user_id: UserQuery = None) -> Response[bytes]:
    """Render a receipt: counts of what was deleted."""
    user = user_of(request, None, user_id)
    found = await cue_of(request).memory.receipt(name_in(receipt), user=user, caller=caller_of(request))
    return show("receipt.html", receipt=to_wire(found), owner_query=query_of(user_id))


def _asker(request: AnyRequest, user_id: str | None, organization: str | None) -> dict[str, Any]:
    """Return who asks for a memory: the user, the organization and the caller."""
    user = user_of(request, None, user_id)
    return {"user": user, "organization": organization or None, "caller": caller_of(request)}


async def _recent_memories(cue: Cuebook, user: str | None) -> list[dict[str, Any]]:
    """Return the newest memories of the most recent conversations, which only those conversations use."""
    recent = []
    for each in (await cue.conversations.list(user=user, limit=CONVERSATIONS)).items:
        items = await cue.memory.items(each.id, user=user)
        newest = [_item_row(item, each.id) for item in reversed(items.items[-NEWEST:])]
        if newest:
            recent.append({"conversation": each.id, "count": len(items), "newest": newest})
    return recent


def _memory_row(memory: StoredMemory) -> dict[str, Any]:
    data = to_wire(memory)
    names = (data.get(each) for each in ("personaId", "userId", "organizationId", "conversationId"))
    return {"key": "", **data, "owner": " ".join([memory.scope, *(str(each) for each in names if each)])}


def _item_row(item: ItemEntry, conversation: str) -> dict[str, Any]:
    """Return a conversation's item in the shape of a memory."""
    sources = [MemorySource(conversation_id=conversation, post_id=each) for each in item.sources]
    data = {"id": item.memory_id, "key": "", "sources": to_wire(sources), "owner": "this conversation"}
    return {**to_wire(item), **data}


def page_of(found: str) -> str:
    """Return the page address of a search result's memory, "" for a post."""
    return "" if found.startswith("post:") else f"{ALL}/{place(found)}"


def query_of(user_id: str | None = None, organization: str | None = None, **more: str | None) -> str:
    """Return a query string that names the user and organization."""
    values = {"userId": user_id, "organizationId": organization, **more}
    query = urlencode({name: value for name, value in values.items() if value})
    return f"?{query}" if query else ""


async def forget_page(
    request: AnyRequest, page: str, query: str, about: dict[str, Any], **target: Any
) -> Response[bytes]:
    """Render what a forget would delete and keep, with the form that confirms it, one at a time. Raises Busy.

    `about` names the target: its view, what it is, and its text. `page` and `query` are its address.
    """
    async with request.app.state.measures.hold("a forget request"):
        preview = to_wire(await cue_of(request).memory.would_forget(**target))
    return show("forget.html", **about, back=page + query, address=f"{page}/forget{query}", preview=preview)


def go(address: str) -> Redirect:
    """Return a redirect to a page."""
    return Redirect(address, status_code=303, headers=dict(HEADERS))


# ---- usefulness -----------------------------------------------------------------------------------------------------

USEFULNESS = ALL + "/of-use"
#: Maximum number of memories in each list.
MEASURED = 200
#: The reason in the receipt.
REASON = "not useful in the turns whose prompt contained it; confirmed in the inspector"
#: Maximum length of an ID in a form, in characters.
_MAX_ID = 400
Turns = Annotated[int, QueryParameter(name="turns", ge=1, le=MOST_TURNS, description="Last turns per conversation")]


@get(USEFULNESS)
async def usefulness(
    request: AnyRequest, *, user_id: UserQuery = None, conversation: ConversationQuery = None, turns: Turns = TURNS
) -> Response[bytes]:
    """Render the usefulness of memories in recorded answers, first the ones proposed for deletion."""
    cue, user = cue_of(request), user_of(request, None, user_id)
    named = [conversation] if conversation else []
    async with request.app.state.measures.hold("a memory measurement"):
        utilities = await cue.memory.utility(named, user=user, turns=turns, caller=caller_of(request))
    return show(
        "memory_usefulness.html",
        filters={"userId": user_id, "conversationId": conversation, "turns": turns},
        result=utilities,
        count=len(utilities.items),
        often=SAID,
        most_turns=MOST_TURNS,
        useless=[each for each in utilities.items if each.prune][:MEASURED],
        others=[each for each in utilities.items if not each.prune][:MEASURED],
        verdicts=VERDICTS,
        owner_query=query_of(user_id),
        single=caller_of(request).user is not None,
        may_edit=caller_of(request).may("editor" if user is not None else "owner"),
    )


@post(USEFULNESS + "/forget", role="editor", status_code=303)
async def forget_selected(request: AnyRequest, user_id: UserQuery = None) -> Redirect:
    """Forget the selected memories, then redirect to the receipt."""
    form = await request.form()
    names = [str(each)[:_MAX_ID] for each in form.getall("memory", [])]
    user = user_of(request, None, user_id)
    if user is None:
        caller_of(request).need("owner", "Forgetting other users' memories")
    receipt = await cue_of(request).memory.forget(memories=names, reason=REASON, by=user)
    return go(f"/page/receipts/{place(receipt.id)}{query_of(user_id)}")


ROUTES = [memories, memory, export, correct, ask_forget, forget, receipt, usefulness, forget_selected]
