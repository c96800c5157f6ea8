"""What model calls took, in a SQLite store: read from the steps, their turns' metadata, and the posts."""

import json
import sqlite3

import msgspec

from cuebook.backends.sqlite import base
from cuebook.backends.sqlite.base import Run, rows
from cuebook.backends.sqlite.rows import Row
from cuebook.records.memory import Scope
from cuebook.records.spent import Spent
from cuebook.records.turn import Manifest, Usage

_usage = msgspec.json.Decoder(Usage).decode
_manifest = msgspec.json.Decoder(Manifest).decode
#: Kinds of a prompt's front that stand for posts.
_IN_PLACE = ("summary", "memory")


class SqliteSpent:
    """The model calls, as what they took."""

    def __init__(self, read: Run) -> None:
        self._read = read

    async def calls(self, scope: Scope, conversation: str, *, first: int, last: int) -> list[Spent]:
        """Give the calls of turns `first`..`last` of a conversation, both included. Raises NotFound."""

        def read(connection: sqlite3.Connection) -> list[Spent]:
            no = base.need(connection, scope, conversation)["no"]
            values = {"tenant": scope.tenant, "no": no, "first": first, "last": last}
            return [_spent(row) for row in rows(connection, "calls_spent", **values)]

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
