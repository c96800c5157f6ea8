"""How a conversation's tree is read and grown: runs, paths, sums along a path, and storing posts."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from cuebook.backends.sqlite.base import SQL, one, run
from cuebook.backends.sqlite.rows import INLINE, Row, decode_body, encode_body, encode_parts
from cuebook.ports.store import PathPost, Stretch
from cuebook.records.conversation import Draft
from cuebook.records.digest import digest_of

#: A full-text rowid is conversation << SHIFT | seq.
SHIFT = 32
#: The most speakers a conversation remembers by name.
SPEAKERS = 64

Runs = list[tuple[int, int]]  # (first, last) seqs, newest run first


class Tip(Struct):
    """Where a path ends: what the next post needs of the last."""

    seq: int = 0
    run_start: int = 0
    run_parent: int = 0
    round: int = 0
    path_tokens: int = 0
    path_count: int = 0


def tip_at(connection: sqlite3.Connection, tenant: str, no: int, seq: int) -> Tip:
    """The path that ends at a post; seq 0 is the root."""
    if seq == 0:
        return Tip()
    row = connection.execute(SQL["post_at"], {"tenant": tenant, "no": no, "seq": seq}).fetchone()
    return Tip(*row)


def runs_to(connection: sqlite3.Connection, tenant: str, no: int, head: int) -> Runs:
    """The runs of the path that ends at `head`, newest first."""
    found: Runs = []
    while head:
        start, parent = connection.execute(SQL["run_of"], {"tenant": tenant, "no": no, "seq": head}).fetchone()
        found.append((start, head))
        head = parent
    return found


def on_path(runs: Runs, seq: int) -> bool:
    """Whether a post lies on a path."""
    return any(first <= seq <= last for first, last in runs)


def after(runs: Runs, mark: int) -> Runs:
    """The part of a path behind a mark on it, newest first."""
    kept: Runs = []
    for first, last in runs:
        if last <= mark:
            break
        kept.append((max(first, mark + 1), last))
    return kept


def mark_on(connection: sqlite3.Connection, tenant: str, no: int, runs: Runs) -> tuple[int, int]:
    """Seq and version of the farthest summary on a path, (0, 0) for none."""
    for version, upto, _ in connection.execute(SQL["summary_marks"], {"tenant": tenant, "no": no}):
        if on_path(runs, upto):
            return upto, version
    return 0, 0


def backlog(connection: sqlite3.Connection, tenant: str, no: int, head: Tip, mark: int) -> tuple[int, int]:
    """Posts and tokens between a mark and the head."""
    base = tip_at(connection, tenant, no, mark)
    return head.path_count - base.path_count, head.path_tokens - base.path_tokens


def grow(connection: sqlite3.Connection, conversation: Row, drafts: Sequence[Draft], tip: Tip) -> Tip:
    """Store drafts one after another behind `tip`; `conversation` counts along. Does not move the head."""
    tenant, no = conversation["tenant"], conversation["no"]
    insert, insert_text = SQL["post_insert"], SQL["post_text_insert"]
    for draft in drafts:
        seq = conversation["last_seq"] + 1
        conversation["last_seq"] = seq
        same_run = tip.seq == seq - 1 and tip.seq != 0
        start, run_parent = (tip.run_start, tip.run_parent) if same_run else (seq, tip.seq)
        tip = Tip(
            seq,
            start,
            run_parent,
            seq if draft.opens_round else tip.round,
            tip.path_tokens + draft.tokens,
            tip.path_count + 1,
        )
        parent = seq - 1 if same_run else run_parent
        message, parts, wire, body = _place_body(connection, tenant, no, draft)
        connection.execute(
            insert,
            (tenant, no, seq, draft.id, parent, start, run_parent, tip.round, draft.sender, draft.recipient, draft.role, draft.state,
             message, draft.small, parts, wire, body, draft.created_at, draft.tokens, draft.small_tokens or draft.tokens,
             tip.path_tokens, tip.path_count, draft.digest),
        )  # fmt: skip
        if draft.key:
            connection.execute(insert_text, (no << SHIFT | seq, f"c{no} {owner_token(tenant, conversation['user_id'])}", draft.key))
            conversation["words"] += draft.key.count(" ") + 1
        _hear(conversation, draft)
    return tip


def _place_body(
    connection: sqlite3.Connection, tenant: str, no: int, draft: Draft
) -> tuple[str | None, bytes | None, bytes | None, bytes | None]:
    parts = encode_parts(draft.parts)
    size = len(draft.message) + len(parts or b"") + len(draft.wire or b"")
    if size <= INLINE:
        return draft.message, parts, draft.wire, None
    body = encode_body(draft.message, parts, draft.wire)
    return None, None, None, keep(connection, tenant, no, body)


def keep(connection: sqlite3.Connection, tenant: str, no: int, body: bytes) -> bytes:
    """Keep a body once and note that this conversation uses it; answers with its digest."""
    digest = digest_of(body)
    run(connection, "blob_insert", tenant=tenant, digest=digest, body=body)
    run(connection, "blob_use", tenant=tenant, digest=digest, no=no)
    return digest


def _hear(conversation: Row, draft: Draft) -> None:
    """Remember a speaker's name."""
    if f'"{draft.sender}"' not in conversation["speakers"]:
        names = json.loads(conversation["speakers"])
        if draft.sender not in names and len(names) < SPEAKERS:
            conversation["speakers"] = json.dumps([*names, draft.sender], ensure_ascii=False)


