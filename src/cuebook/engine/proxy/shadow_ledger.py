"""Ledger of shadow mode: compare the tokens and cache costs of a client's prompt with Cuebook's prompt, per call."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec

from cuebook.engine.core.services import LruCache, Services
from cuebook.engine.proxy.wire import Wire
from cuebook.engine.turn.compare import chunks_of
from cuebook.engine.turn.step import OpenStep
from cuebook.errors import InvalidInput
from cuebook.interfaces import Upstream
from cuebook.records.conversation import PathPost, digest_of
from cuebook.records.turn import SHADOW, CacheEstimate, ShadowCallUsage
from cuebook.window.cache import CacheChunk, CacheSimulator, CacheUse
from cuebook.window.models import CacheRule, rule_for
from cuebook.window.post_forms import weigh
from cuebook.window.window import FIELD
from cuebook.wire.anthropic_messages import is_marked

#: Conversations with a simulated cache. Evicted ones start again with an empty cache.
CONVERSATIONS = 64
#: Cached token counts of messages: clients resend them with every call.
WEIGHED = 20_000
#: Most listed posts that are in neither prompt.
NAMED = 3
#: Cache rules of providers that only cache marked content.
_MARKED_ALONE = ("anthropic", "anthropic-1h")
#: Key of a cache marker in a part of a message.
_MARKS = (FIELD.encode(), b'"cache_control"')

_decode = msgspec.json.Decoder(list[dict[str, Any]]).decode
_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode


class CallAccounting:
    """Accounts for calls in order of arrival."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._caches: LruCache[tuple[str, str], tuple[CacheSimulator, CacheSimulator]] = LruCache(CONVERSATIONS)
        self._weights: LruCache[bytes, int] = LruCache(WEIGHED)
        self._alone = threading.Lock()

    async def metadata(
        self,
        wire: Wire,
        step: OpenStep,
        *,
        now: float,
        marks: bool,
        status: int,
        **fields: Any,
    ) -> dict[str, Any]:
        """Return the metadata of a call: its entry in the ledger with `fields`. It is computed in a thread."""
        entry = await asyncio.to_thread(partial(self._entry, wire, step, now=now, marks=marks, status=status))
        entry = msgspec.structs.replace(entry, **fields)
        return {SHADOW: {**step.decision.start.metadata[SHADOW], str(step.lease.step): msgspec.to_builtins(entry)}}

    def _entry(self, wire: Wire, step: OpenStep, *, now: float, marks: bool, status: int) -> ShadowCallUsage:
        """Return the ledger entry of a call.

        `now` is the arrival time. `marks`: our prompt would get cache markers. `status` is the upstream's, 0 without an
        answer; failed calls are not cached.
        """
        services, request, body = wire.services, step.request, bytes(wire.fields["messages"])
        messages, raws = _decode(body), [bytes(raw) for raw in _raws(body)]
        window, tools = step.plan.window, request.live_tools or request.tools
        refused = status if status >= HTTPStatus.BAD_REQUEST else 0
        rule = None if refused or not status else _rule(services, self._upstream, wire.model)
        client = ours = None
        with self._alone:
            weights = [self._weigh(services, raw, message) for raw, message in zip(raws, messages, strict=True)]
            tool_tokens = services.count(tools) if tools else 0
            if rule is not None:
                caches, own_marks = self._caches_of(step, rule), rule.name in _MARKED_ALONE
                marked_tools = _MARKS[1].decode() in tools
                chunks = [CacheChunk(tool_tokens, digest_of(tools.encode()), "tools", marked_tools)] if tools else []
                own = {n for n, each in enumerate(wire.converted, len(raws) - len(wire.converted)) if is_marked(each)}
                for n, (raw, message, weight) in enumerate(zip(raws, messages, weights, strict=True)):
                    marked = n in own or any(mark in raw for mark in _MARKS)
                    chunks.append(CacheChunk(weight, digest_of(raw), str(message.get("role")), marked, raw))
                client = _estimate(caches[0], chunks, now, explicit=own_marks)
                chunks = chunks_of(window, tools=request.tools)
                if not marks:
                    chunks = [msgspec.structs.replace(each, marked=False) for each in chunks]
                ours = _estimate(caches[1], chunks, now, explicit=marks or own_marks)
        return ShadowCallUsage(
            model=wire.model,
            refused=refused,
            unanswered=not status,
            client_tokens=sum(weights) + tool_tokens,
            window_tokens=window.tokens,
            rule=rule.name if rule is not None and client is not None and ours is not None else "",
            client=client,
            ours=ours,
            parted=broken_pairs(messages),
            **_posts(step),
        )

    def _weigh(self, services: Services, raw: bytes, message: Mapping[str, Any]) -> int:
        name = digest_of(raw)
        known = self._weights.get(name)
        if known is None:
            known = self._weights[name] = weigh(message, services.count)
        return known

    def _caches_of(self, step: OpenStep, rule: CacheRule) -> tuple[CacheSimulator, CacheSimulator]:
        """Return a conversation's simulated provider caches: for the client's prompts and for ours."""
        name = (step.lease.scope.tenant, step.lease.conversation)
        caches = self._caches.get(name)
        if caches is None or caches[0].rule != rule:
            caches = (CacheSimulator(rule), CacheSimulator(rule))
        self._caches[name] = caches
        return caches


