"""Build the context window of a step from a loaded scene without side effects: the window, its manifest, and the rows
to store.
"""

from collections.abc import Iterator, Sequence
from datetime import tzinfo
from typing import Any, Final

import msgspec
from msgspec import Struct

from cuebook.config import BudgetConfig
from cuebook.engine.core.recall import memory_line
from cuebook.engine.core.services import CachedWindow, Services
from cuebook.engine.turn.window_request import WindowRequest
from cuebook.errors import InvalidInput
from cuebook.interfaces.store import Scene
from cuebook.memory.excerpt import excerpt
from cuebook.memory.query import Query
from cuebook.memory.recall_results import rank_found
from cuebook.memory.relevance import HARMFUL, STANDING_TOKENS, standing_reason
from cuebook.memory.summary import fit
from cuebook.memory.tokenizer import day_of, normal
from cuebook.records.conversation import PathPost, fence_of
from cuebook.records.marks import without_control_marks
from cuebook.records.memory import MEMORY, POST, Hit, Nearby
from cuebook.records.tuning import TuningState
from cuebook.records.turn import Block, Dropped, Manifest, Turn, Window
from cuebook.signals.metaprompts import NOTED_AS
from cuebook.window.budget import Allotment, allot, prompt_budget
from cuebook.window.manifest import anchored, dropped_ranges, remember
from cuebook.window.partition import UNTUNED, Partition, in_force, least, lighten, limited, moves, partition
from cuebook.window.post_forms import JOIN_TOKENS, LEAST_TEXT, PostInForm, cut_down
from cuebook.window.tokens import MESSAGE_OVERHEAD, Counter, cut
from cuebook.window.window import Sheet, as_sent, render, volatile_overhead, weigh_front, weigh_text, weigh_volatile

#: Reasons why posts of a path are not in its window.
TOO_OLD = "older than the token budget allows"
SUMMARIZED = "replaced by the summary"
OF_LITTLE_USE = "low relevance, and the window is nearly full"


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
    tuning: TuningState = UNTUNED  # the conversation's tuning in this window
    cached: CachedWindow | None = None  # to compare the next window with


def plan_with_tuning(
    services: Services, scene: Scene, request: WindowRequest, *, fence: str, tuning: TuningState
) -> WindowPlan:
    """Build a step's window. Raises InvalidInput, with the least sufficient budget, if required parts do not fit."""
    query = request.query_seq
    if query is None:  # the newest user post of the path, which the model answers
        query = next((post.seq for post in reversed(request.path) if post.role == "user"), 0)
    limits, count = limited(request.limits.limits, tuning), services.count
    room = _Room(scene, request, fence, limits, count)
    fitted, path = _fit(room, query)
    owner = scene.conversation.user
    terms: Any = {
        "reserved": fitted.allotment.memory,
        "query": query,
        "begins": request.listed or not scene.unread,
        "listed": request.listed,
    }
    parted = _cut_down(partition(path, fitted.allotment.posts, limits, **terms), owner, count)
    parted, of_little_use = _lighten(room, parted, tuning, fitted.allotment.posts, query)
    allotment = fitted.allotment
    free = min(allotment.posts - parted.tokens, limits.memory - allotment.memory)
    hits, volatile, no_room = (
        _volatile(room, allotment.memory, parted, query, summary=fitted.summary, free=max(0, free))
        if query
        else ((), (), [])
    )
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
    dropped = [*request.dropped, *_left_out(room, parted, of_little_use), *fitted.dropped, *no_room]
    window = render(sheet, dropped, budget=fitted.allotment.budget, tools_tokens=fitted.tools)
    standing = scene.summary.version if scene.summary else 0  # the summary covers its posts, shown or not
    kept: Any = {"tools": request.tools, "copies": request.copies, "listed": request.listed}
    manifest, texts = remember(window, sheet, summary_version=standing, **kept)
    quotes: list[Hit] = []
    if request.quotes:
        quotes += request.memories.answers
        quotes += rank_found(scene.found, request.query, limit=request.recall_hits, skip={query}, count=room.count)
    return WindowPlan(
        scene=scene,
        request=request,
        window=window,
        messages=as_sent(window, sheet, request.live, request.live_client),
        manifest=manifest,
        texts=texts,
        query_seq=query,
        hits=hits,
        quotes=tuple(quotes),
        sheet=sheet,
        tuning=tuning,
    )


