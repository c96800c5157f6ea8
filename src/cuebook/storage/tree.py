"""Read and extend a conversation's tree: runs, paths, sums along a path, and storing posts; cache recent posts."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import starmap
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.errors import Conflict, NotFound
from cuebook.records.conversation import Draft, Part, PathPost, Post, Stretch, chain, digest_of
from cuebook.storage.access import ConversationRow
from cuebook.storage.database.columns import decode, encode
from cuebook.storage.database.transaction import Transaction

Runs = list[tuple[int, int]]  # (first, last) seqs, newest run first

_body = msgspec.msgpack.Decoder(tuple[str, bytes | None, bytes | None])
draft_decoder = msgspec.msgpack.Decoder(Draft)

#: A full-text rowid is conversation << SHIFT | seq.
SHIFT = 32
#: Most speaker names stored per conversation.
SPEAKERS = 64
#: Rows of a path in the first and in the largest batch.
_AT_FIRST, _AT_ONCE = 16, 512
_MESSAGE = attrgetter("message")
#: Marks parts that are stored in the body only.
APART = b""
#: Larger bodies (in bytes) are stored in `blob`, so that rows stay small enough to scan (page size 8192).
INLINE = 4096


class Tip(Struct):
    """The end of a path: the fields of the last post that the next one needs."""

    seq: int = 0
    run_start: int = 0
    run_parent: int = 0
    round: int = 0
    path_tokens: int = 0
    path_count: int = 0
    chain: bytes | None = None


def tip_at(row: ConversationRow, seq: int) -> Tip:
    """Return the path that ends at a post; seq 0 is the root."""
    if seq == 0:
        return Tip()
    fields = row.run("post_at", seq=seq).fetchone()
    if fields is None:
        raise _no_post(seq)
    return Tip(*fields)


def _no_post(seq: int) -> NotFound:
    return NotFound(f"Unknown post with seq {seq} in this conversation.")


def runs_to(row: ConversationRow, head: int) -> Runs:
    """Return the runs of the path that ends at `head`, newest first."""
    results: Runs = []
    while head:
        run = row.run("run_of", seq=head).fetchone()
        if run is None:
            raise _no_post(head)
        results.append((run[0], head))
        head = run[1]
    return results


def on_path(runs: Runs, seq: int) -> bool:
    """Return whether a post is on a path."""
    return any(first <= seq <= last for first, last in runs)


def after(runs: Runs, mark: int) -> Runs:
    """Return the part of a path after a mark on it, newest first."""
    remaining: Runs = []
    for first, last in runs:
        if last <= mark:
            break
        remaining.append((max(first, mark + 1), last))
    return remaining


def mark_on(row: ConversationRow, runs: Runs) -> tuple[int, int]:
    """Return seq and version of the last summary on a path, (0, 0) for none."""
    for version, upto, _ in row.run("summary_marks"):
        if on_path(runs, upto):
            return upto, version
    return 0, 0


def backlog(row: ConversationRow, head: Tip, mark: int) -> tuple[int, int]:
    """Count posts and tokens between a mark and the head."""
    base = tip_at(row, mark)
    return head.path_count - base.path_count, head.path_tokens - base.path_tokens


def grow(row: ConversationRow, drafts: Sequence[Draft], tip: Tip) -> Tip:
    """Append drafts after `tip` and update the counters of the row. Does not move the head."""
    no, seq = row.no, row.last_seq
    scope = search_scope(row)
    for draft in drafts:
        seq += 1
        parent = tip.seq
        same_run = 0 < parent == seq - 1
        start, run_parent = (tip.run_start, tip.run_parent) if same_run else (seq, parent)
        tokens, count = tip.path_tokens + draft.tokens, tip.path_count + 1
        chained = chain(tip.chain or b"", [draft.digest])
        tip = Tip(seq, start, run_parent, seq if draft.role == "user" else tip.round, tokens, count, chained)
        message, parts, wire, body = _place_body(row, draft)
        inserted = row.run(
            "post_insert", seq=seq, id=draft.id, parent=parent, run_start=start,
            run_parent=run_parent, round=tip.round, sender=draft.sender, recipient=draft.recipient, role=draft.role,
            state=draft.state, message=message, small=draft.small, parts=parts, wire=wire, body=body,
            created_at=draft.created_at, tokens=draft.tokens, small_tokens=draft.small_tokens or draft.tokens,
            path_tokens=tokens, path_count=count, digest=draft.digest, chain=chained
        )  # fmt: skip
        if not inserted.rowcount:
            msg = f"Post ID {draft.id!r} already exists in conversation {row.id!r}. Use a new id."
            raise Conflict(msg)
        if draft.key:
            row.transaction.run("post_text_insert", id=no << SHIFT | seq, scope=scope, key=draft.key)
        if draft.sender not in row.speakers and len(row.speakers) < SPEAKERS:
            row.speakers = (*row.speakers, draft.sender)
    row.last_seq = seq
    return tip


def _place_body(row: ConversationRow, draft: Draft) -> tuple[str | None, bytes | None, bytes | None, bytes | None]:
    """Store a large body apart. Parts of moderate size also stay in the row, for readers of the compressed form."""
    parts = encode(draft.parts) if draft.parts else None
    size = len(draft.message) + len(parts or b"") + len(draft.wire or b"")
    if size <= INLINE:
        return draft.message, parts, draft.wire, None
    body = keep(row, msgspec.msgpack.encode((draft.message, parts, draft.wire)))
    return None, parts if parts is None or len(parts) <= INLINE else APART, None, body


def keep(row: ConversationRow, body: bytes) -> bytes:
    """Store a body once with a reference from this conversation; return its digest."""
    digest = digest_of(body)
    row.transaction.run("blob_insert", digest=digest, body=body)
    row.run("blob_use", digest=digest)
    return digest


def tenant_token(tenant: str) -> str:
    """Return the full-text token of all posts in a tenant, for a search without a user."""
    return "t" + digest_of(tenant.encode())[:8].hex()


def search_scope(row: ConversationRow) -> str:
    """Return where full-text search finds a conversation's posts. Those of a utility call are found only in it."""
    return f"c{row.no}" if row.utility else f"c{row.no} {owner_token(row.tenant, row.user)} {tenant_token(row.tenant)}"


