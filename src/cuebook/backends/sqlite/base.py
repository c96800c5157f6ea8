"""What every part of the SQLite store shares: statements by name, rows as dicts, and who may see a conversation."""

import json
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

from cuebook.backends.sqlite import named
from cuebook.backends.sqlite.rows import Row
from cuebook.errors import Conflict, NotFound
from cuebook.records.memory import Scope

T = TypeVar("T")

SQL: Final = named.load()


class Run(Protocol):
    """How a store runs something on a connection: in one snapshot, or in one transaction."""

    def __call__(self, work: Callable[[sqlite3.Connection], T], /) -> Awaitable[T]: ...


def one(connection: sqlite3.Connection, name: str, /, **values: Any) -> Row | None:
    """Give the first row of a statement as a dict, None for none."""
    cursor = connection.execute(SQL[name], values)
    row = cursor.fetchone()
    return None if row is None else {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def rows(connection: sqlite3.Connection, name: str, /, **values: Any) -> list[Row]:
    """Give all rows of a statement as dicts."""
    cursor = connection.execute(SQL[name], values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def run(connection: sqlite3.Connection, name: str, /, **values: Any) -> sqlite3.Cursor:
    """Run a statement."""
    return connection.execute(SQL[name], values)


def visible(row: Row, scope: Scope) -> bool:
    """Whether who asks takes part; nobody named is the owner.

    A conversation without a user is everybody's, but where keys say who asks.
    """
    if scope.user is None or (row["user_id"] is None and not scope.proven):
        return True
    return scope.user in json.loads(row["participants"])


def awaits_owner(row: Row) -> bool:
    """Whether nothing was said in a conversation, and it is nobody's yet."""
    return row["user_id"] is None and not row["last_seq"]


def find(connection: sqlite3.Connection, scope: Scope, conversation: str) -> Row | None:
    """Give a conversation's row if it exists. One of somebody else's is NotFound, as if it did not."""
    row = one(connection, "conversation_by_id", tenant=scope.tenant, id=conversation)
    if row is not None and not visible(row, scope):
        raise not_found(conversation)
    return row


def need(connection: sqlite3.Connection, scope: Scope, conversation: str) -> Row:
    """Give a conversation's row, or raise NotFound."""
    row = find(connection, scope, conversation)
    if row is None:
        raise not_found(conversation)
    return row


def not_found(conversation: str) -> NotFound:
    """Say the one thing for what does not exist and what belongs to others."""
    return NotFound(f"no conversation {conversation!r}; `cuebook conversation list` names those there are")


def moved(conversation: str) -> Conflict:
    """Say that the state has moved on since the scene was read."""
    return Conflict(f"conversation {conversation!r} has moved on since it was read; read it again")


def own_key(scope: Scope, key: str) -> str:
    """Give an Idempotency-Key as it is kept: each user's keys are their own. A header holds no line break."""
    return key if scope.user is None else f"{scope.user}\n{key}"
