"""Shared helpers of the SQLite store: named statements, rows as dicts, access checks, idempotency keys, epochs."""

import json
import re
import sqlite3
from collections.abc import Awaitable, Callable, Collection
from importlib import resources
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import Struct

from cuebook.errors import Conflict, NotFound
from cuebook.interfaces.prompts import StoredKey
from cuebook.records.digest import digest_of
from cuebook.records.memory import Correction, Memory, Scope
from cuebook.storage.sqlite.rows import Row

# ---- statements by name ---------------------------------------------------------------------------------------------


FILES = (
    "queries.sql",
    "prompts.sql",
    "keys.sql",
    "memories.sql",
    "tuning.sql",
    "vectors.sql",
    "forget.sql",
    "corrections.sql",
    "reflections.sql",
    "outcomes.sql",
    "shadow.sql",
    "spent.sql",
    "talks.sql",
)

_ENTRY = re.compile(r"^-- name: (?P<name>\w+)\n-- (?P<sentence>.+)\n(?P<sql>(?:(?!^-- name:).*\n)+)", re.MULTILINE)


class Statement(Struct, frozen=True):
    """One SQL statement and a sentence that describes it."""

    name: str
    sentence: str
    sql: str


def read_statements(text: str) -> dict[str, Statement]:
    """Parse named statements; a duplicate name is an error."""
    statements: dict[str, Statement] = {}
    for match in _ENTRY.finditer(text):
        name = match["name"]
        if name in statements:
            msg = f"Duplicate statement {name!r}. Rename one of them."
            raise ValueError(msg)
        statements[name] = Statement(name, match["sentence"], match["sql"].strip().rstrip(";"))
    return statements


def load_statements() -> dict[str, str]:
    """Return each shipped statement's SQL by its name."""
    folder = resources.files("cuebook.storage.sqlite")
    text = "\n".join(folder.joinpath(name).read_text("utf-8") for name in FILES)
    return {name: statement.sql for name, statement in read_statements(text).items()}


T = TypeVar("T")

SQL: Final = load_statements()


class SnapshotRunner(Protocol):
    """A function that runs a callback on a connection, in one snapshot or in one transaction."""

    def __call__(self, work: Callable[[sqlite3.Connection], T], /) -> Awaitable[T]: ...


