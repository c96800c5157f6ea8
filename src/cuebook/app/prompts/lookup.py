"""Parse a prompt reference from the command line (id, branch, version or label in one word), and find the version.

`persona/a`, `persona/a@trial`, `persona/a@trial:2`, `persona/a:3`; `persona/a@production` if `production` is a label.
"""

from typing import Any

from cuebook.app.json_shapes import Wire
from cuebook.app.prompts import Prompts, answers
from cuebook.app.prompts.reading import whole_text
from cuebook.engine.core.services import Services
from cuebook.errors import InvalidInput
from cuebook.prompts.difference import unified
from cuebook.prompts.inherit import text_of
from cuebook.prompts.names import Reference, parse_reference
from cuebook.records.answer import to_wire
from cuebook.records.prompt import Version


def read_place(text: str, *, branch: str | None = None, version: int | None = None) -> Reference:
    """Parse a prompt reference together with options. Raises InvalidInput, also if they contradict each other."""
    reference = parse_reference(text, where="prompt")
    for name, said, also in (("branch", reference.branch, branch), ("version", reference.number, version)):
        if said is not None and also is not None and said != also:
            msg = f"{name}: {text!r} and --{name} {also!r} contradict each other. Keep one."
            raise InvalidInput(msg, where=name)
    return Reference(reference.slug, reference.branch or branch, reference.number or version)


async def find(
    prompts: Prompts, text: str, *, branch: str | None = None, version: int | None = None, project: str = ""
) -> Version:
    """Return the version of a reference, preferring the project's own prompt. Raises NotFound, InvalidInput."""
    place = read_place(text, branch=branch, version=version)
    family = await prompts.family(place.slug, project=project)
    if place.branch is not None and place.number is None and family.branch(place.branch) is None:
        for label in family.labels:
            if label.name == place.branch:
                return await prompts.get(family.slug, branch=label.branch, version=label.number)
    return await prompts.get(family.slug, branch=place.branch, version=place.number)


async def find_beside(prompts: Prompts, other: Version, text: str) -> Version:
    """Return another version of the same prompt: `3`, `trial`, `trial:2` or a label; or any as `persona/b@trial`."""
    if "@" in text or "/" in text:
        return await find(prompts, text if text.partition("@")[0] else f"{other.slug}{text}")
    branch, _, number = text.partition(":")
    if branch.isdecimal() and not number:
        return await find(prompts, f"{other.slug}@{other.branch}:{branch}")
    return await find(prompts, f"{other.slug}@{text}")


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
    found = await find(prompts, text, branch=branch, version=version, project=prompts.project_scope(project))
    rendered = await prompts.render(
        found.slug,
        params,
        branch=found.branch,
        version=found.number,
        project="",
        log=log is not None,
        by=log or None,
    )
    family = await prompts.family(found.slug)
    resolved = await prompts.resolve(found.slug, branch=found.branch, version=found.number)
    template = text_of(resolved)
    data = to_wire(answers.version_entry(found, family, resolved))
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
