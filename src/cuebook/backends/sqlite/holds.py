"""Legal holds in SQLite: what they keep is not forgotten, by whoever asks or by its age."""

import sqlite3
from collections.abc import Callable

import msgspec

from cuebook.backends.sqlite.base import rows, run
from cuebook.backends.sqlite.rows import Row
from cuebook.errors import Conflict
from cuebook.records.erasure import Hold, Target

#: What something belongs to: kinds and ids, as holds name them.
Owners = frozenset[tuple[str, str]]

_hold = msgspec.json.Decoder(Hold).decode


def holds(connection: sqlite3.Connection, tenant: str) -> list[Hold]:
    """Give the holds of a tenant, by id."""
    return [_hold(body) for (body,) in run(connection, "holds", tenant=tenant)]


def keeping(connection: sqlite3.Connection, tenant: str, target: Target, owned: set[Owners]) -> list[Hold]:
    """Give the holds that name what is to go, or something it belongs to.

    Of conversations and memories only those found count: who names others' learns of no hold.
    """
    named = () if target.kind in ("conversation", "memory") else target.ids
    touched = {(target.kind, each) for each in named}.union(*owned)
    return [hold for hold in holds(connection, tenant) if (hold.kind, hold.owner) in touched]


def held(hold: Hold) -> Conflict:
    """Say that a hold forbids it."""
    return Conflict(
        f"hold {hold.id!r} keeps {hold.kind} {hold.owner!r}; nothing was forgotten: `cuebook hold release "
        f"{hold.id}` ends it"
    )


def owners(row: Row) -> Owners:
    """Give what a conversation belongs to."""
    named = (("conversation", row["id"]), ("user", row["user_id"]), ("persona", row["persona"]))
    return frozenset((kind, name) for kind, name in named if name)


def owners_of_memory(row: Row) -> Owners:
    """Give what a memory belongs to."""
    owner, _, user = row["owner"].partition("\x1f")
    return frozenset({("memory", row["id"]), (row["kind"], owner), *([("user", user)] if user else [])})


def idle(
    connection: sqlite3.Connection,
    name: str,
    belongs: Callable[[Row], Owners],
    before: float,
    limit: int,
) -> list[tuple[str, str]]:
    """Give what a statement finds that no hold keeps, in its order: tenant and id."""
    kept: dict[str, set[tuple[str, str]]] = {}
    found: list[tuple[str, str]] = []
    after, after_no = float("-inf"), 0
    while len(found) < limit:
        values = {"before": before, "after": after, "after_no": after_no, "limit": limit}
        page = rows(connection, name, **values)
        for row in page:
            tenant = row["tenant"]
            if tenant not in kept:
                kept[tenant] = {(hold.kind, hold.owner) for hold in holds(connection, tenant)}
            if kept[tenant].isdisjoint(belongs(row)):
                found.append((tenant, row["id"]))
        if len(page) < limit:
            break
        after, after_no = page[-1]["at"], page[-1]["no"]
    return found[:limit]