def owner_token(tenant: str, user: str | None) -> str:
    """Return the full-text token of all posts that a user owns."""
    return "u" + digest_of(f"{tenant}\x00{user or ''}".encode())[:8].hex()


def settle_head(row: ConversationRow, start: Tip, tip: Tip, *, now: float) -> bool:
    """Make `tip` the head after posts were appended after `start`, and update mark and backlog.

    Return whether a turn waits for tool results.
    """
    if start.seq == row.head:
        row.backlog += tip.path_count - start.path_count
        row.backlog_tokens += tip.path_tokens - start.path_tokens
    else:
        turn_to(row, tip)
    row.head = tip.seq
    return save_growth(row, now=now)


def turn_to(row: ConversationRow, tip: Tip) -> None:
    """Make `tip` the head in the row, with its mark and backlog, and mark the conversation for delivery."""
    row.head = tip.seq
    row.mark, _ = mark_on(row, runs_to(row, tip.seq))
    row.backlog, row.backlog_tokens = backlog(row, tip, row.mark)
    row.run("delivery_again")


def save_growth(row: ConversationRow, *, now: float) -> bool:
    """Save a conversation's counters. Return whether a turn waits for tool results."""
    [(is_waiting,)] = row.run("conversation_grow", **row.columns, now=max(now, row.updated_at)).fetchall()
    return bool(is_waiting)


def stretch(row: ConversationRow, name: str, runs: Runs) -> Iterator[list[PathPost]]:
    """Yield posts of a path, newest first, in batches of growing size, so that short reads stay cheap.

    Bodies stored apart are not loaded (see `with_bodies`).
    """
    many = _AT_FIRST
    for first, last in runs:
        cursor = row.run(name, first=first, last=last)
        while path_posts := list(starmap(PathPost, cursor.fetchmany(many))):
            yield path_posts
            many = min(2 * many, _AT_ONCE)


def with_bodies(row: ConversationRow, posts: list[PathPost], *, small: bool = False) -> list[PathPost]:
    """Return posts of `path_stretch` or `small_stretch` with the bodies that are stored apart."""
    if not small and all(map(_MESSAGE, posts)):
        return posts  # usually no body is stored apart
    for at, post in enumerate(posts):
        if post.message is None and (not small or post.small is None):
            message, parts, wire = read_body(row.transaction, post.wire)
            posts[at] = msgspec.structs.replace(post, message=message, parts=parts, wire=wire)
        elif small and post.parts == APART:
            parts = read_body(row.transaction, post.wire)[1]
            posts[at] = msgspec.structs.replace(post, parts=parts, wire=None)
    return posts


def read_body(transaction: Transaction, digest: bytes | None) -> tuple[str, bytes | None, bytes | None]:
    """Return the message, parts and wire of a large post; empty if they were erased."""
    body = transaction.value("blob_get", digest=digest)
    return ("", None, None) if body is None else _body.decode(body)


