"""The vault in SQLite: values are sealed before a write leaves its caller, and opened for their own conversation."""

import json
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cuebook.backends.sqlite import base
from cuebook.backends.sqlite.audit import chained
from cuebook.backends.sqlite.base import SQL, Run, one, rows, run
from cuebook.backends.sqlite.rows import Row
from cuebook.errors import BackendError, InvalidInput
from cuebook.ports.store import Batch, Closing, Opening
from cuebook.ports.vault import SealingBox
from cuebook.records.audit import Record
from cuebook.records.conversation import Draft
from cuebook.records.memory import Scope
from cuebook.records.vault import Census, Kept, Opened, Sealed, Secret

D = TypeVar("D", Batch, Opening)

#: Digits of a key's id that are shown.
SHOWN = 8


class SqliteVault:
    """The vault of a SQLite store; without `box` it is off. `emptied` empties the write-ahead log."""

    def __init__(
        self, read: Run, write: Run, *, box: SealingBox | None = None, emptied: Callable[[int], Awaitable[bool]]
    ) -> None:
        self._read = read
        self._write = write
        self._box = box
        self._emptied = emptied

    @property
    def on(self) -> bool:
        """Whether it keeps and reveals anything."""
        return self._box is not None

    # sealing

    def sealed(self, scope: Scope, conversation: str, draft: Draft) -> Draft:
        """Give a draft with its values sealed; from here on nothing holds them."""
        if not draft.secrets:
            return draft
        box, sealed = self._box, draft.sealed
        if box is not None:
            sealed = tuple(
                Sealed(each.token, box.seal(each.values, (scope.tenant, conversation, draft.id, each.token)), box.id)
                for each in draft.secrets
            )
        return replace(draft, secrets=(), sealed=sealed)

    def with_sealed(self, scope: Scope, given: D) -> D:
        """Give a batch or an opening with the values of its drafts sealed."""
        if not any(draft.secrets for draft in given.drafts):
            return given
        return replace(given, drafts=tuple(self.sealed(scope, given.conversation, draft) for draft in given.drafts))

    def closing(self, scope: Scope, conversation: str, closing: Closing) -> Closing:
        """Give a closing with the values of its reply and of the further choices sealed."""
        if closing.reply is None:
            return closing
        others = tuple(self.sealed(scope, conversation, draft) for draft in closing.others)
        return replace(closing, reply=self.sealed(scope, conversation, closing.reply), others=others)

    # the turn

    async def opened(
        self, scope: Scope, conversation: str, *, posts: Collection[str], tokens: Collection[str]
    ) -> Opened:
        """Give what posts had, and what tokens stand for where users said it."""
        box = self._box
        if box is None:
            return Opened()

        def read(connection: sqlite3.Connection) -> Opened:
            row = base.find(connection, scope, conversation)
            if row is None:
                return Opened()
            place = _Place(box, scope.tenant, conversation)
            names = {"tenant": scope.tenant, "no": row["no"]}
            found: dict[str, dict[str, tuple[str, ...]]] = {}
            if posts:
                asked = json.dumps(sorted(posts))
                for post, secret in place.read(run(connection, "sealed_of_posts", **names, posts=asked)):
                    found.setdefault(post, {})[secret.token] = secret.values
            said: dict[str, tuple[str, ...]] = {}
            if tokens:
                asked = json.dumps(sorted(tokens))
                for _, secret in place.read(run(connection, "sealed_said", **names, tokens=asked)):
                    said.setdefault(secret.token, secret.values[:1])
            return Opened(posts=found, said=said)

        return await self._read(read)

    # the owner

    async def reveal(self, scope: Scope, conversation: str, *, audit: Sequence[Record]) -> Sequence[tuple[str, Secret]]:
        """Give all that is kept of a conversation; the audit joins the chain."""
        box = self._box
        if box is None:
            raise _off()

        def write(connection: sqlite3.Connection) -> list[tuple[str, Secret]]:
            row = base.need(connection, scope, conversation)
            place = _Place(box, scope.tenant, conversation)
            found = list(place.read(run(connection, "sealed_in", tenant=scope.tenant, no=row["no"])))
            chained(connection, scope.tenant, audit)
            return found

        return await self._write(write)

    async def census(self, scope: Scope) -> Census:
        """Count what is kept."""
        box = self._box

        def read(connection: sqlite3.Connection) -> Census:
            key = one(connection, "vault_key")
            counts = one(connection, "sealed_counts", tenant=scope.tenant) or {}
            families = rows(connection, "sealed_families", tenant=scope.tenant)
            unreadable = None
            if box is not None:
                kept = rows(connection, "sealed_all", tenant=scope.tenant)
                unreadable = sum(box.open(row["body"], _place_of(row)) is None for row in kept)
            return Census(
                on=box is not None,
                key=key["id"][:SHOWN] if key else "",
                families={row["family"]: row["secrets"] for row in families},
                unreadable=unreadable,
                **counts,
            )

        return await self._read(read)

    async def list(self, scope: Scope, *, limit: int) -> Sequence[Kept]:
        """Count what is kept of each conversation."""
        found = await self._read(lambda c: rows(c, "sealed_conversations", tenant=scope.tenant, limit=limit))
        return [
            Kept(conversation=row["id"], user=row["user_id"], secrets=row["secrets"], posts=row["posts"])
            for row in found
        ]

    async def clear(self, scope: Scope, conversation: str | None, *, audit: Sequence[Record]) -> int:
        """Give up what is kept; with the last of it the key's id goes too."""

        def write(connection: sqlite3.Connection) -> int:
            if conversation is None:
                gone = run(connection, "sealed_of_tenant_delete", tenant=scope.tenant).rowcount
            else:
                row = base.need(connection, scope, conversation)
                gone = run(connection, "delete_sealed", tenant=scope.tenant, no=row["no"]).rowcount
            if one(connection, "sealed_any") is None:
                run(connection, "vault_key_drop")
            chained(connection, scope.tenant, audit)
            return gone

        gone = await self._write(write)
        await self._emptied(0)
        return gone

    async def rotate(self, box: SealingBox) -> tuple[int, int]:
        """Seal all anew in one transaction."""
        old, new = self._box, box
        if old is None:
            raise _off()
        if new.id == old.id:
            msg = f"{new.name} holds the key that is used already; make another with `cuebook vault key FILE`"
            raise InvalidInput(msg, where="secrets.vault_key_file")

        def write(connection: sqlite3.Connection) -> tuple[int, int]:
            check(connection, old)
            anew = lost = 0
            for row in rows(connection, "sealed_all", tenant=None):
                place = _place_of(row)
                values = old.open(row["body"], place)
                if values is None:
                    lost += 1
                    continue
                anew += 1
                names = {name: row[name] for name in ("tenant", "no", "seq", "token")}
                run(connection, "sealed_anew", **names, body=new.seal(values, place))
            run(connection, "vault_key_put", id=new.id)
            return anew, lost

        done = await self._write(write)
        self._box = new
        await self._emptied(0)
        return done


