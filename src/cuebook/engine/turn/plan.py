"""Build the context window of a step from a loaded scene without side effects: the window, its manifest, and the rows
to store.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Any, Final

import msgspec
from msgspec import Struct

from cuebook.engine.core.recall import SelectedMemories, line_of, rank_found, shown_of
from cuebook.engine.core.services import Services
from cuebook.engine.turn.experiences import fit_advice
from cuebook.engine.turn.history import HistoryPlace, draft_of
from cuebook.engine.turn.mood import fit_mind
from cuebook.engine.turn.request import TurnRequest
from cuebook.engine.turn.system_prompt import SystemPrompt
from cuebook.errors import InvalidInput
from cuebook.interfaces.store import Scene
from cuebook.memory.recall import Query
from cuebook.memory.rolling import CompactionProfile, choose
from cuebook.memory.summary import fit
from cuebook.memory.tokenizer import day_of
from cuebook.records.conversation import Draft, PathPost, fence_of
from cuebook.records.memory import Hit, Summary
from cuebook.records.turn import Ask, Dropped, Manifest, Turn, Window
from cuebook.window.budget import Allotment, Limits, allot
from cuebook.window.manifest import anchored, dropped_ranges, remember
from cuebook.window.partition import Partition, least, partition
from cuebook.window.post_forms import JOIN_TOKENS, LEAST_TEXT, PostInForm, cut_down, decode, whole
from cuebook.window.tokens import MESSAGE_OVERHEAD, Counter, cut
from cuebook.window.tuning_marks import NO_MARKS, Marks, in_force, lighten, limited, moves, newest
from cuebook.window.window import (
    ClientSystem,
    Sheet,
    Text,
    as_sent,
    render,
    volatile_overhead,
    weigh_front,
    weigh_text,
    weigh_volatile,
)

#: Reasons why posts of a path are not in its window.
TOO_OLD = "older than the token budget allows"
SUMMARIZED = "replaced by the summary"
OF_LITTLE_USE = "low relevance, and the window is nearly full"


class WindowRequest(Struct, frozen=True, kw_only=True):
    """The contents of a window, before the token budget is divided."""

    conversation: str
    path: tuple[PathPost, ...]  # oldest first
    user: str | None
    listed: bool = False  # the path has exactly the messages that the client sent, in its order
    copies: frozenset[int] = (
        frozenset()
    )  # by seq: posts with other fields than the stored ones, as the client resent them
    keeps_all: bool = False  # nothing is summarized or shortened while the path fits the budget
    front: tuple[Text, ...] = ()  # persona, sections and add-ons, as rendered
    dropped: tuple[Dropped, ...] = ()  # errors of those that failed to render
    query: Query | None  # None: no recall
    recall_hits: int = 12
    quotes: bool = False  # no model call: return memories for the query, whether in the window or not
    token_budget: int | None = None
    client: tuple[ClientSystem, ...] = ()
    live_client: tuple[ClientSystem, ...] = ()  # the original, if `client` has redacted secrets
    tools: str = ""
    live_tools: str = ""  # the original, if `tools` has redacted secrets
    live: Mapping[int, bytes] = {}  # by seq: the message as sent, if the stored one has redacted secrets
    frozen: tuple[Text, ...] | None = None  # in a later step of a turn: the volatile block of the first
    query_seq: int | None = None  # the open turn's query; None = the newest user post
    memories: SelectedMemories = SelectedMemories()  # cross-conversation memories
    advice: tuple[Text, ...] = ()  # experiences selected for the query, best first
    mind: Text | None = None  # rendered mood state of the path
    zone: tzinfo = UTC  # time zone of dates


def window_request(
    services: Services,
    scene: Scene,
    request: TurnRequest,
    place: HistoryPlace,
    prompt: SystemPrompt,
    *,
    query: Query | None = None,
    memories: SelectedMemories | None = None,
    frozen: tuple[Text, ...] | None = None,
) -> WindowRequest:
    """Return the contents of a step's window. Without recall in the conversation, its posts are not recalled."""
    ask, conversation = place.ask, scene.conversation
    recalls = scene.known is None or scene.known.policy.recalls
    owner = conversation.user if conversation else ask.user
    path = (
        client_path(services, scene, request, place, owner)
        if place.listed
        else ClientPath(path_of(scene, place.drafts))
    )
    return WindowRequest(
        conversation=ask.conversation,
        path=path.posts,
        user=owner,
        listed=place.listed,
        copies=path.copies,
        keeps_all=place.listed and _profile(services, scene, ask).trigger == "overflow",
        front=prompt.rendered.texts,
        dropped=prompt.rendered.dropped,
        query=query if recalls else None,
        recall_hits=services.settings.recall_hits,
        quotes=request.quotes,
        token_budget=ask.token_budget,
        client=request.client,
        live_client=request.live_client,
        tools=request.tools,
        live_tools=request.live_tools,
        live=_live_messages(scene, request, place, owner),
        frozen=frozen,
        query_seq=place.waiting_turn.query_seq if place.waiting_turn else None,
        memories=memories or SelectedMemories(),
        advice=prompt.advice.texts,
        mind=prompt.mood.text,
        zone=services.settings.zone_of(ask.time_zone, conversation),
    )


