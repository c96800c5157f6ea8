"""What is read: a turn's scene, transcripts, turns, texts, and where a resent history lies."""

import json
import sqlite3
from collections.abc import Sequence

from cuebook.backends.sqlite import base, search
from cuebook.backends.sqlite import rows as records
from cuebook.backends.sqlite.base import SQL, one, rows
from cuebook.backends.sqlite.rows import Row
from cuebook.backends.sqlite.tree import Runs, after, bodies, mark_on, path_post, runs_to, stretch, tip_at, unread
from cuebook.errors import Conflict, NotFound
from cuebook.ports.store import Alignment, Look, Page, PathPost, Scene
from cuebook.records.conversation import Post, RoundState
from cuebook.records.memory import Scope, Summary
from cuebook.records.turn import Turn

#: Conversations looked at when a history comes without an id (the newest of them wins).
CANDIDATES = 16


def scene(connection: sqlite3.Connection, scope: Scope, look: Look) -> Scene:
    """Everything a turn decides on, in one snapshot."""
    row = base.find(connection, scope, look.conversation)
    if row is None:
        return Scene(conversation=None)
    tenant, no = row["tenant"], row["no"]
    parent = row["head"] if look.parent is None else look.parent
    runs = runs_to(connection, tenant, no, parent)
    mark, version = mark_on(connection, tenant, no, runs) if look.use_summary else (0, 0)
    behind = after(runs, mark)
    path, left = _read_path(connection, tenant, no, behind, look)
    turns = rows(connection, "turns_last", tenant=tenant, no=no, limit=1)
    last = _turn(connection, turns[0]) if turns else None
    return Scene(
        conversation=records.conversation(row),
        parent=parent,
        path=path,
        unread=unread(connection, tenant, no, left),
        path_count=tip_at(connection, tenant, no, parent).path_count,
        summary=summary(connection, row, version) if version else None,
        open_turn=last if last and last.state == "running" else None,
        previous=last.steps[-1].manifest if last and last.steps else None,
        found=search.search(connection, row, runs, look.search) if look.search else search.NOTHING,
        speakers=tuple(json.loads(row["speakers"])),
    )


def _read_path(connection: sqlite3.Connection, tenant: str, no: int, runs: Runs, look: Look) -> tuple[tuple[PathPost, ...], Runs]:
    """Newest posts in full up to one cap, older ones compressed up to the other; the rest is left unread."""
    found: list[PathPost] = []
    full, left = _take(connection, "path_stretch", tenant, no, runs, look.full_tokens, found)
    if full:
        _, left = _take(connection, "small_stretch", tenant, no, left, look.small_tokens, found)
    found.reverse()
    return tuple(found), left


def _take(
    connection: sqlite3.Connection, name: str, tenant: str, no: int, runs: Runs, cap: int, found: list[PathPost]
) -> tuple[bool, Runs]:
    """Read posts newest first until their tokens reach a cap, at least one in all. Answers (cap reached, what is left)."""
    size = 6 if name == "path_stretch" else 8  # tokens or small_tokens
    used = 0
    for position, (first, last) in enumerate(runs):
        for row in stretch(connection, name, tenant, no, [(first, last)]):
            used += row[size]
            if used > cap and found:
                rest = [(first, row[0])] if row[0] >= first else []
                return True, rest + runs[position + 1 :]
            if name == "small_stretch" and row[7] is not None:
                row = (*row[:11], row[11], None, row[13], None)
            found.append(path_post(connection, tenant, row))
    return False, []


def _turn(connection: sqlite3.Connection, row: Row) -> Turn:
    steps = rows(connection, "steps_of", tenant=row["tenant"], no=row["conversation"], turn=row["n"])
    return records.turn(row, steps)


def summary(connection: sqlite3.Connection, row: Row, version: int) -> Summary | None:
    """One summary of a conversation."""
    found = one(connection, "summary_get", tenant=row["tenant"], no=row["no"], version=version)
    return records.summary(found) if found else None


def posts(
    connection: sqlite3.Connection, scope: Scope, conversation: str, *, path: bool, last: int | None, head: int | None
) -> list[Post]:
    """The posts of a path (the head's unless named), oldest first, or of all branches by seq."""
    row = base.need(connection, scope, conversation)
    tenant, no = row["tenant"], row["no"]
    runs = runs_to(connection, tenant, no, row["head"] if head is None else head) if path else [(1, row["last_seq"])]
    if last is not None:
        runs = _newest(runs, last)
    found = []
    for first, end in reversed(runs):
        cursor = connection.execute(SQL["posts_stretch"], {"tenant": tenant, "no": no, "first": first, "last": end})
        found.extend(_posts(connection, tenant, cursor.fetchall()))
    return found


def _newest(runs: Runs, count: int) -> Runs:
    kept: Runs = []
    for first, last in runs:
        if count <= 0:
            break
        start = max(first, last - count + 1)
        kept.append((start, last))
        count -= last - start + 1
    return kept


