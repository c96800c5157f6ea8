"""Store manual corrections of memory, and corrected summaries by compare-and-set."""

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence

import msgspec

from cuebook.interfaces.memories import CorrectionInput, SummaryCorrection
from cuebook.memory.corrections import OWN, says
from cuebook.records.memory import Correction, Memory, Scope
from cuebook.records.turn import Manifest
from cuebook.storage.sqlite import base, derived, memories, reads
from cuebook.storage.sqlite import rows as records
from cuebook.storage.sqlite.base import (
    SQL,
    SnapshotRunner,
    corrections_of,
    current_epoch,
    keep_corrections,
    last_correction,
    one,
    raise_epoch,
    rows,
    run,
    unuse,
)
from cuebook.storage.sqlite.memories import deliver_anew
from cuebook.storage.sqlite.rows import Row
from cuebook.storage.sqlite.tree import tip_at

#: Block kinds made from a summary.
_SUMMARY = "summary:"
#: Turn metadata made from a summary.
_ROLLING = "rollingSummary"
_manifest = msgspec.json.Decoder(Manifest).decode


class SqliteCorrections:
    """The corrections of a SQLite store."""

    def __init__(self, read: SnapshotRunner, write: SnapshotRunner) -> None:
        self._read = read
        self._write = write

    async def of(self, scope: Scope, conversation: str) -> tuple[Correction, ...]:
        """Return a conversation's corrections."""

        def read(connection: sqlite3.Connection) -> tuple[Correction, ...]:
            row = base.need(connection, scope, conversation)
            return corrections_of(connection, row["tenant"], row["no"], conversation)

        return await self._read(read)

    async def keep(self, scope: Scope, correction: Correction) -> None:
        """Store a correction."""

        def write(connection: sqlite3.Connection) -> None:
            base.need(connection, scope, correction.conversation)
            keep_corrections(connection, scope, correction)

        await self._write(write)

    async def said_in(self, scope: Scope, conversation: str, posts: Sequence[str]) -> list[Memory]:
        """Return memories of users and personas with sources among these posts of a conversation."""

        def read(connection: sqlite3.Connection) -> list[Memory]:
            row = base.need(connection, scope, conversation)
            return memories.memories_of(connection, rows_said_in(connection, row, posts))

        return await self._read(read)

    async def due(self, *, limit: int = 100) -> list[tuple[str, str]]:
        """Return conversations whose current summary lacks their newest correction."""
        return await self._read(lambda c: c.execute(SQL["corrections_due"], {"limit": limit}).fetchall())

    async def read(self, scope: Scope, conversation: str, *, upto: int | None = None) -> CorrectionInput | None:
        """Return the summary that ends at a post, by default the head's; None if it includes all corrections."""

        def read(connection: sqlite3.Connection) -> CorrectionInput | None:
            row = base.need(connection, scope, conversation)
            tenant, no = row["tenant"], row["no"]
            version = _standing(connection, row, row["mark"] if upto is None else upto)
            summary = reads.summary(connection, row, version) if version else None
            if summary is None or summary.corrected >= last_correction(connection, tenant, no):
                return None
            return CorrectionInput(
                conversation=records.conversation(row),
                summary=summary,
                items=tuple(derived.items(connection, row, version, ended=True)),
                corrections=corrections_of(connection, tenant, no, conversation),
                epoch=current_epoch(connection, tenant, "conversation", str(no)),
            )

        return await self._read(read)

    async def save(self, scope: Scope, corrected: SummaryCorrection) -> bool:
        """Store a corrected summary; return False and store nothing if a pass or another correction came first."""
        return await self._write(lambda c: _save(c, scope, corrected))


def _standing(connection: sqlite3.Connection, row: Row, upto: int) -> int:
    """Return the newest summary version that ends at a post, 0 for none."""
    values = {"tenant": row["tenant"], "no": row["no"], "mark": upto}
    result = connection.execute(SQL["summary_ending"], values).fetchone()
    return int(result[0]) if result else 0


