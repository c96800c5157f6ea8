"""Store derived data: summaries and memory items. Each summarization pass is a compare-and-set on its input."""

import json
import sqlite3
from collections.abc import Sequence

from cuebook.interfaces.store import CompactionInput, CompactionResult, DueConversation
from cuebook.records.conversation import Post
from cuebook.records.memory import Item, Scope, Summary
from cuebook.storage.failpoints import Failpoints
from cuebook.storage.sqlite import base, reads
from cuebook.storage.sqlite import rows as records
from cuebook.storage.sqlite.audit import chained
from cuebook.storage.sqlite.base import SQL, corrections_of, current_epoch, last_correction, one, rows, run
from cuebook.storage.sqlite.rows import Row
from cuebook.storage.sqlite.tree import after, backlog, mark_on, on_path, runs_to, tip_at
from cuebook.storage.sqlite.writes import bind

#: A number above any count.
LARGEST = (1 << 63) - 1


def due(
    connection: sqlite3.Connection, *, limit: int, least: int, behind: DueConversation | None, conversation: str | None
) -> list[DueConversation]:
    """Return conversations due for summarization: enough posts without a summary, no open round; most posts first."""
    place = (behind.backlog, behind.no) if behind else (LARGEST, 0)
    values = {"limit": limit, "least": least, "id": conversation, "backlog": place[0], "no": place[1]}
    return [DueConversation(*row) for row in connection.execute(SQL["due"], values)]


def compaction(
    connection: sqlite3.Connection, scope: Scope, conversation: str, *, limit: int
) -> CompactionInput | None:
    """Load the input of a pass: the oldest posts after the mark, at most `limit`, and earlier derived data."""
    row = base.need(connection, scope, conversation)
    if row["open_round"] or row["lease_until"]:
        return None
    tenant, no = row["tenant"], row["no"]
    runs = runs_to(connection, tenant, no, row["head"])
    mark, version = mark_on(connection, tenant, no, runs)
    posts: list[Post] = []
    for first, last in reversed(after(runs, mark)):
        room = limit - len(posts)
        if room <= 0:
            break
        values = {"tenant": tenant, "no": no, "first": first, "last": min(last, first + room - 1)}
        posts.extend(reads.whole_posts(connection, tenant, connection.execute(SQL["posts_stretch"], values).fetchall()))
    return CompactionInput(
        conversation=records.conversation(row),
        scope=scope,
        posts=tuple(posts),
        previous=reads.summary(connection, row, version) if version else None,
        items=tuple(items(connection, row, version, ended=True)),
        before=_before(connection, row, mark),
        failures=row["compact_failures"],
        last_at=row["compact_last_at"],
        epoch=current_epoch(connection, tenant, "conversation", str(no)),
        corrections=corrections_of(connection, tenant, no, conversation),
    )


def _before(connection: sqlite3.Connection, row: Row, mark: int) -> Post | None:
    """Return the last post covered by the summary, which may be the question of a short answer after it."""
    values = {"tenant": row["tenant"], "no": row["no"], "first": mark, "last": mark}
    posts = reads.whole_posts(connection, row["tenant"], connection.execute(SQL["posts_stretch"], values).fetchall())
    return posts[0] if posts else None


def items(connection: sqlite3.Connection, row: Row, version: int, *, ended: bool) -> list[Item]:
    """Return the items at a summary: their newest form in its lineage, with ended ones on request.

    Items that were corrected by hand are omitted from then on.
    """
    line = lineage(connection, row, version)
    newest: dict[str, Row] = {}
    for each in rows(connection, "items_of", tenant=row["tenant"], no=row["no"]):
        if each["made_in"] in line:
            newest[each["id"]] = each
    entries = [records.item(each) for each in newest.values() if each["text"] and (ended or each["ended_in"] is None)]
    return sorted(entries, key=lambda item: (item.seq, item.id))


def lineage(connection: sqlite3.Connection, row: Row, version: int) -> set[int]:
    """Return a summary's version and its ancestors."""
    marks = connection.execute(SQL["summary_marks"], {"tenant": row["tenant"], "no": row["no"]})
    previous = {each[0]: each[2] for each in marks}
    line = set()
    while version:
        line.add(version)
        version = previous.get(version, 0)
    return line


def head_summary(connection: sqlite3.Connection, row: Row) -> int:
    """Return the version of the head's current summary, 0 for none."""
    return mark_on(connection, row["tenant"], row["no"], runs_to(connection, row["tenant"], row["no"], row["head"]))[1]


def save_summary(
    connection: sqlite3.Connection, scope: Scope, compacted: CompactionResult, failpoints: Failpoints
) -> bool:
    """Store a pass's result, unless its path is no longer the head's or another pass came first."""
    failpoints("summary.begin")
    row = base.find(connection, scope, compacted.conversation)
    if row is None or (compacted.no and compacted.no != row["no"]):
        return False
    tenant, no, upto = row["tenant"], row["no"], compacted.summary.upto_seq
    if compacted.no and compacted.epoch != current_epoch(connection, tenant, "conversation", str(no)):
        return False
    if compacted.summary.corrected != last_correction(connection, tenant, no):
        return False
    runs = runs_to(connection, tenant, no, row["head"])
    mark, stands = mark_on(connection, tenant, no, runs)
    if stands != compacted.previous_version or upto < mark or not on_path(runs, upto):
        return False
    version = connection.execute(SQL["summary_last"], {"tenant": tenant, "no": no}).fetchone()[0] + 1
    insert_summary(connection, row, compacted.summary, version=version, previous=compacted.previous_version)
    save_items(connection, row, (*compacted.ended, *compacted.repeated, *compacted.added), version)
    count, tokens = backlog(connection, tenant, no, tip_at(connection, tenant, no, row["head"]), upto)
    run(connection, "delivery_again", tenant=tenant, no=no)
    run(connection, "corrections_done", tenant=tenant, no=no, corrected=compacted.summary.corrected)
    for sink in compacted.sinks:
        run(connection, "outbox_insert", tenant=tenant, no=no, version=version, sink=sink)
    run(connection, "compaction_done", no=no, mark=upto, backlog=count, backlog_tokens=tokens, now=compacted.now)
    if compacted.idempotency:
        bind(connection, scope, row, compacted.idempotency, turn=0, response=b"{}", now=compacted.now)
    chained(connection, tenant, compacted.audit)
    failpoints("summary.stored")
    return True


def insert_summary(connection: sqlite3.Connection, row: Row, summary: Summary, *, version: int, previous: int) -> None:
    """Store a summary under the next version."""
    run(
        connection,
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


def save_items(connection: sqlite3.Connection, row: Row, items: Sequence[Item], version: int) -> None:
    """Store a new form of each item that a pass changed; other branches still see the form before."""
    for item in items:
        run(
            connection,
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


def postpone(
    connection: sqlite3.Connection, scope: Scope, conversation: str, *, until: float, failed: bool, mark: int
) -> None:
    """Delay the next pass until a time."""
    base.find(connection, scope, conversation)
    run(
        connection,
        "compaction_postpone",
        tenant=scope.tenant,
        id=conversation,
        until=until,
        failed=int(failed),
        mark=mark,
    )


def current(connection: sqlite3.Connection, scope: Scope, conversation: str, version: int | None) -> Summary | None:
    """Return a summary of a conversation: the head's current one, or the given version."""
    row = base.need(connection, scope, conversation)
    data = one(
        connection, "summary_get", tenant=row["tenant"], no=row["no"], version=version or head_summary(connection, row)
    )
    return records.summary(data) if data else None
