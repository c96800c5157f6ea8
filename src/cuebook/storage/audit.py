"""Store the audit log's hash chain, and verify documents and memories against their seals.

Records are appended in the transaction that they document.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from cuebook.prompts.chain import link
from cuebook.records.audit import (
    FORGET,
    GENESIS,
    SEAL,
    AlteredRow,
    Checkpoint,
    CommittedText,
    Record,
    RowChange,
    RowKind,
    SealReport,
    plain_record,
    unreadable,
)
from cuebook.records.erasure import Receipt
from cuebook.records.expression import counted
from cuebook.storage.access import current_epoch
from cuebook.storage.database.columns import LARGEST, Row, decode, encode
from cuebook.storage.database.seals import (
    MODULUS,
    Change,
    SealedTable,
    Total,
    keep_total,
    mac_of,
    name_of,
    next_total,
    read_total,
    record_mac,
    store_seals,
    term_of,
)
from cuebook.storage.database.transaction import Noun, Transaction, read, read_all, write

#: Rows that are read at once.
_PAGE: Final = 1000
#: Altered rows that a report lists.
_LISTED: Final = 100
_OLDER: Final = "documents and memories were replaced by an older copy"


class Pages(Struct, frozen=True):
    """How the rows of a table are read: a statement, the columns of its key, and the values before the first row."""

    table: SealedTable
    statement: str
    first: Mapping[str, Any]


_ALL: Final = (
    Pages("document", "sealed_documents", {"user_id": "", "space": b"", "key": b""}),
    Pages("memory", "sealed_memories", {"no": -LARGEST}),
    Pages("memory_source", "sealed_sources", {"memory": -LARGEST, "conversation": 0, "post": ""}),
)
_KINDS: Final[Mapping[SealedTable, RowKind]] = {
    "document": "document", "memory": "memory", "memory_source": "source",
}  # fmt: skip


class LogHead(Struct, frozen=True):
    """The state of a tenant's log: its last record, the newest checkpoint's size, and the unrecorded changes."""

    tenant: str
    last: int
    signed: int
    unrecorded: int


class AuditStore(Noun):
    """Audit log of prompts. Records join the hash chain in the transaction of the action."""

    lenient = True  # a verification names damaged rows

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
    def receipts(self, transaction: Transaction) -> tuple[dict[str, Receipt | None], list[Record]]:
        """Return the receipts of erasures by ID, None for a damaged one, and the records of erasures, oldest first."""
        receipts = {str(id_): _receipt(body) for id_, body in transaction.run("receipts_all")}
        return receipts, _of_event(transaction, FORGET)

    @read_all
    def heads(self, transaction: Transaction) -> list[LogHead]:
        """Return the state of the log of each tenant that has audit records or seals."""
        return transaction.records(LogHead, "audit_heads")

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


def _receipt(body: bytes) -> Receipt | None:
    """Parse a row's receipt, None if it is damaged."""
    try:
        return decode(Receipt, body)
    except (ValueError, TypeError):
        return None


def _of_event(transaction: Transaction, event: str) -> list[Record]:
    """Return the readable records of an event, without their texts, oldest first."""
    rows = transaction.run("audit_of_event", event=f'"event":"{event}"').fetchall()
    records = (read_record(body, b"{}") for (body,) in rows)
    return [each for each in records if each is not None and each.event == event]


def _last(transaction: Transaction) -> tuple[int, str]:
    row = transaction.one("audit_last")
    return (row["seq"], row["hash"]) if row else (0, GENESIS)


# ---- seals -----------------------------------------------------------------------------------------------------------


