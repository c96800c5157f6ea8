"""A recorded turn's first window decided again from what is stored, with another front where that is asked.

What the turn decided on is read as it stood: the path up to its query, the summary it was read behind, its budget, and
what recall finds on that path. Settings are today's, and so is what full text knows of how rare a word is: whether the
window comes out as it was sent, the digest in its manifest tells.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from cuebook.assembly.manifest import digests_of, ranges_of, restore
from cuebook.assembly.marked import in_force
from cuebook.assembly.window import Text
from cuebook.engine.desk import Desk
from cuebook.engine.opening import CANDIDATES, look_of
from cuebook.engine.plan import Planned, Wish, plan
from cuebook.engine.sense import with_sense
from cuebook.engine.zones import zone_of
from cuebook.memory.recall import read_query
from cuebook.ports.store import Scene, SearchLook
from cuebook.records.conversation import Conversation
from cuebook.records.memory import Scope
from cuebook.records.turn import Manifest, Turn

#: So many more posts full text may give than it gave the turn, for newer ones that are not on its path come before.
NEWER = 100


class Recorded(Struct, frozen=True, kw_only=True):
    """A turn and what its first step was decided on; `wish` has the front that was said."""

    conversation: Conversation
    turn: Turn
    manifest: Manifest
    scene: Scene
    wish: Wish


async def read_recorded(desk: Desk, scope: Scope, conversation: Conversation, turn: Turn) -> Recorded:
    """Read a turn anew. Raises NotFound where something of its window was erased."""
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
    look = msgspec.structs.replace(look, search=search, summary_version=manifest.summary_version)
    scene = await desk.store.scene(scope, await with_sense(desk, look))
    found = msgspec.structs.replace(scene.found, posts=query - 1) if query else scene.found  # as many as there were
    drafts = tuple(post for post in posts if query and post.seq >= query)
    zone = zone_of(None, conversation, desk.zone)
    wish = Wish(
        conversation=conversation.id,
        drafts=(),
        user=conversation.user,
        front=sheet.front,
        query=read_query(asked, speakers=scene.speakers, now=turn.created_at, zone=zone) if search else None,
        zone=zone,
        recall_hits=desk.recall_hits,
        token_budget=manifest.budget,
        client=sheet.client,
        tools=texts.get(manifest.tools_digest, ""),
        advice=tuple(text for text in sheet.volatile if text.kind == "experience"),
        query_seq=query,
    )
    return Recorded(
        conversation=conversation,
        turn=turn,
        manifest=manifest,
        scene=msgspec.structs.replace(scene, path=(*scene.path, *drafts), found=found, previous=None),
        wish=wish,
    )


def plan_again(desk: Desk, recorded: Recorded, front: Sequence[Text]) -> Planned:
    """Decide a recorded window with these texts in front. Raises InvalidInput where it does not hold them."""
    wish = msgspec.structs.replace(recorded.wish, front=tuple(front))
    marks = in_force(recorded.scene.tuning, recorded.turn.metadata)
    return plan(
        recorded.scene, wish, turn=recorded.turn.n, limits=desk.limits, count=desk.count, key=desk.key, marks=marks
    )
