"""Store derived data: summaries and memory items. Each summarization pass is a compare-and-set on its input."""

from collections.abc import Sequence

from cuebook.interfaces.store import CompactionInput, CompactionResult, DueConversation
from cuebook.records.memory import Item, Summary
from cuebook.storage import access, reads
from cuebook.storage.access import ConversationRow, corrections_of, last_correction
from cuebook.storage.audit import chained
from cuebook.storage.database.columns import LARGEST, columns, encode_json
from cuebook.storage.database.transaction import Noun, Transaction, read, read_all, write_conversation
from cuebook.storage.tree import after as behind
from cuebook.storage.tree import backlog, mark_on, on_path, runs_to, tip_at


class SummaryStore(Noun):
    """Stores summaries and their items, and finds conversations that are due for a pass."""

    @read
    def summary(self, transaction: Transaction, conversation: str, *, version: int | None = None) -> Summary | None:
        """Return the head's current summary, or the given version. Raises NotFound."""
        row = access.need(transaction, conversation)
        return reads.summary(row, version or head_summary(row))

    @read
    def items(self, transaction: Transaction, conversation: str, *, ended: bool = False) -> list[Item]:
        """Return the items at the head, with ended ones on request. Raises NotFound."""
        row = access.need(transaction, conversation)
        return items_at(row, head_summary(row), ended=ended)

    @read_all
    def due(
        self,
        transaction: Transaction,
        *,
        limit: int = 100,
        least: int = 1,
        after: DueConversation | None = None,
        conversation: str | None = None,
    ) -> list[DueConversation]:
        """Return conversations with enough posts without a summary and no open round, most posts first."""
        place = (after.backlog, after.no) if after else (LARGEST, 0)
        values = {"limit": limit, "least": least, "id": conversation, "backlog": place[0], "no": place[1]}
        return [DueConversation(*row) for row in transaction.run("due", **values)]

    @read
    def compaction(self, transaction: Transaction, conversation: str, *, limit: int) -> CompactionInput | None:
        """Load the input of a pass: the oldest posts after the mark, at most `limit`, and earlier derived data."""
        row = access.need(transaction, conversation)
        if row.open_round or row.lease_until:
            return None
        runs = runs_to(row, row.head)
        mark, version = mark_on(row, runs)
        return CompactionInput(
            conversation=row.record(),
            scope=transaction.scope,
            posts=tuple(reads.posts_on(row, behind(runs, mark), limit)),
            previous=reads.summary(row, version) if version else None,
            items=tuple(items_at(row, version, ended=True)),
            before=next(iter(reads.posts_on(row, [(mark, mark)])), None),
            failures=row.compact_failures,
            last_at=row.compact_last_at,
            epoch=row.epoch,
            corrections=corrections_of(row),
            speakers=tuple(row.speakers),
        )

    @write_conversation
    def save_summary(self, transaction: Transaction, compacted: CompactionResult) -> bool:
        """Store a pass's result, unless its path is no longer the head's or another pass came first."""
        transaction.failpoint("summary.begin")
        row = access.find(transaction, compacted.conversation)
        if row is None or (compacted.no and compacted.no != row.no):
            return False
        upto = compacted.summary.upto_seq
        if compacted.no and compacted.epoch != row.epoch:
            return False
        if compacted.summary.corrected != last_correction(row):
            return False
        runs = runs_to(row, row.head)
        mark, stands = mark_on(row, runs)
        if stands != compacted.previous_version or upto < mark or not on_path(runs, upto):
            return False
        previous, sinks = compacted.previous_version, compacted.sinks
        insert_summary(row, compacted.summary, compacted.items, previous=previous, sinks=sinks)
        count, tokens = backlog(row, tip_at(row, row.head), upto)
        row.run("corrections_done", corrected=compacted.summary.corrected)
        values = {"mark": upto, "backlog": count, "backlog_tokens": tokens, "now": compacted.now}
        row.run("compaction_done", **values)
        chained(transaction, compacted.audit)
        transaction.failpoint("summary.stored")
        return True

    @write_conversation
    def postpone(self, transaction: Transaction, conversation: str, *, until: float, failed: bool, mark: int) -> None:
        """Delay the next pass until a time."""
        access.find(transaction, conversation)
        values = {"until": until, "failed": failed, "mark": mark}
        transaction.run("compaction_postpone", id=conversation, **values)


def items_at(row: ConversationRow, version: int, *, ended: bool) -> list[Item]:
    """Return the items at a summary: their newest form in its lineage, with ended ones on request.

    Items that were corrected by hand are omitted from then on.
    """
    return [item for item in newest_forms(row, lineage(row, version)) if ended or item.valid_to is None]


def newest_forms(row: ConversationRow, versions: set[int]) -> list[Item]:
    """Return the items that some summaries changed, in their newest form there; erased ones are omitted."""
    return row.transaction.records(Item, "items_newest", no=row.no, versions=encode_json(sorted(versions)))


def lineage(row: ConversationRow, version: int) -> set[int]:
    """Return a summary's version and its ancestors."""
    previous = {mark[0]: mark[2] for mark in row.run("summary_marks")}
    line = set()
    while version:
        line.add(version)
        version = previous.get(version, 0)
    return line


def head_summary(row: ConversationRow) -> int:
    """Return the version of the head's current summary, 0 for none."""
    return mark_on(row, runs_to(row, row.head))[1]


def insert_summary(
    row: ConversationRow, summary: Summary, items: Sequence[Item], *, previous: int, sinks: Sequence[str]
) -> None:
    """Store a summary under the next version, with a new form of each item that it changes, for delivery and sinks.

    Other branches still see the earlier forms.
    """
    version = row.value("summary_last") + 1
    made_by = f"{summary.made_by}{reads.TOLD}{summary.prompt}" if summary.prompt else summary.made_by
    values = columns(summary) | {"version": version, "previous": previous, "made_by": made_by}
    row.run("summary_insert", **values)
    for item in items:
        ended_in = None if item.valid_to is None else version
        row.run("item_insert", **columns(item), made_in=version, ended_in=ended_in)
    row.run("delivery_again")
    for sink in sinks:
        row.run("outbox_insert", version=version, sink=sink)