def one(connection: sqlite3.Connection, name: str, /, **values: Any) -> Row | None:
    """Return the first row of a statement as a dict, None for none."""
    cursor = connection.execute(SQL[name], values)
    row = cursor.fetchone()
    return None if row is None else {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def rows(connection: sqlite3.Connection, name: str, /, **values: Any) -> list[Row]:
    """Return all rows of a statement as dicts."""
    cursor = connection.execute(SQL[name], values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def run(connection: sqlite3.Connection, name: str, /, **values: Any) -> sqlite3.Cursor:
    """Run a statement."""
    return connection.execute(SQL[name], values)


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


def find(connection: sqlite3.Connection, scope: Scope, conversation: str) -> Row | None:
    """Return a conversation's row if it exists. Raises NotFound for a conversation of somebody else."""
    row = one(connection, "conversation_by_id", tenant=scope.tenant, id=conversation)
    if row is not None and not visible(row, scope):
        raise not_found(conversation)
    return row


def need(connection: sqlite3.Connection, scope: Scope, conversation: str) -> Row:
    """Return a conversation's row, or raise NotFound."""
    row = find(connection, scope, conversation)
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


def bound(connection: sqlite3.Connection, scope: Scope, stored_key: StoredKey | None, work: Callable[[], T]) -> T:
    """Run a write, bound to an idempotency key if given. Raises Conflict and does nothing if the key is in use."""
    if stored_key is None:
        return work()
    place = {"tenant": scope.tenant, "key": own_key(Scope(user=stored_key.user), stored_key.key)}
    if one(connection, "idempotency_get", **place) is not None:
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
    run(connection, "idempotency_insert", **place, **values)
    return result


def retold(connection: sqlite3.Connection, scope: Scope, stored_key: StoredKey, result: Any) -> None:
    """Replace the stored answer of an idempotency key."""
    key = own_key(Scope(user=stored_key.user), stored_key.key)
    response = _encode(stored_key.answer(result))
    run(connection, "idempotency_retell", tenant=scope.tenant, key=key, digest=stored_key.digest, response=response)


# ---- stored texts ---------------------------------------------------------------------------------------------------


def unuse(connection: sqlite3.Connection, tenant: str, no: int, digest: bytes) -> int:
    """Remove a conversation's reference to a text, unless it is a post's body; return the number of deleted texts."""
    values = {"tenant": tenant, "no": no, "digest": digest}
    if one(connection, "text_used", **values) is None:
        run(connection, "text_unuse", **values)
    return run(connection, "text_drop", tenant=tenant, digest=digest).rowcount


# ---- erasure epochs -------------------------------------------------------------------------------------------------


def current_epoch(connection: sqlite3.Connection, tenant: str, kind: str = "", owner: str = "") -> int:
    """Return the erasure epoch of the tenant or an owner. 0 if nothing was erased."""
    row = one(connection, "epoch_get", tenant=tenant, kind=kind, owner=_named(kind, owner))
    return int(row["epoch"]) if row else 0


def raise_epoch(connection: sqlite3.Connection, tenant: str, kind: str = "", owner: str = "") -> int:
    """Increment an epoch; return the new one."""
    result = run(connection, "epoch_raise", tenant=tenant, kind=kind, owner=_named(kind, owner)).fetchone()
    return int(result[0])


def bar_epoch(connection: sqlite3.Connection, tenant: str, row: Row, no: int, post: str) -> None:
    """Block a post from adding a memory of a category to a place again, because that memory was erased."""
    raise_epoch(connection, tenant, "source", _source(row["kind"], row["owner"], row["category"], no, post))


def is_barred(connection: sqlite3.Connection, tenant: str, memory: Memory) -> bool:
    """Return whether all sources of a new memory are blocked in its place."""
    if memory.no or memory.written or not memory.sources:
        return False
    place = memory.place
    for source in memory.sources:
        row = one(connection, "conversation_by_id", tenant=tenant, id=source.conversation)
        name = row and _source(place.kind, place.id, memory.category, row["no"], source.post)
        if not name or not current_epoch(connection, tenant, "source", name):
            return False
    return True


def _source(*names: object) -> str:
    return "\x00".join(map(str, names))


def _named(kind: str, owner: str) -> str:
    """Return an owner as stored: hashed, so that erased users are not named."""
    return digest_of(f"{kind}\x00{owner}".encode("utf-8", "surrogatepass")).hex() if kind else ""


# ---- corrections ----------------------------------------------------------------------------------------------------


def corrections_of(connection: sqlite3.Connection, tenant: str, no: int, conversation: str) -> tuple[Correction, ...]:
    """Return a conversation's corrections, in the order they were made."""
    return tuple(
        Correction(
            conversation=conversation,
            posts=tuple(json.loads(each["posts"])),
            marks=tuple(json.loads(each["marks"])),
            text=each["text"],
            no=each["no"],
        )
        for each in rows(connection, "corrections_of", tenant=tenant, no=no)
    )


def last_correction(connection: sqlite3.Connection, tenant: str, no: int) -> int:
    """Return the number of a conversation's newest correction, 0 for none."""
    return int(run(connection, "correction_last", tenant=tenant, no=no).fetchone()[0])


def keep_corrections(connection: sqlite3.Connection, scope: Scope, correction: Correction) -> bool:
    """Store a correction; return False if the conversation is gone."""
    row = one(connection, "conversation_by_id", tenant=scope.tenant, id=correction.conversation)
    if row is None:
        return False
    place = {"tenant": scope.tenant, "no": row["no"]}
    run(connection, "correction_again", **place, before=correction.before, text=correction.text)
    newest = corrections_of(connection, scope.tenant, row["no"], correction.conversation)[-1:]
    if [(each.posts, each.marks, each.text) for each in newest] == [
        (correction.posts, correction.marks, correction.text)
    ]:
        return True  # its memory was corrected too
    posts, marks = json.dumps(correction.posts, ensure_ascii=False), json.dumps(correction.marks)
    run(connection, "correction_insert", **place, posts=posts, marks=marks, text=correction.text)
    return True


def lose_corrections(connection: sqlite3.Connection, tenant: str, no: int, posts: Collection[str]) -> None:
    """Delete the corrections of erased posts."""
    for each in corrections_of(connection, tenant, no, ""):
        left = [post for post in each.posts if post not in posts]
        if not left:
            run(connection, "correction_delete", no=each.no)
        elif len(left) < len(each.posts):
            run(connection, "correction_posts", no=each.no, posts=json.dumps(left, ensure_ascii=False))
