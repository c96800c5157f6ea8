"""Serve the prompt named `migrate`, and store observations of prompts."""

from typing import Annotated

from litestar import Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from cuebook.app.prompts import json_shapes as shapes
from cuebook.records.answer import to_wire
from cuebook.server.api import prompt_bodies as bodies
from cuebook.server.api import prompt_wire as wire
from cuebook.server.api.types import answers
from cuebook.server.authorization import AnyRequest, cue_of, idempotency_key, user_of
from cuebook.server.guard import name_in
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import UserQuery, json_of

ALL = "/api/prompts"
ONE = ALL + "/{slug:str}"
MIGRATE = ALL + "/migrate"

Name = FromPath[str]
Branch = Annotated[str | None, QueryParameter(name="branch", description="Default: `main`")]
Version = Annotated[
    int | None, QueryParameter(name="version", ge=1, le=bodies.HIGHEST, description="Default: the active version")
]
Label = Annotated[
    str | None,
    QueryParameter(name="label", description="Label of the version, instead of branch and version"),
]
Resolve = Annotated[bool, QueryParameter(name="resolve", description="Include inherited sections and parameters")]


@get(MIGRATE, include_in_schema=False)
async def get_prompt_of_that_name(
    request: AnyRequest,
    *,
    branch: Branch = None,
    version: Version = None,
    label: Label = None,
    resolve: Resolve = False,
) -> Response[bytes]:
    """Return the prompt named `migrate`."""
    prompts = cue_of(request).prompts
    found = await prompts.show("migrate", branch=branch, version=version, label=label, resolve=resolve)
    return json_of(to_wire(found))


@post(f"{ONE}/observations", dto=JsonBody[bodies.ObserveBody], responses=answers(wire.ObserveAnswer, 201))
async def observe(
    request: AnyRequest, slug: Name, data: JSONBody[bodies.ObserveBody], user_id: UserQuery = None
) -> Response[bytes]:
    """Store an observation of a version. Default: the active one.

    Send an Idempotency-Key, so that a retry does not count twice.
    """
    observed = await cue_of(request).prompts.observe(
        name_in(slug),
        sentiment=data.sentiment,
        corrections=data.correction_count,
        outcome=data.task_outcome,
        missing=data.missing,
        branch=data.branch,
        version=data.version,
        label=data.label,
        signals=data.signals,
        propensity=data.propensity,
        conversation=data.conversation_id or "",
        user=user_of(request, data.user_id, user_id) or "",
        idempotency_key=idempotency_key(request.scope),
    )
    return json_of(shapes.observed(observed), 201)


ROUTES = [
    get_prompt_of_that_name,
    observe,
]
