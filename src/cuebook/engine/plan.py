"""What a step will say to the model: from one scene, purely, the window, its manifest, and what is stored when it opens."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.assembly.budget import Allotment, Limits, allot
from cuebook.assembly.manifest import Remembered, dropped_ranges, remember
from cuebook.assembly.partition import Partition, partition
from cuebook.assembly.tokens import Counter
from cuebook.assembly.window import ClientSystem, Sheet, Text, front_tokens, render, volatile_overhead
from cuebook.errors import InvalidInput
from cuebook.memory.recall import Candidate, Corpus, Query, excerpt, rank
from cuebook.ports.store import Scene
from cuebook.records.conversation import Draft, PathPost
from cuebook.records.digest import fence_of
from cuebook.records.memory import NO_MODEL_LABEL, Found, Hit, Summary
from cuebook.records.persona import Persona
from cuebook.records.turn import Dropped, Manifest, Window


class Wish(Struct, frozen=True, kw_only=True):
    """What a step is asked for, before anything of it is stored."""

    conversation: str
    drafts: tuple[Draft, ...]
    persona: Persona
    user: str | None
    query: Query | None  # None: nothing is recalled
    recall_hits: int = 12
    token_budget: int | None = None
    client: tuple[ClientSystem, ...] = ()
    live_client: tuple[ClientSystem, ...] = ()
    tools: str = ""
    live: Mapping[int, bytes] = {}  # stored seq -> live message; drafts by their number below 0: -1 the first
    live_drafts: Mapping[int, bytes] = {}  # number of a draft -> its live message
    frozen: tuple[Text, ...] | None = None  # the volatile block of the round's first step
    query_seq: int | None = None  # the open round's query; None = the newest user post


class Planned(Struct, frozen=True, kw_only=True):
    """A decided step."""

    window: Window  # as stored and shown
    messages: tuple[bytes, ...]  # as sent: with the live request's own bytes
    remembered: Remembered
    query_seq: int
    hits: tuple[Hit, ...]
    allotment: Allotment
    summary: Summary | None
    sheet: Sheet


def plan(scene: Scene, wish: Wish, *, turn: int, limits: Limits, count: Counter, key: bytes) -> Planned:
    """Decide a step's window. Raises InvalidInput when the budget cannot hold what must stand in it."""
    path = _path(scene, wish.drafts)
    query_seq = _query(path) if wish.query_seq is None else wish.query_seq
    front = _front(wish.persona)
    summary = _summary_text(scene.summary)
    dropped: list[Dropped] = []
    tools_tokens = count(wish.tools) if wish.tools else 0
    summary, allotment = _fit_front(
        front, wish, summary, limits=limits, count=count, tools_tokens=tools_tokens, dropped=dropped
    )
    parted = partition(path, allotment.posts, limits, query=query_seq)
    kept = {placed.post.seq for placed in parted.kept if placed.form == "full"}
    hits, volatile = _volatile(scene, wish, kept, allotment, count=count, dropped=dropped)
    conversation = wish.conversation
    sheet = Sheet(
        front=front,
        client=wish.client,
        summary=summary,
        partition=parted,
        volatile=volatile if query_seq else (),
        fence=fence_of(key, conversation, turn),
        query=query_seq,
        previous_query=scene.previous.query if scene.previous else 0,
        user=wish.user,
    )
    left = _left_out(scene, parted)
    window = render(sheet, [*left, *dropped], budget=allotment.budget, tools_tokens=tools_tokens, count=count)
    version = scene.summary.version if scene.summary and summary else 0
    return Planned(
        window=window,
        messages=_live(sheet, wish, scene, window, count),
        remembered=remember(window, sheet, summary_version=version, tools=wish.tools),
        query_seq=query_seq,
        hits=hits,
        allotment=allotment,
        summary=scene.summary if summary else None,
        sheet=sheet,
    )


