"""Replay a recorded turn with a change (what-if): build its window again, and compare it with the one before.

Both windows are built again, so that differences come only from the change. Nothing is stored, except an audit record
of a model's answer.
"""

import asyncio
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.scheduling import closing
from cuebook.engine.core.services import Services
from cuebook.engine.replay.changes import Change, OtherVersion, apply
from cuebook.engine.replay.recorded_turn import RecordedTurn, plan_again
from cuebook.engine.turn.compare import prefix_ratio
from cuebook.errors import BackendError, InvalidInput
from cuebook.interfaces import ModelRequest
from cuebook.records.conversation import messages_digest
from cuebook.records.memory import Scope
from cuebook.records.prompt import Version
from cuebook.records.turn import Block, Window

#: Task name for the model adapter and the audit log.
PURPOSE = "counterfactual"


class WindowDiff(Struct, frozen=True, kw_only=True):
    """A turn's window before a change and after it, and their differences.

    `after` is None if the required parts did not fit; `refused` has the reason. `reproduced`: without any change, the
    recorded window was rebuilt byte for byte. `unsaid` is the reason if a prompt version could not be rendered.
    """

    before: Window
    after: Window | None
    left_out: tuple[Block, ...] = ()  # only in the window before
    let_in: tuple[Block, ...] = ()  # only in the window after
    changed: tuple[Block, ...] = ()  # in both, as in the one after
    posts: tuple[int, int] = (0, 0)  # omitted, before and after
    shortened: int = 0  # posts that were whole, and are now compressed or cut
    prefix: float = 1.0  # bytes of the common prefix over the bytes of the window after
    prompt_tokens: tuple[int, int] = (0, 0)  # of the replaced prompt texts
    reproduced: bool = False
    refused: str = ""
    unsaid: str = ""
    answer: str | None = None  # the model's answer to the window after, if requested


async def redecide(
    services: Services,
    scope: Scope,
    recorded: RecordedTurn,
    changes: Sequence[Change],
    *,
    before: OtherVersion | None = None,
) -> WindowDiff:
    """Build a recorded window with some changes. Compare it with the window without them, or with another version.

    Raises InvalidInput if a change does not apply to this window or the window before does not fit, and NotFound.
    """
    one = await apply(services, scope, recorded, before) if before else recorded
    other = recorded
    was = plan_again(services, one).window
    await asyncio.sleep(0)  # each takes up to 20 ms: do not block others
    reproduced = _reproduced(services, recorded, was if _texts(one) == _texts(recorded) else None)
    await asyncio.sleep(0)
    for change in changes:
        other = await apply(services, scope, other, change)
    tokens = (one.prompt_tokens, other.prompt_tokens)
    try:
        would = plan_again(services, other).window
    except InvalidInput as error:
        diff = WindowDiff(before=was, after=None, refused=str(error))
    else:
        diff = _compared(was, would)
    return replace(diff, prompt_tokens=tokens, reproduced=reproduced, unsaid=other.unsaid)


def _reproduced(services: Services, recorded: RecordedTurn, window: Window | None) -> bool:
    try:
        window = window or plan_again(services, recorded).window
    except InvalidInput:
        return False
    return messages_digest(window.messages) == recorded.manifest.digest


def _texts(recorded: RecordedTurn) -> list[str]:
    return [text.text for text in recorded.request.front]


def _compared(was: Window, would: Window) -> WindowDiff:
    before, after = _by_source(was), _by_source(would)
    both = [(block, after[name]) for name, block in before.items() if name in after]
    return WindowDiff(
        before=was,
        after=would,
        left_out=tuple(block for name, block in before.items() if name not in after),
        let_in=tuple(block for name, block in after.items() if name not in before),
        changed=tuple(block for name, block in after.items() if name in before and before[name].text != block.text),
        posts=(_posts_dropped(was), _posts_dropped(would)),
        shortened=sum(one.form == "full" and other.form != "full" for one, other in both),
        prefix=prefix_ratio(was.messages, would.messages),
    )


def _by_source(window: Window) -> dict[tuple[str, str], Block]:
    """Return a window's blocks by their source. A recalled post differs from the same post on the path."""
    return {("" if block.seq else block.kind, block.source): block for block in window.blocks}


def _posts_dropped(window: Window) -> int:
    return sum(each.count for each in window.dropped if each.kind == "post")


# ---- The answer -----------------------------------------------------------------------------------------------------


async def answer_to(services: Services, scope: Scope, recorded: RecordedTurn, window: Window) -> str:
    """Return the model's answer to a window, and store its audit record. Raises the model's errors."""
    answer = await ask_model(services, recorded, window)
    digests = {"recorded": recorded.manifest.digest, "asked": messages_digest(window.messages)}
    record = receipt(
        services,
        Version(slug=f"turn/{recorded.turn.n}"),
        PURPOSE,
        context={"turn": recorded.turn.n, **digests},
        output=answer,
        conversation=recorded.conversation.id,
    )
    await services.audit.append(scope, [replace(record, selection=None)])
    return answer


async def ask_model(
    services: Services,
    recorded: RecordedTurn,
    window: Window,
    *,
    temperature: float | None = None,
    max_tokens: int | None = None,
) -> str:
    """Return the model's answer to a window. Raises the model's errors, and BackendError for an incomplete answer."""
    request = ModelRequest(
        messages=window.messages,
        purpose=PURPOSE,
        conversation=recorded.conversation.id,
        zone=recorded.request.zone,
        temperature=temperature,
        max_tokens=max_tokens,
    )
    lines, finish = [], ""
    async with closing(services.model.stream(request)) as pieces:
        async for piece in pieces:
            lines.append(piece.text)
            finish = piece.finish or finish
    if not finish:
        msg = f"Incomplete answer from model {services.model.name}. Try again."
        raise BackendError(msg, retryable=True)
    return "".join(lines)
