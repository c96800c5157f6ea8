"""Serve `/api/prompts`: list, show, compare, rate, lint, render and select prompts, and store observations."""

from typing import Annotated, Any

from litestar import Response, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from cuebook.app.prompts import json_shapes as shapes
from cuebook.app.prompts import views
from cuebook.app.prompts.clusters import Clusters
from cuebook.app.prompts.impact import MOST_TURNS, TURNS
from cuebook.server.api import prompt_bodies as bodies
from cuebook.server.api import prompt_wire as wire
from cuebook.server.api.types import answers
from cuebook.server.authorization import AnyRequest, caller_of, cue_of, idempotency_key, user_of
from cuebook.server.guard import name_in
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import Limit, PageCursor, PageLimit, UserQuery, json_of, listed

ALL = "/api/prompts"
ONE = ALL + "/{prompt:str}"
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
Project = Annotated[
    str | None,
    QueryParameter(name="project", description="Project with its own prompt, empty for none. Default: setting"),
]
Number = Annotated[int, QueryParameter(ge=1, le=bodies.HIGHEST, description="The old version")]
Other = Annotated[
    int | None, QueryParameter(ge=1, le=bodies.HIGHEST, description="The new version. Default: active one")
]
Least = Annotated[
    float | None,
    QueryParameter(name="least", gt=0, le=1, description="Minimum mean similarity. Default: by the method"),
]
Turns = Annotated[
    int,
    QueryParameter(
        name="turns",
        ge=0,
        le=MOST_TURNS,
        description="Number of recorded turns with the prompt to measure the change on; 0 measures none",
    ),
]


# ---- reading --------------------------------------------------------------------------------------------------------


@get(ALL, responses=answers(wire.PromptPage))
async def list_prompts(
    request: AnyRequest, prefix: FromQuery[str] = "", limit: Limit = 50, cursor: FromQuery[str | None] = None
) -> Response[bytes]:
    """List prompts by name, optionally with a `prefix`, each with its branches and labels."""
    return listed(*await views.prompts_page(cue_of(request).prompts, prefix=prefix, limit=limit, cursor=cursor))


@get(ONE, responses=answers(wire.VersionAnswer))
async def get_prompt(
    request: AnyRequest,
    prompt: Name,
    *,
    branch: Branch = None,
    version: Version = None,
    label: Label = None,
    resolve: Resolve = False,
    project: Project = None,
) -> Response[bytes]:
    """Return a prompt version. Default: the branch's active one. Write `~` or `%2F` for a `/` in the id."""
    at: dict[str, Any] = {"branch": branch, "version": version, "label": label, "project": project}
    return json_of(await views.show(cue_of(request).prompts, name_in(prompt), **at, resolve=resolve))


@get(f"{ONE}/versions", responses=answers(wire.VersionPage))
async def list_versions(
    request: AnyRequest, prompt: Name, *, branch: Branch = None, limit: PageLimit = None, cursor: PageCursor = None
) -> Response[bytes]:
    """List the versions of a prompt without their texts, oldest first, of one branch or of all.

    Returns all, or with `limit` or `cursor` a page.
    """
    prompts, slug = cue_of(request).prompts, name_in(prompt)
    return listed(*await views.versions_page(prompts, slug, branch=branch, limit=limit, cursor=cursor))


@get(f"{ONE}/versions/{{n:int}}", responses=answers(wire.VersionAnswer))
async def get_version(
    request: AnyRequest, prompt: Name, n: FromPath[int], *, branch: Branch = None, resolve: Resolve = False
) -> Response[bytes]:
    """Return a version of a prompt by its number."""
    return json_of(
        await views.show(
            cue_of(request).prompts, name_in(prompt), branch=branch, version=n, resolve=resolve, project=""
        )
    )


@get(f"{ONE}/diff", responses=answers(wire.DiffAnswer))
async def get_diff(
    request: AnyRequest, prompt: Name, *, a: Number, b: Other = None, branch: Branch = None, turns: Turns = TURNS
) -> Response[bytes]:
    """Return the changes from version `a` to `b`, the change in tokens, and the impact on recorded turns."""
    services = cue_of(request).services
    value: Any = {"branch": branch or None, "turns": turns, "user": user_of(request)}
    async with request.app.state.measures.hold("a prompt measurement"):
        return json_of(await views.compare(services, name_in(prompt), a, b, **value))


@get(f"{ONE}/branches", responses=answers(wire.BranchPage))
async def list_branches(
    request: AnyRequest, prompt: Name, limit: PageLimit = None, cursor: PageCursor = None
) -> Response[bytes]:
    """List the branches of a prompt, and the scores of their active versions."""
    return listed(*await views.branches_page(cue_of(request).prompts, name_in(prompt), limit=limit, cursor=cursor))