def _profile(services: Services, scene: Scene, ask: Ask) -> CompactionProfile:
    stored = scene.conversation.metadata.get("mode") if scene.conversation else None
    return choose(services.settings.compaction, ask.mode or stored)


def _live_messages(scene: Scene, request: TurnRequest, place: HistoryPlace, owner: str | None) -> dict[int, bytes]:
    """Return the messages as the caller sent them, by the seq of their stored post."""
    last = scene.conversation.last_seq if scene.conversation else 0
    if place.live is not None:
        return {last + 1: whole(path_of(scene, (place.live,))[-1], owner)}
    return {seq: request.history[n].raw for seq, n in place.messages_by_seq(last).items()}


class WindowPlan(Struct, frozen=True, kw_only=True):
    """The plan of a step: its window and how it came about."""

    scene: Scene
    request: WindowRequest
    window: Window  # as stored and shown
    messages: tuple[bytes, ...]  # as sent: with the live request's own bytes
    manifest: Manifest
    texts: dict[str, str]  # digest (hex) -> text of the manifest's derived blocks
    query_seq: int
    hits: tuple[Hit, ...]
    quotes: tuple[Hit, ...]
    sheet: Sheet
    marks: Marks = NO_MARKS  # the conversation's tuning in this window

    @property
    def uses(self) -> tuple[int, ...]:
        """Return the numbers of memories that this window uses for the first time."""
        values = {text.source for text in self.sheet.volatile}
        return tuple(no for source, no in self.request.memories.uses.items() if source in values)


def plan_with_marks(
    scene: Scene,
    request: WindowRequest,
    *,
    turn: int,
    limits: Limits,
    count: Counter,
    key: bytes,
    marks: Marks = NO_MARKS,
) -> WindowPlan:
    """Build a step's window. Raises InvalidInput, with the least sufficient budget, if the required
    parts do not fit.
    """
    query = _query(request.path) if request.query_seq is None else request.query_seq
    limits = limited(limits, marks)
    room = _Room(scene, request, fence_of(key, request.conversation, turn), limits, count)
    fitted, path = _fit(room, query)
    owner = scene.conversation.user if scene.conversation else request.user
    terms: Any = {"query": query, "begins": request.listed or not scene.unread, "listed": request.listed}
    parted = _cut_down(partition(path, fitted.allotment.posts, limits, **terms), owner, count)
    parted, of_little_use = _lighten(room, parted, marks, fitted.allotment.posts, query)
    hits, volatile, no_room = _volatile(room, fitted.allotment.memory, parted, query) if query else ((), (), [])
    sheet = Sheet(
        front=fitted.front,
        client=fitted.client,
        summary=fitted.summary,
        partition=parted,
        volatile=volatile,
        fence=room.fence,
        query=query,
        owner=owner,
        held=anchored(scene.previous) if scene.previous else frozenset(),
        frozen=request.frozen is not None,
    )
    left_out = [*_left_out(room, parted, of_little_use), *map(_shortening, filter(_is_cut, parted.kept))]
    dropped = [*request.dropped, *left_out, *fitted.dropped, *no_room]
    window = render(sheet, dropped, budget=fitted.allotment.budget, tools_tokens=fitted.tools)
    standing = scene.summary.version if scene.summary else 0  # the summary covers its posts, shown or not
    kept: Any = {"tools": request.tools, "copies": request.copies, "listed": request.listed}
    stored = remember(window, sheet, summary_version=standing, **kept)
    return WindowPlan(
        scene=scene,
        request=request,
        window=window,
        messages=as_sent(window, sheet, request.live, request.live_client),
        manifest=stored.manifest,
        texts=stored.texts,
        query_seq=query,
        hits=hits,
        quotes=(*request.memories.answers, *_hits(scene, request, {query})) if request.quotes else (),
        sheet=sheet,
        marks=marks,
    )


