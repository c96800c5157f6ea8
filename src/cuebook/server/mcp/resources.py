"""List, read and complete what MCP clients may read: conversations and memories as resources, and prompts."""

from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import quote, unquote

from cuebook.errors import InvalidInput, NotFound
from cuebook.records.answer import Wire, to_json
from cuebook.records.expression import counted
from cuebook.records.memory_answers import StoredMemory
from cuebook.records.prompt import MAIN, Param
from cuebook.server.mcp.schemas import Asker

CONVERSATIONS: Final = "cuebook://conversations/"
MEMORIES: Final = "cuebook://memories/"
TEMPLATES: Final = [
    {
        "uriTemplate": f"{CONVERSATIONS}{{id}}",
        "name": "conversation",
        "title": "A conversation",
        "description": "The newest messages, after a summary of the earlier ones.",
        "mimeType": "text/markdown",
    },
    {
        "uriTemplate": f"{MEMORIES}{{id}}",
        "name": "memory",
        "title": "A memory",
        "description": "The text, owner, validity and source posts of a memory.",
        "mimeType": "application/json",
    },
]
#: Resources per page.
PAGE: Final = 50
#: Most posts of a conversation that are returned; the tool `history` returns older ones.
POSTS: Final = 200
#: Cursor prefixes of pages of memories and of conversations.
_OF_MEMORIES, _OF_CONVERSATIONS = "m", "c"


async def list_resources(asker: Asker, cursor: str | None) -> Wire:
    """Return a page: conversations, the most recent first, then memories. Raises InvalidInput."""
    user, cue = asker.user(), asker.cue
    kind, rest = (cursor[:1], cursor[1:]) if cursor else (_OF_CONVERSATIONS, "")
    if kind not in (_OF_CONVERSATIONS, _OF_MEMORIES):
        msg = f"cursor: invalid or expired: {cursor!r}. Start again without a cursor."
        raise InvalidInput(msg, where="cursor")
    if kind == _OF_CONVERSATIONS:
        page = await cue.conversations.list(user=user, limit=PAGE, cursor=rest or None)
        entries = [
            {
                "uri": f"{CONVERSATIONS}{quote(each.id, safe='')}",
                "name": each.id,
                "description": f"{counted(each.last_seq, 'post')}, {counted(each.turns, 'turn')}",
                "mimeType": "text/markdown",
                "annotations": {"lastModified": str(each.updated_at)},
            }
            for each in page.items
        ]
        more = f"{_OF_CONVERSATIONS}{page.next}" if page.next else _OF_MEMORIES
        return {"resources": entries, "nextCursor": more}
    memories = await cue.memory.list(user=user, limit=PAGE, cursor=rest or None, caller=asker.caller)
    known = [_memory(each) for each in memories]
    return {"resources": known} | ({"nextCursor": f"{_OF_MEMORIES}{memories.next}"} if memories.next else {})


def _memory(memory: StoredMemory) -> Wire:
    return {
        "uri": f"{MEMORIES}{quote(memory.id, safe='')}",
        "name": memory.key or memory.id,
        "description": memory.text[:PAGE] + ("…" if len(memory.text) > PAGE else ""),
        "mimeType": "application/json",
    }


def named_in(uri: str, base: str) -> str:
    """Return the ID in a URI after its base."""
    return unquote(uri.removeprefix(base))


async def read_resource(asker: Asker, uri: str) -> Wire:
    """Return a conversation or a memory by its URI. Raises NotFound."""
    for base, read in ((CONVERSATIONS, _conversation), (MEMORIES, _one_memory)):
        if uri.startswith(base) and len(uri) > len(base):
            kind, text = await read(asker, named_in(uri, base))
            return {"contents": [{"uri": uri, "mimeType": kind, "text": text}]}
    msg = f"Unknown resource {uri!r}. Use {CONVERSATIONS}ID or {MEMORIES}ID."
    raise NotFound(msg)


