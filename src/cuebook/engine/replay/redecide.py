"""Replay a recorded turn with a change (what-if): build its window again, and compare it with the one before.

A change is another prompt version, the memory of another time, or sources removed. Both windows are built again, so
that differences come only from the change. Nothing is stored, except an audit record of a model's answer.
"""

import asyncio
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.prompt_reading import resolved_of
from cuebook.engine.core.recall import SelectedMemories, embed_query, select_memories
from cuebook.engine.core.scheduling import closing
from cuebook.engine.core.services import Services
from cuebook.engine.replay.recorded_turn import RecordedTurn, plan_again, policy_of, read_recorded
from cuebook.engine.turn.compare import prefix_ratio
from cuebook.engine.turn.system_prompt import spoken, values_of
from cuebook.errors import BackendError, CuebookError, InvalidInput
from cuebook.interfaces import ModelRequest
from cuebook.interfaces.store import MemoryQuery
from cuebook.memory.scopes import SHARED_WITH, SHARING_ALLOWED, SPOKEN_WITH, Participants, read_places
from cuebook.prompts.names import DEFAULT, Reference, own_prompt, parse_reference
from cuebook.records.conversation import messages_digest
from cuebook.records.memory import MEMORY, Place, Scope
from cuebook.records.persona import Persona
from cuebook.records.prompt import ResolvedVersion, Version
from cuebook.records.turn import RECALLED, Block, Manifest, Window
from cuebook.wire.anthropic_requests import plain_chat

#: Task name for the model adapter and the audit log.
PURPOSE = "counterfactual"
#: Summaries searched for the current one at a time.
SUMMARIES = 200
_POST, _PROMPT = "post:", "prompt:"


class OtherVersion(Struct, frozen=True):
    """A prompt version instead of those of some branches, also in prompts that inherit from it."""

    version: Version
    branches: frozenset[str]
    resolved: dict[str, ResolvedVersion | CuebookError | None] = {}  # cache by source


# ---- Another prompt version -----------------------------------------------------------------------------------------


def instead(version: Version, recorded: RecordedTurn) -> OtherVersion:
    """Return the change to a version, in place of the branch that the turn used."""
    sources = [text.source.removeprefix(_PROMPT) for text in recorded.request.front if text.source.startswith(_PROMPT)]
    stood = next((each for each in map(parse_reference, sources) if each.slug == version.slug), None)
    return OtherVersion(version, frozenset({version.branch, *([stood.branch] if stood and stood.branch else [])}))


async def concerns(services: Services, change: OtherVersion, manifest: Manifest) -> bool:
    """Return whether a window used the prompt, or one that inherits from it."""
    return any([await _find(services, change, text.source) is not None for text in manifest.front])


async def _with_version(services: Services, recorded: RecordedTurn, change: OtherVersion) -> RecordedTurn:
    mode = recorded.turn.metadata.get("mode")
    values = values_of(
        _persona_of(services, recorded),
        user=recorded.conversation.user,
        mode=mode if isinstance(mode, str) else None,
        now=recorded.turn.created_at,
        zone=recorded.request.zone,
    )
    front: list[Block] = []
    is_used, tokens, unsaid = False, 0, ""
    for text in recorded.request.front:
        resolved = await _find(services, change, text.source)
        if resolved is None:
            front.append(text)
            continue
        is_used = True
        try:
            if isinstance(resolved, CuebookError):
                raise resolved
            rendered = spoken(resolved, values)[1]
        except CuebookError as error:
            unsaid = str(error)
            continue
        if rendered.strip():
            tokens += services.count(rendered)
            is_own = parse_reference(text.source.removeprefix(_PROMPT)).slug == change.version.slug
            source = change.version.source if is_own else text.source
            front.append(replace(text, source=source, text=rendered, tokens=0))
    if not is_used:
        there = ", ".join(text.source for text in recorded.request.front) or "none"
        msg = f"with: turn {recorded.turn.n} did not use prompt {change.version.slug!r}. Its prompts: {there}."
        raise InvalidInput(msg, where="withPrompt")
    request = replace(recorded.request, front=tuple(front))
    return replace(
        recorded, request=request, prompt_tokens=recorded.prompt_tokens + tokens, unsaid=unsaid or recorded.unsaid
    )


