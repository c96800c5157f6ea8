"""`/api/prompts`: prompts written, read, compared, rendered, chosen, observed, labelled and rolled back."""

from typing import Annotated, Any

from litestar import Response, get, post, put
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import UNSET

from cuebook.app import prompt_log, prompt_migration
from cuebook.app import prompt_shapes as shapes
from cuebook.app import prompt_views as views
from cuebook.app.prompts import KEEP
from cuebook.records.prompt import MAIN
from cuebook.server import prompt_wire as wire
from cuebook.server.caller import AnyRequest, book_of, user_of
from cuebook.server.edge import JsonBody
from cuebook.server.guard import name_in
from cuebook.server.lists import Limit, PageCursor, PageLimit, UserQuery, json_of, listed
from cuebook.server.wire import answers

ALL = "/api/prompts"
ONE = ALL + "/{prompt:str}"
MIGRATE = ALL + "/migrate"

Name = FromPath[str]
Branch = Annotated[str | None, QueryParameter(name="branch", description="`main` unless named")]
Version = Annotated[
    int | None, QueryParameter(name="version", ge=1, le=wire.HIGHEST, description="The active one unless named")
]
Resolve = Annotated[bool, QueryParameter(name="resolve", description="Merge in what it inherits")]
Number = Annotated[int, QueryParameter(ge=1, le=wire.HIGHEST, description="The version before")]
Other = Annotated[
    int | None, QueryParameter(ge=1, le=wire.HIGHEST, description="The version after, the active one unless named")
]


# ---- reading --------------------------------------------------------------------------------------------------------


@get(ALL, responses=answers(wire.PromptPage))
async def list_prompts(
    request: AnyRequest, prefix: FromQuery[str] = "", limit: Limit = 50, cursor: FromQuery[str | None] = None
) -> Response[bytes]:
    """List prompts by name, those that begin with `prefix`: each with its branches and labels."""
    return listed(*await views.prompts_page(book_of(request).prompts, prefix=prefix, limit=limit, cursor=cursor))


@get(ONE, responses=answers(wire.VersionAnswer))
async def get_prompt(
    request: AnyRequest, prompt: Name, *, branch: Branch = None, version: Version = None, resolve: Resolve = False
) -> Response[bytes]:
    """Give a prompt: the active version of a branch unless one is named. A `/` in the id is written `~` or `%2F`."""
    found = await views.show(book_of(request).prompts, name_in(prompt), branch=branch, version=version, resolve=resolve)
    return json_of(found)


@get(f"{ONE}/versions", responses=answers(wire.VersionPage))
async def list_versions(
    request: AnyRequest, prompt: Name, *, branch: Branch = None, limit: PageLimit = None, cursor: PageCursor = None
) -> Response[bytes]:
    """List the versions of a prompt without their texts, oldest first, of one branch or of all.

    All of them, or with `limit` or `cursor` a page.
    """
    prompts, slug = book_of(request).prompts, name_in(prompt)
    return listed(*await views.versions_page(prompts, slug, branch=branch, limit=limit, cursor=cursor))


@get(f"{ONE}/versions/{{n:int}}", responses=answers(wire.VersionAnswer))
async def get_version(
    request: AnyRequest, prompt: Name, n: FromPath[int], *, branch: Branch = None, resolve: Resolve = False
) -> Response[bytes]:
    """Give a version of a prompt by its number."""
    return json_of(
        await views.show(book_of(request).prompts, name_in(prompt), branch=branch, version=n, resolve=resolve)
    )


@get(f"{ONE}/diff", responses=answers(wire.DiffAnswer))
async def get_diff(
    request: AnyRequest, prompt: Name, *, a: Number, b: Other = None, branch: Branch = None
) -> Response[bytes]:
    """Give what is other in version `b` than in `a`, and what that asks of the semantic version."""
    return json_of(await views.compare(book_of(request).prompts, name_in(prompt), a, b, branch=branch or None))