def _save(connection: sqlite3.Connection, scope: Scope, corrected: SummaryCorrection) -> bool:
    correcting, summary = corrected.read, corrected.summary
    row = base.find(connection, scope, correcting.conversation.id)
    if row is None or row["no"] != correcting.conversation.no:
        return False
    tenant, no = row["tenant"], row["no"]
    if correcting.epoch != current_epoch(connection, tenant, "conversation", str(no)):
        return False
    if _standing(connection, row, summary.upto_seq) != correcting.summary.version:
        return False
    if last_correction(connection, tenant, no) != summary.corrected:
        return False
    version = connection.execute(SQL["summary_last"], {"tenant": tenant, "no": no}).fetchone()[0] + 1
    derived.insert_summary(connection, row, summary, version=version, previous=correcting.summary.version)
    derived.save_items(connection, row, (*corrected.gone, *corrected.added), version)
    run(connection, "delivery_again", tenant=tenant, no=no)
    if summary.upto_seq == row["mark"]:
        run(connection, "corrections_done", tenant=tenant, no=no, corrected=summary.corrected)
    for sink in corrected.sinks:
        run(connection, "outbox_insert", tenant=tenant, no=no, version=version, sink=sink)
    return True


def rows_said_in(connection: sqlite3.Connection, row: Row, posts: Sequence[str]) -> list[Row]:
    """Return memory rows of users and personas with sources among these posts of a conversation."""
    results: dict[int, Row] = {}
    for each in rows(connection, "memories_from", tenant=row["tenant"], no=row["no"]):
        if each.pop("post") in posts and each["kind"] in OWN:
            results[each["no"]] = each
    return list(results.values())


def forgotten(connection: sqlite3.Connection, row: Row, correction: Correction) -> Counter[str]:
    """Erase a conversation's data derived from erased text; it is derived again from the remaining posts.

    If no derived data contains the text, nothing changes.
    """
    tenant, no = row["tenant"], row["no"]
    place = {"tenant": tenant, "no": no}
    keep_corrections(connection, Scope(tenant), correction)
    posts = set(correction.posts)
    entries = [
        each
        for each in rows(connection, "items_of", **place)
        if posts.intersection(json.loads(each["sources"])) and says(each["text"], correction)
    ]
    lines = [line for (text,) in run(connection, "summaries_told", **place) for line in text.split("\n")]
    if not entries and not any(says(line, correction) for line in lines):
        return Counter()
    items = len({each["id"] for each in entries})
    run(connection, "delete_items", **place)
    counts = Counter({"items": items, "summaries": run(connection, "delete_summaries", **place).rowcount})
    counts["texts"] = _from_windows(connection, row)
    run(connection, "delete_outbox", **place)
    tip = tip_at(connection, tenant, no, row["head"])
    run(connection, "conversation_derived_anew", no=no, backlog=tip.path_count, backlog_tokens=tip.path_tokens)
    deliver_anew(connection, tenant, no)
    raise_epoch(connection, tenant, "conversation", str(no))
    return counts


def _from_windows(connection: sqlite3.Connection, row: Row) -> int:
    """Remove summaries from the windows that showed them; return the number of deleted texts."""
    tenant, no = row["tenant"], row["no"]
    digests = {
        bytes.fromhex(text.digest)
        for raw, _ in run(connection, "manifests_of", tenant=tenant, no=no).fetchall()
        for manifest in (_manifest(raw),)
        for text in (*manifest.front, *manifest.volatile)
        if text.source.startswith(_SUMMARY)
    }
    for turn in rows(connection, "turns_told", tenant=tenant, no=no):
        value = json.loads(turn["metadata"])
        if value.pop(_ROLLING, None) is not None:
            metadata = json.dumps(value, ensure_ascii=False)
            run(connection, "turn_metadata", tenant=tenant, no=no, n=turn["n"], metadata=metadata)
    return sum(unuse(connection, tenant, no, digest) for digest in digests)


def conversation_of(connection: sqlite3.Connection, scope: Scope, conversation: str) -> Row | None:
    """Return a conversation's row if it exists and the caller may see it."""
    row = one(connection, "conversation_by_id", tenant=scope.tenant, id=conversation)
    return row if row is not None and base.visible(row, scope) else None
