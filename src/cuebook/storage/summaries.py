"""Store derived data: summaries and memory items. Each summarization pass is a compare-and-set on its input."""

import json
from collections.abc import Sequence

from cuebook.interfaces.store import CompactionInput, CompactionResult, DueConversation
from cuebook.records.conversation import Post
from cuebook.records.memory import Item, Scope, Summary
from cuebook.storage import access, reads
from cuebook.storage import rows as records
from cuebook.storage.access import corrections_of, current_epoch, last_correction
from cuebook.storage.audit import chained
from cuebook.storage.database.transaction import Noun, Row, Transaction, read, write
from cuebook.storage.tree import after as behind
from cuebook.storage.tree import backlog, mark_on, on_path, runs_to, tip_at
from cuebook.storage.writes import bind

#: A number above any count.
LARGEST = (1 << 63) - 1


class SummaryStore(Noun):
    """Stores summaries and their items, and finds conversations that are due for a pass."""

    @read
    def summary(
        self, transaction: Transaction, scope: Scope, conversation: str, *, version: int | None = None
    ) -> Summary | None:
        """Return the head's current summary, or the given version. Raises NotFound."""
        row = access.need(transaction, scope, conversation)
        data = transaction.one(
            "summary_get", tenant=row["tenant"], no=row["no"], version=version or head_summary(transaction, row)
        )
        return records.summary(data) if data else None

    @read
    def items(self, transaction: Transaction, scope: Scope, conversation: str, *, ended: bool = False) -> list[Item]:
        """Return the items at the head, with ended ones on request. Raises NotFound."""
        row = access.need(transaction, scope, conversation)
        return items_at(transaction, row, head_summary(transaction, row), ended=ended)

    @read
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
    def compaction(
        self, transaction: Transaction, scope: Scope, conversation: str, *, limit: int
    ) -> CompactionInput | None:
        """Load the input of a pass: the oldest posts after the mark, at most `limit`, and earlier derived data."""
        row = access.need(transaction, scope, conversation)
        if row["open_round"] or row["lease_until"]:
            return None
        tenant, no = row["tenant"], row["no"]
        runs = runs_to(transaction, tenant, no, row["head"])
        mark, version = mark_on(transaction, tenant, no, runs)
        posts: list[Post] = []
        for first, last in reversed(behind(runs, mark)):
            room = limit - len(posts)
            if room <= 0:
                break
            values = {"tenant": tenant, "no": no, "first": first, "last": min(last, first + room - 1)}
            posts.extend(reads.whole_posts(transaction, tenant, transaction.run("posts_stretch", **values).fetchall()))
        return CompactionInput(
            conversation=records.conversation(row),
            scope=scope,
            posts=tuple(posts),
            previous=reads.summary(transaction, row, version) if version else None,
            items=tuple(items_at(transaction, row, version, ended=True)),
            before=_before(transaction, row, mark),
            failures=row["compact_failures"],
            last_at=row["compact_last_at"],
            epoch=current_epoch(transaction, tenant, "conversation", str(no)),
            corrections=corrections_of(transaction, tenant, no, conversation),
        )

    @write
    def save_summary(self, transaction: Transaction, scope: Scope, compacted: CompactionResult) -> bool:
        """Store a pass's result, unless its path is no longer the head's or another pass came first."""
        transaction.failpoint("summary.begin")
        row = access.find(transaction, scope, compacted.conversation)
        if row is None or (compacted.no and compacted.no != row["no"]):
            return False
        tenant, no, upto = row["tenant"], row["no"], compacted.summary.upto_seq
        if compacted.no and compacted.epoch != current_epoch(transaction, tenant, "conversation", str(no)):
            return False
        if compacted.summary.corrected != last_correction(transaction, tenant, no):
            return False
        runs = runs_to(transaction, tenant, no, row["head"])
        mark, stands = mark_on(transaction, tenant, no, runs)
        if stands != compacted.previous_version or upto < mark or not on_path(runs, upto):
            return False
        version = transaction.value("summary_last", tenant=tenant, no=no) + 1
        insert_summary(transaction, row, compacted.summary, version=version, previous=compacted.previous_version)
        save_items(transaction, row, (*compacted.ended, *compacted.repeated, *compacted.added), version)
        count, tokens = backlog(transaction, tenant, no, tip_at(transaction, tenant, no, row["head"]), upto)
        transaction.run("delivery_again", tenant=tenant, no=no)
        transaction.run("corrections_done", tenant=tenant, no=no, corrected=compacted.summary.corrected)
        for sink in compacted.sinks:
            transaction.run("outbox_insert", tenant=tenant, no=no, version=version, sink=sink)
        transaction.run("compaction_done", no=no, mark=upto, backlog=count, backlog_tokens=tokens, now=compacted.now)
        if compacted.idempotency:
            bind(transaction, scope, row, compacted.idempotency, turn=0, response=b"{}", now=compacted.now)
        chained(transaction, tenant, compacted.audit)
        transaction.failpoint("summary.stored")
        return True

    @write
    def postpone(
        self, transaction: Transaction, scope: Scope, conversation: str, *, until: float, failed: bool, mark: int
    ) -> None:
        """Delay the next pass until a time."""
        access.find(transaction, scope, conversation)
        transaction.run(
            "compaction_postpone",
            tenant=scope.tenant,
            id=conversation,
            until=until,
            failed=int(failed),
            mark=mark,
        )


