"""Conversations in a transaction: their rows, access checks, erasure counts (epochs) and corrections."""

from collections.abc import Collection
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.errors import Conflict, NotFound
from cuebook.records.conversation import Conversation, digest_of
from cuebook.records.memory import Correction, Memory, Place, Scope
from cuebook.storage.database.columns import Row, columns, encode_json, record
from cuebook.storage.database.transaction import Cursor, Transaction


class ConversationRow(Struct, kw_only=True):
    """A conversation's row in a transaction. Functions that change the conversation also change its row."""

    transaction: Transaction
    tenant: str
    no: int
    id: str
    user: str | None
    persona: str | None
    participants: tuple[str, ...]
    speakers: tuple[str, ...]
    metadata: dict[str, Any]
    head: int
    last_seq: int
    turns: int
    generation: int
    created_at: float
    updated_at: float
    fence: int
    lease_turn: int
    lease_until: float
    lease_holder: str | None
    open_round: int
    mark: int
    backlog: int
    backlog_tokens: int
    compact_last_at: float
    compact_failures: int
    utility: bool
    company: tuple[tuple[int, int], ...]  # seq ranges of posts from times with several participants; 0 = open end

    @property
    def columns(self) -> dict[str, Any]:
        """Return the columns that functions change."""
        return {
            "user": self.user, "participants": encode_json(self.participants), "company": encode_json(self.company),
            "speakers": encode_json(self.speakers), "head": self.head, "last_seq": self.last_seq, "mark": self.mark,
            "backlog": self.backlog, "backlog_tokens": self.backlog_tokens,
        }  # fmt: skip

    @property
    def epoch(self) -> int:
        """Return the number of erasures in this conversation."""
        return conversation_epoch(self.transaction, self.no)

    def run(self, name: str, /, **values: Any) -> Cursor:
        """Run a statement on this conversation, whose number it gets as `no`. Return its cursor."""
        return self.transaction.run(name, no=self.no, **values)

    def rows(self, name: str, /, **values: Any) -> list[Row]:
        """Return all rows of a statement on this conversation by column names."""
        return self.transaction.rows(name, no=self.no, **values)

    def one(self, name: str, /, **values: Any) -> Row | None:
        """Return the first row of a statement on this conversation by column names, None for none."""
        return self.transaction.one(name, no=self.no, **values)

    def value(self, name: str, /, **values: Any) -> Any:
        """Return the first column of the first row of a statement on this conversation, None without rows."""
        return self.transaction.value(name, no=self.no, **values)

    def record(self) -> Conversation:
        """Return the public record."""
        return Conversation(**{name: getattr(self, name) for name in Conversation.__struct_fields__})


def conversation_row(transaction: Transaction, found: Row) -> ConversationRow:
    """Return a conversation's row from its columns."""
    return record(ConversationRow, found, transaction=transaction)


def by_id(transaction: Transaction, conversation: str) -> ConversationRow | None:
    """Return a conversation's row by id, whoever owns it."""
    found = transaction.one("conversation_by_id", id=conversation)
    return None if found is None else conversation_row(transaction, found)


def by_no(transaction: Transaction, no: int) -> ConversationRow | None:
    """Return a conversation's row by number."""
    found = transaction.one("conversation_by_no", no=no)
    return None if found is None else conversation_row(transaction, found)


def visible(row: ConversationRow, scope: Scope) -> bool:
    """Return whether the caller takes part in a conversation; a caller without a name is the owner.

    A conversation without a user is visible to everybody, unless callers are authenticated by keys.
    """
    if scope.user is None or (row.user is None and not scope.proven):
        return True
    return scope.user in row.participants


def awaits_owner(row: ConversationRow) -> bool:
    """Return whether a conversation is empty and has no owner yet."""
    return row.user is None and not row.last_seq


def accessible(transaction: Transaction, conversation: str) -> ConversationRow | None:
    """Return a conversation's row if it exists and the caller may see it."""
    row = by_id(transaction, conversation)
    return row if row is not None and visible(row, transaction.scope) else None


def find(transaction: Transaction, conversation: str) -> ConversationRow | None:
    """Return a conversation's row, or None if it may be created. Raises NotFound for a conversation of another user."""
    row = by_id(transaction, conversation)
    if row is not None and not visible(row, transaction.scope):
        msg = f"Conversation {conversation!r} belongs to another user. Use another ID, or the name of that user."
        raise NotFound(msg)
    return row


def need(transaction: Transaction, conversation: str) -> ConversationRow:
    """Return a conversation's row, or raise NotFound."""
    row = by_id(transaction, conversation)
    if row is None or not visible(row, transaction.scope):
        raise not_found(conversation)
    return row


