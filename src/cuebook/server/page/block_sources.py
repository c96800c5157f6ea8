"""Describe the source of a prompt's block in words, and link to it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from cuebook import Cuebook
from cuebook.app.json_shapes import iso
from cuebook.records.expression import counted
from cuebook.records.memory import Scope
from cuebook.records.turn import PostPlace
from cuebook.server.page.render import place

_POST: Final = "post:"
#: Seconds of each unit of age, longest first.
_UNITS: Final = (("year", 31_557_600), ("month", 2_629_800), ("day", 86_400), ("hour", 3600), ("minute", 60))


async def name_blocks(
    cue: Cuebook, conversation: str, turn: Mapping[str, Any], *, user: str | None, owner: str | None
) -> dict[str, Any]:
    """Return a turn's window with `name`, `href` and `title` (source and time) of each block.

    `owner` is the conversation's first user, whose memories the prompt contains.
    """
    window = dict(turn["window"])
    posts = [each["source"].removeprefix(_POST) for each in window["blocks"] if each["source"].startswith(_POST)]
    places = await cue.services.store.talks.places(Scope(user=user), conversation, posts)
    then = datetime.fromisoformat(turn["createdAt"]).timestamp()
    window["blocks"] = [{**each, **source_of(each, conversation, places, then, owner)} for each in window["blocks"]]
    return window


def source_of(
    block: Mapping[str, Any], conversation: str, places: Mapping[str, PostPlace], then: float, owner: str | None
) -> dict[str, str]:
    """Return the source of a block; the age of a post is relative to `then`."""
    source: str = block["source"]
    kind, _, rest = source.partition(":")
    if kind == "post" and rest in places:
        post_place = places[rest]
        who = post_place.sender if post_place.sender not in (post_place.role, "") else post_place.role
        seq = f"{post_place.seq}" if block["kind"] in ("post", "query") else f"post {post_place.seq}"
        href = post_address(conversation, rest)
        return {
            "name": f"{seq} · {who}{_age(then - post_place.at)}", "href": href,
            "title": f"{rest} · {(iso(post_place.at) or '')[:19].replace('T', ' ')}",
        }  # fmt: skip
    return {
        "name": _source_name(kind, rest, source),
        "href": _address(kind, rest, conversation, owner),
        "title": source,
    }


def post_address(conversation: str, post: str) -> str:
    """Return the address of a post in its conversation."""
    return f"/page/conversations/{place(conversation)}?at={quote(post, safe='')}#post-id-{quote(post, safe='')}"


def _source_name(kind: str, rest: str, source: str) -> str:
    if kind == "summary":
        version, _, part = rest.partition(":")
        return f"version {version}" + (f", from {part}" if part else "")
    if kind == "memory":
        return "stored"
    return rest if kind in ("persona", "prompt", "experience", "mind") and rest else source


def _address(kind: str, rest: str, conversation: str, owner: str | None) -> str:
    if kind == "prompt":
        slug, _, at = rest.partition("@")
        return f"/page/prompts/{place(slug)}" + (f"?at={quote(at, safe='')}" if at else "")
    if kind == "mind":
        return f"/page/conversations/{place(conversation)}/mind"
    if kind == "summary":
        return f"/page/conversations/{place(conversation)}#summary"
    if kind == "memory":
        return f"/page/memories/{place(rest)}" + (f"?userId={quote(owner, safe='')}" if owner else "")
    return ""


def _age(seconds: float) -> str:
    for unit, size in _UNITS:
        if seconds >= size:
            count = round(seconds / size)
            return f" · {counted(count, unit)} earlier"
    return ""
