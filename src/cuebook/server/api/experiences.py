"""Serve `/api/experiences`: list handwritten experiences, and select those for a query."""

from typing import Annotated

from litestar import Response, get, post
from litestar.params import JSONBody, QueryParameter
from msgspec import Struct

from cuebook.app.experiences import ExperienceChoice, listed
from cuebook.app.paging import short_page
from cuebook.server.api.types import In, Text, answers
from cuebook.server.authorization import AnyRequest, cue_of
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import PageCursor, PageLimit, json_of

RoleQuery = Annotated[
    str | None, QueryParameter(name="role", min_length=1, description="Experiences for this persona ID or role")
]


class SelectExperiencesBody(In, frozen=True, kw_only=True):
    """A user's message, and the persona ID or role. Default: the default persona."""

    query: Text
    role: Text | None = None


class ExperienceAnswer(Struct, frozen=True, kw_only=True):
    """An experience with the field names of its file, and the file."""

    exp_id: str
    who: list[str]
    when: str
    what: str
    file: str


class ExperiencePage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Experiences in the order of their files, and problems of the files."""

    items: list[ExperienceAnswer]
    problems: list[str]
    next: str | None = None


@get("/api/experiences", responses=answers(ExperiencePage))
async def list_experiences(
    request: AnyRequest, role: RoleQuery = None, limit: PageLimit = None, cursor: PageCursor = None
) -> Response[bytes]:
    """List the handwritten experiences of the current files."""
    experience_list = await cue_of(request).experiences.list(role)
    page = short_page(
        [listed(each) for each in experience_list.items], f"experiences {role}", limit=limit, cursor=cursor
    )
    more = {"next": page.next} if page.next is not None else {}
    return json_of({"items": page.items, "problems": list(experience_list.problems)} | more)


@post(
    "/api/experiences/select",
    dto=JsonBody[SelectExperiencesBody],
    status_code=200,
    responses=answers(ExperienceChoice),
)
async def select_experiences(request: AnyRequest, data: JSONBody[SelectExperiencesBody]) -> Response[bytes]:
    """Select experiences for a query as a turn does, with reasons. May call a model; stores nothing."""
    return json_of(await cue_of(request).experiences.select(data.query, role=data.role))


ROUTES = [list_experiences, select_experiences]
