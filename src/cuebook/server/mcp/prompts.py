"""List managed prompts as MCP prompts with their parameters, and render them."""

from cuebook.records.answer import Wire
from cuebook.records.prompt import MAIN, Param
from cuebook.server.mcp.schemas import Asker

#: Prompts per page.
PAGE = 100


async def list_prompts(asker: Asker, cursor: str | None) -> Wire:
    """Return a page of prompts by name, each with its arguments. Raises InvalidInput."""
    prompts, items = asker.cue.prompts, []
    page = await prompts.list(limit=PAGE, cursor=cursor or None)
    for each in page:
        if each.branch != MAIN:
            continue  # it cannot be rendered by its name alone
        resolved = await prompts.resolve(each.slug, branch=each.branch, version=each.number)
        about = each.description or f"{each.slug} {each.semver}"
        arguments = [_argument(param) for param in resolved.params]
        items.append({"name": each.slug, "description": about, "arguments": arguments})
    return {"prompts": items} | ({"nextCursor": page.next} if page.next is not None else {})


async def get_prompt(asker: Asker, name: str, arguments: dict[str, str] | None) -> Wire:
    """Render a prompt. Raises NotFound, and InvalidInput that names a missing or unknown parameter."""
    rendered = await asker.cue.prompts.render(name, arguments or {})
    version = await asker.cue.prompts.get(rendered.slug, branch=rendered.branch, version=rendered.version)
    return {
        "description": version.description or f"{rendered.slug} {rendered.semver}",
        "messages": [{"role": "user", "content": {"type": "text", "text": rendered.text}}],
    }


def _argument(param: Param) -> Wire:
    text = param.description if param.type == "string" else f"{param.description} ({param.type})".strip()
    default = f"{text} Default: {param.default}".strip() if param.default else text
    required = param.required and param.default is None
    return {"name": param.name, **({"description": default} if default else {}), "required": required}