def _posts(connection: sqlite3.Connection, tenant: str, found: Sequence[tuple]) -> list[Post]:  # type: ignore[type-arg]
    kept = bodies(connection, tenant, [row[14] for row in found if row[14] is not None])
    return [records.post(row, kept.get(row[14]) if row[14] is not None else None) for row in found]


def posts_in(connection: sqlite3.Connection, scope: Scope, conversation: str, ranges: Sequence[tuple[int, int]]) -> list[PathPost]:
    """Posts of given seq ranges, in the order of the ranges; forgotten ones are missing."""
    row = base.need(connection, scope, conversation)
    found = []
    for first, last in ranges:
        newest_first = [path_post(connection, row["tenant"], each) for each in stretch(
            connection, "path_stretch", row["tenant"], row["no"], [(first, last)])]  # fmt: skip
        found.extend(reversed(newest_first))
    return found


def round_states(connection: sqlite3.Connection, scope: Scope, conversation: str) -> dict[int, RoundState]:
    """The state of every round by its seq: what its newest turn says, else finished where an answer stands."""
    row = base.need(connection, scope, conversation)
    key = {"tenant": row["tenant"], "no": row["no"]}
    states: dict[int, RoundState] = {seq: "finished" for (seq,) in connection.execute(SQL["rounds_answered"], key)}
    for seq, state in connection.execute(SQL["rounds_of_turns"], key):
        states[seq] = "finished" if state == "finished" else "created" if state == "running" else "failed"
    return states


def turn(connection: sqlite3.Connection, scope: Scope, conversation: str, n: int) -> Turn:
    """One turn of a conversation."""
    row = base.need(connection, scope, conversation)
    found = one(connection, "turn_get", tenant=row["tenant"], no=row["no"], n=n)
    if found is None:
        msg = f"conversation {conversation!r} has no turn {n}; it has turns 1 to {row['turns']}"
        raise NotFound(msg)
    return _turn(connection, found)


def turns(connection: sqlite3.Connection, scope: Scope, conversation: str, *, last: int) -> list[Turn]:
    """The newest turns, oldest first."""
    row = base.need(connection, scope, conversation)
    found = rows(connection, "turns_last", tenant=row["tenant"], no=row["no"], limit=last)
    return [_turn(connection, each) for each in reversed(found)]


def texts(connection: sqlite3.Connection, scope: Scope, digests: Sequence[str]) -> dict[str, str]:
    """Kept texts by digest (hex); what was forgotten is missing."""
    kept = bodies(connection, scope.tenant, [bytes.fromhex(digest) for digest in digests])
    return {digest.hex(): body.decode("utf-8") for digest, body in kept.items()}


def page(connection: sqlite3.Connection, scope: Scope, *, limit: int, cursor: str | None) -> Page:
    """Conversations who asks takes part in, the most recent first."""
    before, before_no = _read_cursor(cursor)
    found = rows(
        connection,
        "conversations_page",
        tenant=scope.tenant,
        user=scope.user,
        before=before,
        before_no=before_no,
        limit=limit + 1,
    )
    shown = found[:limit]
    more = f"{shown[-1]['updated_at']!r}:{shown[-1]['no']}" if len(found) > limit else None
    return Page(tuple(records.conversation(row) for row in shown), more)


def _read_cursor(cursor: str | None) -> tuple[float, int]:
    if cursor is None:
        return float("inf"), 0
    try:
        before, _, number = cursor.partition(":")
        return float(before), int(number)
    except ValueError:
        msg = f"cursor {cursor!r} is none this server gave; begin again without one"
        raise Conflict(msg) from None


def align(
    connection: sqlite3.Connection, scope: Scope, digests: Sequence[bytes], *, conversation: str | None, anchors: Sequence[bytes]
) -> list[Alignment]:
    """Where messages lie in the named conversation, or in those of this user that hold one of the anchors."""
    if conversation is not None:
        row = base.find(connection, scope, conversation)
        return [_places(connection, row, digests)] if row else []
    found: list[Alignment] = []
    for anchor in anchors:
        for (no,) in connection.execute(SQL["conversations_by_digest"], {"tenant": scope.tenant, "digest": anchor}).fetchall():
            row = one(connection, "conversation_by_no", tenant=scope.tenant, no=no)
            if row is not None and row["user_id"] == scope.user and len(found) < CANDIDATES:
                found.append(_places(connection, row, digests))
        if found:
            break
    return found


def _places(connection: sqlite3.Connection, row: Row, digests: Sequence[bytes]) -> Alignment:
    tenant, no = row["tenant"], row["no"]
    known: dict[bytes, tuple[int, ...]] = {}
    parents: dict[int, int] = {}
    for digest in set(digests):
        here = connection.execute(SQL["posts_by_digest"], {"tenant": tenant, "no": no, "digest": digest}).fetchall()
        known[digest] = tuple(seq for seq, _ in here)
        parents.update(here)
    leaves = frozenset(seq for seq in parents if not connection.execute(
        SQL["children_of"], {"tenant": tenant, "no": no, "seq": seq}).fetchone())  # fmt: skip
    return Alignment(records.conversation(row), tuple(known[digest] for digest in digests), parents, leaves)
