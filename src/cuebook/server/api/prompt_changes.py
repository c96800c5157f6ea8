"""Serve changes under `/api/prompts`: save, branch, merge and migrate versions.

Creating a version or a branch returns 201. Each route honors `Idempotency-Key`.
"""

from typing import Any

from litestar import Response, post
from litestar.params import JSONBody
from msgspec import UNSET

from cuebook.app.prompts import KEEP
from cuebook.app.prompts import json_shapes as shapes
from cuebook.records.prompt import MAIN
from cuebook.server.api import prompt_bodies as bodies
from cuebook.server.api import prompt_wire as wire
from cuebook.server.api.prompts import ALL, MIGRATE, ONE, Name
from cuebook.server.api.types import answers
from cuebook.server.authorization import AnyRequest, cue_of, idempotency_key, user_of
from cuebook.server.guard import name_in
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import UserQuery, json_of


@post(ALL, dto=JsonBody[bodies.SaveBody], responses=answers(wire.Written, 201))
async def save(request: AnyRequest, data: JSONBody[bodies.SaveBody], user_id: UserQuery = None) -> Response[bytes]:
    """Save a new version of a prompt, or a new prompt. Default author: the caller."""
    fields: dict[str, Any] = {
        name: getattr(data, name)
        for name in data.__struct_fields__
        if name not in ("slug", "sections", "branch", "inherits", "author", "user_id")
    }
    version = await cue_of(request).prompts.save(
        data.slug,
        data.sections,
        branch=data.branch or MAIN,
        inherits=KEEP if data.inherits is UNSET else data.inherits,
        author=data.author or "",
        by=user_of(request, data.user_id, user_id) or "",
        idempotency_key=idempotency_key(request.scope),
        **fields,
    )
    return json_of(shapes.written(version), 201)


@post(f"{ONE}/branches", dto=JsonBody[bodies.ForkBody], responses=answers(wire.Written, 201))
async def fork(
    request: AnyRequest, slug: Name, data: JSONBody[bodies.ForkBody], user_id: UserQuery = None
) -> Response[bytes]:
    """Create a branch with a copy of a version. 409 if the name exists."""
    origin = data.origin or bodies.Origin()
    version = await cue_of(request).prompts.fork(
        name_in(slug),
        data.name,
        branch=origin.branch,
        version=origin.version,
        label=origin.label,
        by=user_of(request, data.user_id, user_id) or "",
        idempotency_key=idempotency_key(request.scope),
    )
    return json_of(shapes.written(version), 201)


@post(f"{ONE}/merge", dto=JsonBody[bodies.MergeBody], responses=answers(wire.Written, 201, 409))
async def merge(
    request: AnyRequest, slug: Name, data: JSONBody[bodies.MergeBody], user_id: UserQuery = None
) -> Response[bytes]:
    """Merge a branch's sections into another (three-way, by the version it was forked from): 201 with the new version.

    409 if both changed a section: nothing is written, and `conflicts` lists each with the base and both texts.
    """
    version = await cue_of(request).prompts.merge(
        name_in(slug),
        data.branch,
        into=data.into or MAIN,
        by=user_of(request, data.by, data.user_id, user_id) or "",
        idempotency_key=idempotency_key(request.scope),
    )
    return json_of(shapes.written(version), 201)


@post(
    MIGRATE,
    dto=JsonBody[bodies.MigrateBody],
    status_code=200,
    responses=answers(wire.MigrateAnswer) | answers(wire.MigrateAnswer, 201),
)
async def migrate(
    request: AnyRequest, data: JSONBody[bodies.MigrateBody], user_id: UserQuery = None
) -> Response[bytes]:
    """Import all prompts of a migration file or none: 201 if something is new, else 200. Repeatable."""
    by, key = user_of(request, data.user_id, user_id) or "", idempotency_key(request.scope)
    asked: dict[str, Any] = {"dry_run": data.dry_run, "by": by, "idempotency_key": key}
    migrated = await cue_of(request).prompts.migrate(data.document, **asked)
    return json_of(shapes.migrated(migrated), 201 if migrated.written and not migrated.dry_run else 200)


ROUTES = [save, fork, merge, migrate]
