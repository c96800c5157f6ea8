"""The decision of a step, with the `metadata` of its reply (AgentOS's names)."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuebook.engine.core.drafts import dated
from cuebook.engine.core.services import Services
from cuebook.engine.turn.experiences import SOURCE
from cuebook.engine.turn.history import HistoryPosition
from cuebook.engine.turn.plan import WindowPlan
from cuebook.engine.turn.request import TurnRequest
from cuebook.engine.turn.system_prompt import SystemPrompt
from cuebook.engine.turn.utility_frames import frame_of
from cuebook.interfaces.store import Scene, StepStart
from cuebook.memory.rolling import CompactionProfile, choose
from cuebook.memory.scopes import (
    BROUGHT,
    KEPT,
    SHARED_BY,
    SHARED_WITH,
    SHARING,
    SPOKEN_WITH,
    Participants,
    personal_places,
    policy_to_wire,
    published_place,
    unshared,
)
from cuebook.records.answer import Time
from cuebook.records.conversation import is_guest
from cuebook.records.prompt import Outcome
from cuebook.records.turn import ASKED, BRANCH, RECALLED, RETRY_OF, SHADOW, SIDE, Dropped
from cuebook.window.partition import tuning_metadata


class Decision(Struct, frozen=True, kw_only=True):
    """The decision of a step: its system prompt, its window, and the rows to store when it opens."""

    prompt: SystemPrompt
    plan: WindowPlan
    start: StepStart


def decision_of(
    services: Services,
    request: TurnRequest,
    position: HistoryPosition,
    prompt: SystemPrompt,
    plan: WindowPlan,
    *,
    turn: int,
    outcome: tuple[int, Outcome] | None = None,
) -> Decision:
    """Return the decision of a step. `outcome` is the message's feedback on an earlier turn."""
    scene, ask = plan.scene, position.ask
    conversation = scene.conversation
    moves_head = position.moves_head(conversation.head)
    metadata = reply_metadata(services, prompt, plan, turn=turn, mode=ask.mode)
    known = scene.known
    participants = Participants(user=conversation.user, persona=ask.persona or "-", organization=ask.organization)
    published = (
        published_place(known.policy, participants, known.settings, may_publish=ask.may_publish) if known else None
    )
    shared = published.id if published else ""  # the organization whose memory gets the posts
    sets_policy = ask.memory_control is not None and not is_guest(conversation, ask.user)  # a guest must not
    metadata |= _memory_terms(scene, position, participants, shared) | _request_terms(request, position)
    metadata |= {} if moves_head else {BRANCH: SIDE}
    metadata |= _retried(scene, position, plan.query_seq)
    could_be_utility = request.utility_sign and not conversation.no and len(position.drafts) == 1
    start = StepStart(
        conversation=ask.conversation,
        expected_head=conversation.head,
        expected_last_seq=conversation.last_seq,
        parent=scene.parent,
        drafts=dated(position.drafts, plan.request.zone),
        insertions=tuple((at, dated(drafts, plan.request.zone)) for at, drafts in position.insertions),
        manifest=replace(plan.manifest, stable_prefix_ratio=plan.window.stable_prefix_ratio),
        texts=plan.texts,
        now=services.clock.now(),
        lease_s=services.config.work.lease_s,
        user=ask.user,
        persona=ask.persona,
        turn=position.waiting_turn.n if position.waiting_turn else 0,
        query_seq=plan.query_seq,
        moves_head=moves_head,
        parallel=position.parallel,
        metadata=metadata,
        mode=ask.mode,
        time_zone=ask.time_zone,
        policy=policy_to_wire(known.policy) if known and sets_policy else None,
        utility=ask.utility,
        frame=frame_of(services.settings, position.drafts[0].message) if could_be_utility else None,
        delivers=bool((known and personal_places(known.policy, participants)) or shared),
        project=ask.project,
        idempotency=services.settings.keyed_digest_of(request.key),
        audit=() if request.shadow else prompt.audit,
        calls=prompt.tasks if moves_head else (),
        work=prompt.work,
        outcome=outcome if moves_head else None,
        epoch=scene.epoch,
    )
    return Decision(prompt=prompt, plan=plan, start=start)


def _retried(scene: Scene, position: HistoryPosition, query_seq: int) -> dict[str, Any]:
    """Return the mark of a turn whose request repeats that of a failed turn, as clients do after a 429."""
    last = scene.last_turn
    if last is None or position.drafts or position.waiting_turn or last.query_seq != query_seq:
        return {}
    failed = last.state in ("failed", "interrupted") and not last.reply_seq
    return {RETRY_OF: [*last.metadata.get(RETRY_OF, ()), last.n]} if failed else {}


