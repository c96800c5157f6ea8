"""Write conversations: append posts, move the head, change participants, bind idempotency keys, delete."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cuebook.errors import Conflict, Denied, NotFound
from cuebook.interfaces.store import ROOT, Batch
from cuebook.records.audit import Record
from cuebook.records.conversation import Appended, Conversation, Draft
from cuebook.records.memory import Scope
from cuebook.storage import access
from cuebook.storage.access import ConversationRow, raise_epoch
from cuebook.storage.audit import chained
from cuebook.storage.database.columns import encode_json
from cuebook.storage.database.transaction import Noun, Transaction, write, write_all, write_conversation
from cuebook.storage.tree import SHIFT, grow, settle_head, tip_at, turn_to

#: What `take_out` deletes, in this order: the conversation's own row is last.
TABLES: Final = (
    "reflections", "tuning", "work", "optimizations", "outbox", "corrections", "delivery", "posts", "turns", "steps",
    "summaries", "items", "blobs", "blob_uses", "idempotency", "vectors", "embedded", "participants", "outcomes",
    "conversation",
)  # fmt: skip


class ConversationWriter(Noun):
    """Changes conversations."""

    @write_conversation
    def append(self, transaction: Transaction, batch: Batch) -> Appended:
        """Store posts after the head or a named parent. A post already stored with the same content is skipped."""
        transaction.failpoint("append.begin")
        user = batch.user or transaction.scope.user
        if batch.begins:
            row = begin(transaction, batch.conversation, user=user, persona=batch.persona, now=batch.now)
        else:
            row = access.need(transaction, batch.conversation)
        keep_named(row, {"timeZone": batch.time_zone, **batch.metadata})
        fresh = _fresh(row, batch.drafts)
        check_names(row, transaction.scope, fresh)
        if fresh:
            parent = row.head
            if batch.parent is not None:
                parent = 0 if batch.parent == ROOT else _seq_of(row, batch.parent)
            start = tip_at(row, parent)
            is_waiting = settle_head(row, start, grow(row, fresh, start), now=batch.now)
            if is_waiting and not row.lease_until and not all(draft.is_result for draft in fresh):
                leave_waiting(row, now=batch.now)
        if fresh:
            row.run("delivery_wanted" if batch.delivers else "delivery_again")
        transaction.failpoint("append.stored")
        return Appended(len(fresh), row.last_seq)

    @write
    def move_head(self, transaction: Transaction, conversation: str, post: str, *, now: float) -> Conversation:
        """Make a post the head; later posts remain as a sibling branch."""
        row = access.need(transaction, conversation)
        if row.lease_until >= now:
            msg = f"A turn is running in conversation {conversation!r}. Move the head after it has ended."
            raise Conflict(msg)
        set_head(row, _seq_of(row, post), now=now)
        transaction.failpoint("head.stored")
        return access.need(transaction, conversation).record()

    @write
    def participate(
        self, transaction: Transaction, conversation: str, users: Sequence[str], *, audit: Sequence[Record] = ()
    ) -> Conversation:
        """Change the participants and return them; the first user always takes part."""
        row = access.need(transaction, conversation)
        first = [row.user] if row.user is not None else []
        before, after = row.participants, tuple(dict.fromkeys([*first, *users]))
        if after != before:
            raise_epoch(transaction)  # the running turn was planned for the previous participants
        row.company, row.participants = company_of(row, after), after
        row.run("conversation_participants", **row.columns)
        row.run("delete_participants")
        for user in after:
            if user != row.user:
                row.run("participant_insert", user=user)
        chained(transaction, audit)
        return row.record()

    @write_all
    def forget_keys(self, transaction: Transaction, *, before: float, limit: int = 1000) -> int:
        """Delete Idempotency-Keys older than a time, oldest first; return their number."""
        return transaction.run("idempotency_forget", before=before, limit=limit).rowcount


def begin(
    transaction: Transaction, conversation: str, *, user: str | None, persona: str | None, now: float
) -> ConversationRow:
    """Return a conversation's row, created if missing. An empty one without an owner goes to its first user."""
    row = access.find(transaction, conversation)
    participants = (user,) if user else ()
    if row is None:
        place = {"id": conversation, "user": user, "persona": persona}
        transaction.run("conversation_insert", **place, participants=encode_json(participants), now=now)
        return access.need(transaction, conversation)
    if user and access.awaits_owner(row):
        row.user, row.participants = user, participants
        row.run("conversation_owner", **row.columns)
    return row


