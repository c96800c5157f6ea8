"""Render the conversation pages: list with search, transcript with branches, and the forget form."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from litestar import Response, get, post
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Redirect

from cuebook.app.transcript_views.live import kinds_of
from cuebook.app.transcript_views.transcript import read_stretch
from cuebook.app.turns.turns import HIGHEST
from cuebook.records.answer import to_wire
from cuebook.records.memory import Scope
from cuebook.records.turn import RETRY_OF, Turn, last_attempts
from cuebook.server.caller import AnyRequest, caller_of, check_first, cue_of, user_of
from cuebook.server.guard import name_in
from cuebook.server.page.memories import forget_page, go
from cuebook.server.page.prompt_bar import kinds_shown
from cuebook.server.page.render import base_url, place, show
from cuebook.server.page.transcript import entries_of

ALL = "/page/conversations"
ONE = ALL + "/{conversation:str}"
#: Maximum number of conversations on a page.
LISTED = 50
#: Start of the ids of conversations that their clients did not name.
_GENERATED = ("conv-", "conv_")
#: Maximum number of turns in the table of a conversation.
TURNS = 200
Behind = Annotated[int | None, QueryParameter(name="behind", ge=0, le=HIGHEST, description="Posts after this number")]
Branch = Annotated[int | None, QueryParameter(name="branch", ge=1, le=HIGHEST, description="The branch of this post")]


@get(ALL)
async def conversations(
    request: AnyRequest,
    *,
    q: FromQuery[str] = "",
    cursor: FromQuery[str | None] = None,
    utility: FromQuery[bool] = False,
) -> Response[bytes]:
    """Render the list of conversations or utility calls, most recent first, optionally filtered by words."""
    words = q.strip()
    talks, scope = cue_of(request).services.store.talks, Scope(user=user_of(request))
    page = await talks.find(scope, words.split(), limit=LISTED, cursor=cursor, utility=utility)
    query = {**({"q": words} if words else {}), **({"utility": 1} if utility else {}), "cursor": page.next or ""}
    return show(
        "conversations.html",
        items=page.items,
        shown_name=_shown_name,
        q=words,
        utility=utility,
        paged=cursor is not None,
        next=f"?{urlencode(query)}" if page.next else None,
        base=base_url(request),
    )


@get(ONE)
async def conversation(
    request: AnyRequest,
    conversation: FromPath[str],
    *,
    at: FromQuery[str | None] = None,
    behind: Behind = None,
    branch: Branch = None,
    branches: FromQuery[Literal["head", "all"]] = "head",
) -> Response[bytes]:
    """Render a conversation: the transcript of a branch or of all, its turns with their tokens, and its summary.

    Shows the newest posts, those around post `at`, or those after number `behind`.
    """
    cue, user, name = cue_of(request), user_of(request), name_in(conversation)
    description = to_wire(await cue.conversations.get(name, user=user))
    every = branches == "all"
    page = await read_stretch(
        cue.services, name, user=user, branch=branch, behind=behind, around=at, every_branch=every
    )
    summary = await cue.services.store.summary(Scope(user=user), name)
    return show(
        "conversation.html",
        name=name,
        shown_name=_shown_name(name, description["title"]),
        conversation=description,
        turns=_turn_rows(await cue.services.store.turns(Scope(user=user), name, last=TURNS)),
        page=page,
        entries=entries_of(page, summary),
        summary=summary,
        work=to_wire((await cue.optimizer.status(name, user=user)).work),
        mind=to_wire(await cue.mind.show(name, user=user)),
        branch_query="branches=all&" if every else "" if page.current else f"branch={page.last}&",
        every_branch=every,
        may_edit=caller_of(request).may("editor"),
    )


def _shown_name(conversation: str, title: str) -> str:
    """Return the name of a conversation for people: its title if its id was generated, else its id."""
    return title if title and conversation.startswith(_GENERATED) else conversation


def _turn_rows(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Return turns as table rows, newest first, with their prompts as bars on one scale."""
    rows: list[dict[str, Any]] = []
    for turn in reversed(last_attempts(turns)):
        manifest = turn.steps[-1].manifest if turn.steps else None
        attempt = len(turn.metadata.get(RETRY_OF, ())) + 1
        rows.append({"turn": turn, "manifest": manifest, "attempt": attempt})
    most = max((each["manifest"].tokens for each in rows if each["manifest"]), default=0) or 1
    for each in rows:
        kinds = kinds_of(each["manifest"]) if each["manifest"] else {}
        each["bar"] = kinds_shown(kinds, of=max(most, sum(kinds.values())))
    return rows


@get(ONE + "/forget", role="editor")
async def ask_forget(request: AnyRequest, conversation: FromPath[str]) -> Response[bytes]:
    """Render a preview of forgetting a conversation, with the form that confirms it."""
    cue, user, name = cue_of(request), user_of(request), name_in(conversation)
    await cue.conversations.get(name, user=user)
    await check_first(request, name, user, "Forgetting another user's conversation")
    about = {"view": "Conversations", "what": "this conversation", "text": name}
    return await forget_page(request, f"{ALL}/{place(name)}", "", about, conversation=name, by=user)


@post(ONE + "/forget", role="editor", status_code=303)
async def forget(request: AnyRequest, conversation: FromPath[str]) -> Redirect:
    """Forget a conversation and everything derived from it, then redirect to the receipt. Only for its first user."""
    cue, user, name = cue_of(request), user_of(request), name_in(conversation)
    await cue.conversations.get(name, user=user)
    await check_first(request, name, user, "Forgetting another user's conversation")
    receipt = await cue.memory.forget(conversation=name, by=user)
    return go(f"/page/receipts/{place(receipt.id)}")


ROUTES = [conversations, conversation, ask_forget, forget]