def plan_window(
    services: Services, scene: Scene, request: WindowRequest, *, turn: int, waiting: Turn | None = None
) -> WindowPlan:
    """Build a step's window with the conversation's tuning. Raises InvalidInput as `plan_with_marks` does."""
    settings = services.settings
    terms: Any = {"turn": turn, "limits": settings.limits, "count": services.count, "key": settings.key}
    before = in_force(scene.tuning, waiting.metadata if waiting else scene.told)
    now = newest(scene.tuning) if settings.tunes else newest(None)
    if waiting is None and scene.previous is None:
        before = now
    plan = plan_with_marks(scene, request, **terms, marks=before)
    if waiting is not None or now.run == before.run or scene.previous is None:
        return plan
    if not moves(scene.previous, plan.manifest):
        return plan
    return plan_with_marks(scene, request, **terms, marks=now)


class _Room(Struct, frozen=True):
    """Input for fitting a window."""

    scene: Scene
    request: WindowRequest
    fence: str
    limits: Limits
    count: Counter


class _FixedBlocks(Struct, frozen=True, kw_only=True):
    """The blocks before the path, and the room that they leave."""

    front: tuple[Text, ...]
    client: tuple[ClientSystem, ...]
    summary: Text | None
    tools: int
    allotment: Allotment
    dropped: tuple[Dropped, ...] = ()


# ---- The path -------------------------------------------------------------------------------------------------------


class ClientPath(Struct, frozen=True):
    """The path of a request, and the seqs of the posts that the client resent with other fields than it got."""

    posts: tuple[PathPost, ...]
    copies: frozenset[int] = frozenset()


def path_of(scene: Scene, drafts: Sequence[Draft]) -> tuple[PathPost, ...]:
    """Return the stored path with the new posts appended, under their future seqs."""
    last = scene.conversation.last_seq if scene.conversation else 0
    new = [post_of(draft, last + number) for number, draft in enumerate(drafts, 1)]
    return (*scene.path, *_summed(new, after=scene.path[-1] if scene.path else None))


def client_path(
    services: Services, scene: Scene, request: TurnRequest, place: HistoryPlace, owner: str | None
) -> ClientPath:
    """Return the messages of a client in its order, each as the client sent it, without secrets."""
    last = scene.conversation.last_seq if scene.conversation else 0
    seqs = {number: seq for seq, number in place.messages_by_seq(last).items()}
    drafts = dict(zip(place.new, place.new_drafts, strict=True))
    stored = {post.seq: post for post in scene.path if post.message is not None}
    posts: list[PathPost] = []
    copies: set[int] = set()
    for number, message in enumerate(request.history):
        seq = seqs[number]
        post = stored.get(seq)
        clean = services.writer.clean_json(message.raw) if message.secret else message.raw
        if post is None or not _same_fields(clean, whole(post, owner)):
            if number not in drafts:
                copies.add(seq)
            draft = drafts.get(number) or draft_of(services, request, message, owner=owner)
            post = post_of(draft, seq)
        posts.append(post)
    return ClientPath(tuple(_summed(posts)), frozenset(copies))


def _same_fields(resent: bytes, stored: bytes) -> bool:
    """Return whether two messages have the same fields. An empty field equals a missing one."""
    if resent == stored:
        return True
    return _filled(resent) == _filled(stored)


