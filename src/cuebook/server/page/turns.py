"""Render the turn pages: one turn, two turns side by side, and a what-if replay, with a link to each block's source."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final
from urllib.parse import quote

from litestar import Response, get, post
from litestar.params import FromPath, QueryParameter

from cuebook import Cuebook
from cuebook.app.turns.explanation import told_of
from cuebook.app.turns.turns import HIGHEST, replay_entry
from cuebook.records.answer import Time, to_wire
from cuebook.records.expression import counted
from cuebook.records.memory import NO_MODEL, Scope
from cuebook.records.turn import SHADOW, PostPlace
from cuebook.server.caller import AnyRequest, caller_of, cue_of, user_of
from cuebook.server.guard import name_in
from cuebook.server.page.prompt_bar import lay_out, mark_differences
from cuebook.server.page.render import place, show

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
            "title": f"{rest} · {str(Time(post_place.at))[:19].replace('T', ' ')}",
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


ONE = "/page/conversations/{conversation:str}/turns/{n:int}"
#: Kinds of blocks that can be left out.
REMOVABLE = ("mind", "memory", "experience")
_SUMMARY = "summary:"
#: Maximum length of a form field in characters.
_MAX_FIELD = 4_096
With = Annotated[str, QueryParameter(name="with", description="Prompt versions, separated by spaces")]
AsOf = Annotated[str, QueryParameter(name="asOf", description="A time or a turn number")]
Without = Annotated[list[str] | None, QueryParameter(name="without", description="Sources of blocks to leave out")]


@get(ONE + "/what-if")
async def what_if(
    request: AnyRequest,
    conversation: FromPath[str],
    n: FromPath[int],
    *,
    with_prompt: With = "",
    as_of: AsOf = "",
    without: Without = None,
) -> Response[bytes]:
    """Render a turn's prompt beside the prompt with changes."""
    return await _comparison_page(
        request, name_in(conversation), n, with_prompt=with_prompt, as_of=as_of, without=without or ()
    )


@post(ONE + "/what-if", role="editor", status_code=200)
async def ask(request: AnyRequest, conversation: FromPath[str], n: FromPath[int]) -> Response[bytes]:
    """Call the model once with the changed prompt, and render the same page with the original and the new answer."""
    form = await request.form()
    with_prompt, as_of = (str(form.get(name, ""))[:_MAX_FIELD] for name in ("with", "asOf"))
    without = [str(each)[:_MAX_FIELD] for each in form.getall("without", [])]
    return await _comparison_page(
        request, name_in(conversation), n, with_prompt=with_prompt, as_of=as_of, without=without, asks=True
    )


async def _comparison_page(
    request: AnyRequest,
    name: str,
    n: int,
    *,
    with_prompt: str,
    as_of: str,
    without: Sequence[str],
    asks: bool = False,
) -> Response[bytes]:
    cue, user = cue_of(request), user_of(request)
    replay = await cue.turns.replay(
        name, n, user=user, with_prompt=with_prompt.split(), as_of=as_of.strip() or None, without=without, ask=asks
    )
    shape = to_wire(replay_entry(replay))
    comparison = shape.get("counterfactual")
    windows = {side: comparison[side] for side in ("before", "after")} if comparison else {}
    sides = [
        {"name": side, "window": mark_differences(window, other)}
        for (side, window), other in zip(windows.items(), reversed(windows.values()), strict=True)
        if window
    ]
    original_answer = (
        (await cue.turns.show(name, n, user=user)).reply if comparison and comparison["answer"] is not None else ""
    )
    entered = {"with": with_prompt, "as_of": as_of, "without": set(without)}
    form = blank_what_if(comparison["before"] if comparison else shape["window"], request) | entered
    return show(
        "what_if.html",
        conversation=name,
        turn={"turn": n},
        comparison=comparison,
        sides=sides,
        original_answer=original_answer,
        what_if=form,
    )


def blank_what_if(window: Mapping[str, Any] | None, request: AnyRequest) -> dict[str, Any]:
    """Return an empty form for a window: the blocks that can be left out, and the model that can be called."""
    blocks: Sequence[Mapping[str, Any]] = window["blocks"] if window else ()
    removable = [each for each in blocks if each["kind"] in REMOVABLE and not each["source"].startswith(_SUMMARY)]
    prompts = [each["source"].removeprefix("prompt:") for each in blocks if each["source"].startswith("prompt:")]
    model = cue_of(request).services.model.name
    return {
        "blocks": removable,
        "prompts": prompts,
        "with": "",
        "as_of": "",
        "without": set(),
        "model": "" if model == NO_MODEL else model,
        "may_ask": caller_of(request).may("editor"),
    }


# ---- two turns side by side -----------------------------------------------------------------------------------------


async def compare_turns(
    cue: Cuebook, conversation: str, turns: tuple[int, int], *, user: str | None
) -> Response[bytes]:
    """Render two turns side by side, and mark the blocks of their prompts that differ.

    Raises NotFound.
    """
    items = [to_wire(await cue.turns.show(conversation, n, user=user)) for n in turns]
    owner = (await cue.conversations.get(conversation, user=user)).user
    for each in items:
        if each["window"]:
            each["window"] = await name_blocks(cue, conversation, each, user=user, owner=owner)
    windows = [
        each["window"] and mark_differences(each["window"], other["window"])
        for each, other in zip(items, reversed(items), strict=True)
    ]
    return show("turns.html", conversation=conversation, sides=list(zip(items, windows, strict=True)))


StepQuery = Annotated[int | None, QueryParameter(name="step", ge=1, description="Model call. Default: the last.")]
OtherTurn = Annotated[int | None, QueryParameter(name="with", ge=1, le=HIGHEST, description="Turn to compare with")]


@get(ONE)
async def turn(
    request: AnyRequest, conversation: FromPath[str], n: FromPath[int], step: StepQuery = None, with_: OtherTurn = None
) -> Response[bytes]:
    """Render a turn: its prompt as blocks with sources, and the content left out. `with` compares two turns."""
    cue, user, name = cue_of(request), user_of(request), name_in(conversation)
    if with_ is not None:
        return await compare_turns(cue, name, (n, with_), user=user)
    data = to_wire(await cue.turns.show(name, n, step=step, user=user))
    known = await cue.conversations.get(name, user=user)
    window = None
    if data["window"]:
        window = lay_out(await name_blocks(cue, name, data, user=user, owner=known.user))
    first_ms = data["metadata"].get("firstTokenMs")
    return show(
        "turn.html",
        conversation=name,
        turn=data,
        window=window,
        cache=window["cache"] if window else None,
        usage=await cue.live.usage_of_step(name, n, data["step"], user=user),
        duration=None if data["metadata"].get(SHADOW) else _seconds_between(data["createdAt"], data["closedAt"]),
        first_token=None if first_ms is None else first_ms / 1000,
        steps=[each["step"] for each in data["steps"]],
        before=n - 1,
        after=n + 1 if n < known.turns else 0,
        explanation=list(told_of(data)),
        what_if=blank_what_if(data["window"], request) if window else None,
    )


def _seconds_between(start: str | None, end: str | None) -> float | None:
    if not (start and end):
        return None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


ROUTES = [turn, what_if, ask]