def _path(scene: Scene, drafts: Sequence[Draft]) -> list[PathPost]:
    """Give the stored path with the new posts behind it, under the seqs they will get."""
    path = list(scene.path)
    last = scene.conversation.last_seq if scene.conversation else 0
    tokens = path[-1].path_tokens if path else 0
    round_ = path[-1].round if path else 0
    for number, draft in enumerate(drafts, 1):
        seq = last + number
        tokens += draft.tokens
        round_ = seq if draft.opens_round else round_
        path.append(
            PathPost(
                seq,
                draft.id,
                round_,
                draft.role,
                draft.sender,
                draft.message,
                draft.tokens,
                draft.small,
                draft.small_tokens,
                tokens,
                draft.created_at,
                msgspec.json.encode(draft.parts) if draft.parts else None,
                draft.wire,
                draft.state,
            )
        )
    return path


def _query(path: Sequence[PathPost]) -> int:
    """Give the newest user post of the path: what is answered."""
    return next((post.seq for post in reversed(path) if post.role == "user"), 0)


def _front(persona: Persona) -> tuple[Text, ...]:
    if not persona.base_system_prompt:
        return ()
    return (Text(kind="persona", source=f"persona:{persona.id}@{persona.version}", text=persona.base_system_prompt),)


def _summary_text(summary: Summary | None) -> Text | None:
    if summary is None or not summary.markdown:
        return None
    day = datetime.fromtimestamp(summary.upto_at, UTC).date().isoformat()
    text = f"# The conversation so far, summarised up to {day}\n\n{summary.markdown}"
    return Text(kind="summary", source=f"summary:{summary.version}", text=text)


def _fit_front(
    front: tuple[Text, ...],
    wish: Wish,
    summary: Text | None,
    *,
    limits: Limits,
    count: Counter,
    tools_tokens: int,
    dropped: list[Dropped],
) -> tuple[Text | None, Allotment]:
    """Divide the budget; a summary that would take more than half of it is left out, and still covers its posts."""
    own = front_tokens(front, wish.client, None, count)
    if summary is not None:
        size = front_tokens(front, wish.client, summary, count)
        try:
            allotment = allot(limits, front=size, token_budget=wish.token_budget, tools=tools_tokens)
            if size - own <= allotment.budget // 2:
                return summary, allotment
        except InvalidInput:
            pass
        dropped.append(
            Dropped(kind="summary", source=summary.source, tokens=size - own, reason="the budget does not hold it")
        )
    return None, allot(limits, front=own, token_budget=wish.token_budget, tools=tools_tokens)


def _left_out(scene: Scene, parted: Partition) -> list[Dropped]:
    """Give posts of the path that are neither in the window nor under the summary, oldest first."""
    reason = "older than what the budget holds"
    unread = [
        Dropped(kind="post", reason=reason, tokens=each.tokens, count=each.count, first=each.first, last=each.last)
        for each in scene.unread
    ]
    return [*unread, *dropped_ranges(parted.dropped, reason)]


def _volatile(
    scene: Scene, wish: Wish, kept: set[int], allotment: Allotment, *, count: Counter, dropped: list[Dropped]
) -> tuple[tuple[Hit, ...], tuple[Text, ...]]:
    """Say what is recalled beside the query: the best posts that the window does not hold, within their allotment."""
    if wish.frozen is not None:
        return (), wish.frozen
    texts: list[Text] = []
    room = allotment.memory - volatile_overhead(count)
    if scene.summary and scene.summary.tainted and count(scene.summary.tainted) + 1 <= room // 2:
        source = f"summary:{scene.summary.version}:tools"
        texts.append(Text(kind="memory", source=source, text=scene.summary.tainted, role="user"))
        room -= count(scene.summary.tainted) + 1
    hits = rank_found(scene.found.found, wish.query, posts=scene.found.posts, frequencies=scene.found.frequencies,
                      limit=wish.recall_hits, skip=kept) if wish.query else []  # fmt: skip
    used: list[Hit] = []
    for hit in hits:
        shown = _shown(hit, wish.query, room, count)
        size = count(shown) + 1 if shown else 0
        if not shown or size > room:
            dropped.append(
                Dropped(kind="memory", source=hit.memory_id, tokens=hit.tokens, reason="no room beside the query")
            )
            continue
        room -= size
        texts.append(Text(kind="memory", source=hit.memory_id, text=shown, role="user"))
        used.append(hit)
    return tuple(used), tuple(texts)


