"""Serve `/api/organizations`: an organization's settings for long-term memory, for its admins."""

from litestar import Response, get, patch
from litestar.params import FromPath, JSONBody

from cuebook.app.organizations import shape
from cuebook.records.organization import OrganizationChange, OrganizationSettings
from cuebook.server.api.types import answers
from cuebook.server.authorization import AnyRequest, actor_of, caller_of, cue_of
from cuebook.server.guard import name_in
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import json_of

PATH = "/api/organizations/{organization:str}/settings"


@get(PATH, responses=answers(OrganizationSettings))
async def get_settings(request: AnyRequest, organization: FromPath[str]) -> Response[bytes]:
    """Return an organization's settings, or the defaults. Only for its admins."""
    name = name_in(organization)
    caller_of(request).check_organization(name)
    return json_of(shape(await cue_of(request).organizations.settings(name)))


@patch(PATH, dto=JsonBody[OrganizationChange], responses=answers(OrganizationSettings))
async def patch_settings(
    request: AnyRequest, organization: FromPath[str], data: JSONBody[OrganizationChange]
) -> Response[bytes]:
    """Update the named settings. `allowedCategories` null allows all, [] none. Only for its admins."""
    name = name_in(organization)
    caller_of(request).check_organization(name)
    return json_of(shape(await cue_of(request).organizations.change(name, data, by=actor_of(request))))


ROUTES = [get_settings, patch_settings]