def text_of(transaction: Transaction, message: str | None, digest: bytes | None) -> str:
    """Return the text of a post, also of one whose body is stored apart."""
    return read_body(transaction, digest)[0] if message is None else message


def with_body(transaction: Transaction, post: Post) -> Post:
    """Return a post of `posts_stretch` with its body, also if that is stored apart."""
    message: Any = post.message  # None if it is
    if message is not None:
        return post
    message, parts, wire = read_body(transaction, post.wire)
    return msgspec.structs.replace(
        post, message=message, parts=decode(tuple[Part, ...], parts) if parts else (), wire=wire
    )


def unread(row: ConversationRow, runs: Runs) -> tuple[Stretch, ...]:
    """Return the unread stretches of a path with their sums, oldest first."""
    stretches = []
    for first, last in runs:
        end = row.one("sums_at", seq=last)
        start = row.one("sums_at", seq=first)
        if end and start:
            tokens = end["path_tokens"] - start["path_tokens"] + start["tokens"]
            stretches.append(Stretch(first, last, end["path_count"] - start["path_count"] + 1, tokens))
    return tuple(reversed(stretches))


# ---- cache of recent posts ------------------------------------------------------------------------------------------


#: A shorter stretch is read from the file as fast.
LEAST = 64
#: Most tokens in the cache of one process, about four bytes each.
MOST_TOKENS = 4_000_000


class Paths:
    """A cache of recent posts: one stretch of consecutive posts per conversation, as rows of `path_stretch`.

    Stored posts change only by erasure, and seqs are never reused, so entries stay valid until an erasure (`see`).
    Uncommitted posts must not enter it: reads of an in-memory database do not use it.
    """

    def __init__(self, *, least: int = LEAST, most_tokens: int = MOST_TOKENS) -> None:
        self._least = least
        self._most_tokens = most_tokens
        self._held: OrderedDict[tuple[str, int], tuple[PathPost, ...]] = OrderedDict()  # newest first
        self._tokens = 0
        self._epochs: dict[str, int] = {}
        self._lock = threading.Lock()

    @property
    def size(self) -> tuple[int, int]:
        """Return the numbers of cached conversations and tokens."""
        return len(self._held), self._tokens

    def stretch(self, row: ConversationRow, runs: Runs) -> Iterator[list[PathPost]]:
        """Return posts of a path in full, newest first, from the cache if possible."""
        with self._lock:
            path_posts = self._held.get((row.tenant, row.no), ())
        for first, last in runs:
            at, end = _overlap(path_posts, first, last)
            if at == end:
                yield from stretch(row, "path_stretch", [(first, last)])
                continue
            if path_posts[at].seq < last:
                yield from stretch(row, "path_stretch", [(path_posts[at].seq + 1, last)])
            yield list(path_posts[at:end])
            if path_posts[end - 1].seq > first:
                yield from stretch(row, "path_stretch", [(first, path_posts[end - 1].seq - 1)])

    def see(self, tenant: str, epoch: int) -> None:
        """Drop all entries read before an erasure in a tenant, by any process."""
        with self._lock:
            if self._epochs.setdefault(tenant, epoch) < epoch:
                self._epochs[tenant] = epoch
                self._held.clear()
                self._tokens = 0

    def hold(self, row: ConversationRow, posts: Sequence[PathPost], *, epoch: int) -> None:
        """Cache consecutive posts, newest first, and replace the conversation's entry."""
        key = (row.tenant, row.no)
        if len(posts) < self._least:
            return
        with self._lock:
            if epoch < self._epochs.get(row.tenant, 0):
                return  # read before an erasure
            self._tokens += _tokens(posts) - _tokens(self._held.pop(key, ()))
            self._held[key] = tuple(posts)
            while self._tokens > self._most_tokens:
                self._tokens -= _tokens(self._held.popitem(last=False)[1])

    def clear(self) -> None:
        """Clear the cache after a deletion."""
        with self._lock:
            self._held.clear()
            self._tokens = 0


def _overlap(path_posts: Sequence[PathPost], first: int, last: int) -> tuple[int, int]:
    """Return the index range of the cached posts, newest first, that are in a stretch."""
    if not path_posts:
        return 0, 0
    newest = path_posts[0].seq
    at, end = max(0, newest - last), min(len(path_posts), newest - first + 1)
    return (at, end) if at < end else (0, 0)


def _tokens(posts: Sequence[PathPost]) -> int:
    return posts[0].path_tokens - posts[-1].path_tokens + posts[-1].tokens if posts else 0