def _rule(services: Services, upstream: Upstream, model: str) -> CacheRule | None:
    """Return the cache rule of a model at the upstream, else the configured one."""
    return (
        None
        if services.settings.cache_rule is None
        else rule_for(model, upstream.base_url) or services.settings.cache_rule
    )


def _estimate(
    simulator: CacheSimulator, chunks: Sequence[CacheChunk], now: float, *, explicit: bool
) -> CacheEstimate | None:
    try:
        use: CacheUse = simulator.request(chunks, now, explicit=explicit)
    except InvalidInput:
        return None  # more markers than the provider allows
    return CacheEstimate(uncached=use.uncached_tokens, read=use.read_tokens, write=use.write_tokens)


def _posts(step: OpenStep) -> dict[str, Any]:
    """Count the posts stored before a call by the prompts that contain them."""
    scene, plan = step.plan.scene, step.plan
    sent = set(step.position.seqs.values())
    entries = {post_in_form.post.seq for post_in_form in plan.sheet.partition.kept if post_in_form.form != "cut"}
    entries |= {hit.seq for hit in plan.hits if hit.seq}
    path = [post.seq for post in scene.path]
    unread = [(each, {seq for seq in sent if each.first <= seq <= each.last}) for each in scene.unread]
    first = min([*path[:1], *(each.first for each in scene.unread)], default=None)
    covered = max(0, scene.path_count - len(path) - sum(each.count for each in scene.unread))
    sent_covered = len([seq for seq in sent if first is None or seq < first]) if covered else 0
    neither = [seq for seq in path if seq not in sent and seq not in entries]
    recalled = {seq for seq in entries if any(each.first <= seq <= each.last for each in scene.unread)}
    lost_unread = sum(each.count - len(theirs) for each, theirs in unread) - len(recalled - sent)
    return {
        "path": scene.path_count,
        "neither": len(neither) + max(0, lost_unread),
        "neither_seqs": tuple((neither or [each.last for each, _ in unread])[-NAMED:])
        if neither or lost_unread
        else (),
        "client_alone": len([seq for seq in path if seq in sent and seq not in entries])
        + sum(len(theirs - recalled) for _, theirs in unread),
        "condensed": sent_covered,
        "ours_alone": len([seq for seq in path if seq in entries and seq not in sent])
        + len(recalled - sent)
        + max(0, covered - sent_covered),
    }


def cut_short(before: Sequence[PathPost], drafts: Sequence[tuple[str, str]]) -> tuple[int, ...]:
    """Return the seqs of posts whose messages (role and text) are truncated copies."""
    results = []
    for post, (role, text) in zip(before, drafts, strict=False):
        whole = post.message or ""
        same = next((n for n, (one, other) in enumerate(zip(whole, text, strict=False)) if one != other), len(text))
        if post.role == role and text and len(text) < len(whole) and 2 * same >= len(text):
            results.append(post.seq)
    return tuple(results)


def broken_pairs(messages: Sequence[Mapping[str, Any]]) -> int:
    """Count tool calls without results and results without calls: pairs broken by trimming.

    Calls of the newest assistant message may still be pending.
    """
    open_calls: set[str] = set()
    known: set[str] = set()
    broken = 0
    for message in messages:
        role, calls = message.get("role"), message.get("tool_calls")
        if role == "tool":
            name = message.get("tool_call_id")
            broken += isinstance(name, str) and name not in known
            open_calls.discard(name if isinstance(name, str) else "")
        else:
            broken += len(open_calls)
            ids = [call.get("id") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
            open_calls = {each for each in ids if isinstance(each, str)} if role == "assistant" else set()
            known |= open_calls
    return broken
