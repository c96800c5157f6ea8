"""Render a what-if replay: a turn's prompt beside the prompt with changes."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from litestar import Response, get, post
from litestar.params import FromPath, QueryParameter

from cuebook.app.turns.turns import replay_entry
from cuebook.records.answer import to_wire
from cuebook.records.memory import NO_MODEL
from cuebook.server.caller import AnyRequest, caller_of, cue_of, user_of
from cuebook.server.guard import name_in
from cuebook.server.page.prompt_bar import mark_differences
from cuebook.server.page.render import show

#: Kinds of blocks that can be left out.
REMOVABLE = ("mind", "memory", "experience")
ONE = "/page/conversations/{conversation:str}/turns/{n:int}/what-if"
_SUMMARY = "summary:"
#: Maximum length of a form field in characters.
_MAX_FIELD = 4_096
With = Annotated[str, QueryParameter(name="with", description="Prompt versions, separated by spaces")]
AsOf = Annotated[str, QueryParameter(name="asOf", description="A time or a turn number")]
Without = Annotated[list[str] | None, QueryParameter(name="without", description="Sources of blocks to leave out")]


@get(ONE)
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


@post(ONE, role="editor", status_code=200)
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
