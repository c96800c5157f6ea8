"""The memories of a SQLite store: each call one snapshot, or one transaction."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from cuebook.backends.sqlite import corrections, deliveries, memories, withdrawals
from cuebook.backends.sqlite.base import SQL, Run, rows, run
from cuebook.backends.sqlite.correction_store import SqliteCorrections
from cuebook.backends.sqlite.rows import Row
from cuebook.backends.sqlite.search import Kept
from cuebook.ports.memories import Asked, Delivered, Delivering, Matched, PlaceChange
from cuebook.records.memory import Memory, Place, Scope


class SqliteMemories:
    """The memories of a SQLite store."""

    def __init__(self, read: Run, write: Run, kept: Kept) -> None:
        self._read = read
        self._write = write
        self._kept = kept
        self.corrections = SqliteCorrections(read, write)

    async def undelivered(self, *, limit: int = 100) -> list[tuple[str, str]]:
        """Name conversations that have something to deliver: tenant and id."""
        return await self._read(lambda c: c.execute(SQL["deliveries_due"], {"limit": limit}).fetchall())

    async def delivering(self, scope: Scope, conversation: str, *, limit: int) -> Delivering | None:
        """Read what a delivery needs, at most `limit` posts; None where nothing is to be delivered."""
        return await self._read(lambda c: deliveries.delivering(c, scope, conversation, limit))

    async def deliver(self, scope: Scope, delivered: Delivered) -> bool:
        """Keep a delivery; False, and nothing is kept, where the mark or a place has moved on."""
        return await self._write(lambda c: deliveries.deliver(c, scope, delivered))

    async def withdraw(self, scope: Scope, left: Delivering, *, now: float) -> bool:
        """Take back what the head's path has left; False, and nothing is changed, where the mark has moved on."""
        return await self._write(lambda c: withdrawals.withdraw(c, scope, left, now=now))

    async def outbox(self, *, sinks: Sequence[str], limit: int = 100) -> list[tuple[int, str, str, str, int]]:
        """Give passes noted for sinks: number, sink, tenant, conversation, version."""
        values = {"sinks": json.dumps(list(sinks)), "limit": limit}
        return await self._read(lambda c: c.execute(SQL["outbox_of"], values).fetchall())

    async def crossed_off(self, nos: Sequence[int]) -> None:
        """Cross passes off."""

        def write(connection: sqlite3.Connection) -> None:
            for no in nos:
                run(connection, "outbox_delete", no=no)

        await self._write(write)

    async def idle(
        self, scope: Scope, *, before: float, categories: Sequence[str], limit: int = 500
    ) -> list[tuple[str, Memory]]:
        """Give memories nobody touched since a time, each with its tenant: of all, or of the one a key proves."""
        values = {"tenant": scope.tenant if scope.proven else None, "before": before, "limit": limit}

        def read(connection: sqlite3.Connection) -> list[tuple[str, Memory]]:
            found = rows(connection, "memory_idle", categories=json.dumps(list(categories)), **values)
            return [(row["tenant"], memory) for row in found for memory in memories.memories_of(connection, [row])]

        return await self._read(read)

    async def places(self, scope: Scope, user: str) -> list[Place]:
        """Give the places there are of a user: theirs, and what each persona knows of them."""
        values = {"tenant": scope.tenant, "user": user}
        return await self._read(lambda c: [Place(*each) for each in c.execute(SQL["places_with"], values)])

    async def place(
        self, scope: Scope, place: Place, *, near: Sequence[str] | None = None, ids: Sequence[str] = ()
    ) -> tuple[int, list[Memory]]:
        """Give a place's generation and all its memories, ended ones too; of a large one those like some texts, and
        those of some ids.
        """

        def read(connection: sqlite3.Connection) -> tuple[int, list[Memory]]:
            values = memories.place_values(scope.tenant, place)
            return memories.generation(connection, values), memories.like(connection, scope.tenant, place, near, ids)

        return await self._read(read)

    async def find(self, scope: Scope, places: Sequence[Place], asked: Asked) -> Matched:
        """Give memories of places that answer what is asked, by words and by meaning, and those that stand."""
        return await self._read(lambda c: memories.find(c, scope.tenant, places, asked, self._kept))

    async def page(
        self,
        scope: Scope,
        places: Sequence[Place] | None,
        *,
        ended: bool = False,
        category: str | None = None,
        after: int = 0,
        limit: int = 50,
    ) -> list[Memory]:
        """List memories of places, or of all there are, in the order they came, behind a number."""

        def read(connection: sqlite3.Connection) -> list[Memory]:
            values = {"tenant": scope.tenant, "after": after, "ended": ended, "category": category, "limit": limit}
            if places is None:
                return memories.memories_of(connection, rows(connection, "memory_page_of_all", **values))
            found: list[Row] = []
            for place in places:
                found += rows(connection, "memory_page", kind=place.kind, owner=place.id, **values)
            found.sort(key=lambda each: each["no"])
            return memories.memories_of(connection, found[:limit])

        return await self._read(read)

    async def get(
        self,
        scope: Scope,
        id: str,  # noqa: A002  # the wire's name
        *,
        places: Sequence[Place] | None = None,
    ) -> list[Memory]:
        """Give the memories of an id, one a place."""

        def read(connection: sqlite3.Connection) -> list[Memory]:
            known = rows(connection, "memory_by_id", tenant=scope.tenant, id=id)
            found = memories.memories_of(connection, known)
            return [each for each in found if places is None or each.place in places]

        return await self._read(read)

    async def settings(self, scope: Scope, organization: str) -> Mapping[str, Any]:
        """Give an organization's settings, none where it has none."""
        return await self._read(lambda c: memories.settings_of(c, scope.tenant, organization))

    async def save(self, scope: Scope, change: PlaceChange, *, now: float) -> bool:
        """Keep memories as they are to stand; False, and nothing is kept, where the place has moved on."""
        return await self._write(lambda c: _save(c, scope, change, now=now))

    async def remove(self, scope: Scope, gone: Sequence[Memory]) -> int:
        """Remove memories with their words and sources; answers with how many there were."""

        def write(connection: sqlite3.Connection) -> int:
            count = 0
            for each in gone:
                count += memories.remove(connection, scope.tenant, each.no)
                run(connection, "place_changed", **memories.place_values(scope.tenant, each.place))
            return count

        return await self._write(write)


def _save(connection: sqlite3.Connection, scope: Scope, change: PlaceChange, *, now: float) -> bool:
    if not memories.change_place(connection, scope.tenant, change, now=now):
        return False
    for each in change.corrections:
        corrections.keep(connection, scope, each)
    return True
