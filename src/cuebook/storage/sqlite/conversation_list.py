"""List and search conversations, and read their branches, answering turns, usage and shadow calls."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from cuebook.records.conversation_list import ConversationSummaries, ConversationSummary, PostPlace, PostRun, TurnEntry
from cuebook.records.memory import Scope
from cuebook.records.turn import Manifest, Usage
from cuebook.records.usage import CallUsageRecord, ShadowCallUsage, ShadowedCall
from cuebook.storage.sqlite import base
from cuebook.storage.sqlite import rows as records
from cuebook.storage.sqlite.base import SQL, one, rows
from cuebook.storage.sqlite.base import SnapshotRunner as Reader
from cuebook.storage.sqlite.reads import read_cursor
from cuebook.storage.sqlite.rows import Row

#: Conversations examined per batch in a word search.
_AT_ONCE: Final = 500
_manifest = msgspec.json.Decoder(Manifest).decode


class SqliteTalks:
    """The conversation list of a SQLite store."""

    def __init__(self, read: Reader) -> None:
        self._read = read

    async def written(self) -> tuple[int, int]:
        """Return a reader and its change mark, which differs after any write."""

        def read(connection: sqlite3.Connection) -> tuple[int, int]:
            others = connection.execute("PRAGMA data_version").fetchone()[0]
            return id(connection), others + connection.total_changes  # its own: it may be the writer's

        return await self._read(read)

    async def find(
        self, scope: Scope, words: Sequence[str], *, limit: int, cursor: str | None = None
    ) -> ConversationSummaries:
        """List conversations, most recent first; `words` filters for those with every word. Raises InvalidInput."""
        return await self._read(lambda connection: _found(connection, scope, words, limit=limit, cursor=cursor))

    async def runs(self, scope: Scope, conversation: str) -> list[PostRun]:
        """Return the runs of a conversation's tree, ordered by first post. Raises NotFound."""

        def read(connection: sqlite3.Connection) -> list[PostRun]:
            data = base.need(connection, scope, conversation)
            return _runs(connection, scope.tenant, data["no"], data["last_seq"])

        return await self._read(read)

    async def answering(self, scope: Scope, conversation: str, *, first: int, last: int) -> list[TurnEntry]:
        """Return the turns of the rounds `first`..`last`, inclusive, oldest first. Raises NotFound."""

        def read(connection: sqlite3.Connection) -> list[TurnEntry]:
            no = base.need(connection, scope, conversation)["no"]
            return _answering(connection, scope.tenant, no, first, last)

        return await self._read(read)

    async def answers(self, scope: Scope, conversation: str, rounds: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return the turn and step of each answer in these rounds, by seq. Raises NotFound."""

        def read(connection: sqlite3.Connection) -> dict[int, tuple[int, int]]:
            no = base.need(connection, scope, conversation)["no"]
            values = {"tenant": scope.tenant, "no": no, "rounds": json.dumps(list(rounds))}
            return {seq: (turn, n) for seq, turn, n in connection.execute(SQL["answers_of_rounds"], values)}

        return await self._read(read)

    async def places(self, scope: Scope, conversation: str, ids: Sequence[str]) -> dict[str, PostPlace]:
        """Return the positions of posts by id; missing posts are omitted. Raises NotFound."""

        def read(connection: sqlite3.Connection) -> dict[str, PostPlace]:
            no = base.need(connection, scope, conversation)["no"]
            found = (one(connection, "post_place", tenant=scope.tenant, no=no, id=each) for each in dict.fromkeys(ids))
            return {row["id"]: PostPlace(**row) for row in found if row is not None}

        return await self._read(read)


def _found(
    connection: sqlite3.Connection, scope: Scope, words: Sequence[str], *, limit: int, cursor: str | None
) -> ConversationSummaries:
    """List the caller's conversations, most recent first; `words` filters for those with every word."""
    before, before_no = read_cursor(cursor)
    wanted = [each.casefold() for each in words]
    items: list[Row] = []
    for row in _all(connection, scope, before, before_no, limit + 1 if not wanted else _AT_ONCE):
        searchable = " ".join((row["id"], row["user_id"] or "", row["said"])).casefold()
        if all(each in searchable for each in wanted):
            items.append(row)
        if len(items) > limit:
            break
    entries = items[:limit]
    more = f"{entries[-1]['updated_at']!r}:{entries[-1]['no']}" if len(items) > limit else None
    return ConversationSummaries(tuple(_talk(connection, row) for row in entries), more)


def _all(connection: sqlite3.Connection, scope: Scope, before: float, before_no: int, at_once: int) -> Iterator[Row]:
    while True:
        items = rows(
            connection,
            "talks_page",
            tenant=scope.tenant,
            user=scope.user,
            proven=scope.proven,
            before=before,
            before_no=before_no,
            limit=at_once,
        )
        yield from items
        if len(items) < at_once:
            return
        before, before_no = items[-1]["updated_at"], items[-1]["no"]


def _talk(connection: sqlite3.Connection, row: Row) -> ConversationSummary:
    tenant, no = row["tenant"], row["no"]
    ways = _runs(connection, tenant, no, row["last_seq"])
    followed = {each.parent for each in ways}
    last = one(connection, "turn_newest", tenant=tenant, no=no)
    return ConversationSummary(
        conversation=records.conversation(row),
        said=row["said"],
        branches=sum(each.last not in followed for each in ways),
        tokens=_manifest(last["manifest"]).tokens if last else 0,
        state=last["state"] if last else None,
        shadow=bool(last and last["shadow"]),
    )


def _runs(connection: sqlite3.Connection, tenant: str, no: int, last_seq: int) -> list[PostRun]:
    """Return the runs of a tree, ordered by first post. The cost grows with the runs, not with the posts."""
    post_runs: list[PostRun] = []
    while last_seq:
        row = connection.execute(SQL["run_of"], {"tenant": tenant, "no": no, "seq": last_seq}).fetchone()
        if row is None:
            break
        post_runs.append(PostRun(row[0], last_seq, row[1]))
        last_seq = row[0] - 1
    return post_runs[::-1]


def _answering(connection: sqlite3.Connection, tenant: str, no: int, first: int, last: int) -> list[TurnEntry]:
    """Return the turns of the rounds `first`..`last`, inclusive, oldest first."""
    answerings: dict[int, TurnEntry] = {}
    for row in rows(connection, "turns_answering", tenant=tenant, no=no, first=first, last=last):
        before = answerings.get(row["turn"])
        answerings[row["turn"]] = TurnEntry(
            turn=row["turn"],
            round=row["round"],
            state=row["state"],
            query_seq=row["query_seq"],
            replies=(before.replies if before else {}) | ({row["reply_seq"]: row["step"]} if row["reply_seq"] else {}),
            tokens=_manifest(row["manifest"]).tokens,
            error=row["error"],
            shadow=bool(row["shadow"]),
        )
    return list(answerings.values())


# ---- usage and shadow mode ------------------------------------------------------------------------------------------


_usage = msgspec.json.Decoder(Usage).decode
#: Block kinds that replace posts.
_IN_PLACE = ("summary", "memory")


class SqliteSpent:
    """The usage of model calls."""

    def __init__(self, read: Reader) -> None:
        self._read = read

    async def calls(self, scope: Scope, conversation: str, *, first: int, last: int) -> list[CallUsageRecord]:
        """Return the calls of turns `first`..`last` of a conversation, inclusive. Raises NotFound."""

        def read(connection: sqlite3.Connection) -> list[CallUsageRecord]:
            no = base.need(connection, scope, conversation)["no"]
            values = {"tenant": scope.tenant, "no": no, "first": first, "last": last}
            return [_spent(row) for row in rows(connection, "calls_spent", **values)]

        return await self._read(read)


def _spent(row: Row) -> CallUsageRecord:
    manifest = _manifest(row["manifest"])
    front = sum(text.tokens for text in manifest.front if text.kind not in _IN_PLACE)
    newest = row["step"] == row["steps"]
    return CallUsageRecord(
        turn=row["turn"],
        step=row["step"],
        state=row["state"],
        tokens=manifest.tokens,
        whole=front + row["path_tokens"] + manifest.tools_tokens,
        posts=row["posts"],
        reply=row["reply"],
        at=row["at"],
        usage=_usage(row["usage"]) if row["usage"] else None,
        cache=json.loads(row["cache"]) if newest and row["cache"] else None,
        model=row["model"] or "",
        shadow=bool(row["shadow"]),
    )


# ---- shadow mode ----------------------------------------------------------------------------------------------------


class SqliteShadow:
    """The calls recorded in shadow mode."""

    def __init__(self, read: Reader) -> None:
        self._read = read

    async def calls(self, scope: Scope, conversation: str | None) -> list[ShadowedCall]:
        """Return the calls of one conversation, or of all of the caller's, oldest first. Raises NotFound."""

        def read(connection: sqlite3.Connection) -> list[ShadowedCall]:
            no = base.need(connection, scope, conversation)["no"] if conversation is not None else None
            who = {"tenant": scope.tenant, "user": scope.user, "proven": scope.proven}
            items = rows(connection, "shadow_calls", **who, no=no)
            steps = [(row, json.loads(row["kept"]).get(str(row["step"]))) for row in items]
            return [
                ShadowedCall(
                    conversation=row["conversation"],
                    turn=row["turn"],
                    step=row["step"],
                    entry=msgspec.convert(entry, ShadowCallUsage),
                    usage=_usage(row["usage"]) if row["usage"] else None,
                    reply_tokens=row["reply_tokens"],
                )
                for row, entry in steps
                if entry is not None  # the step ended before it was recorded, or was not in shadow mode
            ]

        return await self._read(read)