class SealStore(Noun):
    """Checks the seals of documents and memories, and records their sum in the audit log."""

    lenient = True

    @read
    def unrecorded(self, transaction: Transaction) -> int:
        """Return the number of changes since the last audit record of them."""
        total = read_total(transaction.run, transaction.scope.tenant, self.database.key)
        return max(0, total.changes - total.recorded)

    @write
    def record(self, transaction: Transaction, *, timestamp: str) -> None:
        """Append an audit record of the sum, if it has changed since the last one."""
        total = read_total(transaction.run, transaction.scope.tenant, self.database.key)
        if total.changes > total.recorded:
            total = next_total(transaction.run, transaction.scope.tenant, self.database.key)
            self._record(transaction, total, timestamp=timestamp)

    @read
    def check(self, transaction: Transaction) -> SealReport:
        """Compare all rows with their seals, their sum and its last audit record."""
        return self._check(transaction)

    @write
    def accept(self, transaction: Transaction, *, timestamp: str) -> SealReport:
        """Seal all rows as they are now, and record that. Return what the seals said before."""
        key, tenant = self.database.key, transaction.scope.tenant
        report = self._check(transaction)
        total = next_total(transaction.run, tenant, key)
        transaction.run("seals_delete_all")
        total.value = 0
        keep_total(transaction.run, tenant, total, key)
        for page in _rows(transaction):
            changes = {(tenant, name): Change(table, after=row) for name, (table, row) in page.items()}
            store_seals(transaction.run, changes, key)
        total = next_total(transaction.run, tenant, key)
        self._record(transaction, total, timestamp=timestamp, accepted=report.found)
        return report

    def _record(self, transaction: Transaction, total: Total, *, timestamp: str, accepted: int | None = None) -> None:
        selection: dict[str, Any] = {"changes": total.changes, "after": total.recorded}
        if accepted is not None:
            selection["accepted"] = accepted
        total.recorded = total.changes
        selection["sum"] = keep_total(transaction.run, transaction.scope.tenant, total, self.database.key).hex()
        transaction.lock("audit log")
        seq = _last(transaction)[0] + 1
        selection["mac"] = record_mac(selection, transaction.scope.tenant, seq, self.database.key)
        chained(transaction, [plain_record(SEAL, timestamp=timestamp, selection=selection)])

    def _check(self, transaction: Transaction) -> SealReport:
        key = self.database.key
        total = read_total(transaction.run, transaction.scope.tenant, key)
        left, count, value = dict(transaction.run("seals_of").fetchall()), 0, 0  # of rows: seals, number, sum
        altered: list[AlteredRow] = []
        for page in _rows(transaction):
            for name, (table, row) in page.items():
                count += table != "memory_source"
                mac, seal = mac_of(table, row, key), left.pop(name, None)
                value += term_of(name, mac, key)
                if mac != seal:
                    altered.append(_altered(name, "changed" if seal else "inserted"))
        altered += [_altered(name, "removed") for name in left]
        rows = counted(len(altered), "row")
        reason = f"somebody altered {rows} of documents and memories without Cuebook" if altered else ""
        reason = reason or _fault_of(
            total, value % MODULUS, _of_event(transaction, SEAL), transaction.scope.tenant, key
        )
        return SealReport(rows=count, found=len(altered), altered=tuple(altered[:_LISTED]), reason=reason)


def _rows(transaction: Transaction) -> Iterator[dict[str, tuple[SealedTable, Row]]]:
    """Yield all sealed rows by name, some at a time."""
    for pages in _ALL:
        after = pages.first
        while rows := transaction.rows(pages.statement, limit=_PAGE, **after):
            yield {name_of(pages.table, row): (pages.table, row) for row in rows}
            after = {column: rows[-1][column] for column in pages.first}


def _altered(name: str, what: RowChange) -> AlteredRow:
    """Return an altered row by its name, a JSON list. A cut or damaged one stays a text."""
    kinds = (kind for table, kind in _KINDS.items() if name.startswith(f'["{table}"'))
    try:
        names = msgspec.json.decode(name, type=tuple[str | int, ...])[1:]
    except msgspec.DecodeError:
        names = (name,)
    return AlteredRow(kind=next(kinds, "document"), what=what, name=names)


def _fault_of(total: Total, value: int, records: Sequence[Record], tenant: str, key: bytes) -> str:
    """Return why rows that fit their seals are not the newest ones, "" if they are."""
    before, forged = 0, 0
    for record in records:
        changes = record.selection or {}
        if changes.get("mac") != record_mac(changes, tenant, record.seq, key):
            forged = forged or record.seq
            continue
        forged = 0 if "accepted" in changes else forged
        if changes.get("after") != before and "accepted" not in changes:
            return f"{_OLDER}, and used: record {record.seq} of the audit log does not follow the earlier ones"
        before = changes.get("changes", 0)
    if forged:
        return f"record {forged} of the audit log, of the sum of seals, was not written with this key"
    if total.recorded != before:
        newest = (
            f"record {records[-1].seq} of the audit log is newer" if records else "the audit log has no record of it"
        )
        return f"{_OLDER}: {newest}"
    if value != total.value:
        return "documents or memories were removed or replaced by earlier ones, together with their seals"
    return ""
