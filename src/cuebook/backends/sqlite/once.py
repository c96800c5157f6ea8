"""What is done once under an Idempotency-Key: the effect, the key and its answer come in one transaction."""

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from cuebook.backends.sqlite.base import one, own_key, run
from cuebook.errors import Conflict
from cuebook.ports.prompts import Once
from cuebook.records.memory import Scope

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


def bound(connection: sqlite3.Connection, scope: Scope, once: Once | None, work: Callable[[], T]) -> T:
    """Do something, under a key where there is one. Raises Conflict, and nothing is done, where the key stands."""
    if once is None:
        return work()
    place = {"tenant": scope.tenant, "key": own_key(Scope(user=once.user), once.key)}
    if one(connection, "idempotency_get", **place) is not None:
        msg = "the Idempotency-Key is in use by another request; choose a new one"
        raise Conflict(msg)
    result = work()
    told = {"digest": once.digest, "no": 0, "turn": 0, "response": _encode(once.answer(result)), "now": once.at}
    run(connection, "idempotency_insert", **place, **told)
    return result


def retold(connection: sqlite3.Connection, scope: Scope, once: Once, result: Any) -> None:
    """Keep another answer under a key that stands."""
    key = own_key(Scope(user=once.user), once.key)
    response = _encode(once.answer(result))
    run(connection, "idempotency_retell", tenant=scope.tenant, key=key, digest=once.digest, response=response)