def owner_token(tenant: str, user: str | None) -> str:
    """The full-text token of everything one user owns."""
    return "u" + digest_of(f"{tenant}\x00{user or ''}".encode())[:8].hex()


def settle_head(connection: sqlite3.Connection, conversation: Row, tip: Tip, *, now: float) -> None:
    """Make `tip` the head after posts were stored, and bring mark and backlog up to it."""
    tenant, no = conversation["tenant"], conversation["no"]
    straight = tip.run_start <= conversation["head"] < tip.seq or conversation["head"] == 0 and conversation["mark"] == 0
    mark = conversation["mark"]
    if not straight:
        mark, _ = mark_on(connection, tenant, no, runs_to(connection, tenant, no, tip.seq))
    if straight and conversation["head"]:
        base = tip_at(connection, tenant, no, conversation["head"])
        count = conversation["backlog"] + tip.path_count - base.path_count
        tokens = conversation["backlog_tokens"] + tip.path_tokens - base.path_tokens
    else:
        count, tokens = backlog(connection, tenant, no, tip, mark)
    conversation.update(head=tip.seq, mark=mark, backlog=count, backlog_tokens=tokens)
    save_growth(connection, conversation, now=now)


def save_growth(connection: sqlite3.Connection, conversation: Row, *, now: float) -> None:
    """Write a conversation's counters back."""
    names = ("head", "last_seq", "mark", "backlog", "backlog_tokens", "speakers", "words", "no")
    run(connection, "conversation_grow", now=max(now, conversation["updated_at"]), **{name: conversation[name] for name in names})


def bodies(connection: sqlite3.Connection, tenant: str, digests: Sequence[bytes]) -> dict[bytes, bytes]:
    """Kept bodies by digest; what was forgotten is missing."""
    found = {}
    for digest in set(digests):
        row = connection.execute(SQL["blob_get"], {"tenant": tenant, "digest": digest}).fetchone()
        if row:
            found[digest] = row[0]
    return found


def stretch(connection: sqlite3.Connection, name: str, tenant: str, no: int, runs: Runs) -> Iterator[tuple[Any, ...]]:
    """Rows of a path, newest first."""
    for first, last in runs:
        yield from connection.execute(SQL[name], {"tenant": tenant, "no": no, "first": first, "last": last})


def path_post(connection: sqlite3.Connection, tenant: str, row: tuple[Any, ...]) -> PathPost:
    """A row of `path_stretch` as a record, its body fetched where it lies apart."""
    body = row[14]
    if body is None:
        return PathPost(*row[:14])
    kept = connection.execute(SQL["blob_get"], {"tenant": tenant, "digest": body}).fetchone()
    message, parts, wire = decode_body(kept[0]) if kept else ("", None, None)
    return PathPost(*row[:5], message, *row[6:11], parts, wire, row[13])


def unread(connection: sqlite3.Connection, tenant: str, no: int, runs: Runs) -> tuple[Stretch, ...]:
    """Sums of the stretches of a path that were not read, oldest first."""
    found = []
    for first, last in runs:
        end = one(connection, "sums_at", tenant=tenant, no=no, seq=last)
        start = one(connection, "sums_at", tenant=tenant, no=no, seq=first)
        if end and start:
            tokens = end["path_tokens"] - start["path_tokens"] + start["tokens"]
            found.append(Stretch(first, last, end["path_count"] - start["path_count"] + 1, tokens))
    return tuple(reversed(found))
