"""The audit's chain in a SQLite store: records join it in the transaction of what they tell."""

import sqlite3
from collections.abc import Sequence

import msgspec

from cuebook.backends.sqlite.base import SQL, Run, one, run
from cuebook.prompts.chain import link
from cuebook.records.audit import GENESIS, Checkpoint, Record, Text
from cuebook.records.memory import Scope

_record = msgspec.json.Decoder(Record).decode
_texts = msgspec.json.Decoder(dict[str, Text]).decode
_checkpoint = msgspec.json.Decoder(Checkpoint).decode
_encode = msgspec.json.Encoder().encode


class SqliteAudit:
    """The audit of a SQLite store."""

    def __init__(self, read: Run, write: Run) -> None:
        self._read = read
        self._write = write

    async def append(self, scope: Scope, records: Sequence[Record]) -> list[Record]:
        """Chain records behind the last one."""
        return await self._write(lambda c: chained(c, scope.tenant, records))

    async def records(self, scope: Scope, *, after: int = 0, limit: int = 1000) -> list[Record]:
        """Give records behind a seq."""

        def read(connection: sqlite3.Connection) -> list[Record]:
            found = run(connection, "audit_records", tenant=scope.tenant, after=after, limit=limit)
            return [msgspec.structs.replace(_record(body), texts=_texts(texts)) for body, texts in found]

        return await self._read(read)

    async def last(self, scope: Scope) -> tuple[int, str]:
        """Give where the chain stands."""
        return await self._read(lambda c: _last(c, scope.tenant))

    async def checkpoints(self, scope: Scope) -> list[Checkpoint]:
        """Give the checkpoints."""
        return await self._read(
            lambda c: [_checkpoint(body) for (body,) in run(c, "audit_checkpoints", tenant=scope.tenant)]
        )

    async def keep_checkpoint(self, scope: Scope, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint."""
        values = {"tenant": scope.tenant, "size": checkpoint.size, "body": _encode(checkpoint)}
        await self._write(lambda c: c.execute(SQL["audit_checkpoint_put"], values).rowcount)


def chained(connection: sqlite3.Connection, tenant: str, records: Sequence[Record]) -> list[Record]:
    """Chain records inside a transaction, and give them as they stand in the chain."""
    if not records:
        return []
    seq, prev = _last(connection, tenant)
    found: list[Record] = []
    for record in records:
        seq += 1
        made = link(msgspec.structs.replace(record, seq=seq), prev)
        prev = made.hash
        body, texts = _encode(msgspec.structs.replace(made, texts={})), _encode(made.texts)
        run(connection, "audit_insert", tenant=tenant, seq=seq, hash=prev, body=body, texts=texts)
        found.append(made)
    return found


def _last(connection: sqlite3.Connection, tenant: str) -> tuple[int, str]:
    row = one(connection, "audit_last", tenant=tenant)
    return (row["seq"], row["hash"]) if row else (0, GENESIS)