@get(f"{ONE}/branches", responses=answers(wire.BranchPage))
async def list_branches(
    request: AnyRequest, prompt: Name, limit: PageLimit = None, cursor: PageCursor = None
) -> Response[bytes]:
    """List the branches of a prompt, and what their active versions have learnt."""
    return listed(*await views.branches_page(book_of(request).prompts, name_in(prompt), limit=limit, cursor=cursor))


@get(f"{ONE}/labels", responses=answers(wire.LabelPage))
async def list_labels(
    request: AnyRequest, prompt: Name, limit: PageLimit = None, cursor: PageCursor = None
) -> Response[bytes]:
    """List the labels of a prompt by name."""
    return listed(*await views.labels_page(book_of(request).prompts, name_in(prompt), limit=limit, cursor=cursor))


@get(f"{ONE}/history", responses=answers(wire.EventPage))
async def get_history(
    request: AnyRequest, prompt: Name, limit: PageLimit = None, cursor: PageCursor = None
) -> Response[bytes]:
    """Give what was done to a prompt, by whom and when, the newest first."""
    return listed(*await views.history_page(book_of(request).prompts, name_in(prompt), limit=limit, cursor=cursor))


# ---- writing --------------------------------------------------------------------------------------------------------


@post(ALL, dto=JsonBody[wire.SaveBody], responses=answers(wire.Written, 201))
async def save(request: AnyRequest, data: JSONBody[wire.SaveBody], user_id: UserQuery = None) -> Response[bytes]:
    """Write a new version of a prompt, or a prompt that is new. Who asks is its author unless one is named."""
    fields: dict[str, Any] = {
        name: getattr(data, name)
        for name in data.__struct_fields__
        if name not in ("slug", "sections", "branch", "inherits", "author", "user_id")
    }
    made = await book_of(request).prompts.save(
        data.slug,
        data.sections,
        branch=data.branch or MAIN,
        inherits=KEEP if data.inherits is UNSET else data.inherits,
        author=data.author or user_of(request, data.user_id, user_id) or "",
        **fields,
    )
    return json_of(shapes.written(made), 201)


@post(f"{ONE}/branches", dto=JsonBody[wire.ForkBody], responses=answers(wire.Written, 201))
async def fork(
    request: AnyRequest, prompt: Name, data: JSONBody[wire.ForkBody], user_id: UserQuery = None
) -> Response[bytes]:
    """Begin a branch with a copy of a version; nothing is shared afterwards. 409 where there is one of that name."""
    origin = data.origin or wire.Origin()
    made = await book_of(request).prompts.fork(
        name_in(prompt),
        data.name,
        branch=origin.branch or MAIN,
        version=origin.version,
        by=user_of(request, data.user_id, user_id) or "",
    )
    return json_of(shapes.written(made), 201)


@put(f"{ONE}/labels", dto=JsonBody[wire.LabelBody], responses=answers(wire.LabelAnswer))
async def put_label(
    request: AnyRequest, prompt: Name, data: JSONBody[wire.LabelBody], user_id: UserQuery = None
) -> Response[bytes]:
    """Point a label such as `production` at a version; its moves are kept in the history."""
    moved = await book_of(request).prompts.label(
        name_in(prompt),
        data.name,
        branch=data.branch or MAIN,
        version=data.version,
        by=user_of(request, data.user_id, user_id) or "",
    )
    return json_of(shapes.label(moved))


@post(f"{ONE}/rollback", dto=JsonBody[wire.RollbackBody], status_code=200, responses=answers(wire.RollbackAnswer))
async def roll_back(
    request: AnyRequest, prompt: Name, data: JSONBody[wire.RollbackBody], user_id: UserQuery = None
) -> Response[bytes]:
    """Make an earlier version active again, the one before unless named; the other is not explored from then on."""
    prompts, slug, branch = book_of(request).prompts, name_in(prompt), data.branch or MAIN
    by = user_of(request, data.user_id, user_id) or ""
    stands = await prompts.roll_back(slug, branch=branch, to=data.to, reason=data.reason, by=by)
    active = await prompts.get(slug, branch=branch, version=stands.active)
    return json_of(shapes.rolled_back(active, stands))


