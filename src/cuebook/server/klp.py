"""Serve the spaces of prompt sync under `/klp/v1/SPACE`: list projects, read their files, publish a repository."""

from typing import Any

from litestar import get, put
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from cuebook.app.sync.repository import MAX_TOTAL
from cuebook.server.caller import AnyRequest, actor_of, cue_of
from cuebook.server.guard import name_in
from cuebook.server.route_parts import json_of

_SPACE = "/klp/v1/{space:str}"
_PROJECT = _SPACE + "/{project:str}"


@get(_SPACE, role="viewer", include_in_schema=False)
async def projects(request: AnyRequest, space: FromPath[str]) -> ASGIResponse:
    """List the projects that publish prompts in a space."""
    return json_of({"projects": await cue_of(request).prompt_sync.hosted(name_in(space))})


@get(_PROJECT + "/{file:path}", role="viewer", include_in_schema=False)
async def project_file(
    request: AnyRequest, space: FromPath[str], project: FromPath[str], file: FromPath[str]
) -> ASGIResponse:
    """Return a file of a project's signed repository: TUF metadata, or the versions of a prompt."""
    data = await cue_of(request).prompt_sync.hosted_file(name_in(space), name_in(project), name_in(file).lstrip("/"))
    return ASGIResponse(body=data, media_type="application/json")


@put(_PROJECT, role="editor", status_code=204, include_in_schema=False, request_max_body_size=MAX_TOTAL)
async def publish(request: AnyRequest, space: FromPath[str], project: FromPath[str]) -> None:
    """Publish a project's signed repository, a zip archive. The server verifies it like a reader."""
    by = actor_of(request)
    await cue_of(request).prompt_sync.host(name_in(space), name_in(project), await request.body(), by=by)


ROUTES: list[Any] = [projects, project_file, publish]