def company_of(row: ConversationRow, after: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Return the seq ranges of posts from times with several participants, when these follow."""
    was, will = len(row.participants) > 1, len(after) > 1
    if will and not was:
        return (*row.company, (row.last_seq + 1, 0))
    if was and not will and row.company:
        return (*row.company[:-1], (row.company[-1][0], row.last_seq))
    return row.company


def check_names(row: ConversationRow, scope: Scope, drafts: Sequence[Draft]) -> None:
    """Check that posts are not sent in the name of other participants, because memories are attributed by sender.

    Raises Denied.
    """
    if not scope.proven or scope.user is None or scope.user == row.user:
        return
    others = {"user", row.user, *row.participants} - {scope.user}
    for draft in drafts:
        if draft.role == "user" and draft.sender in others:
            msg = f"sendFrom: {draft.sender!r} is not the caller. {scope.user!r} can only send as themselves here."
            raise Denied(msg)


def keep_named(row: ConversationRow, named: Mapping[str, Any]) -> None:
    """Store a request's fields in the conversation's metadata; other fields stay."""
    data = {name: value for name, value in named.items() if value is not None}
    if data and row.metadata != (changed := row.metadata | data):
        row.run("conversation_metadata", metadata=encode_json(changed))


def leave_waiting(row: ConversationRow, *, now: float) -> bool:
    """Interrupt the turn that waits for tool results, if any, and close its round."""
    turn = row.one("turn_waiting")
    if turn is None:
        return False
    row.run("turn_close", **(turn | {"state": "interrupted", "waiting": 0, "closed_at": now}))
    row.run("conversation_round", open_round=0)
    return True


def _fresh(row: ConversationRow, drafts: tuple[Draft, ...]) -> list[Draft]:
    """Return drafts that are not stored yet. Raises Conflict for an existing id with other content."""
    if row.last_seq == 0 and len({draft.id for draft in drafts}) == len(drafts):
        return list(drafts)
    fresh: dict[str, Draft] = {}
    for draft in drafts:
        stored = row.one("post_by_id", id=draft.id)
        known = stored["digest"] if stored else fresh[draft.id].digest if draft.id in fresh else None
        if known is None:
            fresh[draft.id] = draft
        elif known != draft.digest:
            msg = f"Post ID {draft.id!r} exists with other content in conversation {row.id!r}. Use a new id."
            raise Conflict(msg)
    return list(fresh.values())


def _seq_of(row: ConversationRow, post: str) -> int:
    data = row.one("post_by_id", id=post)
    if data is None:
        msg = f"Unknown post {post!r} in conversation {row.id!r}."
        raise NotFound(msg)
    return int(data["seq"])


def bind(row: ConversationRow, idempotency: tuple[str, bytes], *, turn: int, step: int, now: float) -> None:
    """Bind an Idempotency-Key to the step that answers its request, in the same transaction.

    A key whose step has no complete answer is bound again. Raises Conflict if another request has it.
    """
    key, digest = idempotency
    values = {"digest": digest, "turn": turn, "response": str(step).encode(), "now": now}
    values["key"] = access.own_key(row.transaction.scope, key)
    inserted = row.run("idempotency_insert", **values).rowcount
    if not inserted and not row.run("idempotency_rebind", **values).rowcount:
        msg = "The Idempotency-Key is in use by another request. Use a new key."
        raise Conflict(msg)


def set_head(row: ConversationRow, seq: int, *, now: float) -> None:
    """Move the head to a stored post."""
    turn_to(row, tip_at(row, seq))
    row.run("conversation_head", **row.columns, now=max(now, row.updated_at))


def take_out(row: ConversationRow) -> dict[str, int]:
    """Delete a conversation's own rows; return their counts by table."""
    span = {"first": row.no << SHIFT, "last": ((row.no + 1) << SHIFT) - 1}
    row.run("delete_parallel_turns")
    counts = {"fullText": row.transaction.run("delete_post_text", **span).rowcount}
    return counts | {table: row.run(f"delete_{table}").rowcount for table in TABLES}