def plan_window(services: Services, scene: Scene, request: WindowRequest, *, waiting: Turn | None = None) -> WindowPlan:
    """Build a step's window with the conversation's tuning. Raises InvalidInput as `plan_with_tuning` does.

    Each rendering has its own fence. The later steps of a `waiting` turn repeat the first one's text, so its fence too.
    """
    fence = fence_of(services.dice.new_id("fence"), services.settings.key)
    if waiting is not None and waiting.steps:
        fence = waiting.steps[0].manifest.fence
    before = in_force(scene.tuning, waiting.metadata if waiting else scene.told)
    now = scene.tuning if scene.tuning and services.config.optimizer.enabled else UNTUNED
    if waiting is None and scene.previous is None:
        before = now
    plan = plan_with_tuning(services, scene, request, fence=fence, tuning=before)
    if waiting is not None or now.runs == before.runs or scene.previous is None:
        return plan
    if not moves(scene.previous, plan.manifest):
        return plan
    return plan_with_tuning(services, scene, request, fence=fence, tuning=now)


class _Room(Struct, frozen=True):
    """Input for fitting a window."""

    scene: Scene
    request: WindowRequest
    fence: str
    limits: BudgetConfig
    count: Counter


class _FixedBlocks(Struct, frozen=True, kw_only=True):
    """The blocks before the path, and the room that they leave."""

    front: tuple[Block, ...]
    client: tuple[Block, ...]
    summary: Block | None
    tools: int
    allotment: Allotment
    dropped: tuple[Dropped, ...] = ()


# ---- The path -------------------------------------------------------------------------------------------------------


def _cut_down(parted: Partition, owner: str | None, count: Counter) -> Partition:
    post_in_forms, tokens = list(parted.kept), parted.tokens
    for at in [at for at, post_in_form in enumerate(post_in_forms) if post_in_form.form == "cut"]:
        tokens -= post_in_forms[at].tokens
        post_in_forms[at] = cut_down(post_in_forms[at], owner, count)
        tokens += post_in_forms[at].tokens
    return Partition(kept=tuple(post_in_forms), dropped=parted.dropped, tokens=tokens)


def _lighten(
    room: _Room, parted: Partition, tuning: TuningState, posts: int, query: int
) -> tuple[Partition, list[PathPost]]:
    """Apply compression marks once the posts after the summary exceed the conversation's trigger."""
    taken = sum(post_in_form.post.tokens for post_in_form in parted.kept) + sum(post.tokens for post in parted.dropped)
    taken += 0 if room.request.listed else sum(each.tokens for each in room.scene.unread)
    if not tuning.runs or room.request.keeps_all or taken <= posts * tuning.compression_trigger:
        return parted, []
    return lighten(parted, tuning, spare=query)


def _shortening(each: PostInForm) -> Dropped:
    """Return the entry of a shortened post: it is in the window, without a part of its text."""
    tokens = max(0, each.post.tokens - each.tokens)
    reason = f"shortened from {each.post.tokens:,} to {each.tokens:,} tokens"
    return Dropped(kind="text", source=f"post:{each.post.id}", tokens=tokens, reason=reason)


def _left_out(room: _Room, parted: Partition, of_little_use: Sequence[PathPost]) -> list[Dropped]:
    """Return posts of the path that are neither in the window nor in the summary, oldest first, then shortened ones."""
    unread = [
        Dropped(kind="post", reason=TOO_OLD, tokens=each.tokens, count=each.count, first=each.first, last=each.last)
        for each in (() if room.request.listed else room.scene.unread)
    ]
    left = [*dropped_ranges(parted.dropped, TOO_OLD), *dropped_ranges(of_little_use, OF_LITTLE_USE)]
    shortened = (_shortening(each) for each in parted.kept if each.form == "cut")
    return [*sorted([*unread, *left], key=lambda each: each.first), *shortened]


# ---- The system prompt ----------------------------------------------------------------------------------------------


