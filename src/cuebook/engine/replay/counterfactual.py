"""What-if replay: build a recorded turn's window again with other prompt versions, memory of another time, or sources
removed.

Both windows are built again, so that differences come only from the change. Nothing is stored.
"""

import asyncio
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.memory_selection import SelectedMemories, retrieve
from cuebook.engine.core.model_call import closing
from cuebook.engine.core.query_vector import sense
from cuebook.engine.core.services import Services
from cuebook.engine.replay.prompt_impact import Versions
from cuebook.engine.replay.recorded_turn import MEMORY, RECALLED, RecordedTurn, plan_again, policy_of, read_recorded
from cuebook.engine.turn.plan import Planned
from cuebook.errors import BackendError, InvalidInput
from cuebook.interfaces.memories import MemoryContext, MemoryLook, MemoryQuery
from cuebook.interfaces.model import ModelRequest
from cuebook.memory.scopes import SHARED_WITH, SPOKEN_WITH, Participants, read_places
from cuebook.prompts.names import parse_reference
from cuebook.records.memory import NO_MODEL, Memory, Place, Scope
from cuebook.records.prompt import Version
from cuebook.records.turn import Block, Window

#: Task name for the model adapter and the audit log.
PURPOSE = "counterfactual"
#: Summaries searched for the current one at a time.
SUMMARIES = 200
_POST, _PROMPT = "post:", "prompt:"


class WhatIf(Struct, frozen=True, kw_only=True):
    """The change: prompt versions, memory as of a time (Unix seconds), and sources to remove."""

    prompts: tuple[Version, ...] = ()
    as_of: float | None = None
    without: tuple[str, ...] = ()


class Counterfactual(Struct, frozen=True, kw_only=True):
    """A turn's original window and its changed window.

    `after` is None if the required parts did not fit; `refused` has the reason. `reproduced`: without the change, the
    recorded window was rebuilt byte for byte.
    """

    before: Window
    after: Window | None
    left_out: tuple[Block, ...] = ()  # only in the window before
    let_in: tuple[Block, ...] = ()  # only in the window after
    changed: tuple[Block, ...] = ()  # in both, as in the one after
    posts: tuple[int, int] = (0, 0)  # omitted, before and after
    reproduced: bool = False
    refused: str = ""
    answer: str | None = None  # the model's answer to the window after, if requested


async def counterfactual(
    services: Services, scope: Scope, recorded: RecordedTurn, change: WhatIf, *, ask: bool = False
) -> Counterfactual:
    """Build a recorded window with a change and compare it. With `ask`, also call the configured model.

    Raises InvalidInput for a change that does not apply to this window or if there is no model, and NotFound.
    """
    if ask and services.model.name == NO_MODEL:
        msg = "ask: no model is configured. Set [model] in cuebook.toml, or compare the windows without `ask`."
        raise InvalidInput(msg, where="ask")
    was = plan_again(services, recorded, recorded.wish.front)
    reproduced = was.remembered.manifest.digest == recorded.manifest.digest
    await asyncio.sleep(0)  # each takes up to 20 ms: do not block others
    other = await changed(services, scope, recorded, change)
    try:
        would = plan_again(services, other, other.wish.front)
    except InvalidInput as error:
        return Counterfactual(before=was.window, after=None, reproduced=reproduced, refused=str(error))
    found = compared(was, would)
    answer = await _answer(services, scope, other, would) if ask else None
    return replace(found, reproduced=reproduced, answer=answer)


def compared(was: Planned, would: Planned) -> Counterfactual:
    """Compare two windows of a turn."""
    before, after = _by_source(was.window), _by_source(would.window)
    return Counterfactual(
        before=was.window,
        after=would.window,
        left_out=tuple(block for name, block in before.items() if name not in after),
        let_in=tuple(block for name, block in after.items() if name not in before),
        changed=tuple(block for name, block in after.items() if name in before and before[name].text != block.text),
        posts=(_posts_dropped(was.window), _posts_dropped(would.window)),
    )


