"""Build a reply's `metadata`, with AgentOS's names as on the wire."""

from datetime import UTC, datetime
from typing import Any

from cuebook.engine.core.services import Services
from cuebook.engine.turn.experiences import experiences_in
from cuebook.engine.turn.front import Front
from cuebook.engine.turn.plan import Planned, window_metadata
from cuebook.interfaces.store import Scene
from cuebook.memory.profiles import CompactionProfile, choose
from cuebook.memory.scopes import policy_to_wire


def metadata_of(
    services: Services,
    scene: Scene,
    planned: Planned,
    front: Front,
    *,
    cache: dict[str, Any],
    turn: int,
    mode: str | None,
) -> dict[str, Any]:
    """Return AgentOS's `metadata` of a reply."""
    kept = scene.conversation.metadata.get("mode") if scene.conversation else None
    profile = choose(services.settings.compaction, mode or kept)
    retrieved = planned.retrieved
    durable = {"durable": list(retrieved.durable), "reviewedAt": retrieved.reviewed_at} if retrieved.reason else {}
    retrieval = {
        "didRetrieve": bool(planned.hits),
        "reviewReason": retrieved.reason or "query",
        **durable,
        "hits": [
            {
                "memoryId": hit.memory_id,
                "score": hit.score,
                "scope": hit.scope,
                "sources": list(hit.sources),
                "why": hit.why,
            }
            for hit in planned.hits
        ],
        "contextTokens": sum(text.tokens for text in planned.sheet.volatile if text.kind == "memory"),
    }
    return {
        "turn": turn,
        **({"mode": mode} if mode else {}),
        **front.metadata,
        "rollingSummary": rolling_summary(scene, planned, profile),
        **({"longTermMemoryPolicy": policy_to_wire(scene.known.policy)} if scene.known else {}),
        "longTermMemoryRetrieval": retrieval,
        "experiences": experiences_in(planned.sheet.volatile),
        "window": window_metadata(planned, cache),
    }


def rolling_summary(scene: Scene, planned: Planned, profile: CompactionProfile) -> dict[str, Any]:
    """Return `metadata.rollingSummary`. `didCompact` is true on the first turn with a new summary."""
    summary = planned.summary
    before = scene.previous.summary_version if scene.previous else 0
    did = summary is not None and summary.version != before
    state: dict[str, Any] = {"profileId": profile.id, "enabled": profile.enabled, "didCompact": did}
    if summary is not None:
        state |= {
            "summaryText": summary.markdown,
            "summaryJson": summary.memory_json,
            "summaryUptoTimestamp": iso(summary.upto_at),
            "summaryUptoSeq": summary.upto_seq,
        }
    reasons = {True: "compacted", False: "current" if summary else "below_threshold" if profile.enabled else "disabled"}
    return state | {"reason": reasons[did]}


def iso(when: float) -> str:
    """Return a Unix time as ISO 8601 UTC."""
    return datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