def _filled(message: bytes) -> dict[str, Any]:
    return {name: value for name, value in decode(message).items() if value not in (None, [], {})}


def post_of(draft: Draft, seq: int) -> PathPost:
    """Return the post that a draft becomes, without its sums along the path."""
    return PathPost(
        seq,
        draft.id,
        0,
        draft.role,
        draft.sender,
        draft.message,
        draft.tokens,
        draft.small,
        draft.small_tokens,
        0,
        draft.created_at,
        msgspec.json.encode(draft.parts) if draft.parts else None,
        draft.wire,
        draft.state,
    )


def _summed(posts: Sequence[PathPost], *, after: PathPost | None = None) -> list[PathPost]:
    """Return posts with their rounds and their running sums of tokens, after a post."""
    tokens, round_ = (after.path_tokens, after.round) if after else (0, 0)
    results = []
    for post in posts:
        tokens += post.tokens
        round_ = post.seq if post.role == "user" else round_
        results.append(msgspec.structs.replace(post, round=round_, path_tokens=tokens))
    return results


def _query(path: Sequence[PathPost]) -> int:
    """Return the newest user post of the path, which the model answers."""
    return next((post.seq for post in reversed(path) if post.role == "user"), 0)


def _cut_down(parted: Partition, owner: str | None, count: Counter) -> Partition:
    post_in_forms, tokens = list(parted.kept), parted.tokens
    for at in [at for at, post_in_form in enumerate(post_in_forms) if post_in_form.form == "cut"]:
        tokens -= post_in_forms[at].tokens
        post_in_forms[at] = cut_down(post_in_forms[at], owner, count)
        tokens += post_in_forms[at].tokens
    return Partition(kept=tuple(post_in_forms), dropped=parted.dropped, tokens=tokens)


def _lighten(room: _Room, parted: Partition, marks: Marks, posts: int, query: int) -> tuple[Partition, list[PathPost]]:
    """Apply compression marks once the posts after the summary exceed the conversation's trigger."""
    taken = sum(post_in_form.post.tokens for post_in_form in parted.kept) + sum(post.tokens for post in parted.dropped)
    taken += 0 if room.request.listed else sum(each.tokens for each in room.scene.unread)
    if not marks.run or room.request.keeps_all or taken <= posts * marks.trigger:
        return parted, []
    return lighten(parted, marks, spare=query)


def _is_cut(post_in_form: PostInForm) -> bool:
    return post_in_form.form == "cut"


def _shortening(each: PostInForm) -> Dropped:
    """Return the entry of a shortened post: it is in the window, without a part of its text."""
    tokens = max(0, each.post.tokens - each.tokens)
    reason = f"shortened from {each.post.tokens:,} to {each.tokens:,} tokens"
    return Dropped(kind="text", source=f"post:{each.post.id}", tokens=tokens, reason=reason)


def _left_out(room: _Room, parted: Partition, of_little_use: Sequence[PathPost]) -> list[Dropped]:
    """Return posts of the path that are neither in the window nor in the summary, oldest first."""
    unread = [
        Dropped(kind="post", reason=TOO_OLD, tokens=each.tokens, count=each.count, first=each.first, last=each.last)
        for each in (() if room.request.listed else room.scene.unread)
    ]
    left = [*dropped_ranges(parted.dropped, TOO_OLD), *dropped_ranges(of_little_use, OF_LITTLE_USE)]
    return sorted([*unread, *left], key=lambda each: each.first)


# ---- The system prompt ----------------------------------------------------------------------------------------------


#: Share of the room left by system prompt and query that a summary may take; more if recent posts need less.
SUMMARY_SHARE: Final = 2 / 3
_HEADING: Final = "# The conversation so far, summarized up to {day}\n\n"


def _summary_text(summary: Summary | None, zone: tzinfo) -> Text | None:
    if summary is None or not summary.markdown:
        return None
    day = day_of(summary.upto_at, zone)
    return Text(kind="summary", source=f"summary:{summary.version}", text=_HEADING.format(day=day) + summary.markdown)


