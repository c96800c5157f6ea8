"""What is derived and kept: summaries and items, each pass a compare-and-set on what it was derived from."""

import json
import sqlite3

from cuebook.backends.failpoints import Failpoints
from cuebook.backends.sqlite import base, reads
from cuebook.backends.sqlite import rows as records
from cuebook.backends.sqlite.base import SQL, one, rows, run
from cuebook.backends.sqlite.rows import Row
from cuebook.backends.sqlite.tree import after, backlog, mark_on, on_path, runs_to, tip_at
from cuebook.ports.store import Compacted, CompactionInput, Due
from cuebook.records.conversation import Post
from cuebook.records.memory import Item, Scope, Summary


def due(connection: sqlite3.Connection, *, limit: int) -> list[Due]:
    """Conversations with posts behind no summary and nothing open."""
    return [Due(*row) for row in connection.execute(SQL["due"], {"limit": limit})]


def compaction(connection: sqlite3.Connection, scope: Scope, conversation: str, *, limit: int) -> CompactionInput | None:
    """What a pass reads: the oldest posts behind the mark, at most `limit`, and what was derived before."""
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
        posts.extend(reads._posts(connection, tenant, connection.execute(SQL["posts_stretch"], values).fetchall()))
    return CompactionInput(
        conversation=records.conversation(row),
        scope=scope,
        posts=tuple(posts),
        previous=reads.summary(connection, row, version) if version else None,
        items=tuple(items(connection, row, version, ended=False)),
        failures=row["compact_failures"],
        last_at=row["compact_last_at"],
    )


def items(connection: sqlite3.Connection, row: Row, version: int, *, ended: bool) -> list[Item]:
    """Items as they stand at a summary: made in its line of versions and, unless asked for, not ended in it."""
    line = lineage(connection, row, version)
    found = []
    for each in rows(connection, "items_of", tenant=row["tenant"], no=row["no"]):
        if each["made_in"] not in line:
            continue
        is_ended = each["ended_in"] is not None and each["ended_in"] in line
        if is_ended and not ended:
            continue
        if not is_ended:
            each["valid_to"] = None
        found.append(records.item(each))
    return found


def lineage(connection: sqlite3.Connection, row: Row, version: int) -> set[int]:
    """A summary's version and those it was made from."""
    marks = connection.execute(SQL["summary_marks"], {"tenant": row["tenant"], "no": row["no"]})
    previous = {each[0]: each[2] for each in marks}
    line = set()
    while version:
        line.add(version)
        version = previous.get(version, 0)
    return line


def head_summary(connection: sqlite3.Connection, row: Row) -> int:
    """The version of the summary that stands for the head's path, 0 for none."""
    return mark_on(connection, row["tenant"], row["no"], runs_to(connection, row["tenant"], row["no"], row["head"]))[1]


def save_summary(connection: sqlite3.Connection, scope: Scope, compacted: Compacted, failpoints: Failpoints) -> bool:
    """Keep a pass's result, unless the path it was made from is no longer the head's or another pass came first."""
    failpoints("summary.begin")
    row = base.find(connection, scope, compacted.conversation)
    if row is None:
        return False
    tenant, no, upto = row["tenant"], row["no"], compacted.summary.upto_seq
    runs = runs_to(connection, tenant, no, row["head"])
    if mark_on(connection, tenant, no, runs)[1] != compacted.previous_version or not on_path(runs, upto):
        return False
    version = connection.execute(SQL["summary_last"], {"tenant": tenant, "no": no}).fetchone()[0] + 1
    _insert_summary(connection, row, compacted.summary, version=version, previous=compacted.previous_version)
    _save_items(connection, row, compacted, version)
    count, tokens = backlog(connection, tenant, no, tip_at(connection, tenant, no, row["head"]), upto)
    run(connection, "compaction_done", no=no, mark=upto, backlog=count, backlog_tokens=tokens, now=compacted.now)
    failpoints("summary.stored")
    return True


def _insert_summary(connection: sqlite3.Connection, row: Row, summary: Summary, *, version: int, previous: int) -> None:
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
        made_by=summary.made_by,
        tokens=summary.tokens,
        created_at=summary.created_at,
    )


def _save_items(connection: sqlite3.Connection, row: Row, compacted: Compacted, version: int) -> None:
    key = {"tenant": row["tenant"], "no": row["no"]}
    for item in compacted.ended:
        run(connection, "item_end", id=item.id, ended_in=version, valid_to=item.valid_to, **key)
    for item in compacted.repeated:
        sources = json.dumps(item.sources)
        run(connection, "item_repeat", id=item.id, confidence=item.confidence, sources=sources, weight=item.weight, seq=item.seq, **key)
    for item in compacted.added:
        run(
            connection,
            "item_insert",
            id=item.id,
            made_in=version,
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
            seq=item.seq,
            **key,
        )


def postpone(connection: sqlite3.Connection, scope: Scope, conversation: str, *, until: float, failed: bool, mark: int) -> None:
    """Do not try a pass before a time."""
    run(connection, "compaction_postpone", tenant=scope.tenant, id=conversation, until=until, failed=int(failed), mark=mark)


def current(connection: sqlite3.Connection, scope: Scope, conversation: str, version: int | None) -> Summary | None:
    """A summary of a conversation: the one that stands for its head, or a named version."""
    row = base.need(connection, scope, conversation)
    found = one(connection, "summary_get", tenant=row["tenant"], no=row["no"], version=version or head_summary(connection, row))
    return records.summary(found) if found else None
