"""Store the audit log's hash chain: records are appended in the transaction that they document."""

from collections.abc import Sequence

import msgspec

from cuebook.prompts.chain import link
from cuebook.records.audit import GENESIS, Checkpoint, CommittedText, Record, unreadable
from cuebook.storage.access import current_epoch
from cuebook.storage.database.columns import decode, encode
from cuebook.storage.database.transaction import Noun, Transaction, read, write


class AuditStore(Noun):
    """Audit log of prompts. Records join the hash chain in the transaction of the action."""

    @write
    def append(self, transaction: Transaction, records: Sequence[Record]) -> list[Record]:
        """Append records to the chain in one transaction. Return them as chained."""
        return chained(transaction, records)

    @read
    def records(self, transaction: Transaction, *, after: int = 0, limit: int = 1000) -> list[Record]:
        """Return records after a seq, oldest first."""
        found = transaction.run("audit_records", after=after, limit=limit)
        return [_told(*row) for row in found]

    @read
    def last(self, transaction: Transaction) -> tuple[int, str]:
        """Return seq and hash of the newest record, (0, GENESIS) for none."""
        return _last(transaction)

    @read
    def erasures(self, transaction: Transaction) -> int:
        """Return how often texts of records were erased."""
        return current_epoch(transaction, "audit")

    @read
    def exports(self, transaction: Transaction) -> list[int]:
        """Return the records of exports and backups, newest first."""
        return [seq for (seq,) in transaction.run("audit_exports")]

    @read
    def checkpoints(self, transaction: Transaction) -> list[Checkpoint]:
        """Return the checkpoints, smallest first."""
        return [_signed(*row) for row in transaction.run("audit_checkpoints")]

    @write
    def keep_checkpoint(self, transaction: Transaction, checkpoint: Checkpoint) -> None:
        """Store a checkpoint."""
        values = {"size": checkpoint.size, "body": encode(checkpoint)}
        transaction.run("audit_checkpoint_put", **values)


def chained(transaction: Transaction, records: Sequence[Record]) -> list[Record]:
    """Append records inside a transaction; return them as stored in the chain."""
    if not records:
        return []
    transaction.lock("audit log")
    seq, prev = _last(transaction)
    found: list[Record] = []
    for record in records:
        seq += 1
        made = link(msgspec.structs.replace(record, seq=seq), prev)
        prev = made.hash
        body, texts = encode(msgspec.structs.replace(made, texts={})), encode(made.texts)
        transaction.run("audit_insert", seq=seq, hash=prev, body=body, texts=texts)
        found.append(made)
    return found


def read_record(body: bytes, texts: bytes) -> Record | None:
    """Parse a row's record, None if it is damaged."""
    try:
        return msgspec.structs.replace(decode(Record, body), texts=decode(dict[str, CommittedText], texts))
    except (ValueError, TypeError):  # msgspec's errors are ValueErrors
        return None


def _told(seq: int, own: str, body: bytes, texts: bytes) -> Record:
    """Parse a row's record; a damaged row becomes a record that fails verification."""
    record = read_record(body, texts)
    if record is None or record.seq != seq:
        return unreadable(seq)
    return record if record.hash == own else msgspec.structs.replace(record, hash="")


def _signed(size: int, body: bytes) -> Checkpoint:
    """Parse a row's checkpoint; a damaged one has no signature."""
    try:
        return decode(Checkpoint, body)
    except (ValueError, TypeError):
        return Checkpoint(origin="", size=size, root="", time="an unknown time")


def _last(transaction: Transaction) -> tuple[int, str]:
    row = transaction.one("audit_last")
    return (row["seq"], row["hash"]) if row else (0, GENESIS)