def unchanged(
    transaction: Transaction, conversation: Conversation, *, epoch: int | None = None
) -> ConversationRow | None:
    """Return the row of a conversation that was read earlier, None if it was deleted or, since `epoch`, erased from.

    Its number shows whether it was deleted and created again.
    """
    row = find(transaction, conversation.id)
    if row is None or row.no != conversation.no or epoch not in (None, row.epoch):
        return None
    return row


def not_found(conversation: str) -> NotFound:
    """Return the same error for a missing conversation and for one of others."""
    return NotFound(f"Unknown conversation {conversation!r}. Run `cuebook conversation list` to list conversations.")


def moved(conversation: str) -> Conflict:
    """Return the error for a conversation that changed since it was read."""
    return Conflict(f"Conversation {conversation!r} has changed since it was read. Read it again.")


def own_key(scope: Scope, key: str) -> str:
    """Return an Idempotency-Key as stored: keys are per user. A header contains no line break."""
    return key if scope.user is None else f"{scope.user}\n{key}"


# ---- stored texts ---------------------------------------------------------------------------------------------------


def unuse(transaction: Transaction, no: int, digest: bytes) -> int:
    """Remove a conversation's reference to a text, unless it is a post's body; return the number of deleted texts."""
    if transaction.one("text_used", no=no, digest=digest) is None:
        transaction.run("text_unuse", no=no, digest=digest)
    return transaction.run("text_drop", digest=digest).rowcount


# ---- erasure epochs -------------------------------------------------------------------------------------------------


def current_epoch(transaction: Transaction, kind: str = "", owner: str = "") -> int:
    """Return the erasure epoch of the tenant or an owner. 0 if nothing was erased."""
    return int(transaction.value("epoch_get", kind=kind, owner=_named(kind, owner)) or 0)


def conversation_epoch(transaction: Transaction, no: int) -> int:
    """Return the number of erasures in a conversation."""
    return current_epoch(transaction, "conversation", str(no))


def raise_epoch(transaction: Transaction, kind: str = "", owner: str = "") -> int:
    """Increment an epoch; return the new one."""
    return int(transaction.value("epoch_raise", kind=kind, owner=_named(kind, owner)))


def bar_epoch(transaction: Transaction, place: Place, category: str, *, no: int, post: str) -> None:
    """Block a post from adding a memory of a category to a place again, because that memory was erased."""
    raise_epoch(transaction, "source", _source(place.kind, place.id, category, no, post))


def is_barred(transaction: Transaction, memory: Memory) -> bool:
    """Return whether all sources of a new memory are blocked in its place."""
    if memory.no or memory.written or not memory.sources:
        return False
    place = memory.place
    for source in memory.sources:
        row = by_id(transaction, source.conversation)
        name = row and _source(place.kind, place.id, memory.category, row.no, source.post)
        if not name or not current_epoch(transaction, "source", name):
            return False
    return True


def _source(*names: object) -> str:
    return "\x00".join(map(str, names))


def _named(kind: str, owner: str) -> str:
    """Return an owner as stored: hashed, so that erased users are not named."""
    return digest_of(f"{kind}\x00{owner}".encode("utf-8", "surrogatepass")).hex() if kind else ""


# ---- corrections ----------------------------------------------------------------------------------------------------


def corrections_of(row: ConversationRow) -> tuple[Correction, ...]:
    """Return a conversation's corrections, in the order they were made."""
    return tuple(record(Correction, each, conversation=row.id) for each in row.rows("corrections_of"))


def last_correction(row: ConversationRow) -> int:
    """Return the number of a conversation's newest correction, 0 for none."""
    return int(row.value("correction_last"))


def keep_corrections(transaction: Transaction, correction: Correction) -> None:
    """Store a correction unless the conversation is gone."""
    row = by_id(transaction, correction.conversation)
    if row is None:
        return
    row.run("correction_again", before=correction.before, text=correction.text)
    newest = corrections_of(row)[-1:]
    if newest != (msgspec.structs.replace(correction, no=newest[0].no if newest else 0, before=""),):
        transaction.run("correction_insert", **(columns(correction) | {"no": row.no}))


def lose_corrections(row: ConversationRow, posts: Collection[str]) -> None:
    """Delete the corrections of erased posts."""
    for each in corrections_of(row):
        left = [post for post in each.posts if post not in posts]
        if not left:
            row.transaction.run("correction_delete", no=each.no)
        elif len(left) < len(each.posts):
            row.transaction.run("correction_posts", no=each.no, posts=encode_json(left))