def _before(transaction: Transaction, row: Row, mark: int) -> Post | None:
    """Return the last post covered by the summary, which may be the question of a short answer after it."""
    values = {"tenant": row["tenant"], "no": row["no"], "first": mark, "last": mark}
    posts = reads.whole_posts(transaction, row["tenant"], transaction.run("posts_stretch", **values).fetchall())
    return posts[0] if posts else None


def items_at(transaction: Transaction, row: Row, version: int, *, ended: bool) -> list[Item]:
    """Return the items at a summary: their newest form in its lineage, with ended ones on request.

    Items that were corrected by hand are omitted from then on.
    """
    line = lineage(transaction, row, version)
    newest: dict[str, Row] = {}
    for each in transaction.rows("items_of", tenant=row["tenant"], no=row["no"]):
        if each["made_in"] in line:
            newest[each["id"]] = each
    entries = [records.item(each) for each in newest.values() if each["text"] and (ended or each["ended_in"] is None)]
    return sorted(entries, key=lambda item: (item.seq, item.id))


def lineage(transaction: Transaction, row: Row, version: int) -> set[int]:
    """Return a summary's version and its ancestors."""
    marks = transaction.run("summary_marks", tenant=row["tenant"], no=row["no"])
    previous = {each[0]: each[2] for each in marks}
    line = set()
    while version:
        line.add(version)
        version = previous.get(version, 0)
    return line


def head_summary(transaction: Transaction, row: Row) -> int:
    """Return the version of the head's current summary, 0 for none."""
    return mark_on(transaction, row["tenant"], row["no"], runs_to(transaction, row["tenant"], row["no"], row["head"]))[
        1
    ]


def insert_summary(transaction: Transaction, row: Row, summary: Summary, *, version: int, previous: int) -> None:
    """Store a summary under the next version."""
    transaction.run(
        "summary_insert",
        tenant=row["tenant"],
        no=row["no"],
        version=version,
        previous=previous,
        upto_seq=summary.upto_seq,
        upto_at=summary.upto_at,
        path_digest=summary.path_digest,
        markdown=summary.markdown,
        memory_json=json.dumps(summary.memory_json, ensure_ascii=False),
        tainted=summary.tainted,
        profile=summary.profile,
        made_by=f"{summary.made_by}{records.TOLD}{summary.prompt}" if summary.prompt else summary.made_by,
        tokens=summary.tokens,
        created_at=summary.created_at,
        corrected=summary.corrected,
    )


def save_items(transaction: Transaction, row: Row, items: Sequence[Item], version: int) -> None:
    """Store a new form of each item that a pass changed; other branches still see the form before."""
    for item in items:
        transaction.run(
            "item_insert",
            tenant=row["tenant"],
            no=row["no"],
            id=item.id,
            made_in=version,
            ended_in=None if item.valid_to is None else version,
            category=item.category,
            text=item.text,
            subject=item.subject,
            name=item.name,
            status=item.status,
            sources=json.dumps(item.sources, ensure_ascii=False),
            trust=item.trust,
            confidence=item.confidence,
            weight=item.weight,
            valid_from=item.valid_from,
            valid_to=item.valid_to,
            supersedes=item.supersedes,
            superseded_by=item.superseded_by,
            seq=item.seq,
        )
