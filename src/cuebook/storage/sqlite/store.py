"""The Store on one SQLite file: reads use their own connections, writes go through one writer thread."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from cuebook.errors import BackendError
from cuebook.interfaces.store import (
    Alignment,
    Appended,
    Batch,
    CompactionInput,
    CompactionResult,
    DueConversation,
    Lease,
    Opening,
    PageOfConversations,
    PathQuery,
    Scene,
    SearchLook,
    StepEnd,
    StoredAnswer,
)
from cuebook.records.audit import Record
from cuebook.records.conversation import Conversation, Draft, PathPost, Post, RoundState
from cuebook.records.memory import Item, Scope, SearchResult, Summary
from cuebook.records.turn import Turn
from cuebook.storage.failpoints import Failpoints
from cuebook.storage.sqlite import base, derived, forget, reads, search, turns, writes
from cuebook.storage.sqlite.audit import SqliteAudit
from cuebook.storage.sqlite.connect import MEMORY, Holders, connect, is_large, prepare, rewritten, truncated
from cuebook.storage.sqlite.conversation_list import SqliteShadow, SqliteSpent, SqliteTalks
from cuebook.storage.sqlite.forget import SqliteErasure
from cuebook.storage.sqlite.keys import SqliteKeys, SqliteOrganizations
from cuebook.storage.sqlite.memory_store import SqliteMemories
from cuebook.storage.sqlite.outcomes import SqliteOutcomes
from cuebook.storage.sqlite.prompts import SqlitePrompts
from cuebook.storage.sqlite.reads import posts_behind
from cuebook.storage.sqlite.reflections import SqliteReflections
from cuebook.storage.sqlite.rows import conversation as conversation_record
from cuebook.storage.sqlite.tree import Paths, runs_to
from cuebook.storage.sqlite.tuning import SqliteTuning
from cuebook.storage.sqlite.turns import LeaseTerms, LeaseWatch, expire, overdue_turns
from cuebook.storage.sqlite.vectors import SqliteVectors
from cuebook.storage.sqlite.writer import Writer, explain, translate

T = TypeVar("T")

#: Reader threads per process: reads are short, and two cores run two of them.
READERS = 4
#: Milliseconds for which a deletion waits for readers to release the log.
PATIENCE_MS = 1000
#: Seconds between two checks whether they have.
PAUSE_S = 0.02


class SqliteStore:
    """A store in one file, or in memory (`:memory:`). A write that has returned is durable (`FULL`)."""

    def __init__(
        self,
        path: str = MEMORY,
        *,
        synchronous: str = "FULL",
        failpoints: Failpoints | None = None,
        holders: Holders | None = None,
    ) -> None:
        self.path = path if path == MEMORY else str(Path(path).resolve())
        self._failpoints = failpoints or Failpoints()
        self._writer = Writer(
            lambda: prepare(self.path, synchronous=synchronous, failpoints=self._failpoints), self._failpoints
        )
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="cuebook-reader")
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._closed = False
        self._unclean = False  # file or log may contain erased data
        self._kept = search.SearchCache()
        self._holders = holders or Holders(Path(self.path) if self.path != MEMORY else None)
        self._watch = LeaseWatch()
        self.paths = Paths() if self.path != MEMORY else None
        self.prompts = SqlitePrompts(self._read, self._write)
        self.outcomes = SqliteOutcomes(self._read, self._write, self._failpoints)
        self.audit = SqliteAudit(self._read, self._write)
        self.vectors = SqliteVectors(self._read, self._write)
        self.tuning = SqliteTuning(self._read, self._write)
        self.erasure = SqliteErasure(
            self._read, self._write, emptied=self._emptied, unclean=lambda: self._unclean, failpoints=self._failpoints
        )
        self.keys = SqliteKeys(self._read, self._write)
        self.organizations = SqliteOrganizations(self._read, self._write)
        self.memories = SqliteMemories(self._read, self._write, self._kept)
        self.reflections = SqliteReflections(self._read, self._write)
        self.shadow = SqliteShadow(self._read)
        self.usage = SqliteSpent(self._read)
        self.talks = SqliteTalks(self._read)

    @property
    def commits(self) -> int:
        """Return the number of committed transactions."""
        return self._writer.commits

    async def _write(self, run: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.wrap_future(self._writer.submit(run))

    async def _read(self, run: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            msg = "The store is closed."
            raise BackendError(msg)
        if self.path == MEMORY:
            return await asyncio.wrap_future(self._writer.submit(run))
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._snapshot, run)

    def _snapshot(self, run: Callable[[sqlite3.Connection], T]) -> T:
        """Run a read in one snapshot on this thread's connection."""
        connection = getattr(self._local, "connection", None)
        try:
            if connection is None:
                connection = self._local.connection = connect(self.path, read_only=True)
                self._connections.append(connection)
            connection.execute("BEGIN")
            try:
                return run(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            raise explain(error) from error

    # the turn

    async def scene(self, scope: Scope, path_query: PathQuery) -> Scene:
        """Load everything that a turn needs."""
        return await self._read(lambda c: reads.scene(c, scope, path_query, self._kept, self.paths))

    async def append(self, scope: Scope, batch: Batch) -> Appended:
        """Store posts, all or none."""
        return await self._write(lambda c: writes.append(c, scope, batch, self._failpoints))

    async def open(self, scope: Scope, opening: Opening) -> Lease:
        """Open a step and take the lease. Raises Busy while another turn runs, Conflict if the scene is outdated."""
        lease = await self._write(lambda c: turns.open_turn(c, scope, opening, self._holders, self._failpoints))
        if lease is None:
            raise base.moved(opening.conversation)
        return lease

    async def checkpoint(self, lease: Lease, partial: Draft | None, *, now: float, lease_s: float) -> None:
        """Save the partial answer and renew the lease. Raises LeaseLost if another process has taken it."""
        raw = msgspec.msgpack.encode(partial) if partial else b""
        await self._write(
            lambda c: turns.checkpoint(c, lease, raw, now=now, lease_s=lease_s, failpoints=self._failpoints)
        )

    async def close(self, lease: Lease, closing: StepEnd) -> int:
        """End a step; return the reply's seq. Raises LeaseLost if another process has taken the lease."""
        return await self._write(lambda c: turns.close_turn(c, lease, closing, self._failpoints))

    async def align(
        self, scope: Scope, digests: Sequence[bytes], *, conversation: str | None, anchors: Sequence[bytes] = ()
    ) -> list[Alignment]:
        """Find the posts of a resent history."""
        return await self._read(lambda c: reads.align(c, scope, digests, conversation=conversation, anchors=anchors))

    async def answered(self, scope: Scope, key: str) -> StoredAnswer | None:
        """Return the stored result of an Idempotency-Key."""
        own = base.own_key(scope, key)
        row = await self._read(lambda c: base.one(c, "idempotency_get", tenant=scope.tenant, key=own))
        if row is None:
            return None
        turn, response = row["turn"], row["response"]
        if not turn:
            return StoredAnswer(row["digest"], row["id"], response=response)
        return StoredAnswer(row["digest"], row["id"], turn, step=int(response or 1))

    # reading

    async def conversation(self, scope: Scope, conversation: str) -> Conversation:
        """Return one conversation."""
        return await self._read(lambda c: conversation_record(base.need(c, scope, conversation)))

    async def conversations(self, scope: Scope, *, limit: int, cursor: str | None = None) -> PageOfConversations:
        """List conversations, most recent first."""
        return await self._read(lambda c: reads.page(c, scope, limit=limit, cursor=cursor))

    async def posts(
        self, scope: Scope, conversation: str, *, path: bool = True, last: int | None = None, head: int | None = None
    ) -> list[Post]:
        """Return posts of a path, oldest first, or of all branches."""
        return await self._read(lambda c: reads.posts(c, scope, conversation, path=path, last=last, head=head))

    async def posts_behind(
        self, scope: Scope, conversation: str, *, after: int, limit: int, path: bool = True, head: int | None = None
    ) -> list[Post]:
        """Return the next posts after a seq, oldest first, of a path or of all branches."""
        return await self._read(
            lambda c: posts_behind(c, scope, conversation, path=path, head=head, after=after, limit=limit)
        )

    async def posts_in(self, scope: Scope, conversation: str, ranges: Sequence[tuple[int, int]]) -> list[PathPost]:
        """Return posts of seq ranges."""
        return await self._read(lambda c: reads.posts_in(c, scope, conversation, ranges))

    async def round_states(self, scope: Scope, conversation: str) -> dict[int, RoundState]:
        """Return the state of each round by seq."""
        return await self._read(lambda c: reads.round_states(c, scope, conversation))

    async def turn(self, scope: Scope, conversation: str, n: int) -> Turn:
        """Return one turn."""
        return await self._read(lambda c: reads.turn(c, scope, conversation, n))

    async def turns(self, scope: Scope, conversation: str, *, last: int) -> list[Turn]:
        """Return the newest turns, oldest first."""
        return await self._read(lambda c: reads.turns(c, scope, conversation, last=last))

    async def texts(self, scope: Scope, digests: Sequence[str]) -> dict[str, str]:
        """Return stored texts by digest."""
        return await self._read(lambda c: reads.texts(c, scope, digests))

    async def summary(self, scope: Scope, conversation: str, *, version: int | None = None) -> Summary | None:
        """Return the head's current summary, or the given version."""
        return await self._read(lambda c: derived.current(c, scope, conversation, version))

    async def items(self, scope: Scope, conversation: str, *, ended: bool = False) -> list[Item]:
        """Return the items at the head, with ended ones on request."""

        def read(c: sqlite3.Connection) -> list[Item]:
            row = base.need(c, scope, conversation)
            return derived.items(c, row, derived.head_summary(c, row), ended=ended)

        return await self._read(read)

    async def search(self, scope: Scope, search_look: SearchLook, *, conversation: str | None) -> SearchResult:
        """Search one conversation's head path, or all of the user's conversations."""

        def read(c: sqlite3.Connection) -> SearchResult:
            if conversation is None:
                return search.search_owned(c, scope, search_look, self._kept)
            row = base.find(c, scope, conversation)
            if row is None:
                return search.NOTHING
            return search.search(c, row, runs_to(c, row["tenant"], row["no"], row["head"]), search_look, self._kept)

        return await self._read(read)

    # changing

    async def move_head(self, scope: Scope, conversation: str, post: str, *, now: float) -> Conversation:
        """Make a post the head."""
        return await self._write(
            lambda c: writes.move_head(c, scope, conversation, post, now=now, failpoints=self._failpoints)
        )

    async def participate(
        self, scope: Scope, conversation: str, users: Sequence[str], *, audit: Sequence[Record] = ()
    ) -> Conversation:
        """Change the participants and return them; the first user always takes part."""
        return await self._write(lambda c: writes.participate(c, scope, conversation, users, audit=audit))

    async def delete(self, scope: Scope, conversation: str) -> dict[str, int]:
        """Delete a conversation, then truncate the write-ahead log so that its bytes are gone too.

        While another process reads, they remain in the log until a later call of `expire` finds it free.
        """
        counts = await self._write(lambda c: forget.delete(c, scope, conversation, self._failpoints))
        await self._emptied(PATIENCE_MS)
        return counts

    async def _emptied(self, patience_ms: int, *, large: bool = False) -> bool:
        """Remove erased data from file, log and memory; return False while another process reads.

        A large file is rewritten only on request.
        """
        if self.paths is None:
            return True
        self.paths.clear()
        loop = asyncio.get_running_loop()
        self._unclean = not await loop.run_in_executor(self._readers, self._empty, patience_ms, large)
        return not self._unclean

    def _empty(self, patience_ms: int, large: bool) -> bool:  # noqa: FBT001  # executors pass no keyword arguments
        """Remove erased data from file and log; return False if another process still reads or writes."""
        end = time.monotonic() + patience_ms / 1000
        try:
            with closing(connect(self.path)) as connection:
                connection.execute("PRAGMA busy_timeout = 0")  # do not wait: another thread may do the same
                if not large and is_large(self.path):
                    truncated(connection)
                    return False
                clean = False
                while not (clean := clean or rewritten(connection)) or not truncated(connection):
                    if time.monotonic() >= end:
                        return False
                    time.sleep(PAUSE_S)
        except sqlite3.Error as error:
            raise translate(error) from error
        return True

    # background jobs

    async def expire(
        self, *, now: float, lease_s: float | None = None, wait_s: float | None = None, limit: int = 100
    ) -> int:
        """End turns whose lease expired or whose process is gone.

        `lease_s` also ends leases of a wrong clock that were not renewed for so long. `wait_s` also ends turns
        that have waited so long for tool results in an inactive conversation.
        """
        terms = LeaseTerms(now=now, lease_s=lease_s, wait_s=wait_s, limit=limit)
        if self._unclean:
            await self._emptied(0)
        overdue = await self._read(lambda c: overdue_turns(c, self._holders, self._watch, terms))
        if not overdue.leases and not overdue.left:
            return 0  # nothing to write
        return await self._write(lambda c: expire(c, overdue, terms, self._failpoints))

    async def due(
        self, *, limit: int = 100, least: int = 1, after: DueConversation | None = None, conversation: str | None = None
    ) -> list[DueConversation]:
        """Return conversations due for summarization."""
        return await self._read(
            lambda c: derived.due(c, limit=limit, least=least, behind=after, conversation=conversation)
        )

    async def compaction(self, scope: Scope, conversation: str, *, limit: int) -> CompactionInput | None:
        """Load the input of a pass, None while a round is open."""
        return await self._read(lambda c: derived.compaction(c, scope, conversation, limit=limit))

    async def save_summary(self, scope: Scope, compacted: CompactionResult) -> bool:
        """Store a pass's result; return False if its input is outdated."""
        return await self._write(lambda c: derived.save_summary(c, scope, compacted, self._failpoints))

    async def postpone(self, scope: Scope, conversation: str, *, until: float, failed: bool, mark: int) -> None:
        """Delay the next pass until a time."""
        await self._write(lambda c: derived.postpone(c, scope, conversation, until=until, failed=failed, mark=mark))

    async def forget_keys(self, *, before: float, limit: int = 1000) -> int:
        """Delete Idempotency-Keys older than a time, oldest first; return their number."""
        if await self._read(lambda c: base.one(c, "idempotency_old", before=before)) is None:
            return 0  # nothing to write
        return await self._write(lambda c: base.run(c, "idempotency_forget", before=before, limit=limit).rowcount)

    async def check(self, *, whole: bool = False) -> dict[str, Any]:
        """Check that the store works and return its counts; `whole` runs an integrity check of the whole file."""

        def read(c: sqlite3.Connection) -> dict[str, Any]:
            count = c.execute("SELECT count(*), coalesce(sum(last_seq), 0) FROM conversation").fetchone()
            data = {
                "kind": "sqlite",
                "file": Path(self.path).name,
                "sqlite": sqlite3.sqlite_version,
                "journal": c.execute("PRAGMA journal_mode").fetchone()[0],
                "conversations": count[0],
                "posts": count[1],
            }
            return data | ({"integrity": c.execute("PRAGMA quick_check(1)").fetchone()[0]} if whole else {})

        return await self._read(read)

    async def aclose(self) -> None:
        """Finish queued writes and close the file."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(None, self._shut)

    def _shut(self) -> None:
        self._writer.close()
        self._holders.close()
        self._readers.shutdown(wait=True)
        for connection in self._connections:
            connection.close()