#: Share of the room left by system prompt and query that a summary may take; more if recent posts need less.
SUMMARY_SHARE: Final = 2 / 3
_HEADING: Final = "# The conversation so far, summarized up to {day}\n\n"


def _fit(room: _Room, query: int) -> tuple[_FixedBlocks, Sequence[PathPost]]:
    """Divide the token budget. Return the blocks before the path, and the posts for the path.

    A summary replaces the posts that it covers. Where everything is kept, it does so only if the path does not fit.
    """
    request, scene, path = room.request, room.scene, room.request.path
    unread = 0 if request.listed else sum(each.tokens for each in scene.unread)  # a path without its start never fits
    tokens, stored, summary = unread + sum(post.tokens for post in path), scene.summary, None
    if stored is not None and stored.markdown:
        text = _HEADING.format(day=day_of(stored.upto_at, request.zone))
        text += without_control_marks(stored.markdown)
        summary = Block(kind="summary", source=f"summary:{stored.version}", text=text)
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


def _shortened(summary: Block, most: int, count: Counter) -> Block | None:
    """Return a summary cut to a number of tokens by the importance of its lines, or None if nothing fits."""
    heading, _, markdown = summary.text.partition("\n\n")
    text = fit(markdown, most - count(heading) - JOIN_TOKENS - MESSAGE_OVERHEAD, count=count)
    return msgspec.structs.replace(summary, text=f"{heading}\n\n{text}") if text else None