def _fit(room: _Room, query: int) -> tuple[_FixedBlocks, Sequence[PathPost]]:
    """Divide the token budget. Return the blocks before the path, and the posts for the path.

    A summary replaces the posts that it covers. Where everything is kept, it does so only if the path does not fit.
    """
    request, scene, path = room.request, room.scene, room.request.path
    tokens, summary = sum(post.tokens for post in path), _summary_text(scene.summary, request.zone)
    if summary is None or request.keeps_all:
        blocks = _fit_front(room, None, least(path, query), tokens)
        if summary is None or tokens <= blocks.allotment.posts:
            return blocks, path
    if not request.listed:
        return _fit_front(room, summary, least(path, query), tokens), path
    covered = _covered(scene, path)
    behind = [post for post in path if post.seq not in covered]
    blocks = _fit_front(room, summary, least(behind, query), sum(post.tokens for post in behind))
    if blocks.summary is None:
        return blocks, path
    named = dropped_ranges([post for post in path if post.seq in covered], SUMMARIZED)
    return msgspec.structs.replace(blocks, dropped=(*blocks.dropped, *named)), behind


def _covered(scene: Scene, path: Sequence[PathPost]) -> set[int]:
    """Return the posts (seqs) of a client's messages that the summary covers."""
    upto = scene.summary.upto_seq if scene.summary else 0
    loaded = {post.seq for post in scene.path}
    return {
        post.seq
        for post in path
        if post.seq <= upto
        and (post.seq in loaded or any(each.first <= post.seq <= each.last for each in scene.unread))
    }


def _shortened(summary: Text, most: int, count: Counter) -> Text | None:
    """Return a summary cut to a number of tokens by the importance of its lines, or None if nothing fits."""
    heading, _, markdown = summary.text.partition("\n\n")
    text = fit(markdown, most - count(heading) - JOIN_TOKENS - MESSAGE_OVERHEAD, count=count)
    return msgspec.structs.replace(summary, text=f"{heading}\n\n{text}") if text else None


def _fit_front(room: _Room, summary: Text | None, least: int, path: int) -> _FixedBlocks:
    """Divide the token budget. Cut a summary that is too large to its most important lines.

    `least` and `path` are the tokens of the required posts and of all posts.
    """
    request, count = room.request, room.count
    front, client = weigh_front(request.front, request.client, count)
    if request.live_client:  # the larger count, because the live message is sent
        live = weigh_front((), request.live_client, count)[1]
        sizes = [max(own.tokens, other.tokens) for own, other in zip(client, live, strict=True)]
        client = tuple(msgspec.structs.replace(own, tokens=size) for own, size in zip(client, sizes, strict=True))
    own = sum(text.tokens for text in front) + sum(system.tokens for system in client)
    tools = max(count(text) if text else 0 for text in (request.tools, request.live_tools))
    frozen = sum(text.tokens for text in weigh_volatile(request.frozen or (), room.fence, count))

    def allotted(size: int) -> Allotment:
        terms: Any = {"least": least, "path": path, "frozen": frozen, "token_budget": request.token_budget}
        return allot(room.limits, front=size, tools=tools, listed=request.listed, **terms)

    if summary is None:
        return _FixedBlocks(front=front, client=client, summary=None, tools=tools, allotment=allotted(own))
    frame = 0 if own else MESSAGE_OVERHEAD
    summary = weigh_text(summary, count, frame=frame)
    alone = allotted(own)
    left = alone.budget - own - tools
    content = _shortened(summary, max(int((left - least) * SUMMARY_SHARE), left - path - alone.memory), count)
    if content is not None:
        content = weigh_text(content, count, frame=frame)
        try:
            allotment = allotted(own + content.tokens)
        except InvalidInput:
            pass
        else:
            return _FixedBlocks(front=front, client=client, summary=content, tools=tools, allotment=allotment)
    reason = "exceeds the token budget"
    dropped = (Dropped(kind="summary", source=summary.source, tokens=summary.tokens, reason=reason),)
    return _FixedBlocks(front=front, client=client, summary=None, tools=tools, allotment=alone, dropped=dropped)