async def changed(services: Services, scope: Scope, recorded: RecordedTurn, change: WhatIf) -> RecordedTurn:
    """Return the changed inputs of a turn. Raises InvalidInput, NotFound."""
    other = recorded
    if change.as_of is not None:
        other = await _as_of(services, scope, recorded, change.as_of)
    for version in change.prompts:
        other = await _with_prompt(services, other, version)
    return without(other, change.without) if change.without else other


def without(recorded: RecordedTurn, sources: Sequence[str]) -> RecordedTurn:
    """Remove sources from a turn's recalled context. Raises InvalidInput naming the available sources."""
    wish, scene = recorded.wish, recorded.scene
    gone = {source if ":" in source else f"{MEMORY}{source}" for source in sources}
    known = [text.source for text in (*wish.advice, *([wish.mind] if wish.mind else []))]
    known += [hit.memory_id for hit in wish.memories.hits]
    results = [f"{_POST}{each.id}" for each in scene.found.found]
    if missing := sorted(gone - {*known, *results}):
        lines = [text.source for text in recorded.manifest.volatile]
        there = ", ".join(lines) or "nothing"
        msg = f"without: turn {recorded.turn.n} did not use {missing[0]}. Its recalled sources: {there}."
        raise InvalidInput(msg, where="without")
    memories = replace(wish.memories, hits=tuple(each for each in wish.memories.hits if each.memory_id not in gone))
    left = tuple(each for each in scene.found.found if f"{_POST}{each.id}" not in gone)
    return replace(
        recorded,
        scene=replace(scene, found=replace(scene.found, found=left)),
        wish=replace(
            wish,
            memories=memories,
            advice=tuple(text for text in wish.advice if text.source not in gone),
            mind=None if wish.mind and wish.mind.source in gone else wish.mind,
        ),
    )


# ---- Another prompt -------------------------------------------------------------------------------------------------


async def _with_prompt(services: Services, recorded: RecordedTurn, version: Version) -> RecordedTurn:
    """Replace a prompt's version in the system prompt and in the prompts that inherit from it.

    Raises InvalidInput if the turn did not use the prompt.
    """
    sources = [text.source.removeprefix(_PROMPT) for text in recorded.wish.front if text.source.startswith(_PROMPT)]
    stood = next((each for each in map(parse_reference, sources) if each.slug == version.slug), None)
    before = replace(version, branch=stood.branch) if stood and stood.branch else version
    versions = Versions(services, before, version)
    if not await versions.concern(recorded.manifest):
        there = ", ".join(text.source for text in recorded.wish.front) or "none"
        msg = f"with: turn {recorded.turn.n} did not use prompt {version.slug!r}. Its prompts: {there}."
        raise InvalidInput(msg, where="withPrompt")
    version_front = await versions.front_with(recorded, "after")
    if version_front.unsaid:
        msg = f"with: cannot render {version.source} in turn {recorded.turn.n}: {version_front.unsaid}"
        raise InvalidInput(msg, where="withPrompt")
    if stood is not None:
        own = f"{_PROMPT}{stood}"
        front = tuple(
            replace(text, source=version.source) if text.source == own else text for text in version_front.front
        )
        return replace(recorded, wish=replace(recorded.wish, front=front))
    return replace(recorded, wish=replace(recorded.wish, front=version_front.front))


# ---- Another memory -------------------------------------------------------------------------------------------------


async def _as_of(services: Services, scope: Scope, recorded: RecordedTurn, when: float) -> RecordedTurn:
    """Return a turn with the memory of a time: the summary and the memories valid then."""
    version = await _summary_at(services, scope, recorded, when)
    if version != recorded.manifest.summary_version:
        recorded_turn = await read_recorded(
            services, scope, recorded.conversation, recorded.turn, summary_version=version
        )
        recorded = replace(
            recorded, scene=recorded_turn.scene, wish=replace(recorded_turn.wish, front=recorded.wish.front)
        )
    memories = await _memories_at(services, scope, recorded, when)
    return replace(recorded, wish=replace(recorded.wish, memories=memories))


