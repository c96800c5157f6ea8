"""The prompt book as prompts of the protocol: listed with their parameters, and rendered."""

from cuebook.app.shapes import Wire
from cuebook.records.prompt import Param
from cuebook.server.mcp.asker import Asker

#: Prompts of a page.
PAGE = 100


async def list_prompts(asker: Asker, cursor: str | None) -> Wire:
    """Give a page of prompts by name, each with what it takes. Raises InvalidInput."""
    prompts = asker.book.prompts
    page = await prompts.page(limit=PAGE, after=cursor or "")
    shown = []
    for family in page.items:
        version = family.version()
        if version is None:
            continue  # it has no active version on its main branch
        resolved = await prompts.resolve(family.slug)
        about = {"description": version.description} if version.description else {}
        shown.append({"name": family.slug, **about, "arguments": [_argument(each) for each in resolved.params]})
    return {"prompts": shown} | ({"nextCursor": page.next} if page.next is not None else {})


async def get_prompt(asker: Asker, name: str, arguments: dict[str, str] | None) -> Wire:
    """Render a prompt. Raises NotFound, and InvalidInput naming the parameter that is missing or unknown."""
    made = await asker.book.prompts.render(name, arguments or {})
    found = await asker.book.prompts.get(made.slug, branch=made.branch, version=made.version)
    return {
        "description": found.description or f"{made.slug} {made.semver}",
        "messages": [{"role": "user", "content": {"type": "text", "text": made.text}}],
    }


def _argument(param: Param) -> Wire:
    said = param.description if param.type == "string" else f"{param.description} ({param.type})".strip()
    default = f"{said} Default: {param.default}".strip() if param.default else said
    required = param.required and param.default is None
    return {"name": param.name, **({"description": default} if default else {}), "required": required}
