"""Serve `/api/personas`: list and show personas with their prompts, sentiment tracking and metaprompts."""

from typing import Annotated

from litestar import Response, get
from litestar.params import FromPath, QueryParameter

from cuebook.app.paging import short_page
from cuebook.app.setup.personas import PersonaList, PersonaWhole, get_persona, list_personas
from cuebook.server.api.types import answers
from cuebook.server.authorization import AnyRequest, cue_of
from cuebook.server.guard import name_in
from cuebook.server.route_parts import PageCursor, PageLimit, json_of

Mode = Annotated[str | None, QueryParameter(name="mode", description="In conversations of this mode")]


@get("/api/personas", responses=answers(PersonaList))
async def list_all(
    request: AnyRequest, mode: Mode = None, limit: PageLimit = None, cursor: PageCursor = None
) -> Response[bytes]:
    """List the personas of the current files, without their texts."""
    persona_list = await list_personas(cue_of(request).services, mode=mode)
    page = short_page(persona_list.items, "personas", limit=limit, cursor=cursor)
    return json_of(PersonaList(items=list(page.items), next=page.next))


@get("/api/personas/{persona:str}", responses=answers(PersonaWhole))
async def get_one(request: AnyRequest, persona: FromPath[str], mode: Mode = None) -> Response[bytes]:
    """Return a persona: text, prompts, sentiment tracking and metaprompts."""
    return json_of(await get_persona(cue_of(request).services, name_in(persona), mode=mode))


ROUTES = [list_all, get_one]
