"""Compare a window with the one before it: stable prefix bytes and the simulated provider cache."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from cuebook.engine.core.services import CachedWindow, Services
from cuebook.engine.turn.plan import WindowPlan
from cuebook.errors import NotFound
from cuebook.interfaces.store import Scene
from cuebook.records.conversation import digest_of
from cuebook.records.memory import Scope
from cuebook.records.turn import Anchor, Block, Manifest, Window
from cuebook.window.budget import allot
from cuebook.window.cache import CacheChunk, CacheSimulator
from cuebook.window.manifest import digests_of, ranges_of, restore
from cuebook.window.window import MOST_ANCHORS, common_prefix, render


async def compare_with_previous(services: Services, scope: Scope, plan: WindowPlan) -> WindowPlan:
    """Add the stable prefix ratio and the simulated cache use to a window, and what the next one is compared with."""
    before = await _previous_window(services, scope, plan.scene)
    window, rule, metadata = plan.window, services.settings.cache_rule, dict[str, Any]()
    ratio = prefix_ratio(before.messages if before else None, window.raw_messages)
    simulator = (before.simulator if before else None) or (CacheSimulator(rule) if rule else None)
    if simulator is not None:
        simulator = simulator.copy()
        use = simulator.request(chunks_of(window, tools=plan.request.tools), services.clock.now())
        metadata = {
            "rule": simulator.rule.name,
            "readTokens": use.read_tokens,
            "writeTokens": use.write_tokens,
            "cost": round(use.cost, 3),
            "simulated": True,
        }
    window = msgspec.structs.replace(window, stable_prefix_ratio=ratio, cache=metadata)
    room = allot(plan.request.limits.limits, front=0, listed=plan.request.listed).posts
    cached = CachedWindow(plan.manifest.digest, window.raw_messages, simulator, room)
    return msgspec.structs.replace(plan, window=window, cached=cached)


async def _previous_window(services: Services, scope: Scope, scene: Scene) -> CachedWindow | None:
    """Return the conversation's last window, from the cache or re-rendered from its manifest."""
    conversation = scene.conversation
    if scene.previous is None:
        return None
    last = services.caches.windows.get((scope.tenant, conversation.id))
    if last is not None and last.digest == scene.previous.digest:
        return last
    try:
        window = await render_again(services, scope, conversation.id, scene.previous, owner=conversation.user)
    except NotFound:
        return None
    return CachedWindow(scene.previous.digest, window.raw_messages)


async def render_again(
    services: Services, scope: Scope, conversation: str, manifest: Manifest, *, owner: str | None
) -> Window:
    """Return a window re-rendered from its manifest. Raises NotFound if part of it was erased."""
    posts = await services.store.posts_in(scope, conversation, ranges_of(manifest))
    texts = await services.store.texts(scope, digests_of(manifest))
    sheet = restore(manifest, posts, texts, user=owner)
    return render(sheet, manifest.dropped, budget=manifest.budget, tools_tokens=manifest.tools_tokens)


# ---- The provider cache ---------------------------------------------------------------------------------------------


def prefix_ratio(before: Sequence[bytes] | None, now: Sequence[bytes]) -> float:
    """Return the bytes of the common prefix of two renderings over this one's bytes, 1.0 for the first (INTERFACE,
    Window).
    """
    total = sum(map(len, now))
    if before is None or not total:
        return 1.0
    return round(common_prefix(before, now) / total, 6)


def chunks_of(window: Window, *, tools: str) -> list[CacheChunk]:
    """Return a window as chunks for the cache simulator: tools, system text, each message, volatile text."""
    chunks: list[CacheChunk] = []
    if tools:
        chunks.append(CacheChunk(window.tools_tokens, digest_of(tools.encode()), "tools"))
    front = [block for block in window.blocks if not block.seq and block.role in ("system", "developer")]
    marked = {anchor.after for anchor in window.anchors}
    posts = [block for block in window.blocks if block.seq]
    volatile = [block.tokens for block in window.blocks if block.role == "user" and not block.seq]
    systems = len(window.raw_messages) - len(posts)
    if front and systems:
        chunks += _front_chunks(front, b"".join(window.raw_messages[:systems]), anchors=window.anchors)
    for number, block in enumerate(posts, systems):
        message, splits = block.message, block.kind == "query" and bool(volatile)
        chunks.append(CacheChunk(block.tokens, message, block.role, number in marked, message, not splits))
        if splits:
            chunks.append(CacheChunk(sum(volatile), window.raw_messages[number], "user"))
    return chunks


def _front_chunks(front: Sequence[Block], text: bytes, *, anchors: Sequence[Anchor]) -> Iterator[CacheChunk]:
    """Yield the system text and the summary after it, each with its own cache marker if enough markers are left."""
    tokens = sum(block.tokens for block in front)
    marked = any(anchor.name in ("system", "summary") for anchor in anchors)
    summary = front[-1] if front[-1].kind == "summary" and len(front) > 1 else None
    start = text.rfind(msgspec.json.encode(summary.text)[1:-1]) if summary else 0
    if summary and start > 0:
        first = marked and len(anchors) < MOST_ANCHORS
        yield CacheChunk(tokens - summary.tokens, digest_of(text[:start]), "system", first, text[:start], ends=False)
        text, tokens = text[start:], summary.tokens
    yield CacheChunk(tokens, digest_of(text), "system", marked, text)