class _Place(Struct, frozen=True):
    """A conversation's part of the vault."""

    box: SealingBox
    tenant: str
    conversation: str

    def read(self, found: sqlite3.Cursor) -> Iterator[tuple[str, Secret]]:
        """Open rows of post, token and body; what does not open stays a token."""
        for post, token, body in found:
            values = self.box.open(body, (self.tenant, self.conversation, post, token))
            if values is not None:
                yield post, Secret(token, values)


def _place_of(row: Row) -> tuple[str, ...]:
    return (row["tenant"], row["conversation"], row["post"], row["token"])


def _off() -> InvalidInput:
    return InvalidInput("the vault is off; set secrets.vault = true and give its key", where="secrets.vault")


def check(connection: sqlite3.Connection, box: SealingBox) -> None:
    """Refuse a key that is not the one everything is sealed with. Raises InvalidInput."""
    known = one(connection, "vault_key")
    if known is not None and known["id"] != box.id:
        msg = (
            f"the vault of this book is sealed with key {known['id'][:SHOWN]}, and {box.name} holds {box.id[:SHOWN]}; "
            "give the right one. Nothing was changed. If it is lost, `cuebook vault clear` gives up what it sealed"
        )
        raise InvalidInput(msg, where="secrets.vault_key_file")


def keep(connection: sqlite3.Connection, tenant: str, no: int, seq: int, draft: Draft) -> None:
    """Keep what is sealed of a post, in its transaction. BackendError where the key was changed meanwhile."""
    if not draft.sealed:
        return
    known, own = one(connection, "vault_key"), draft.sealed[0].key
    if known is None:
        run(connection, "vault_key_put", id=own)
    elif known["id"] != own:
        msg = "the vault's key was changed by another process, nothing was stored; start again with the new one"
        raise BackendError(msg)
    for each in draft.sealed:
        connection.execute(SQL["sealed_insert"], (tenant, no, seq, each.token, each.body))


def usable(connection: sqlite3.Connection, draft: Draft) -> Draft:
    """Give an answer without what was sealed where the key was changed since: it is kept all the same."""
    known = one(connection, "vault_key")
    if not draft.sealed or known is None or known["id"] == draft.sealed[0].key:
        return draft
    return replace(draft, sealed=())
