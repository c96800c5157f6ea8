"""Store the audit log's hash chain in SQLite: records are appended in the transaction that they document."""

import sqlite3
from collections.abc import Sequence

import msgspec

from cuebook.prompts.chain import link
from cuebook.records.audit import GENESIS, Checkpoint, CommittedText, Record, unreadable
from cuebook.records.memory import Scope
from cuebook.storage.sqlite.base import SQL, SnapshotRunner, one, run

_record = msgspec.json.Decoder(Record).decode
_texts = msgspec.json.Decoder(dict[str, CommittedText]).decode
_checkpoint = msgspec.json.Decoder(Checkpoint).decode
_encode = msgspec.json.Encoder().encode


class SqliteAudit:
    """The audit log of a SQLite store."""

    def __init__(self, read: SnapshotRunner, write: SnapshotRunner) -> None:
        self._read = read
        self._write = write

    async def append(self, scope: Scope, records: Sequence[Record]) -> list[Record]:
        """Append records to the chain."""
        return await self._write(lambda c: chained(c, scope.tenant, records))

    async def records(self, scope: Scope, *, after: int = 0, limit: int = 1000) -> list[Record]:
        """Return the records after a seq."""

        def read(connection: sqlite3.Connection) -> list[Record]:
            found = run(connection, "audit_records", tenant=scope.tenant, after=after, limit=limit)
            return [_told(*row) for row in found]

        return await self._read(read)

    async def last(self, scope: Scope) -> tuple[int, str]:
        """Return the seq and hash of the last record."""
        return await self._read(lambda c: _last(c, scope.tenant))

    async def checkpoints(self, scope: Scope) -> list[Checkpoint]:
        """Return the checkpoints."""
        return await self._read(lambda c: [_signed(*row) for row in run(c, "audit_checkpoints", tenant=scope.tenant)])

    async def keep_checkpoint(self, scope: Scope, checkpoint: Checkpoint) -> None:
        """Store a checkpoint."""
        values = {"tenant": scope.tenant, "size": checkpoint.size, "body": _encode(checkpoint)}
        await self._write(lambda c: c.execute(SQL["audit_checkpoint_put"], values).rowcount)


def chained(connection: sqlite3.Connection, tenant: str, records: Sequence[Record]) -> list[Record]:
    """Append records inside a transaction; return them as stored in the chain."""
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


def _told(seq: int, own: str, body: bytes, texts: bytes) -> Record:
    """Parse a row's record; a damaged row becomes a record that fails verification."""
    try:
        record = msgspec.structs.replace(_record(body), texts=_texts(texts))
    except (ValueError, TypeError):  # msgspec's errors are ValueErrors
        return unreadable(seq)
    if record.seq != seq:
        return unreadable(seq)
    return record if record.hash == own else msgspec.structs.replace(record, hash="")


def _signed(size: int, body: bytes) -> Checkpoint:
    """Parse a row's checkpoint; a damaged one has no signature."""
    try:
        return _checkpoint(body)
    except (ValueError, TypeError):
        return Checkpoint(origin="", size=size, root="", time="an unknown time")


def _last(connection: sqlite3.Connection, tenant: str) -> tuple[int, str]:
    row = one(connection, "audit_last", tenant=tenant)
    return (row["seq"], row["hash"]) if row else (0, GENESIS)
