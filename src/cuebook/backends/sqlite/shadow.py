"""The ledger of shadow mode in a SQLite store: read from the turns' metadata."""

import json
import sqlite3

import msgspec

from cuebook.backends.sqlite import base
from cuebook.backends.sqlite.base import Run, rows
from cuebook.records.memory import Scope
from cuebook.records.shadow import Shadowed, ShadowedCall
from cuebook.records.turn import Usage

_usage = msgspec.json.Decoder(Usage).decode


class SqliteShadow:
    """The calls kept in shadow."""

    def __init__(self, read: Run) -> None:
        self._read = read

    async def calls(self, scope: Scope, conversation: str | None) -> list[ShadowedCall]:
        """Give the calls of a conversation, or of all that who asks takes part in, oldest first. Raises NotFound."""

        def read(connection: sqlite3.Connection) -> list[ShadowedCall]:
            no = base.need(connection, scope, conversation)["no"] if conversation is not None else None
            who = {"tenant": scope.tenant, "user": scope.user, "proven": scope.proven}
            found = rows(connection, "shadow_calls", **who, no=no)
            kept = [(row, json.loads(row["kept"]).get(str(row["step"]))) for row in found]
            return [
                ShadowedCall(
                    conversation=row["conversation"],
                    turn=row["turn"],
                    step=row["step"],
                    entry=msgspec.convert(entry, Shadowed),
                    usage=_usage(row["usage"]) if row["usage"] else None,
                    reply_tokens=row["reply_tokens"],
                )
                for row, entry in kept
                if entry is not None  # a step that ended before it was told, or one that was no shadow's
            ]

        return await self._read(read)
