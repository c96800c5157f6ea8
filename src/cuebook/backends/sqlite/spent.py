"""What model calls took, and where posts and turns stand, in a SQLite store: read from steps, turns and posts."""

import json
import sqlite3
from collections.abc import Sequence

import msgspec

from cuebook.backends.sqlite import base, talks
from cuebook.backends.sqlite.base import Run as Reader
from cuebook.backends.sqlite.base import one, rows
from cuebook.backends.sqlite.rows import Row
from cuebook.records.memory import Scope
from cuebook.records.spent import PostPlace, Spent
from cuebook.records.talk import Answering, Run, Talks
from cuebook.records.turn import Manifest, Usage

_usage = msgspec.json.Decoder(Usage).decode
_manifest = msgspec.json.Decoder(Manifest).decode
#: Kinds of a prompt's front that stand for posts.
_IN_PLACE = ("summary", "memory")


class SqliteSpent:
    """The model calls, as what they took."""

    def __init__(self, read: Reader) -> None:
        self._read = read

    async def calls(self, scope: Scope, conversation: str, *, first: int, last: int) -> list[Spent]:
        """Give the calls of turns `first`..`last` of a conversation, both included. Raises NotFound."""

        def read(connection: sqlite3.Connection) -> list[Spent]:
            no = base.need(connection, scope, conversation)["no"]
            values = {"tenant": scope.tenant, "no": no, "first": first, "last": last}
            return [_spent(row) for row in rows(connection, "calls_spent", **values)]

        return await self._read(read)

    async def places(self, scope: Scope, conversation: str, ids: Sequence[str]) -> dict[str, PostPlace]:
        """Give the places of posts by id; of a post that is not there, nothing. Raises NotFound."""

        def read(connection: sqlite3.Connection) -> dict[str, PostPlace]:
            no = base.need(connection, scope, conversation)["no"]
            found = (one(connection, "post_place", tenant=scope.tenant, no=no, id=each) for each in dict.fromkeys(ids))
            return {row["id"]: PostPlace(**row) for row in found if row is not None}

        return await self._read(read)

    async def talks(self, scope: Scope, words: Sequence[str], *, limit: int, cursor: str | None = None) -> Talks:
        """List conversations, the most recent first; with `words` those that have each. Raises InvalidInput."""
        return await self._read(lambda connection: talks.listed(connection, scope, words, limit=limit, cursor=cursor))

    async def runs(self, scope: Scope, conversation: str) -> list[Run]:
        """Give the runs of a conversation's tree, by their first post. Raises NotFound."""

        def read(connection: sqlite3.Connection) -> list[Run]:
            known = base.need(connection, scope, conversation)
            return talks.runs(connection, scope.tenant, known["no"], known["last_seq"])

        return await self._read(read)

    async def answering(self, scope: Scope, conversation: str, *, first: int, last: int) -> list[Answering]:
        """Give the turns of the rounds `first`..`last`, both included, oldest first. Raises NotFound."""

        def read(connection: sqlite3.Connection) -> list[Answering]:
            no = base.need(connection, scope, conversation)["no"]
            return talks.answering(connection, scope.tenant, no, first, last)

        return await self._read(read)


def _spent(row: Row) -> Spent:
    manifest = _manifest(row["manifest"])
    front = sum(text.tokens for text in manifest.front if text.kind not in _IN_PLACE)
    newest = row["step"] == row["steps"]
    return Spent(
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