def _fit_front(room: _Room, summary: Block | None, least: tuple[int, int], path: int) -> _FixedBlocks:
    """Divide the token budget. Cut a summary that is too large to its most important lines.

    `least` are the tokens of the required posts, whole and cut, and `path` those of all posts.
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
    tainted = room.scene.summary and room.scene.summary.tainted
    recalls = request.query or request.memories.hits or request.advice or request.mind or tainted
    has_volatile = request.frozen or (request.frozen is None and recalls)  # texts beside the query
    limits = room.limits if has_volatile else msgspec.structs.replace(room.limits, memory=0)
    budget, whole, fixed = prompt_budget(limits, request.token_budget), least[0], own + tools
    if request.keeps_all and budget < fixed + path <= budget * request.limits.excess:
        return _FixedBlocks(
            front=front,
            client=client,
            summary=None,
            tools=tools,
            allotment=Allotment(budget=budget, memory=0, posts=path),
        )
    required = whole if whole <= budget - fixed else least[1]
    terms: Any = {"least": required, "path": path, "listed": request.listed, "frozen": frozen}
    terms |= {"tools": tools, "token_budget": request.token_budget}
    alone = allot(limits, front=own, **terms)
    if summary is None:
        return _FixedBlocks(front=front, client=client, summary=None, tools=tools, allotment=alone)
    frame = 0 if own else MESSAGE_OVERHEAD
    summary = weigh_text(summary, count, frame=frame)
    left = alone.budget - own - tools
    content = _shortened(summary, max(int((left - required) * SUMMARY_SHARE), left - path - alone.memory), count)
    if content is not None:
        content = weigh_text(content, count, frame=frame)
        try:
            allotment = allot(limits, front=own + content.tokens, **terms)
        except InvalidInput:
            pass
        else:
            return _FixedBlocks(front=front, client=client, summary=content, tools=tools, allotment=allotment)
    reason = "exceeds the token budget"
    dropped = (Dropped(kind="summary", source=summary.source, tokens=summary.tokens, reason=reason),)
    return _FixedBlocks(front=front, client=client, summary=None, tools=tools, allotment=alone, dropped=dropped)


# ---- The volatile block ---------------------------------------------------------------------------------------------


#: Largest share of the volatile block for experiences. The rest is for recalled text.
ADVICE_SHARE: Final = 2 / 3


def _volatile(
    room: _Room, tokens: int, parted: Partition, query: int, *, summary: Block | None, free: int
) -> tuple[tuple[Hit, ...], tuple[Block, ...], list[Dropped]]:
    """Return the memories and posts recalled beside the query, all texts there, and those that do not fit.

    The mood state takes its room first, then experiences, the summary's text from tools, memories, and posts. `free`
    are tokens that the posts leave: the memories that do harm when forgotten may use them.
    """
    scene, request, count = room.scene, room.request, room.count
    if request.frozen is not None:  # the block of an earlier step, complete or, if it no longer fits, none
        weighed = weigh_volatile(request.frozen, room.fence, count)
        if sum(text.tokens for text in weighed) <= tokens:
            return (), weighed, []
        return (), (), [_no_room(text, tokens) for text in weighed]
    left = tokens - volatile_overhead(count)
    texts, dropped, left = _fit_mind(request.mind, left, count)
    advice, unfit, used = _fit_texts(request.advice, int(left * ADVICE_SHARE), count, what="experiences")
    dropped, left = [*dropped, *unfit], left - used
    if scene.summary and scene.summary.tainted and left > 2 * LEAST_TEXT:
        source, content = f"summary:{scene.summary.version}:tools", cut(scene.summary.tainted, left // 2, count=count)
        texts.append(Block(kind="memory", source=source, text=content, role="user"))
        left -= count(content) + 1
    shown = {post_in_form.post.seq for post_in_form in parted.kept if post_in_form.form == "full"}
    memories, unfit, used, added = _fit_memories(room, list(_unseen(room, parted, summary)), left, free)
    texts, dropped, left, tokens = [*texts, *memories], [*dropped, *unfit], left + added - used, tokens + added
    found = rank_found(scene.found, request.query, limit=request.recall_hits, skip={*shown, query}, count=count)
    for hit in found:
        posts, unfit, used = _fit_posts(room, hit, left, tokens)
        texts, dropped, left = [*texts, *posts], [*dropped, *unfit], left - used
    texts = _without_repeats(texts)
    weighed = weigh_volatile([*texts, *advice], room.fence, count)
    while sum(text.tokens for text in weighed) > tokens:  # combined they may have slightly more tokens than separately
        dropped.append(_no_room(weighed[-1], tokens))
        weighed = weigh_volatile(weighed[:-1], room.fence, count)
    sources = {text.source for text in weighed}
    return tuple(hit for hit in (*request.memories.hits, *found) if hit.source in sources), weighed, dropped


def _unseen(room: _Room, parted: Partition, summary: Block | None) -> Iterator[Hit]:
    """Yield the memories whose words are neither in the posts of the window nor in its summary."""
    shown = {each.post.id: each for each in parted.kept}
    summarized = normal(summary.text) if summary else ""
    for hit in room.request.memories.hits:
        words = normal(hit.text)
        posts = [shown[each] for each in hit.sources if each in shown]
        own = hit.conversation == room.request.conversation  # otherwise another post may have the same id
        in_sources = ((own and each.form == "full") or words in normal(_words_of(each)) for each in posts)
        if (
            words not in summarized
            and not any(in_sources)
            and not any(hit.text in _words_of(each) for each in parted.kept)
        ):
            yield hit


def _fit_memories(
    room: _Room, hits: Sequence[Hit], left: int, free: int
) -> tuple[list[Block], list[Dropped], int, int]:
    """Return the memories that fit, those that do not, the tokens used, and those of the `free` tokens among them.

    Health and rules come first, then other standing ones in STANDING_TOKENS, then those that match the query. Each
    group takes at most half of the tokens that are left.
    """
    memories, count = room.request.memories, room.count
    harmful, standing, relevant = list[Block](), list[Block](), list[Block]()
    for hit in hits:
        reason = standing_reason(hit.text) if hit.memory_id in memories.durable else ""
        group = harmful if reason in HARMFUL else standing if reason else relevant
        line = memory_line(hit, room.request.zone)
        group.append(Block(kind="memory", source=hit.source, text=line, role="user", tokens=hit.tokens))
    texts, dropped, used = _fit_texts(harmful, (left + free) // 2, count, what="standing memories of health and rules")
    if memories.unread:
        reason = f"{memories.unread} more standing memories are not read, because there are too many"
        dropped.append(Dropped(kind="memory", source="standing", tokens=0, count=memories.unread, reason=reason))
    added = max(0, used - left // 2)
    others = (("other standing memories", standing, STANDING_TOKENS), ("recalled memories", relevant, left))
    for what, group, most in others:
        half = (left + added - used) // 2
        kept, unfit, tokens = _fit_texts(group, min(most, half), count, what=what)
        texts, dropped, used = [*texts, *kept], [*dropped, *unfit], used + tokens
    return texts, dropped, used, added


def _words_of(post_in_form: PostInForm) -> str:
    post = post_in_form.post
    return (post.message if post_in_form.form == "full" else post.small) or ""


def _without_repeats(texts: Sequence[Block]) -> list[Block]:
    """Return the texts without memories whose words are in a recalled post."""
    posts = [normal(each.text) for each in texts if each.source.startswith(POST)]
    said = [normal(each.text.partition("] ")[2]) if each.source.startswith(MEMORY) else "" for each in texts]
    return [
        text for text, words in zip(texts, said, strict=True) if not words or not any(words in each for each in posts)
    ]


def _fit_posts(room: _Room, hit: Hit, left: int, most: int) -> tuple[list[Block], list[Dropped], int]:
    """Return the recalled post and those nearby, in order, those that do not fit, and the tokens used.

    `left` are the tokens left of the `most` of the volatile block. Each post is a block of its own, so that erasing it
    erases the block too.
    """
    fitting: list[tuple[int, Block]] = []
    unfit: list[Dropped] = []
    used = 0
    every: tuple[Hit | Nearby, ...] = (hit.alone, *hit.nearby)
    for each in every:
        line = _post_line(each, room.request.query, left - used, room.count, zone=room.request.zone)
        text = Block(kind="memory", source=each.source, text=line, role="user", tokens=each.tokens)
        size = room.count(line) + 1
        if not line or size > left - used or (unfit and not fitting):  # nothing nearby without the post itself
            unfit.append(_no_room(text, most))
            continue
        used += size
        fitting.append((each.seq, text))
    return [text for _, text in sorted(fitting, key=lambda each: each[0])], unfit, used


def _fit_texts(
    texts: Sequence[Block], most: int, count: Counter, *, what: str
) -> tuple[list[Block], list[Dropped], int]:
    """Return the texts that fit a number of tokens, those that do not, and the tokens used."""
    most = left = max(0, most)
    fitting: list[Block] = []
    dropped: list[Dropped] = []
    for text in texts:
        size = count(text.text) + 1
        if size > left:
            dropped.append(_no_room(msgspec.structs.replace(text, tokens=text.tokens or size), most, what=what))
            continue
        left -= size
        fitting.append(text)
    return fitting, dropped, most - left


def _fit_mind(text: Block | None, room: int, count: Counter) -> tuple[list[Block], list[Dropped], int]:
    """Return the part of a mood state that fits into the volatile block, the part that does not, and the tokens left.

    Notes are omitted first.
    """
    if text is None:
        return [], [], room
    whole = count(text.text) + 1
    if whole <= room:
        return [text], [], room - whole
    reason = f"the block beside the query has {max(0, room)} tokens of this window"
    bare = msgspec.structs.replace(text, text=text.text.partition(f"\n{NOTED_AS}")[0])
    size = count(bare.text) + 1
    if size < whole and size <= room:
        return [bare], [Dropped(kind="mind", source=text.source, tokens=whole - size, reason=reason)], room - size
    return [], [Dropped(kind="mind", source=text.source, tokens=whole, reason=reason)], room


def _no_room(text: Block, most: int, *, what: str = "") -> Dropped:
    what = what or ("experiences" if text.kind == "experience" else "recalled memories")
    reason = f"{what} may use at most {most} tokens of this window"
    return Dropped(kind=text.kind, source=text.source, tokens=text.tokens, reason=reason)


def _post_line(hit: Hit | Nearby, query: Query | None, room: int, count: Counter, *, zone: tzinfo) -> str:
    """Return a hit's line in the volatile block: day, speaker, and the text or its best passage. Empty if there is no
    room.
    """
    day = day_of(hit.timestamp, zone)
    text = hit.text
    if hit.tokens > room and query is not None:
        text = excerpt(hit.text, query, room - 12, count) if room > 24 else ""
    return f"- [{day}] {hit.speaker}: {' '.join(text.split())}" if text else ""
