"""Rebuild a recorded turn's window from stored state, optionally with another system prompt.

Inputs are loaded as of the turn: the path up to its query, its summary, its budget, recall results on that path,
memories, mood state and experiences. Settings and word frequencies of full text are today's. The digest in the manifest
shows whether the rebuilt window equals the sent one.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, time, tzinfo
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.engine.core.context_limits import recorded_limits
from cuebook.engine.core.recall import SelectedMemories, embed_query
from cuebook.engine.core.services import Services
from cuebook.engine.turn.plan import WindowPlan, plan_with_tuning
from cuebook.engine.turn.scene import path_query
from cuebook.engine.turn.window_request import WindowRequest
from cuebook.interfaces.store import Scene
from cuebook.memory.query import Query, read_query
from cuebook.memory.scopes import KEPT, Policy, effective
from cuebook.memory.tokenizer import said_of
from cuebook.records.answer import Time
from cuebook.records.conversation import Conversation, PathPost
from cuebook.records.memory import MEMORY, Hit, Scope
from cuebook.records.turn import RECALLED, Block, Manifest, Turn
from cuebook.window.manifest import digests_of, ranges_of, restore
from cuebook.window.partition import in_force
from cuebook.window.window import Sheet

#: Delimiters of the day in a memory's line (`memory_line`).
_OPENS, _SHUTS = "- [", "] "


class RecordedTurn(Struct, frozen=True, kw_only=True):
    """A turn and the inputs of one of its steps. `request` has the sent system prompt."""

    conversation: Conversation
    turn: Turn
    manifest: Manifest
    scene: Scene
    request: WindowRequest
    query: Query | None  # the query, also if nothing of the conversation is recalled
    prompt_tokens: int = 0  # of prompt texts replaced by a change
    unsaid: str = ""  # why a changed prompt could not be rendered


async def read_recorded(
    services: Services,
    scope: Scope,
    conversation: Conversation,
    turn: Turn,
    *,
    step: int = 1,
    summary_version: int | None = None,
) -> RecordedTurn:
    """Load the inputs of a turn's step, optionally with another summary.

    Raises NotFound if a part of its window was erased.
    """
    manifest, query = turn.steps[step - 1].manifest, turn.query_seq
    posts = await services.store.posts_in(scope, conversation.id, ranges_of(manifest))
    texts = await services.store.texts(scope, digests_of(manifest))
    sheet = restore(manifest, posts, texts, user=conversation.user)
    query_posts = await services.store.posts(scope, conversation.id, head=query, last=1) if query else []
    query_text = query_posts[-1].message if query_posts else ""
    parent = query_posts[-1].parent if query_posts else posts[-1].seq if posts else 0
    dense = await embed_query(services, query_text) if services.config.memory.recall else None
    seek = path_query(services, conversation.id, query_text, parent=parent, budget=manifest.budget, dense=dense)
    version = manifest.summary_version if summary_version is None else summary_version
    seek = msgspec.structs.replace(seek, summary_version=version, whole=manifest.listed)
    scene = await services.store.scene(scope, seek)
    search_result = (
        msgspec.structs.replace(scene.found, posts=query - 1) if query else scene.found
    )  # as many as in the turn
    drafts = tuple(post for post in posts if query and post.seq >= query)
    path = await _path(services, scope, conversation.id, manifest, sheet) if manifest.listed else (*scene.path, *drafts)
    zone = services.settings.zone_of(None, conversation)
    words = read_query(query_text, speakers=scene.speakers, now=turn.created_at, zone=zone) if seek.search else None
    memories = await _memories(services, scope, turn, sheet.volatile, zone)
    request = WindowRequest(
        conversation=conversation.id,
        path=path,
        listed=manifest.listed,
        copies=frozenset(manifest.copies),
        keeps_all=manifest.listed and not sheet.summary,
        limits=recorded_limits(services, turn.metadata.get("window", {}).get("context", {})),
        front=sheet.front,
        query=words if policy_of(turn).recalls else None,
        zone=zone,
        recall_hits=services.config.memory.recall_hits,
        token_budget=manifest.budget,
        client=sheet.client,
        tools=texts.get(manifest.tools_digest, ""),
        advice=tuple(text for text in sheet.volatile if text.kind == "experience"),
        query_seq=query,
        memories=memories,
        mind=next((text for text in sheet.volatile if text.kind == "mind"), None),
    )
    scene = msgspec.structs.replace(scene, path=(*scene.path, *drafts), found=search_result, previous=None)
    return RecordedTurn(
        conversation=conversation, turn=turn, manifest=manifest, scene=scene, request=request, query=words
    )


async def _path(
    services: Services, scope: Scope, conversation: str, manifest: Manifest, sheet: Sheet
) -> tuple[PathPost, ...]:
    """Return the messages of a client: the omitted ones, then the kept ones."""
    omitted = [(each.first, each.last) for each in manifest.dropped if each.first]
    kept = (each.post for each in sheet.partition.kept)
    return (*await services.store.posts_in(scope, conversation, omitted), *kept)


def policy_of(turn: Turn) -> Policy:
    """Return a turn's recorded memory policy."""
    return effective({}, turn.metadata.get(KEPT), Policy())


def plan_again(services: Services, recorded: RecordedTurn) -> WindowPlan:
    """Build a recorded window from its inputs. Raises InvalidInput if they do not fit."""
    tuning = in_force(recorded.scene.tuning, recorded.turn.metadata)
    return plan_with_tuning(services, recorded.scene, recorded.request, fence=recorded.manifest.fence, tuning=tuning)


async def _memories(
    services: Services, scope: Scope, turn: Turn, volatile: Sequence[Block], zone: tzinfo
) -> SelectedMemories:
    """Return a turn's cross-conversation memories: used ones in the window's words, omitted ones in today's words."""
    data: Mapping[str, Any] = turn.metadata.get(RECALLED) or {}
    noted = {each["memoryId"]: each for each in data.get("hits", ())}
    durable = tuple(str(each) for each in data.get("durable", ()))
    hits = [
        _hit(text, noted.get(text.source.removeprefix(MEMORY), {}), services, zone)
        for text in volatile
        if text.source.startswith(MEMORY)
    ]
    for each in turn.steps[0].manifest.dropped:
        if each.source.startswith(MEMORY):
            id_ = each.source.removeprefix(MEMORY)
            hits += [
                Hit(
                    memory_id=id_, kind="item", text=said_of(memory), score=0.0, scope=memory.place.kind,
                    sources=(), tokens=each.tokens, timestamp=Time(memory.valid_from),
                )
                for memory in (await services.store.memories.get(scope, id_))[:1]
            ]  # fmt: skip
    rank = {each: number for number, each in enumerate(durable)}
    hits.sort(key=lambda hit: rank.get(hit.memory_id, len(rank)))
    return SelectedMemories(hits=tuple(hits), durable=durable, reason=str(data.get("reviewReason", "")))


def _hit(text: Block, noted: Mapping[str, Any], services: Services, zone: tzinfo) -> Hit:
    """Return a memory in its recorded words. Its time is only known to the day, in the zone."""
    day, _, content = text.text.removeprefix(_OPENS).partition(_SHUTS)
    noon = datetime.combine(datetime.fromisoformat(day), time(12), zone)
    return Hit(
        memory_id=text.source.removeprefix(MEMORY),
        kind="item",
        text=content,
        score=noted.get("score", 0.0),
        scope=noted.get("scope", ""),
        sources=tuple(noted.get("sources", ())),
        tokens=services.count(content),
        timestamp=Time(noon.timestamp()),
        why=noted.get("why", ""),
    )
