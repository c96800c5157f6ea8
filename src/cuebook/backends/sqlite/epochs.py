"""How often something was forgotten: who read before it is outdated, and what they derived is refused.

A tenant's epoch counts every forget, and every change of who takes part in a conversation; turns compare it, and what
is kept in memory is dropped where it has moved. A conversation whose posts were erased in part has its own, which a
pass compares. A post whose memory was forgotten while the post stays has one too: what was said before brings it back
no more, what is said anew does.
"""

import sqlite3

from cuebook.backends.sqlite.base import one, run
from cuebook.backends.sqlite.rows import Row
from cuebook.records.digest import digest_of
from cuebook.records.memory import Memory


def current(connection: sqlite3.Connection, tenant: str, kind: str = "", owner: str = "") -> int:
    """Give an epoch: the tenant's, or an owner's. 0 where nothing was forgotten."""
    row = one(connection, "epoch_get", tenant=tenant, kind=kind, owner=_named(kind, owner))
    return int(row["epoch"]) if row else 0


def raised(connection: sqlite3.Connection, tenant: str, kind: str = "", owner: str = "") -> int:
    """Raise an epoch; answers with the new one."""
    found = run(connection, "epoch_raise", tenant=tenant, kind=kind, owner=_named(kind, owner)).fetchone()
    return int(found[0])


def bar(connection: sqlite3.Connection, tenant: str, row: Row, no: int, post: str) -> None:
    """Let a post bring no new memory of a category to a place any more: the one it brought was forgotten."""
    raised(connection, tenant, "source", _source(row["kind"], row["owner"], row["category"], no, post))


def is_barred(connection: sqlite3.Connection, tenant: str, memory: Memory) -> bool:
    """Whether all that a new memory comes from is barred in its place."""
    if memory.no or memory.written or not memory.sources:
        return False
    place = memory.place
    for source in memory.sources:
        row = one(connection, "conversation_by_id", tenant=tenant, id=source.conversation)
        name = row and _source(place.kind, place.id, memory.category, row["no"], source.post)
        if not name or not current(connection, tenant, "source", name):
            return False
    return True


def _source(*names: object) -> str:
    return "\x00".join(map(str, names))


def _named(kind: str, owner: str) -> str:
    """Give an owner as it is kept: who was forgotten is not named."""
    return digest_of(f"{kind}\x00{owner}".encode("utf-8", "surrogatepass")).hex() if kind else ""