# ---- The volatile block ---------------------------------------------------------------------------------------------


def _volatile(
    room: _Room, tokens: int, parted: Partition, query: int
) -> tuple[tuple[Hit, ...], tuple[Text, ...], list[Dropped]]:
    """Return recalled text: the best posts outside the window, within their token budget."""
    scene, request, count = room.scene, room.request, room.count
    if request.frozen is not None:
        return _frozen(request.frozen, room, tokens)
    left = tokens - volatile_overhead(count)
    texts, dropped, left = fit_mind(request.mind, left, count)
    advice, unfit, left = fit_advice(request.advice, left, count)
    dropped += unfit
    used: list[Hit] = []
    if scene.summary and scene.summary.tainted and left > 2 * LEAST_TEXT:
        source, content = f"summary:{scene.summary.version}:tools", cut(scene.summary.tainted, left // 2, count=count)
        texts.append(Text(kind="memory", source=source, text=content, role="user"))
        left -= count(content) + 1
    left = _say_memories(request, left, count, (texts, used, dropped))
    entries = (
        {post_in_form.post.seq for post_in_form in parted.kept if post_in_form.form == "full"}
        if request.query
        else set()
    )
    for hit in _hits(scene, request, {*entries, query}):
        text = Text(
            kind="memory",
            source=hit.memory_id,
            text=shown_of(hit, request.query, left, count, zone=request.zone),
            role="user",
        )
        size = count(text.text) + 1
        if not text.text or size > left:
            dropped.append(_no_room(hit.memory_id, hit.tokens, tokens))
            continue
        left -= size
        texts.append(text)
        used.append(hit)
    weighed = weigh_volatile([*texts, *advice], room.fence, count)
    while sum(text.tokens for text in weighed) > tokens:  # combined they may have slightly more tokens than separately
        dropped.append(_no_room(weighed[-1].source, weighed[-1].tokens, tokens, weighed[-1].kind))
        used = [hit for hit in used if hit.memory_id != weighed[-1].source]
        weighed = weigh_volatile(weighed[:-1], room.fence, count)
    return tuple(used), weighed, dropped


def _say_memories(
    request: WindowRequest, left: int, count: Counter, values: tuple[list[Text], list[Hit], list[Dropped]]
) -> int:
    """Select cross-conversation memories for half of the room. Return the rest of the room too."""
    texts, used, dropped = values
    room = most = max(0, left // 2)
    for hit in request.memories.hits:
        text = line_of(hit, request.zone)
        size = count(text) + 1
        if size > room:
            dropped.append(_no_room(hit.memory_id, hit.tokens, most))
            continue
        room, left = room - size, left - size
        texts.append(Text(kind="memory", source=hit.memory_id, text=text, role="user"))
        used.append(hit)
    return left


def _hits(scene: Scene, request: WindowRequest, entries: set[int]) -> list[Hit]:
    if request.query is None:
        return []
    return rank_found(scene.found, request.query, limit=request.recall_hits, skip=entries)


def _frozen(
    texts: tuple[Text, ...], room: _Room, tokens: int
) -> tuple[tuple[Hit, ...], tuple[Text, ...], list[Dropped]]:
    """Return the block of an earlier step, complete or, if it no longer fits, none."""
    weighed = weigh_volatile(texts, room.fence, room.count)
    if sum(text.tokens for text in weighed) <= tokens:
        return (), weighed, []
    return (), (), [_no_room(text.source, text.tokens, tokens, text.kind) for text in weighed]


def _no_room(source: str, tokens: int, most: int, kind: str = "memory") -> Dropped:
    reason = f"recalled memories may use at most {most} tokens of this window"
    return Dropped(kind=kind, source=source, tokens=tokens, reason=reason)


# ---- As shown -------------------------------------------------------------------------------------------------------


def dropped_to_wire(each: Dropped) -> dict[str, Any]:
    """Return an omitted item as INTERFACE defines it."""
    place = {"from": each.first, "to": each.last} if each.first else {"source": each.source}
    return {"kind": each.kind, **place, "count": each.count, "tokens": each.tokens, "reason": each.reason}