async def _summary_at(services: Services, scope: Scope, recorded: RecordedTurn, when: float) -> int:
    """Return the newest summary at a time whose posts all precede the query, 0 for none."""
    name, query = recorded.conversation.id, recorded.turn.query_seq
    newest = await services.store.summary(scope, name)
    versions = range(newest.version, max(0, newest.version - SUMMARIES), -1) if newest else ()
    path: set[int] | None = None
    for version in versions:
        summary = await services.store.summary(scope, name, version=version)
        if summary is None or summary.created_at > when or not summary.upto_seq < query:
            continue
        if path is None:
            path = {post.seq for post in await services.store.posts(scope, name, head=query)}
        if summary.upto_seq in path:
            return version
    return 0


async def _memories_at(services: Services, scope: Scope, recorded: RecordedTurn, when: float) -> SelectedMemories:
    """Select again among the memories valid at a time, in the places that the turn may read."""
    turn = recorded.turn
    policy = policy_of(turn)
    organization = await _organization(services, scope, recorded)
    settings = await services.store.memories.settings(scope, organization) if organization else {}
    conversation = recorded.conversation
    persona = str(turn.metadata.get(SPOKEN_WITH) or conversation.persona or services.settings.default_persona)
    alone = not set(conversation.participants) - {conversation.user}
    participants = Participants(user=conversation.user, persona=persona, organization=organization, alone=alone)
    places = read_places(policy, participants, settings)
    if not places:
        return SelectedMemories()
    query = recorded.query
    text = query.text if query else ""
    limit = MemoryLook().limit
    memory_query = MemoryQuery(
        text=text, dense=await sense(services, text) if text else None, at=when, limit=limit, standing=limit
    )
    matched = await services.store.memories.find(scope, places, memory_query)
    memories = tuple(replace(each, valid_to=None) for each in matched.memories if _held(each, when))
    fields = {name: getattr(matched, name) for name in matched.__struct_fields__} | {"memories": memories}
    scene = replace(
        recorded.scene, known=MemoryContext(policy=policy, places=places, settings=settings, **fields), told={}
    )
    every, hits = services.settings.review_every, services.settings.recall_hits
    return retrieve(scene, query, turn=turn.n, every=every, hits=hits, count=services.count) or SelectedMemories()


async def _organization(services: Services, scope: Scope, recorded: RecordedTurn) -> str | None:
    """Return a turn's organization, as far as it can be inferred from sharing or from its memories."""
    if shared := recorded.turn.metadata.get(SHARED_WITH):
        return str(shared)
    for each in (recorded.turn.metadata.get(RECALLED) or {}).get("hits", ()):
        if each.get("scope") == "organization":
            memories = await services.store.memories.get(scope, str(each["memoryId"]).removeprefix(MEMORY))
            place: Place | None = memories[0].place if memories else None
            if place is not None:
                return place.id
    return None


def _held(memory: Memory, when: float) -> bool:
    return memory.valid_from <= when and (memory.valid_to is None or memory.valid_to > when)


# ---- The answer -----------------------------------------------------------------------------------------------------


async def _answer(services: Services, scope: Scope, recorded: RecordedTurn, planned: Planned) -> str:
    answer = await asked(services, recorded, planned)
    record = receipt(
        services,
        Version(slug=f"turn/{recorded.turn.n}"),
        PURPOSE,
        context={"turn": recorded.turn.n, "recorded": recorded.manifest.digest, "asked": _digest(planned)},
        output=answer,
        conversation=recorded.conversation.id,
    )
    await services.audit.append(scope, [replace(record, selection=None)])
    return answer


async def asked(
    services: Services,
    recorded: RecordedTurn,
    planned: Planned,
    *,
    temperature: float | None = None,
    max_tokens: int | None = None,
) -> str:
    """Return the model's answer to a window. Raises the model's errors, and BackendError for an incomplete answer."""
    request = ModelRequest(
        messages=planned.messages,
        purpose=PURPOSE,
        conversation=recorded.conversation.id,
        zone=recorded.wish.zone,
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


def _digest(planned: Planned) -> str:
    return planned.remembered.manifest.digest


# ---- Blocks ---------------------------------------------------------------------------------------------------------


def _by_source(window: Window) -> dict[tuple[str, str], Block]:
    """Return a window's blocks by their source. A recalled post differs from the same post on the path."""
    return {("" if block.seq else block.kind, block.source): block for block in window.blocks}


def _posts_dropped(window: Window) -> int:
    return sum(each.count for each in window.dropped if each.kind == "post")
