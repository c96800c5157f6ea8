"""Write conversations: append posts, move the head, change participants, bind idempotency keys, delete."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from cuebook.errors import Conflict, Denied, NotFound
from cuebook.interfaces.store import ROOT, Appended, Batch
from cuebook.records.audit import Record
from cuebook.records.conversation import Conversation, Draft
from cuebook.records.memory import Scope
from cuebook.storage.failpoints import Failpoints
from cuebook.storage.sqlite import base
from cuebook.storage.sqlite.audit import chained
from cuebook.storage.sqlite.base import one, raise_epoch, run
from cuebook.storage.sqlite.rows import Row
from cuebook.storage.sqlite.rows import conversation as conversation_record
from cuebook.storage.sqlite.tree import SHIFT, grow, settle_head, tip_at, turn_to


def begin(
    connection: sqlite3.Connection,
    scope: Scope,
    conversation: str,
    *,
    user: str | None,
    persona: str | None,
    now: float,
) -> Row:
    """Return a conversation's row, created if missing. An empty one without an owner goes to its first user."""
    row = base.find(connection, scope, conversation)
    participants = json.dumps([user] if user else [], ensure_ascii=False)
    if row is not None:
        if user and base.awaits_owner(row):
            run(connection, "conversation_owner", no=row["no"], user_id=user, participants=participants)
            row |= {"user_id": user, "participants": participants}
        return row
    run(
        connection,
        "conversation_insert",
        tenant=scope.tenant,
        id=conversation,
        user_id=user,
        persona=persona,
        participants=participants,
        now=now,
    ).fetchone()
    return base.need(connection, scope, conversation)


def participate(
    connection: sqlite3.Connection,
    scope: Scope,
    conversation: str,
    users: Sequence[str],
    *,
    audit: Sequence[Record] = (),
) -> Conversation:
    """Change the participants and return them; the first user always takes part."""
    row = base.need(connection, scope, conversation)
    first = [row["user_id"]] if row["user_id"] is not None else []
    before, after = json.loads(row["participants"]), list(dict.fromkeys([*first, *users]))
    if after != before:
        raise_epoch(connection, scope.tenant)  # the running turn was planned for the previous participants
    row["participants"] = json.dumps(after, ensure_ascii=False)
    company = json.dumps(company_of(row, before, after))
    run(connection, "conversation_participants", no=row["no"], participants=row["participants"], company=company)
    run(connection, "delete_participants", tenant=scope.tenant, no=row["no"])
    for user in after:
        if user != row["user_id"]:
            run(connection, "participant_insert", tenant=scope.tenant, user=user, no=row["no"])
    chained(connection, scope.tenant, audit)
    return conversation_record(row)


def company_of(row: Row, before: Sequence[str], after: Sequence[str]) -> list[list[int]]:
    """Return the seq ranges of posts from times with several participants; 0 = open end."""
    results: list[list[int]] = json.loads(row["company"])
    was, will = len(before) > 1, len(after) > 1
    if will and not was:
        results.append([row["last_seq"] + 1, 0])
    elif was and not will and results:
        results[-1][1] = row["last_seq"]
    return results


def append(connection: sqlite3.Connection, scope: Scope, batch: Batch, failpoints: Failpoints) -> Appended:
    """Store posts after the head or a named parent. A post already stored with the same content is skipped."""
    failpoints("append.begin")
    user = batch.user or scope.user
    if batch.begins:
        row = begin(connection, scope, batch.conversation, user=user, persona=batch.persona, now=batch.now)
    else:
        row = base.need(connection, scope, batch.conversation)
    keep_named(connection, row, {"timeZone": batch.time_zone, **batch.metadata})
    fresh = _fresh(connection, row, batch.drafts)
    check_names(row, scope, fresh)
    if fresh:
        parent = row["head"]
        if batch.parent is not None:
            parent = 0 if batch.parent == ROOT else _seq_of(connection, row, batch.parent)
        start = tip_at(connection, row["tenant"], row["no"], parent)
        settle_head(connection, row, start, grow(connection, row, fresh, start), now=batch.now)
        if not row["lease_until"] and not all(draft.is_result for draft in fresh):
            leave_waiting(connection, row, now=batch.now)
    if fresh:
        run(connection, "delivery_wanted" if batch.delivers else "delivery_again", tenant=row["tenant"], no=row["no"])
    answer = Appended(len(fresh), row["last_seq"])
    if batch.idempotency:
        response = json.dumps({"stored": answer.stored, "lastSeq": answer.last_seq}).encode()
        bind(connection, scope, row, batch.idempotency, turn=0, response=response, now=batch.now)
    failpoints("append.stored")
    return answer


def check_names(row: Row, scope: Scope, drafts: Sequence[Draft]) -> None:
    """Check that posts are not sent in the name of other participants, because memories are attributed by sender.

    Raises Denied.
    """
    if not scope.proven or scope.user is None or scope.user == row["user_id"]:
        return
    others = {"user", row["user_id"], *json.loads(row["participants"])} - {scope.user}
    for draft in drafts:
        if draft.role == "user" and draft.sender in others:
            msg = f"sendFrom: {draft.sender!r} is not the caller. {scope.user!r} can only send as themselves here."
            raise Denied(msg)


