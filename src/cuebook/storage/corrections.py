"""Store manual corrections of memory, and corrected summaries by compare-and-set."""

import json
from collections import Counter
from collections.abc import Sequence

import msgspec

from cuebook.interfaces.store import CorrectionInput
from cuebook.memory.corrections import OWN, says
from cuebook.records.memory import Correction, Item, Memory, Scope, Summary
from cuebook.records.turn import Manifest
from cuebook.storage import access, memories, reads, summaries
from cuebook.storage.access import (
    ConversationRow,
    corrections_of,
    encode_json,
    keep_corrections,
    last_correction,
    own_epoch,
    raise_epoch,
    unuse,
)
from cuebook.storage.database.transaction import Noun, Transaction, read, record, write
from cuebook.storage.memories import deliver_anew
from cuebook.storage.tree import tip_at

#: Block kinds made from a summary.
_SUMMARY = "summary:"
#: Turn metadata made from a summary.
_ROLLING = "rollingSummary"
_manifest = msgspec.json.Decoder(Manifest).decode


class CorrectionStore(Noun):
    """Stores corrections of conversations."""

    @read
    def of(self, transaction: Transaction, scope: Scope, conversation: str) -> tuple[Correction, ...]:
        """Return a conversation's corrections in order of creation. Raises NotFound."""
        return corrections_of(transaction, access.need(transaction, scope, conversation))

    @write
    def keep(self, transaction: Transaction, scope: Scope, correction: Correction) -> None:
        """Store a correction. Raises NotFound."""
        access.need(transaction, scope, correction.conversation)
        keep_corrections(transaction, scope, correction)

    @read
    def said_in(self, transaction: Transaction, scope: Scope, conversation: str, posts: Sequence[str]) -> list[Memory]:
        """Return memories of users and personas that come from some of a conversation's posts."""
        row = access.need(transaction, scope, conversation)
        return memories.with_sources(transaction, scope.tenant, rows_said_in(transaction, row, posts))

    @read
    def due(self, transaction: Transaction, *, limit: int = 100) -> list[tuple[str, str]]:
        """Return conversations whose current summary lacks the newest correction: tenant and id."""
        return transaction.run("corrections_due", limit=limit).fetchall()

    @write
    def save(
        self,
        transaction: Transaction,
        scope: Scope,
        correcting: CorrectionInput,
        summary: Summary,
        items: Sequence[Item],
        *,
        sinks: Sequence[str] = (),
    ) -> bool:
        """Store a corrected summary and changed items. Return False, and store nothing, after a concurrent change."""
        row = access.unchanged(transaction, scope, correcting.conversation, epoch=correcting.epoch)
        if row is None or _standing(transaction, row, summary.upto_seq) != correcting.summary.version:
            return False
        if last_correction(transaction, row) != summary.corrected:
            return False
        previous = correcting.summary.version
        summaries.insert_summary(transaction, row, summary, items, previous=previous, sinks=sinks)
        if summary.upto_seq == row.mark:
            transaction.run("corrections_done", **row.key, corrected=summary.corrected)
        return True

    @read
    def read(
        self, transaction: Transaction, scope: Scope, conversation: str, *, upto: int | None = None
    ) -> CorrectionInput | None:
        """Load the summary that ends at a post, by default the current one, or None if it includes all corrections."""
        row = access.need(transaction, scope, conversation)
        version = _standing(transaction, row, row.mark if upto is None else upto)
        summary = reads.summary(transaction, row, version) if version else None
        if summary is None or summary.corrected >= last_correction(transaction, row):
            return None
        return CorrectionInput(
            conversation=row.record(),
            summary=summary,
            items=tuple(summaries.items_at(transaction, row, version, ended=True)),
            corrections=corrections_of(transaction, row),
            epoch=own_epoch(transaction, row),
        )


def _standing(transaction: Transaction, row: ConversationRow, upto: int) -> int:
    """Return the newest summary version that ends at a post, 0 for none."""
    return int(transaction.value("summary_ending", **row.key, mark=upto) or 0)


def rows_said_in(transaction: Transaction, row: ConversationRow, posts: Sequence[str]) -> list[Memory]:
    """Return memory rows of users and personas with sources among these posts of a conversation."""
    results: dict[int, Memory] = {}
    for each in transaction.rows("memories_from", **row.key):
        if each["post"] in posts and each["kind"] in OWN:
            results[each["no"]] = record(Memory, each)
    return list(results.values())


def forgotten(transaction: Transaction, row: ConversationRow, correction: Correction) -> Counter[str]:
    """Erase a conversation's data derived from erased text; it is derived again from the remaining posts.

    If no derived data contains the text, nothing changes.
    """
    place = row.key
    keep_corrections(transaction, Scope(row.tenant), correction)
    posts = set(correction.posts)
    entries = [
        each
        for each in transaction.rows("items_of", **place)
        if posts.intersection(json.loads(each["sources"])) and says(each["text"], correction)
    ]
    lines = [line for (text,) in transaction.run("summaries_told", **place) for line in text.split("\n")]
    if not entries and not any(says(line, correction) for line in lines):
        return Counter()
    items = len({each["id"] for each in entries})
    transaction.run("delete_items", **place)
    counts = Counter({"items": items, "summaries": transaction.run("delete_summaries", **place).rowcount})
    counts["texts"] = _from_windows(transaction, row)
    transaction.run("delete_outbox", **place)
    tip = tip_at(transaction, row, row.head)
    transaction.run("conversation_derived_anew", no=row.no, backlog=tip.path_count, backlog_tokens=tip.path_tokens)
    deliver_anew(transaction, row.tenant, row.no)
    raise_epoch(transaction, row.tenant, "conversation", str(row.no))
    return counts


def _from_windows(transaction: Transaction, row: ConversationRow) -> int:
    """Remove summaries from the windows that showed them; return the number of deleted texts."""
    digests = {
        bytes.fromhex(text.digest)
        for raw, _ in transaction.run("manifests_of", **row.key).fetchall()
        for manifest in (_manifest(raw),)
        for text in (*manifest.front, *manifest.volatile)
        if text.source.startswith(_SUMMARY)
    }
    for turn in transaction.rows("turns_told", **row.key):
        value = json.loads(turn["metadata"])
        if value.pop(_ROLLING, None) is not None:
            transaction.run("turn_metadata", **row.key, n=turn["n"], metadata=encode_json(value))
    return sum(unuse(transaction, row.key, digest) for digest in digests)


def conversation_of(transaction: Transaction, scope: Scope, conversation: str) -> ConversationRow | None:
    """Return a conversation's row if it exists and the caller may see it."""
    row = access.by_id(transaction, scope.tenant, conversation)
    return row if row is not None and access.visible(row, scope) else None
