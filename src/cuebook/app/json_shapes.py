"""Convert records to JSON objects in INTERFACE's exact shapes: camelCase names, ISO 8601 times."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any

import msgspec

from cuebook.app.session import SessionMessage
from cuebook.engine.turn.plan import dropped_to_wire
from cuebook.records.conversation import Conversation, Part, Post, Round, SharedEntry
from cuebook.records.memory import Summary
from cuebook.records.turn import Turn, Window

Wire = dict[str, Any]


def iso(when: float | None) -> str | None:
    """Return a Unix time as ISO 8601 UTC."""
    if when is None:
        return None
    return datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def part(value: Part) -> Wire:
    """Return an attachment."""
    return {"type": value.type, "content": value.content} | ({"extra": value.extra} if value.extra is not None else {})


def post(value: Post, ids: Mapping[int, str] | None = None) -> Wire:
    """Return a post. `ids` maps seqs to post ids, so that `parent` is an id."""
    data: Wire = {
        "id": value.id,
        "seq": value.seq,
        "parent": (ids or {}).get(value.parent),
        "sendFrom": value.sender,
        "sendTo": value.recipient,
        "role": value.role,
        "message": value.message,
        "attachments": [part(each) for each in value.parts],
        "timestamp": iso(value.created_at),
        "tokens": value.tokens,
        "state": value.state,
    }
    return data


def round_(value: Round, ids: Mapping[int, str] | None = None) -> Wire:
    """Return a round with its posts."""
    return {
        "id": value.id,
        "seq": value.seq,
        "userQuery": value.user_query,
        "state": value.state,
        "posts": [post(each, ids) for each in value.posts],
    }


def day(when: float, zone: tzinfo) -> str:
    """Return the day of a time in a zone."""
    return datetime.fromtimestamp(when, zone).date().isoformat()


def conversation(value: Conversation, *, head: str | None = None, summary: Summary | None = None) -> Wire:
    """Return a conversation's data; AgentOS's state is in its metadata."""
    metadata = dict(value.metadata)
    if summary is not None:
        metadata["rollingSummaryState"] = summary_state(summary)
    return {
        "id": value.id,
        "userId": value.user,
        "personaId": value.persona,
        "participants": list(value.participants),
        "head": head,
        "lastSeq": value.last_seq,
        "turns": value.turns,
        "createdAt": iso(value.created_at),
        "updatedAt": iso(value.updated_at),
        "metadata": metadata,
    }


def summary_state(value: Summary) -> Wire:
    """Return AgentOS's `rollingSummaryState`."""
    return {
        "updatedAt": iso(value.created_at),
        "summaryText": value.markdown,
        "summaryJson": value.memory_json,
        "summaryUptoTimestamp": iso(value.upto_at),
        "summaryUptoSeq": value.upto_seq,
        "version": value.version,
        "madeBy": value.made_by,
        **({"prompt": value.prompt} if value.prompt else {}),
    }


def window(value: Window) -> Wire:
    """Return a window as `/api/assemble` does."""
    return {
        "tokens": value.tokens,
        "budget": value.budget,
        "toolsTokens": value.tools_tokens,
        "stablePrefixRatio": value.stable_prefix_ratio,
        "cache": value.cache,
        "anchors": [{"name": anchor.name, "after": anchor.after} for anchor in value.anchors],
        "blocks": [
            {"kind": block.kind, "source": block.source, "role": block.role, "tokens": block.tokens, "text": block.text}
            | ({"cut": True} if block.form == "cut" else {})
            | ({"compressed": True} if block.form == "compressed" else {})
            for block in value.blocks
        ],
        "dropped": [dropped_to_wire(each) for each in value.dropped],
    }


def messages(value: Window) -> list[Any]:
    """Return a window's messages as JSON objects."""
    return [msgspec.json.decode(message) for message in value.messages]


def turn(value: Turn, *, query: str, reply: str, shown: Window | None) -> Wire:
    """Return a turn with its window."""
    return {
        "turn": value.n,
        "state": value.state,
        "query": query,
        "reply": reply or value.partial,
        "window": window(shown) if shown else None,
        "metadata": value.metadata,
        "createdAt": iso(value.created_at),
        "closedAt": iso(value.closed_at),
        "steps": [
            {
                "step": step.n,
                "state": step.state,
                "tokens": step.manifest.tokens,
                "budget": step.manifest.budget,
                "usage": msgspec.to_builtins(step.usage) if step.usage else None,
                **({"error": step.error} if step.error else {}),
            }
            for step in value.steps
        ],
    }


def session_message(value: SessionMessage) -> Wire:
    """Return a message of BrowserOS's session."""
    return {
        "role": value.role,
        "content": value.content,
        "timestamp": iso(value.timestamp),
        "tokenCount": value.token_count,
        "isCompressed": value.is_compressed,
    }


def shared_entry(value: SharedEntry) -> Wire:
    """Return a note that a role left for the other roles."""
    sender = "" if value.sender is msgspec.UNSET else value.sender
    return {"id": value.id, "type": value.type, "scope": value.scope, "content": value.content, "sendFrom": sender}


def ids_of(posts: Sequence[Post]) -> dict[int, str]:
    """Return post ids by seq."""
    return {each.seq: each.id for each in posts}