def keep_named(connection: sqlite3.Connection, row: Row, named: Mapping[str, Any]) -> None:
    """Store a request's fields in the conversation's metadata; other fields stay."""
    data = {name: value for name, value in named.items() if value is not None}
    if not data:
        return
    metadata = json.loads(row["metadata"])
    if metadata != (changed := metadata | data):
        run(connection, "conversation_metadata", no=row["no"], metadata=json.dumps(changed, ensure_ascii=False))


def leave_waiting(connection: sqlite3.Connection, row: Row, *, now: float) -> bool:
    """Interrupt the turn that waits for tool results, if any, and close its round."""
    tenant, no = row["tenant"], row["no"]
    turn = one(connection, "turns_last", tenant=tenant, no=no, limit=1)
    if turn is None or turn["state"] != "running":
        return False
    run(
        connection,
        "turn_close",
        tenant=tenant,
        no=no,
        n=turn["n"],
        state="interrupted",
        waiting=0,
        reply_seq=turn["reply_seq"],
        closed_at=now,
        metadata=turn["metadata"],
    )
    run(connection, "conversation_round", no=no, open_round=0)
    return True


def _fresh(connection: sqlite3.Connection, row: Row, drafts: tuple[Draft, ...]) -> list[Draft]:
    """Return drafts that are not stored yet. Raises Conflict for an existing id with other content."""
    if row["last_seq"] == 0 and len({draft.id for draft in drafts}) == len(drafts):
        return list(drafts)
    fresh: dict[str, Draft] = {}
    for draft in drafts:
        stored = one(connection, "post_by_id", tenant=row["tenant"], no=row["no"], id=draft.id)
        known = stored["digest"] if stored else fresh[draft.id].digest if draft.id in fresh else None
        if known is None:
            fresh[draft.id] = draft
        elif known != draft.digest:
            msg = f"Post ID {draft.id!r} exists with other content in conversation {row['id']!r}. Use a new id."
            raise Conflict(msg)
    return list(fresh.values())


def _seq_of(connection: sqlite3.Connection, row: Row, post: str) -> int:
    data = one(connection, "post_by_id", tenant=row["tenant"], no=row["no"], id=post)
    if data is None:
        msg = f"Unknown post {post!r} in conversation {row['id']!r}."
        raise NotFound(msg)
    return int(data["seq"])


def bind(
    connection: sqlite3.Connection,
    scope: Scope,
    row: Row,
    idempotency: tuple[str, bytes],
    *,
    turn: int,
    response: bytes,
    now: float,
) -> None:
    """Bind an Idempotency-Key to the result of its request, in the same transaction.

    A key whose step has no complete answer is bound again. Raises Conflict if another request has it.
    """
    key, digest = idempotency
    values = {
        "tenant": row["tenant"], "key": base.own_key(scope, key), "digest": digest, "no": row["no"], "turn": turn,
        "response": response, "now": now,
    }  # fmt: skip
    try:
        run(connection, "idempotency_insert", **values)
    except sqlite3.IntegrityError:
        if run(connection, "idempotency_rebind", **values).rowcount:
            return
        msg = "The Idempotency-Key is in use by another request. Use a new key."
        raise Conflict(msg) from None


def move_head(
    connection: sqlite3.Connection, scope: Scope, conversation: str, post: str, *, now: float, failpoints: Failpoints
) -> Conversation:
    """Make a post the head; later posts remain as a sibling branch."""
    row = base.need(connection, scope, conversation)
    if row["lease_until"] >= now:
        msg = f"A turn is running in conversation {conversation!r}. Move the head after it has ended."
        raise Conflict(msg)
    set_head(connection, row, _seq_of(connection, row, post), now=now)
    failpoints("head.stored")
    return conversation_record(base.need(connection, scope, conversation))


def set_head(connection: sqlite3.Connection, row: Row, seq: int, *, now: float) -> None:
    """Move the head to a stored post."""
    turn_to(connection, row, tip_at(connection, row["tenant"], row["no"], seq))
    connection.execute(base.SQL["conversation_head"], {**row, "now": max(now, row["updated_at"])})


def take_out(connection: sqlite3.Connection, row: Row) -> dict[str, int]:
    """Delete a conversation's own rows; return their counts by table."""
    tenant, no = row["tenant"], row["no"]
    counts = {
        "fullText": run(connection, "delete_post_text", first=no << SHIFT, last=((no + 1) << SHIFT) - 1).rowcount,
    }
    for table in (
        "reflections",
        "tuning",
        "optimizations",
        "outbox",
        "corrections",
        "delivery",
        "posts",
        "turns",
        "steps",
        "summaries",
        "items",
        "blobs",
        "blob_uses",
        "idempotency",
        "vectors",
        "embedded",
        "participants",
        "outcomes",
    ):
        counts[table] = run(connection, f"delete_{table}", tenant=tenant, no=no).rowcount
    counts["conversation"] = run(connection, "delete_conversation", tenant=tenant, no=no).rowcount
    return counts
