"""Answer what-if questions: render a turn's prompt with other prompt versions, memories or times."""

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from cuebook.app.prompts.reading import PromptReading
from cuebook.engine.core.services import Services
from cuebook.engine.replay.recorded_turn import read_recorded
from cuebook.engine.replay.redecide import WindowDiff, answer_to, instead, redecide
from cuebook.errors import Denied, InvalidInput
from cuebook.prompts.names import parse_reference
from cuebook.records.conversation import is_guest
from cuebook.records.conversation_answers import PostsLeftOut, WhatIfEntry, WindowChange, block_entry, window_entry
from cuebook.records.memory import NO_MODEL, Scope

#: Maximum number of prompts, and of memories, per question.
MOST = 100
#: Maximum number of digits of a turn's number.
_DIGITS = 18


async def what_if(
    services: Services,
    scope: Scope,
    conversation: str,
    n: int,
    *,
    with_prompt: Sequence[str],
    as_of: datetime | str | int | None,
    without: Sequence[str],
    ask: bool,
) -> WindowDiff:
    """Return what a turn's first window would have been. Raises InvalidInput, NotFound, Denied."""
    stored = await services.store.conversation(scope, conversation)
    if is_guest(stored, scope.user):
        msg = "What-if replay denied: only the first user of the conversation may use it."
        raise Denied(msg)
    for where, values in (("withPrompt", with_prompt), ("without", without)):
        if len(values) > MOST:
            msg = f"{where}: {len(values)} exceed the limit of {MOST}."
            raise InvalidInput(msg, where=where)
    turn = await services.store.turn(scope, conversation, n)
    prompts, references = PromptReading(services), [each.removeprefix("prompt:") for each in with_prompt]
    places = [parse_reference(each, where="withPrompt") for each in references]
    versions = [await prompts.get(each.slug, branch=each.branch, version=each.number) for each in places]
    when = None if as_of is None else await _moment(services, scope, conversation, as_of)
    recorded = await read_recorded(services, scope, stored, turn)
    if ask and services.model.name == NO_MODEL:
        msg = "ask: no model is configured. Set [model] in cuebook.toml, or compare the windows without `ask`."
        raise InvalidInput(msg, where="ask")
    others = [instead(each, recorded) for each in versions]
    diff = await redecide(services, scope, recorded, as_of=when, versions=others, without=without)
    if diff.unsaid:
        names = ", ".join(each.source for each in versions)
        msg = f"with: cannot render {names} in turn {n}: {diff.unsaid}"
        raise InvalidInput(msg, where="withPrompt")
    if not ask or diff.after is None:
        return diff
    return replace(diff, answer=await answer_to(services, scope, recorded, diff.after))


def what_if_entry(diff: WindowDiff) -> WhatIfEntry:
    """Return a what-if result as an answer."""
    before, after = diff.before.tokens, diff.after.tokens if diff.after else None
    return WhatIfEntry(
        tokens=WindowChange(before=before, after=after, change=None if after is None else after - before),
        left_out=tuple(map(block_entry, diff.left_out)),
        let_in=tuple(map(block_entry, diff.let_in)),
        changed=tuple(map(block_entry, diff.changed)),
        posts_left_out=PostsLeftOut(before=diff.posts[0], after=diff.posts[1]),
        reproduced=diff.reproduced,
        refused=diff.refused or None,
        answer=diff.answer,
        before=window_entry(diff.before),
        after=window_entry(diff.after) if diff.after else None,
    )


async def _moment(services: Services, scope: Scope, conversation: str, value: datetime | str | int) -> float:
    """Return a time as Unix seconds: a turn's is its start, and a time without a zone is in UTC."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) <= _DIGITS:
        value = int(value)
    if isinstance(value, int):
        return (await services.store.turn(scope, conversation, value)).created_at
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError as error:
            msg = f"as_of: invalid time {value!r:.80}. Use ISO 8601, such as 2026-05-01T12:00, or a turn's number."
            raise InvalidInput(msg, where="asOf") from error
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