async def _find(services: Services, change: OtherVersion, source: str) -> ResolvedVersion | CuebookError | None:
    """Return the replacement of a block, or None if the block is unrelated to the prompt."""
    if not source.startswith(_PROMPT):
        return None
    if source not in change.resolved:
        try:
            change.resolved[source] = await _resolve(services, change, parse_reference(source[len(_PROMPT) :]))
        except CuebookError as error:
            change.resolved[source] = error
    return change.resolved[source]


async def _resolve(services: Services, change: OtherVersion, reference: Reference) -> ResolvedVersion | None:
    slug = change.version.slug
    if reference.slug == slug:
        return await resolved_of(services, change.version) if reference.branch in change.branches else None
    numbers = [reference.number or 0]
    versions = await services.prompts.versions(Scope(), reference.slug, branch=reference.branch, numbers=numbers)
    if not versions or versions[0].inherits is None:
        return None
    slugs = [reference.slug, parse_reference(versions[0].inherits).slug]
    families = await services.prompts.families(Scope(), slugs)
    family = families.get(slug)
    if family is None:
        return None
    stood = {name: replace(change.version, branch=name, number=0) for name in change.branches}
    active = tuple(stood.get(each.branch, each) for each in family.active)
    resolved = await resolved_of(services, versions[0], {**families, slug: replace(family, active=active)})
    return resolved if {each.source for each in stood.values()} & set(resolved.lineage) else None


def _persona_of(services: Services, recorded: RecordedTurn) -> Persona:
    """Return a turn's persona: the one in its system prompt, else its conversation's, or the default one."""
    sources = [text.source for text in recorded.request.front]
    for persona in services.settings.personas.values():
        own = (f"persona:{persona.id}@", *(f"{_PROMPT}{there}{own_prompt(persona.id)}@" for there in ("", DEFAULT)))
        if any(source.startswith(own) for source in sources):
            return persona
    name = recorded.conversation.persona
    return services.settings.persona(name if name in services.settings.personas else None)


# ---- Sources removed ------------------------------------------------------------------------------------------------


def _without(recorded: RecordedTurn, sources: Sequence[str]) -> RecordedTurn:
    """Remove sources from a turn's recalled context. Raises InvalidInput naming the available sources."""
    request, scene = recorded.request, recorded.scene
    gone = {source if ":" in source else f"{MEMORY}{source}" for source in sources}
    known = [text.source for text in (*request.advice, *([request.mind] if request.mind else []))]
    known += [hit.source for hit in request.memories.hits]
    results = [f"{_POST}{each.id}" for each in scene.found.found]
    if missing := sorted(gone - {*known, *results}):
        lines = [text.source for text in recorded.manifest.volatile]
        there = ", ".join(lines) or "nothing"
        msg = f"without: turn {recorded.turn.n} did not use {missing[0]}. Its recalled sources: {there}."
        raise InvalidInput(msg, where="without")
    memories = replace(request.memories, hits=tuple(each for each in request.memories.hits if each.source not in gone))
    left = tuple(each for each in scene.found.found if f"{_POST}{each.id}" not in gone)
    return replace(
        recorded,
        scene=replace(scene, found=replace(scene.found, found=left)),
        request=replace(
            request,
            memories=memories,
            advice=tuple(text for text in request.advice if text.source not in gone),
            mind=None if request.mind and request.mind.source in gone else request.mind,
        ),
    )


# ---- Another memory -------------------------------------------------------------------------------------------------


