"""Check access to a conversation, bind idempotency keys, and count erasures (epochs), inside a transaction."""

import json
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import msgspec

from cuebook.errors import Conflict, NotFound
from cuebook.interfaces.prompts import StoredKey
from cuebook.records.digest import digest_of
from cuebook.records.memory import Correction, Memory, Scope
from cuebook.storage.database.transaction import Row, Transaction

T = TypeVar("T")


def visible(row: Row, scope: Scope) -> bool:
    """Return whether the caller takes part in a conversation; a caller without a name is the owner.

    A conversation without a user is visible to everybody, unless callers are authenticated by keys.
    """
    if scope.user is None or (row["user_id"] is None and not scope.proven):
        return True
    return scope.user in json.loads(row["participants"])


def awaits_owner(row: Row) -> bool:
    """Return whether a conversation is empty and has no owner yet."""
    return row["user_id"] is None and not row["last_seq"]


def find(transaction: Transaction, scope: Scope, conversation: str) -> Row | None:
    """Return a conversation's row if it exists. Raises NotFound for a conversation of somebody else."""
    row = transaction.one("conversation_by_id", tenant=scope.tenant, id=conversation)
    if row is not None and not visible(row, scope):
        raise not_found(conversation)
    return row


def need(transaction: Transaction, scope: Scope, conversation: str) -> Row:
    """Return a conversation's row, or raise NotFound."""
    row = find(transaction, scope, conversation)
    if row is None:
        raise not_found(conversation)
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


# ---- idempotency ----------------------------------------------------------------------------------------------------


_encode = msgspec.json.Encoder().encode


def bound(transaction: Transaction, scope: Scope, stored_key: StoredKey | None, work: Callable[[], T]) -> T:
    """Run a write, bound to an idempotency key if given. Raises Conflict and does nothing if the key is in use."""
    if stored_key is None:
        return work()
    place = {"tenant": scope.tenant, "key": own_key(Scope(user=stored_key.user), stored_key.key)}
    if transaction.one("idempotency_get", **place) is not None:
        msg = "The Idempotency-Key is in use by another request. Use a new key."
        raise Conflict(msg)
    result = work()
    values = {
        "digest": stored_key.digest,
        "no": 0,
        "turn": 0,
        "response": _encode(stored_key.answer(result)),
        "now": stored_key.at,
    }
    transaction.run("idempotency_insert", **place, **values)
    return result


def retold(transaction: Transaction, scope: Scope, stored_key: StoredKey, result: Any) -> None:
    """Replace the stored answer of an idempotency key."""
    key = own_key(Scope(user=stored_key.user), stored_key.key)
    response = _encode(stored_key.answer(result))
    transaction.run("idempotency_retell", tenant=scope.tenant, key=key, digest=stored_key.digest, response=response)


# ---- stored texts ---------------------------------------------------------------------------------------------------


def unuse(transaction: Transaction, tenant: str, no: int, digest: bytes) -> int:
    """Remove a conversation's reference to a text, unless it is a post's body; return the number of deleted texts."""
    values = {"tenant": tenant, "no": no, "digest": digest}
    if transaction.one("text_used", **values) is None:
        transaction.run("text_unuse", **values)
    return transaction.run("text_drop", tenant=tenant, digest=digest).rowcount


# ---- erasure epochs -------------------------------------------------------------------------------------------------


def current_epoch(transaction: Transaction, tenant: str, kind: str = "", owner: str = "") -> int:
    """Return the erasure epoch of the tenant or an owner. 0 if nothing was erased."""
    row = transaction.one("epoch_get", tenant=tenant, kind=kind, owner=_named(kind, owner))
    return int(row["epoch"]) if row else 0


def raise_epoch(transaction: Transaction, tenant: str, kind: str = "", owner: str = "") -> int:
    """Increment an epoch; return the new one."""
    result = transaction.run("epoch_raise", tenant=tenant, kind=kind, owner=_named(kind, owner)).fetchone()
    return int(result[0])


def bar_epoch(transaction: Transaction, tenant: str, row: Row, no: int, post: str) -> None:
    """Block a post from adding a memory of a category to a place again, because that memory was erased."""
    raise_epoch(transaction, tenant, "source", _source(row["kind"], row["owner"], row["category"], no, post))


def is_barred(transaction: Transaction, tenant: str, memory: Memory) -> bool:
    """Return whether all sources of a new memory are blocked in its place."""
    if memory.no or memory.written or not memory.sources:
        return False
    place = memory.place
    for source in memory.sources:
        row = transaction.one("conversation_by_id", tenant=tenant, id=source.conversation)
        name = row and _source(place.kind, place.id, memory.category, row["no"], source.post)
        if not name or not current_epoch(transaction, tenant, "source", name):
            return False
    return True


def _source(*names: object) -> str:
    return "\x00".join(map(str, names))


def _named(kind: str, owner: str) -> str:
    """Return an owner as stored: hashed, so that erased users are not named."""
    return digest_of(f"{kind}\x00{owner}".encode("utf-8", "surrogatepass")).hex() if kind else ""


# ---- corrections ----------------------------------------------------------------------------------------------------


def corrections_of(transaction: Transaction, tenant: str, no: int, conversation: str) -> tuple[Correction, ...]:
    """Return a conversation's corrections, in the order they were made."""
    return tuple(
        Correction(
            conversation=conversation,
            posts=tuple(json.loads(each["posts"])),
            marks=tuple(json.loads(each["marks"])),
            text=each["text"],
            no=each["no"],
        )
        for each in transaction.rows("corrections_of", tenant=tenant, no=no)
    )


def last_correction(transaction: Transaction, tenant: str, no: int) -> int:
    """Return the number of a conversation's newest correction, 0 for none."""
    return int(transaction.value("correction_last", tenant=tenant, no=no))


def keep_corrections(transaction: Transaction, scope: Scope, correction: Correction) -> bool:
    """Store a correction; return False if the conversation is gone."""
    row = transaction.one("conversation_by_id", tenant=scope.tenant, id=correction.conversation)
    if row is None:
        return False
    place = {"tenant": scope.tenant, "no": row["no"]}
    transaction.run("correction_again", **place, before=correction.before, text=correction.text)
    newest = corrections_of(transaction, scope.tenant, row["no"], correction.conversation)[-1:]
    if [(each.posts, each.marks, each.text) for each in newest] == [
        (correction.posts, correction.marks, correction.text)
    ]:
        return True  # its memory was corrected too
    posts, marks = json.dumps(correction.posts, ensure_ascii=False), json.dumps(correction.marks)
    transaction.run("correction_insert", **place, posts=posts, marks=marks, text=correction.text)
    return True


def lose_corrections(transaction: Transaction, tenant: str, no: int, posts: Collection[str]) -> None:
    """Delete the corrections of erased posts."""
    for each in corrections_of(transaction, tenant, no, ""):
        left = [post for post in each.posts if post not in posts]
        if not left:
            transaction.run("correction_delete", no=each.no)
        elif len(left) < len(each.posts):
            transaction.run("correction_posts", no=each.no, posts=json.dumps(left, ensure_ascii=False))
