"""Render a prompt for its author, with its template, its metadata and its changes."""

from typing import Any

from cuebook.app.prompts.reading import whole_text
from cuebook.app.prompts.writing import Prompts
from cuebook.engine.core.services import Services
from cuebook.prompts.difference import unified
from cuebook.records.answer import Wire, to_wire


async def try_out(
    services: Services,
    text: str,
    params: dict[str, Any],
    *,
    branch: str | None,
    version: int | None,
    diff: bool = False,
    log: str | None = None,
    project: str | None = None,
) -> Wire:
    """Render a prompt for its author: the text, its template and metadata; with `diff`, also the changes.

    `log` is the name under which the render is recorded in the audit log (None: not recorded). `project` selects the
    project whose own prompt is preferred ("": none; default: the setting's).

    Raises NotFound, and InvalidInput naming the missing or unknown parameter.
    """
    prompts = Prompts(services)
    found = await prompts.get(text, branch=branch, version=version, project=prompts.project_scope(project))
    at: dict[str, Any] = {"branch": found.branch, "version": found.number, "project": ""}
    rendered = await prompts.render(found.slug, params, **at, log=log is not None, by=log or None)
    template = await whole_text(services, found)
    data = to_wire(await prompts.show(found.slug, **at, resolve=True))
    left_out = ("sections", "overrideSections", "lineage")
    answer: Wire = to_wire(rendered) | {
        "template": template,
        "tokens": services.count(rendered.text),
        "metadata": {key: value for key, value in data.items() if key not in left_out},
    }
    if not diff:
        return answer
    before = found.number - 1
    old = await prompts.get(found.slug, branch=found.branch, version=before) if before else None
    lines = unified(await whole_text(services, old), template) if old else ()
    return answer | {"previous": before or None, "diff": list(lines)}