def _memory_terms(scene: Scene, position: HistoryPosition, participants: Participants, shared: str) -> dict[str, Any]:
    """Return the memory policy and the new posts of a turn's metadata. Later steps use the first step's policy.

    `shared` is the organization whose memory gets the posts.
    """
    ask = position.ask
    if position.waiting_turn is not None:
        data = position.waiting_turn.metadata
        return {name: data[name] for name in (KEPT, SHARED_WITH, SHARED_BY, SHARING, SPOKEN_WITH) if name in data}
    first = scene.conversation.last_seq + 1
    known, sharing = scene.known, None
    if known is not None and known.policy.share:  # the turn asked to share with an organization
        reason = unshared(known.policy, participants, known.settings, may_publish=ask.may_publish)
        sharing = {"shared": False, "reason": reason} if reason else {"shared": True}
    values = {
        SHARED_WITH: shared,
        SHARED_BY: ask.key if shared else "",
        SPOKEN_WITH: ask.persona,
        BROUGHT: first if len(position.drafts) > 1 else None,
        SHARING: sharing,
    }
    return {name: value for name, value in values.items() if value}


def _request_terms(request: TurnRequest, position: HistoryPosition) -> dict[str, Any]:
    """Return the marks of a shadow turn, and the request fields of a turn's steps by step number."""
    earlier: Mapping[str, Any] = position.waiting_turn.metadata if position.waiting_turn else {}
    step = str(len(position.waiting_turn.steps) + 1 if position.waiting_turn else 1)
    asked = {**earlier.get(ASKED, {}), **({step: dict(request.metadata)} if request.metadata else {})}
    shadow = {SHADOW: earlier.get(SHADOW) or {}} if request.shadow or SHADOW in earlier else {}
    return shadow | ({ASKED: asked} if asked else {})


# ---- The reply's metadata -------------------------------------------------------------------------------------------


def reply_metadata(
    services: Services, prompt: SystemPrompt, plan: WindowPlan, *, turn: int, mode: str | None
) -> dict[str, Any]:
    """Return AgentOS's `metadata` of a reply."""
    scene, window, memories, volatile = plan.scene, plan.window, plan.request.memories, plan.sheet.volatile
    profile = choose(services.settings.compaction, mode or scene.conversation.metadata.get("mode"))
    durable = {"durable": list(memories.durable), "reviewedAt": memories.reviewed_at} if memories.reason else {}
    retrieval = {
        "didRetrieve": bool(plan.hits),
        "reviewReason": memories.reason or "query",
        **durable,
        "hits": [
            {
                "memoryId": hit.memory_id,
                "score": hit.score,
                "scope": hit.scope,
                "sources": list(hit.alone.sources),  # what is nearby may not have fit
                "why": hit.why,
            }
            for hit in plan.hits
        ],
        "contextTokens": sum(text.tokens for text in volatile if text.kind == "memory"),
    }
    return {
        "turn": turn,
        **({"mode": mode} if mode else {}),
        **prompt.metadata,
        "rollingSummary": rolling_summary(scene, profile),
        **({"longTermMemoryPolicy": policy_to_wire(scene.known.policy)} if scene.known else {}),
        RECALLED: retrieval,
        **({"work": [msgspec.to_builtins(each) for each in scene.work]} if scene.work else {}),
        "experiences": [text.source.removeprefix(SOURCE) for text in volatile if text.kind == "experience"],
        "window": {
            "tokens": window.tokens,
            "budget": window.budget,
            "stablePrefixRatio": window.stable_prefix_ratio,
            "cache": dict(window.cache),
            "anchors": [{"name": anchor.name, "after": anchor.after} for anchor in window.anchors],
            "dropped": [_dropped_to_wire(each) for each in window.dropped],
            **({"context": context} if (context := plan.request.limits.metadata()) else {}),
            **tuning_metadata(plan.tuning),
        },
    }


def _dropped_to_wire(each: Dropped) -> dict[str, Any]:
    """Return an omitted item as INTERFACE defines it."""
    place = {"from": each.first, "to": each.last} if each.first else {"source": each.source}
    return {"kind": each.kind, **place, "count": each.count, "tokens": each.tokens, "reason": each.reason}


def rolling_summary(scene: Scene, profile: CompactionProfile) -> dict[str, Any]:
    """Return `metadata.rollingSummary`. `didCompact` is true on the first turn with a new summary."""
    summary = scene.summary
    did = scene.has_new_summary
    state: dict[str, Any] = {"profileId": profile.id, "enabled": profile.enabled, "didCompact": did}
    if summary is not None:
        state |= {
            "summaryText": summary.markdown,
            "summaryJson": summary.memory_json,
            "summaryUptoTimestamp": str(Time(summary.upto_at)),
            "summaryUptoSeq": summary.upto_seq,
        }
    reasons = {True: "compacted", False: "current" if summary else "below_threshold" if profile.enabled else "disabled"}
    return state | {"reason": reasons[did]}