@post(
    MIGRATE,
    dto=JsonBody[wire.MigrateBody],
    status_code=200,
    responses=answers(wire.MigrateAnswer) | answers(wire.MigrateAnswer, 201),
)
async def migrate(request: AnyRequest, data: JSONBody[wire.MigrateBody], user_id: UserQuery = None) -> Response[bytes]:
    """Write all prompts of a migration file or none: 201 where something was new, else 200. Repeatable."""
    by = user_of(request, data.user_id, user_id) or ""
    done = await prompt_migration.migrate(book_of(request).desk, data.document, dry_run=data.dry_run, by=by)
    return json_of(shapes.migrated(done), 201 if done.written and not done.dry_run else 200)


@get(MIGRATE, include_in_schema=False)
async def get_prompt_of_that_name(
    request: AnyRequest, *, branch: Branch = None, version: Version = None, resolve: Resolve = False
) -> Response[bytes]:
    """Give the prompt `migrate`, which is one like any other."""
    prompts = book_of(request).prompts
    return json_of(await views.show(prompts, "migrate", branch=branch, version=version, resolve=resolve))


# ---- using ----------------------------------------------------------------------------------------------------------


@post(f"{ONE}/render", dto=JsonBody[wire.RenderBody], status_code=200, responses=answers(wire.RenderAnswer))
async def render(
    request: AnyRequest, prompt: Name, data: JSONBody[wire.RenderBody], user_id: UserQuery = None
) -> Response[bytes]:
    """Render a prompt with its ancestors' sections. A missing parameter is an error that names it."""
    book = book_of(request)
    made = await book.prompts.render(name_in(prompt), data.params, branch=data.branch, version=data.version)
    shown = shapes.rendered(made)
    if data.log:
        by = user_of(request, data.user_id, user_id) or ""
        shown["auditSeq"] = await prompt_log.log_render(book.desk, made, data.params, by=by)
    return json_of(shown)


@post(f"{ONE}/select", dto=JsonBody[wire.SelectBody], status_code=200, responses=answers(wire.SelectAnswer))
async def select(request: AnyRequest, prompt: Name, data: JSONBody[wire.SelectBody]) -> Response[bytes]:
    """Choose among a prompt's variants, the active versions of its branches. Nothing is stored."""
    given: dict[str, Any] = {} if data.epsilon is None else {"epsilon": data.epsilon}
    picked = await book_of(request).prompts.select(
        name_in(prompt), data.signals, strategy=data.strategy, seed=data.seed, **given
    )
    return json_of(shapes.selection(picked))


@post(f"{ONE}/observations", dto=JsonBody[wire.ObserveBody], responses=answers(wire.ObserveAnswer, 201))
async def observe(
    request: AnyRequest, prompt: Name, data: JSONBody[wire.ObserveBody], user_id: UserQuery = None
) -> Response[bytes]:
    """Keep what a round says about the version that spoke, the active one unless named."""
    seen = await book_of(request).prompts.observe(
        name_in(prompt),
        sentiment=data.sentiment,
        corrections=data.correction_count,
        outcome=data.task_outcome,
        branch=data.branch or MAIN,
        version=data.version,
        signals=data.signals,
        propensity=data.propensity,
        conversation=data.conversation_id or "",
        user=user_of(request, data.user_id, user_id) or "",
    )
    return json_of(shapes.observed(seen), 201)


ROUTES = [
    list_prompts,
    get_prompt,
    list_versions,
    get_version,
    get_diff,
    list_branches,
    list_labels,
    get_history,
    save,
    fork,
    put_label,
    roll_back,
    migrate,
    get_prompt_of_that_name,
    render,
    select,
    observe,
]