#: A recalled post longer than this is quoted by its best passage.
_QUOTE_TOKENS = 160


def _shown(hit: Hit, query: Query | None, room: int, count: Counter) -> str:
    day = datetime.fromtimestamp(hit.timestamp, UTC).date().isoformat()
    most = min(room, _QUOTE_TOKENS)
    text = hit.text
    if hit.tokens > most and query is not None:
        text = excerpt(hit.text, query, most - 12, count) if most > 24 else ""
    return f"- [{day}] {hit.speaker}: {' '.join(text.split())}" if text else ""


def rank_found(
    found: Sequence[Found],
    query: Query,
    *,
    posts: int,
    frequencies: Mapping[str, int],
    limit: int,
    skip: Collection[int] = (),
) -> list[Hit]:
    """Order what full text search brought, best first, as hits of kind `post`."""
    by_place = {(each.no << 32) | each.seq: each for each in found}
    candidates = [
        Candidate(
            place,
            each.sender,
            each.created_at,
            each.key,
            (each.no << 32) | each.previous if each.previous else None,
            each.no,
        )
        for place, each in by_place.items()
    ]
    hits: list[Hit] = []
    for ranked in rank(query, candidates, Corpus(posts, frequencies), limit=limit + len(skip)):
        each = by_place[ranked.seq]
        if each.seq in skip or len(hits) >= limit or each.text.startswith(NO_MODEL_LABEL):
            continue
        hits.append(
            Hit(
                memory_id=f"post:{each.id}",
                kind="post",
                text=each.text,
                score=round(ranked.score, 6),
                scope="conversation",
                sources=(each.id,),
                tokens=each.tokens,
                timestamp=each.created_at,
                seq=each.seq,
                speaker=each.sender,
                why=ranked.why,
            )
        )
    return hits


def _live(sheet: Sheet, wish: Wish, scene: Scene, window: Window, count: Counter) -> tuple[bytes, ...]:
    """Give the messages as they go to the model: the client's own bytes where secrets were replaced in what is stored."""
    last = scene.conversation.last_seq if scene.conversation else 0
    live = {**wish.live, **{last + 1 + number: raw for number, raw in wish.live_drafts.items()}}
    if not live and not wish.live_client:
        return window.messages
    own = msgspec.structs.replace(sheet, live=live, client=wish.live_client or sheet.client)
    return render(own, (), budget=window.budget, tools_tokens=0, count=count).messages


def window_metadata(planned: Planned, cache: Mapping[str, Any]) -> dict[str, Any]:
    """`metadata.window` of a reply."""
    window = planned.window
    return {
        "tokens": window.tokens,
        "budget": window.budget,
        "stablePrefixRatio": window.stable_prefix_ratio,
        "cache": dict(cache),
        "anchors": [{"name": anchor.name, "after": anchor.after} for anchor in window.anchors],
        "dropped": [dropped_to_wire(each) for each in window.dropped],
    }


def dropped_to_wire(each: Dropped) -> dict[str, Any]:
    """Give a left-out thing as INTERFACE writes it."""
    place = {"from": each.first, "to": each.last} if each.first else {"source": each.source}
    return {"kind": each.kind, **place, "count": each.count, "tokens": each.tokens, "reason": each.reason}


def replace_manifest(planned: Planned, ratio: float) -> Manifest:
    """Give the manifest with what only the engine knows."""
    return msgspec.structs.replace(planned.remembered.manifest, stable_prefix_ratio=ratio)
