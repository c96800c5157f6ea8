"""Collect the contents of a step's window: its path, system text, recalled memories, and texts beside the query."""

from collections.abc import Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.engine.core.context_limits import RequestLimits, limits_of
from cuebook.engine.core.recall import SelectedMemories
from cuebook.engine.core.services import Services
from cuebook.engine.turn.history import HistoryPosition, draft_of
from cuebook.engine.turn.request import TurnRequest
from cuebook.engine.turn.system_prompt import SystemPrompt
from cuebook.interfaces.store import Scene
from cuebook.memory.query import Query
from cuebook.memory.rolling import choose
from cuebook.records.conversation import Draft, PathPost
from cuebook.records.turn import Block, Dropped
from cuebook.window.manifest import dropped_ranges
from cuebook.window.post_forms import decode, whole
from cuebook.wire.responses_items import ITEMS, is_compaction

#: Reason why posts before a provider's compaction item are not in a window.
COMPACTED = "replaced by the provider's compaction"


class WindowRequest(Struct, frozen=True, kw_only=True):
    """The contents of a window, before the token budget is divided."""

    conversation: str
    path: tuple[PathPost, ...]  # oldest first
    limits: RequestLimits
    listed: bool = False  # the path has exactly the messages that the client sent, in its order
    copies: frozenset[int] = (
        frozenset()
    )  # by seq: posts with other fields than the stored ones, as the client resent them
    keeps_all: bool = False  # nothing is summarized or shortened while the path fits the budget
    front: tuple[Block, ...] = ()  # persona, sections and add-ons, as rendered
    dropped: tuple[Dropped, ...] = ()  # errors of those that failed to render
    query: Query | None  # None: no recall
    recall_hits: int = 12
    quotes: bool = False  # no model call: return memories for the query, whether in the window or not
    token_budget: int | None = None
    client: tuple[Block, ...] = ()
    live_client: tuple[Block, ...] = ()  # the original, if `client` has redacted secrets
    tools: str = ""
    live_tools: str = ""  # the original, if `tools` has redacted secrets
    live: Mapping[int, bytes] = {}  # by seq: the message as sent, if the stored one has redacted secrets
    frozen: tuple[Block, ...] | None = None  # in a later step of a turn: the volatile block of the first
    query_seq: int | None = None  # the open turn's query; None = the newest user post
    memories: SelectedMemories = SelectedMemories()  # cross-conversation memories
    advice: tuple[Block, ...] = ()  # experiences selected for the query, best first
    mind: Block | None = None  # rendered mood state of the path
    zone: tzinfo = UTC  # time zone of dates


def window_request(
    services: Services,
    scene: Scene,
    request: TurnRequest,
    position: HistoryPosition,
    prompt: SystemPrompt,
    *,
    query: Query | None = None,
    memories: SelectedMemories | None = None,
) -> WindowRequest:
    """Return the contents of a step's window. Without recall in the conversation, its posts are not recalled."""
    ask, conversation = position.ask, scene.conversation
    recalls = request.quotes or scene.known is None or scene.known.policy.recalls
    profile = choose(services.settings.compaction, ask.mode or conversation.metadata.get("mode"))
    posts, copies = (
        client_path(services, scene, request, position)
        if request.resends_history
        else (path_of(scene, position.drafts), frozenset[int]())
    )
    replaced = list[Dropped]()
    if request.begins_at_compaction and not request.resends_history:
        begin = max((n for n, post in enumerate(posts) if is_compaction(post.wire or b"")), default=0)
        posts, replaced = posts[begin:], dropped_ranges(posts[:begin], COMPACTED)
    if position.live is not None:  # with the secrets of the caller's message
        seq = conversation.last_seq + 1 if position.drafts else scene.parent
        live = {seq: whole(path_of(scene, (position.live,))[-1], conversation.user)}
    else:
        live = {seq: request.history[n].raw for seq, n in position.messages_by_seq(conversation.last_seq).items()}
    return WindowRequest(
        conversation=ask.conversation,
        path=posts,
        limits=limits_of(services, request.target, ask.conversation),
        listed=request.resends_history,
        copies=copies,
        keeps_all=request.resends_history and profile.trigger == "overflow",
        front=prompt.texts,
        dropped=(*prompt.dropped, *replaced),
        query=query if recalls else None,
        recall_hits=services.config.memory.recall_hits,
        quotes=request.quotes,
        token_budget=ask.token_budget,
        client=request.client,
        live_client=request.live_client,
        tools=request.tools,
        live_tools=request.live_tools,
        live=live,
        frozen=prompt.volatile,
        query_seq=position.waiting_turn.query_seq if position.waiting_turn else None,
        memories=memories or SelectedMemories(),
        advice=prompt.advice,
        mind=prompt.mood,
        zone=services.settings.zone_of(ask.time_zone, conversation),
    )


# ---- The path -------------------------------------------------------------------------------------------------------


def path_of(scene: Scene, drafts: Sequence[Draft]) -> tuple[PathPost, ...]:
    """Return the stored path with the new posts appended, under their future seqs."""
    last = scene.conversation.last_seq
    new = [post_of(draft, last + number) for number, draft in enumerate(drafts, 1)]
    return (*scene.path, *_summed(new, after=scene.path[-1] if scene.path else None))


def client_path(
    services: Services, scene: Scene, request: TurnRequest, position: HistoryPosition
) -> tuple[tuple[PathPost, ...], frozenset[int]]:
    """Return the messages of a client in its order, each as the client sent it, without secrets.

    Return also the seqs of the posts that the client resent with other fields than it got.
    """
    last, owner = scene.conversation.last_seq, scene.conversation.user
    seqs = {number: seq for seq, number in position.messages_by_seq(last).items()}
    inserted = (draft for _, drafts in position.insertions for draft in drafts)
    drafts = dict(zip(position.new, (*position.drafts, *inserted), strict=True))
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
    return tuple(_summed(posts)), frozenset(copies)


def _same_fields(resent: bytes, stored: bytes) -> bool:
    """Return whether two messages have the same fields. An empty field equals a missing one."""
    if resent == stored:
        return True
    return _filled(resent) == _filled(stored)


def _filled(message: bytes) -> dict[str, Any]:
    return {name: value for name, value in decode(message).items() if value not in (None, [], {}) and name != ITEMS}


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