async def _as_of(services: Services, scope: Scope, recorded: RecordedTurn, when: float) -> RecordedTurn:
    """Return a turn with the memory of a time: the summary and the memories valid then."""
    version = await _summary_at(services, scope, recorded, when)
    if version != recorded.manifest.summary_version:
        recorded_turn = await read_recorded(
            services, scope, recorded.conversation, recorded.turn, summary_version=version
        )
        recorded = replace(
            recorded, scene=recorded_turn.scene, request=replace(recorded_turn.request, front=recorded.request.front)
        )
    memories = await _memories_at(services, scope, recorded, when)
    return replace(recorded, request=replace(recorded.request, memories=memories))


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
    settings = SHARING_ALLOWED
    if organization:
        settings = (await services.store.keys.organization(scope, organization)).memory.long_term_memory
    conversation = recorded.conversation
    persona = str(turn.metadata.get(SPOKEN_WITH) or conversation.persona or services.settings.default_persona)
    alone = not set(conversation.participants) - {conversation.user}
    participants = Participants(user=conversation.user, persona=persona, organization=organization, alone=alone)
    places = read_places(policy, participants, settings)
    if not places:
        return SelectedMemories()
    query = recorded.query
    text = query.text if query else ""
    memory_query = MemoryQuery(text=text, dense=await embed_query(services, text) if text else None, at=when)
    matched = await services.store.memories.find(scope, places, memory_query)
    memories = tuple(
        replace(each, valid_to=None)
        for each in matched.memories
        if each.valid_from <= when and (each.valid_to is None or each.valid_to > when)
    )
    known = replace(matched, memories=memories, policy=policy, places=places, settings=settings)
    scene = replace(recorded.scene, known=known, told={})
    return select_memories(services, scene, query, turn=turn.n)


async def _organization(services: Services, scope: Scope, recorded: RecordedTurn) -> str | None:
    """Return a turn's organization, as far as it can be inferred from sharing or from its memories."""
    if shared := recorded.turn.metadata.get(SHARED_WITH):
        return str(shared)
    for each in (recorded.turn.metadata.get(RECALLED) or {}).get("hits", ()):
        if each.get("scope") == "organization":
            memories = await services.store.memories.get(scope, str(each["memoryId"]))
            place: Place | None = memories[0].place if memories else None
            if place is not None:
                return place.id
    return None


# ---- Replay ---------------------------------------------------------------------------------------------------------


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
    *,
    as_of: float | None = None,
    versions: Sequence[OtherVersion] = (),
    without: Sequence[str] = (),
    before: OtherVersion | None = None,
) -> WindowDiff:
    """Build a recorded window with some changes. Compare it with the window without them, or with another version.

    The changes are the summary and the memories of a time (Unix seconds), prompt versions, and recalled sources to
    remove. Raises InvalidInput if a change does not apply to this window or the window before does not fit, and
    NotFound.
    """
    one = await _with_version(services, recorded, before) if before else recorded
    other = recorded
    was = plan_again(services, one).window
    await asyncio.sleep(0)  # each takes up to 20 ms: do not block others
    is_same = [text.text for text in one.request.front] == [text.text for text in recorded.request.front]
    try:
        rebuilt = was if is_same else plan_again(services, recorded).window
        reproduced = messages_digest(rebuilt.raw_messages) == recorded.manifest.digest
    except InvalidInput:
        reproduced = False
    await asyncio.sleep(0)
    if as_of is not None:
        other = await _as_of(services, scope, other, as_of)
    for version in versions:
        other = await _with_version(services, other, version)
    if without:
        other = _without(other, without)
    tokens = (one.prompt_tokens, other.prompt_tokens)
    try:
        would = plan_again(services, other).window
    except InvalidInput as error:
        diff = WindowDiff(before=was, after=None, refused=str(error))
    else:
        diff = _compared(was, would)
    return replace(diff, prompt_tokens=tokens, reproduced=reproduced, unsaid=other.unsaid)


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
        prefix=prefix_ratio(was.raw_messages, would.raw_messages),
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
    digests = {"recorded": recorded.manifest.digest, "asked": messages_digest(window.raw_messages)}
    record = receipt(
        services,
        f"turn/{recorded.turn.n}",
        PURPOSE,
        context={"turn": recorded.turn.n, **digests},
        output=answer,
        conversation=recorded.conversation.id,
    )
    await services.audit.append(scope, [record])
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
        messages=plain_chat(window.raw_messages),
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
        raise BackendError(f"Incomplete answer from model {services.model.name}. Try again.", retryable=True)
    return "".join(lines)