@get(f"{ONE}/labels", responses=answers(wire.LabelPage))
async def list_labels(
    request: AnyRequest, prompt: Name, limit: PageLimit = None, cursor: PageCursor = None
) -> Response[bytes]:
    """List the labels of a prompt by name."""
    return listed(*await views.labels_page(cue_of(request).prompts, name_in(prompt), limit=limit, cursor=cursor))


@get(f"{ONE}/history", responses=answers(wire.EventPage))
async def get_history(
    request: AnyRequest, prompt: Name, limit: PageLimit = None, cursor: PageCursor = None
) -> Response[bytes]:
    """Return the history of a prompt, newest first."""
    return listed(*await views.history_page(cue_of(request).prompts, name_in(prompt), limit=limit, cursor=cursor))


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
    at: dict[str, Any] = {"branch": branch, "version": version, "label": label}
    return json_of(await views.show(cue_of(request).prompts, "migrate", **at, resolve=resolve))


@get(f"{ONE}/rating", responses=answers(wire.RatingAnswer))
async def get_rating(
    request: AnyRequest, prompt: Name, *, branch: Branch = None, version: Version = None, label: Label = None
) -> Response[bytes]:
    """Return a version's quality score from 0 to 100, by lint findings, descriptions, tests and observations."""
    at: dict[str, Any] = {"branch": branch, "version": version, "label": label}
    return json_of(await views.rating(cue_of(request).prompts, name_in(prompt), **at))


@get(f"{ONE}/lint", responses=answers(wire.LintAnswer))
async def get_lint(request: AnyRequest, prompt: Name) -> Response[bytes]:
    """Lint the active versions of a prompt: secrets, injections, lost parameters, and more."""
    return listed(await views.findings(cue_of(request).prompts, name_in(prompt)), None)


@get("/api/prompt-clusters", responses=answers(Clusters))
async def get_clusters(request: AnyRequest, prefix: FromQuery[str] = "", least: Least = None) -> Response[bytes]:
    """Cluster similar prompts by the configured embedder, else by words, and list near duplicates.

    Compares the active versions on `main`. Groups are merged while their mean similarity is at least `least`.
    """
    return json_of(await cue_of(request).prompts.clusters(prefix=prefix, least=least))


# ---- using ----------------------------------------------------------------------------------------------------------


@post(f"{ONE}/render", dto=JsonBody[bodies.RenderBody], status_code=200, responses=answers(wire.RenderAnswer))
async def render(
    request: AnyRequest, prompt: Name, data: JSONBody[bodies.RenderBody], user_id: UserQuery = None
) -> Response[bytes]:
    """Render a prompt with its ancestors' sections. A missing parameter is an error that names it.

    With `log` it adds an audit record, and returns its number.
    """
    if data.log:
        caller_of(request).need("editor", "log: storing an audit record")
    rendered = await cue_of(request).prompts.render(
        name_in(prompt),
        data.params,
        branch=data.branch,
        version=data.version,
        label=data.label,
        project=data.project,
        log=data.log,
        by=user_of(request, data.user_id, user_id) or "",
        idempotency_key=idempotency_key(request.scope),
    )
    return json_of(shapes.rendered(rendered))


@post(f"{ONE}/select", dto=JsonBody[bodies.SelectBody], status_code=200, responses=answers(wire.SelectAnswer))
async def select(request: AnyRequest, prompt: Name, data: JSONBody[bodies.SelectBody]) -> Response[bytes]:
    """Select a variant of a prompt (an active version of its branches). Stores nothing."""
    fields: dict[str, Any] = {} if data.epsilon is None else {"epsilon": data.epsilon}
    picked = await cue_of(request).prompts.select(
        name_in(prompt), data.signals, strategy=data.strategy, seed=data.seed, **fields
    )
    return json_of(shapes.selection(picked))


@post(f"{ONE}/observations", dto=JsonBody[bodies.ObserveBody], responses=answers(wire.ObserveAnswer, 201))
async def observe(
    request: AnyRequest, prompt: Name, data: JSONBody[bodies.ObserveBody], user_id: UserQuery = None
) -> Response[bytes]:
    """Store an observation of a version. Default: the active one.

    Send an Idempotency-Key, so that a retry does not count twice.
    """
    observed = await cue_of(request).prompts.observe(
        name_in(prompt),
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
    list_prompts,
    get_prompt,
    list_versions,
    get_version,
    get_diff,
    list_branches,
    list_labels,
    get_history,
    get_rating,
    get_lint,
    get_clusters,
    get_prompt_of_that_name,
    render,
    select,
    observe,
]
