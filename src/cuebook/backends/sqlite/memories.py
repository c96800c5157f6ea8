"""Memories of places in SQLite: found by full text with the place as an indexed column, written by compare-and-set."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from cuebook.backends.sqlite import epochs
from cuebook.backends.sqlite.base import SQL, one, rows, run
from cuebook.backends.sqlite.rows import Row
from cuebook.memory.recall import Query, match_expression, read_query
from cuebook.memory.scopes import KEPT, Whose, effective, read_places
from cuebook.memory.words import key_text
from cuebook.ports.memories import Known, MemoryLook, PlaceChange
from cuebook.records.digest import digest_of
from cuebook.records.memory import Memory, Place, Scope, Source

#: A place of so many memories is looked through for a query; a larger one is asked by full text.
SMALL = 1_000
#: A place of so many memories is read whole where something comes to it; of a larger one,
ALL = 500
#: so many that are most like each text.
ALIKE = 40
_COLUMNS = (
    "id", "category", "name", "text", "subject", "status", "trust", "confidence", "weight", "uses", "used_at",
    "decayed_at", "valid_from", "valid_to", "supersedes", "created_at", "updated_at", "no",
)  # fmt: skip

# ---- in the turn ----------------------------------------------------------------------------------------------------


def known(
    connection: sqlite3.Connection, scope: Scope, look: MemoryLook, row: Row | None, keep: Sequence[str] = ()
) -> Known:
    """Read what a turn may know from other conversations. `row` is its conversation, if there is one.

    `keep` are ids of memories it said before.
    """
    metadata = json.loads(row["metadata"]) if row else {}
    policy = effective(look.control, metadata.get(KEPT), look.defaults)
    settings = settings_of(connection, scope.tenant, look.organization) if look.organization else {}
    user = row["user_id"] if row else look.user or scope.user
    alone = row is None or json.loads(row["participants"]) in ([], [user])
    persona = look.persona or (row["persona"] if row else "") or look.otherwise
    whose = Whose(user=user, persona=persona, organization=look.organization, alone=alone)
    places = read_places(policy, whose, settings)
    memories, found = find(connection, scope.tenant, places, look.text, look.limit) if places else ([], [])
    for id_ in set(keep) - {each.id for each in memories} if places else ():
        again = memories_of(connection, rows(connection, "memory_by_id", tenant=scope.tenant, id=id_))
        memories += [each for each in again if each.place in places]
    return Known(policy=policy, places=places, memories=tuple(memories), found=tuple(found), settings=settings)


def used(connection: sqlite3.Connection, tenant: str, nos: Sequence[int], *, by: float, now: float) -> None:
    """Count a use of memories that a window says."""
    if nos:
        run(connection, "memory_used", tenant=tenant, nos=json.dumps(list(nos)), by=by, now=now)


def find(
    connection: sqlite3.Connection, tenant: str, places: Sequence[Place], text: str, limit: int
) -> tuple[list[Memory], list[int]]:
    """Give memories of places: those full text finds, by their numbers best first, and those that stand."""
    found: list[int] = []
    query = read_query(text) if text else None
    for place in places:
        found += matching(connection, tenant, place, query, limit) if query else []
    known: dict[int, Row] = {}
    for place in places:
        for each in rows(connection, "memory_standing", limit=limit, **place_values(tenant, place)):
            known[each["no"]] = each
    if left := [no for no in found if no not in known]:
        known |= {each["no"]: each for each in rows(connection, "memories_by_no", tenant=tenant, nos=json.dumps(left))}
    return memories_of(connection, list(known.values())), [no for no in found if no in known]


def matching(connection: sqlite3.Connection, tenant: str, place: Place, query: Query, limit: int) -> list[int]:
    """Give the numbers of a place's memories that share words with a query, the most first.

    A place of up to SMALL is looked through: full text would walk over the words of everybody's memories to it.
    """
    values = place_values(tenant, place) | {"limit": SMALL + 1}
    keys = connection.execute(SQL["memory_keys"], values).fetchall()
    if len(keys) <= SMALL:
        shared = [(sum(f" {term} " in f" {key} " for term in query.terms), no) for no, key in keys]
        return [no for count, no in sorted(shared, reverse=True)[:limit] if count]
    match = match_expression(query, place_token(tenant, place))
    if match is None:
        return []
    return [no for (no,) in connection.execute(SQL["memory_find"], {"match": match, "limit": limit})]


def like(connection: sqlite3.Connection, tenant: str, place: Place, near: Sequence[str] | None) -> list[Memory]:
    """Give a place's memories: all of them, or of more than ALL those that share the most words with some texts.

    Those that were corrected are among them.
    """
    values = place_values(tenant, place)
    if near is not None and connection.execute(SQL["memory_count"], values).fetchone()[0] > ALL:
        wanted = {no for (no,) in connection.execute(SQL["memory_corrected"], values)}
        for text in near:
            match = match_expression(read_query(text), place_token(tenant, place))
            if match is not None:
                wanted |= {no for (no,) in connection.execute(SQL["memory_find"], {"match": match, "limit": ALIKE})}
        return memories_of(
            connection, rows(connection, "memories_by_no", tenant=tenant, nos=json.dumps(sorted(wanted)))
        )
    return memories_of(connection, rows(connection, "memory_of_place", **values))


def place_token(tenant: str, place: Place) -> str:
    """Give the full-text token of a place."""
    return "p" + digest_of(f"{tenant}\x00{place.kind}\x00{place.id}".encode())[:10].hex()


def wanted(connection: sqlite3.Connection, row: Row, organization: str) -> None:
    """Note that a conversation has something to deliver."""
    run(connection, "delivery_wanted", tenant=row["tenant"], no=row["no"], organization=organization)


# ---- rows -----------------------------------------------------------------------------------------------------------


def change_place(connection: sqlite3.Connection, tenant: str, change: PlaceChange, *, now: float) -> bool:
    """Keep memories as they are to stand; False, and nothing is kept, where the place has moved on."""
    values = place_values(tenant, change.place)
    if generation(connection, values) != change.generation:
        return False
    for memory in change.memories:
        _keep(connection, tenant, memory, now=now)
    if change.memories:
        run(connection, "place_changed", **values)
    return True


def _keep(connection: sqlite3.Connection, tenant: str, memory: Memory, *, now: float) -> None:
    if memory.no and not memory.sources and not memory.written:
        remove(connection, tenant, memory.no)
        return
    if epochs.is_barred(connection, tenant, memory):
        return
    place = place_values(tenant, memory.place)
    values = {name: getattr(memory, name) for name in _COLUMNS} | {"written": int(memory.written), "updated_at": now}
    if memory.no:
        run(connection, "memory_update", **values)
        run(connection, "memory_sources_delete", tenant=tenant, no=memory.no)
        run(connection, "memory_text_delete", no=memory.no)
        no = memory.no
    else:
        no = run(connection, "memory_insert", **place, **(values | {"created_at": now})).fetchone()[0]
    for source in memory.sources:
        conversation = one(connection, "conversation_by_id", tenant=tenant, id=source.conversation)
        at = conversation["no"] if conversation else 0
        run(connection, "memory_source_insert", tenant=tenant, no=no, conversation=at, post=source.post)
    said = f"{memory.name}: {memory.text}" if memory.name else memory.text
    key = key_text("", memory.valid_from, said)
    run(connection, "memory_text_insert", no=no, token=place_token(tenant, memory.place), key=key)


def remove(connection: sqlite3.Connection, tenant: str, no: int) -> int:
    """Remove a memory with its words and sources."""
    run(connection, "memory_sources_delete", tenant=tenant, no=no)
    run(connection, "memory_text_delete", no=no)
    return run(connection, "memory_delete", no=no).rowcount


def memories_of(connection: sqlite3.Connection, found: Sequence[Row]) -> list[Memory]:
    """Read memories from their rows, with their sources."""
    if not found:
        return []
    sources: dict[int, list[Source]] = {}
    nos = json.dumps([each["no"] for each in found])
    for each in rows(connection, "memory_sources", tenant=found[0]["tenant"], nos=nos):
        sources.setdefault(each["memory"], []).append(Source(each["id"], each["post"]))
    return [
        Memory(
            place=Place(row["kind"], row["owner"]),
            written=bool(row["written"]),
            sources=tuple(sources.get(row["no"], ())),
            **{name: row[name] for name in _COLUMNS},
        )
        for row in found
    ]


def settings_of(connection: sqlite3.Connection, tenant: str, organization: str) -> Mapping[str, Any]:
    """Read an organization's settings, none where it has none."""
    row = one(connection, "organization_settings", tenant=tenant, id=organization)
    found: Mapping[str, Any] = json.loads(row["settings"]) if row else {}
    return found


def place_values(tenant: str, place: Place) -> dict[str, str]:
    """Give a place as its columns."""
    return {"tenant": tenant, "kind": place.kind, "owner": place.id}


def generation(connection: sqlite3.Connection, values: Mapping[str, str]) -> int:
    """Read how often a place has changed."""
    row = one(connection, "place_generation", **values)
    return int(row["generation"]) if row else 0
