"""Compare a window with the one before it: stable prefix bytes and the simulated provider cache."""

from typing import Any

import msgspec

from cuebook.engine.core.desk import Desk, Last, cache_metadata, chunks_of, prefix_ratio
from cuebook.engine.turn.plan import Planned
from cuebook.errors import NotFound
from cuebook.interfaces.store import Scene
from cuebook.records.memory import Scope
from cuebook.records.turn import Manifest, Turn, Window
from cuebook.window.cache import CacheSimulator
from cuebook.window.manifest import digests_of, ranges_of, restore
from cuebook.window.window import Text, render


async def compare(
    desk: Desk, scope: Scope, scene: Scene, planned: Planned, conversation: str
) -> tuple[Window, dict[str, Any], Last]:
    """Return the window with its stable prefix ratio and cache use, and the data to compare the next one with."""
    last = await last_window(desk, scope, scene, conversation)
    window = planned.window
    ratio = prefix_ratio(last.messages if last else None, window.messages)
    simulator = (last.simulator if last else None) or (CacheSimulator(desk.cache_rule) if desk.cache_rule else None)
    use = None
    if simulator is not None:
        simulator = simulator.copy()
        use = simulator.request(chunks_of(window, tools=_tools(planned)), desk.clock.now())
    cache = cache_metadata(desk.cache_rule, use)
    window = msgspec.structs.replace(window, stable_prefix_ratio=ratio, cache=cache)
    return window, cache, Last(planned.remembered.manifest.digest, window.messages, simulator)


def _tools(planned: Planned) -> str:
    digest = planned.remembered.manifest.tools_digest
    return planned.remembered.texts.get(digest, "") if digest else ""


async def last_window(desk: Desk, scope: Scope, scene: Scene, conversation: str) -> Last | None:
    """Return the conversation's last window, from the cache or re-rendered from its manifest."""
    if scene.conversation is None or scene.previous is None:
        return None
    last = desk.last.get((scope.tenant, conversation))
    if last is not None and last.digest == scene.previous.digest:
        return last
    window = await render_again(desk, scope, conversation, scene.previous, owner=scene.conversation.user)
    return Last(scene.previous.digest, window.messages) if window else None


async def render_again(
    desk: Desk, scope: Scope, conversation: str, manifest: Manifest, *, owner: str | None
) -> Window | None:
    """Return a window re-rendered from its manifest, or None if part of it was erased."""
    posts = await desk.store.posts_in(scope, conversation, ranges_of(manifest))
    texts = await desk.store.texts(scope, digests_of(manifest))
    try:
        sheet = restore(manifest, posts, texts, user=owner)
    except NotFound:
        return None
    return render(sheet, manifest.dropped, budget=manifest.budget, tools_tokens=manifest.tools_tokens)


async def frozen_volatile(desk: Desk, scope: Scope, turn: Turn) -> tuple[Text, ...]:
    """Return the volatile block of a turn's first step, which all its steps share."""
    volatile = turn.steps[0].manifest.volatile if turn.steps else ()
    texts = await desk.store.texts(scope, [text.digest for text in volatile])
    return tuple(
        Text(kind=text.kind, source=text.source, role=text.role, text=texts[text.digest])
        for text in volatile
        if text.digest in texts
    )
