"""A recorded turn's first window decided again from what is stored, with another front where that is asked.

What the turn decided on is read as it stood: the path up to its query, the summary it was read behind, its budget,
what recall finds on that path, what other conversations told it, its mind and its experiences. Settings are today's,
and so is what full text knows of how rare a word is: whether the window comes out as it was sent, the digest in its
manifest tells.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, time, tzinfo
from typing import Any, Final

import msgspec
from msgspec import Struct

from cuebook.engine.core.desk import Desk
from cuebook.engine.core.memory_selection import Retrieved
from cuebook.engine.core.query_vector import with_sense
from cuebook.engine.core.time_zones import zone_of
from cuebook.engine.turn.opening import CANDIDATES, look_of
from cuebook.engine.turn.plan import Planned, Wish, plan
from cuebook.interfaces.store import Scene, SearchLook
from cuebook.memory.item_keys import said_of
from cuebook.memory.recall import Query, read_query
from cuebook.memory.scopes import KEPT, Policy, effective
from cuebook.records.conversation import Conversation
from cuebook.records.memory import Hit, Scope
from cuebook.records.turn import Manifest, Turn
from cuebook.window.manifest import digests_of, ranges_of, restore
from cuebook.window.tuning_marks import in_force
from cuebook.window.window import Text

#: So many more posts full text may give than it gave the turn, for newer ones that are not on its path come before.
NEWER = 100
#: How memories are named as the source of a text.
MEMORY: Final = "memory:"
#: What a turn's metadata tells of memories.
RECALLED: Final = "longTermMemoryRetrieval"
#: How a memory's line begins (`retrieve.line_of`): its day between these.
_OPENS, _SHUTS = "- [", "] "


class Recorded(Struct, frozen=True, kw_only=True):
    """A turn and what its first step was decided on; `wish` has the front that was said."""

    conversation: Conversation
    turn: Turn
    manifest: Manifest
    scene: Scene
    wish: Wish
    query: Query | None  # what was asked, also where nothing of the conversation itself is recalled


async def read_recorded(
    desk: Desk, scope: Scope, conversation: Conversation, turn: Turn, *, summary_version: int | None = None
) -> Recorded:
    """Read a turn anew, behind another summary where one is named. Raises NotFound where something of its window was
    erased.
    """
    manifest, query = turn.steps[0].manifest, turn.query_seq
    posts = await desk.store.posts_in(scope, conversation.id, ranges_of(manifest))
    texts = await desk.store.texts(scope, digests_of(manifest))
    sheet = restore(manifest, posts, texts, user=conversation.user)
    said = await desk.store.posts(scope, conversation.id, head=query, last=1) if query else []
    asked = said[-1].message if said else ""
    parent = said[-1].parent if said else posts[-1].seq if posts else 0
    look = look_of(desk, conversation.id, asked, parent=parent, budget=manifest.budget)
    newer = min(conversation.last_seq - parent, NEWER)
    search = SearchLook(text=asked, limit=CANDIDATES + newer) if look.search else None
    version = manifest.summary_version if summary_version is None else summary_version
    look = msgspec.structs.replace(look, search=search, summary_version=version)
    scene = await desk.store.scene(scope, await with_sense(desk, look))
    found = msgspec.structs.replace(scene.found, posts=query - 1) if query else scene.found  # as many as there were
    drafts = tuple(post for post in posts if query and post.seq >= query)
    zone = zone_of(None, conversation, desk.zone)
    words = read_query(asked, speakers=scene.speakers, now=turn.created_at, zone=zone) if search else None
    memories = await _memories(desk, scope, turn, sheet.volatile, zone)
    wish = Wish(
        conversation=conversation.id,
        drafts=(),
        user=conversation.user,
        front=sheet.front,
        query=words if policy_of(turn).recalls else None,
        zone=zone,
        recall_hits=desk.recall_hits,
        token_budget=manifest.budget,
        client=sheet.client,
        tools=texts.get(manifest.tools_digest, ""),
        advice=tuple(text for text in sheet.volatile if text.kind == "experience"),
        query_seq=query,
        memories=memories,
        mind=next((text for text in sheet.volatile if text.kind == "mind"), None),
    )
    scene = msgspec.structs.replace(scene, path=(*scene.path, *drafts), found=found, previous=None)
    return Recorded(conversation=conversation, turn=turn, manifest=manifest, scene=scene, wish=wish, query=words)


def policy_of(turn: Turn) -> Policy:
    """Return what a turn might read and write, as it noted it."""
    return effective({}, turn.metadata.get(KEPT), Policy())


def plan_again(desk: Desk, recorded: Recorded, front: Sequence[Text]) -> Planned:
    """Decide a recorded window with these texts in front. Raises InvalidInput where it does not hold them."""
    wish = msgspec.structs.replace(recorded.wish, front=tuple(front))
    marks = in_force(recorded.scene.tuning, recorded.turn.metadata)
    return plan(
        recorded.scene, wish, turn=recorded.turn.n, limits=desk.limits, count=desk.count, key=desk.key, marks=marks
    )


async def _memories(desk: Desk, scope: Scope, turn: Turn, volatile: Sequence[Text], zone: tzinfo) -> Retrieved:
    """Return what other conversations told a turn: word for word what its window said, and what that had no room for as
    it is kept today.
    """
    told: Mapping[str, Any] = turn.metadata.get(RECALLED) or {}
    noted = {each["memoryId"]: each for each in told.get("hits", ())}
    durable = tuple(str(each) for each in told.get("durable", ()))
    hits = [_hit(text, noted.get(text.source, {}), desk, zone) for text in volatile if text.source.startswith(MEMORY)]
    for each in turn.steps[0].manifest.dropped:
        if each.source.startswith(MEMORY):
            id_ = each.source.removeprefix(MEMORY)
            hits += [
                Hit(
                    memory_id=each.source, kind="item", text=said_of(memory), score=0.0, scope=memory.place.kind,
                    sources=(), tokens=each.tokens, timestamp=memory.valid_from,
                )
                for memory in (await desk.store.memories.get(scope, id_))[:1]
            ]  # fmt: skip
    rank = {f"{MEMORY}{each}": number for number, each in enumerate(durable)}
    hits.sort(key=lambda hit: rank.get(hit.memory_id, len(rank)))
    return Retrieved(hits=tuple(hits), durable=durable, reason=str(told.get("reviewReason", "")))


def _hit(text: Text, noted: Mapping[str, Any], desk: Desk, zone: tzinfo) -> Hit:
    """Return a memory as it was said; of its time only the day is known, the zone's."""
    day, _, said = text.text.removeprefix(_OPENS).partition(_SHUTS)
    noon = datetime.combine(datetime.fromisoformat(day), time(12), zone)
    return Hit(
        memory_id=text.source,
        kind="item",
        text=said,
        score=noted.get("score", 0.0),
        scope=noted.get("scope", ""),
        sources=tuple(noted.get("sources", ())),
        tokens=desk.count(said),
        timestamp=noon.timestamp(),
        why=noted.get("why", ""),
    )