async def _conversation(asker: Asker, name: str) -> tuple[str, str]:
    user, cue = asker.user(), asker.cue
    posts = await cue.conversations.posts(name, user=user, last=POSTS)
    summary = await cue.conversations.summary(name, user=user)
    lines = [f"# {name}"]
    if summary is not None:
        lines += [f"Summary of the posts up to {summary.upto_seq}:", summary.markdown]
    lines += [f"**{each.sender}** ({each.seq}, {each.created_at}): {each.message}" for each in posts]
    return "text/markdown", "\n\n".join(lines)


async def _one_memory(asker: Asker, name: str) -> tuple[str, str]:
    memory = await asker.cue.memory.get(name, user=asker.user(), caller=asker.caller)
    return "application/json", to_json(memory).decode()


# ---- prompts --------------------------------------------------------------------------------------------------------


#: Prompts per page.
PROMPTS: Final = 100


async def list_prompts(asker: Asker, cursor: str | None) -> Wire:
    """Return a page of prompts by name, each with its arguments. Raises InvalidInput."""
    prompts, items = asker.cue.prompts, []
    page = await prompts.list(limit=PROMPTS, cursor=cursor or None)
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


# ---- completions ----------------------------------------------------------------------------------------------------


#: Most values of one answer; the protocol's limit.
MOST: Final = 100
#: Most conversations or memories that are read.
LOOKED_AT: Final = 1_000
#: Memories read per page.
AT_ONCE: Final = 500
_BOOLEANS: Final = ("true", "false")


async def complete(asker: Asker, ref: Any, argument: Any) -> Wire:
    """Return the caller's values that start with the typed prefix.

    Raises NotFound for an unknown argument.
    """
    name, begun = argument.name, argument.value.lower()
    values = _of_prompt(asker, ref.name, name) if ref.type == "ref/prompt" else _of_address(asker, ref.uri, name)
    results: list[str] = []
    async for each in values:
        if each.lower().startswith(begun):
            if len(results) == MOST:
                return {"completion": {"values": results, "hasMore": True}}
            results.append(each)
    return {"completion": {"values": results, "hasMore": False}}


async def _of_prompt(asker: Asker, slug: str, name: str) -> AsyncIterator[str]:
    resolved = await asker.cue.prompts.resolve(slug)
    for param in resolved.params:
        if param.name == name:
            choices = _BOOLEANS if param.type == "boolean" else ()
            for each in dict.fromkeys(filter(None, (param.default, *choices))):
                yield each
            return
    msg = f"Unknown argument {name!r} of prompt {slug!r}."
    raise NotFound(msg)


async def _of_address(asker: Asker, uri: str, name: str) -> AsyncIterator[str]:
    if name != "id" or uri not in [each["uriTemplate"] for each in TEMPLATES]:
        known = " and ".join(each["uriTemplate"] for each in TEMPLATES)
        msg = f"Unknown argument {name!r} of {uri!r}. Available templates: {known}."
        raise NotFound(msg)
    ids = {CONVERSATIONS: conversations, MEMORIES: memories}[uri.removesuffix("{id}")]
    async for each in ids(asker):
        yield each


async def conversations(asker: Asker) -> AsyncIterator[str]:
    """Yield the IDs of the caller's newest conversations, LOOKED_AT at most."""
    user, cursor = asker.user(), None
    for _ in range(LOOKED_AT // PAGE):
        page = await asker.cue.conversations.list(user=user, limit=PAGE, cursor=cursor)
        for each in page.items:
            yield each.id
        if (cursor := page.next) is None:
            return


async def memories(asker: Asker, *, most: int = LOOKED_AT) -> AsyncIterator[str]:
    """Yield the IDs of the caller's oldest memories, `most` at most."""
    user, cursor, at_once = asker.user(), None, min(most, AT_ONCE)
    for _ in range(most // at_once):
        page = await asker.cue.memory.list(user=user, limit=at_once, cursor=cursor, caller=asker.caller)
        for each in page:
            yield each.id
        if (cursor := page.next) is None:
            return
