"""Forgetting in SQLite: one transaction takes everything, and a receipt stays that says what and how much."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuebook.backends.failpoints import Failpoints
from cuebook.backends.sqlite import base, epochs
from cuebook.backends.sqlite.base import Run, one, rows, run
from cuebook.backends.sqlite.correction_store import conversation_of
from cuebook.backends.sqlite.redact import redact_posts
from cuebook.backends.sqlite.rows import Row
from cuebook.backends.sqlite.taking import ROLES, Taking, heard
from cuebook.backends.sqlite.unlearn import take
from cuebook.errors import BackendError
from cuebook.ports.erasure import Erasing
from cuebook.records.erasure import Going, Receipt, Target, WouldForget, no_receipt, salted
from cuebook.records.memory import Correction, Scope

_receipt = msgspec.json.Decoder(Receipt).decode
_encode = msgspec.json.Encoder().encode


#: Conversations and memories that are named of those a forget would take.
NAMED = 100


class Empties(Protocol):
    """Empties a store's file and log of what is gone."""

    async def __call__(self, patience_ms: int, *, large: bool = False) -> bool: ...


class SqliteErasure:
    """The erasure of a SQLite store. `emptied` leaves nothing in its files, `unclean` says if something may be."""

    def __init__(
        self, read: Run, write: Run, *, emptied: Empties, unclean: Callable[[], bool], failpoints: Failpoints
    ) -> None:
        self._read = read
        self._write = write
        self._emptied = emptied
        self._unclean = unclean
        self._failpoints = failpoints

    async def forget(self, scope: Scope, erasing: Erasing) -> Receipt:
        """Erase, and keep the receipt as pending."""
        return await self._write(lambda c: _forget(c, scope, erasing, self._failpoints))

    async def would_forget(self, scope: Scope, erasing: Erasing) -> WouldForget:
        """Say what a forget would take."""
        try:
            await self._write(lambda c: _would_forget(c, scope, erasing))
        except _UndoneError as undone:
            return undone.found
        msg = "what a forget would take was not told"
        raise BackendError(msg)

    @property
    def unclean(self) -> bool:
        """Whether file or log may hold what was forgotten, as far as this process knows."""
        return self._unclean()

    async def emptied(self, *, patience_ms: int = 0, large: bool = False) -> bool:
        """Empty file and log of what was forgotten."""
        return await self._emptied(patience_ms, large=large)

    async def receipt(self, scope: Scope, receipt: str) -> Receipt:
        """Give a receipt."""
        row = await self._read(lambda c: one(c, "receipt_get", tenant=scope.tenant, id=receipt))
        if row is None:
            raise no_receipt(receipt)
        return _receipt(row["body"])

    async def receipts(self, scope: Scope, *, limit: int = 100) -> list[Receipt]:
        """Give the newest receipts."""
        found = await self._read(lambda c: rows(c, "receipts_last", tenant=scope.tenant, limit=limit))
        return [_receipt(row["body"]) for row in found]

    async def pending(self, *, limit: int = 100) -> list[tuple[str, Receipt]]:
        """Give receipts that are not signed."""
        found = await self._read(lambda c: rows(c, "receipts_pending", limit=limit))
        return [(row["tenant"], _receipt(row["body"])) for row in found]

    async def finish(self, scope: Scope, receipt: Receipt) -> bool:
        """Keep a signed receipt."""
        values = {"tenant": scope.tenant, "id": receipt.id, "body": _encode(receipt)}
        return await self._write(lambda c: run(c, "receipt_finish", **values).rowcount > 0)

    async def idle(self, *, before: float, limit: int) -> list[tuple[str, str]]:
        """Return conversations without a post since a time: tenant and id, the oldest first."""
        found = await self._read(lambda c: rows(c, "conversations_idle", before=before, limit=limit))
        return [(row["tenant"], row["id"]) for row in found]

    async def untouched(self, *, before: float, limit: int) -> list[tuple[str, str]]:
        """Return memories nobody said, repeated or changed since a time: tenant and id, the oldest first."""
        found = await self._read(lambda c: rows(c, "memories_untouched", before=before, limit=limit))
        return [(row["tenant"], row["id"]) for row in found]


# ---- what is taken --------------------------------------------------------------------------------------------------


class _Named(Struct, frozen=True):
    """What a forget names, as it was found."""

    conversations: list[Row]
    memories: list[Row]
    told: list[tuple[Row, Correction]]  # what conversations tell no more

    def reached(self) -> list[Row]:
        """Give the conversations it reaches."""
        return [*self.conversations, *{row["no"]: row for row, _ in self.told}.values()]


def _find(connection: sqlite3.Connection, scope: Scope, erasing: Erasing) -> _Named:
    target = erasing.target
    named = Target("conversation", tuple(erasing.posts)) if target.kind == "item" else target
    return _Named(
        list(_named_rows(connection, scope, named)),
        _named_memories(connection, scope, target),
        [(row, each) for each in erasing.corrections if (row := conversation_of(connection, scope, each.conversation))],
    )


def _erase(connection: sqlite3.Connection, scope: Scope, erasing: Erasing, named: _Named) -> Taking:
    target = erasing.target
    taking = Taking(connection, scope, now=erasing.now)
    for row in named.conversations if target.kind == "conversation" else ():
        taking.conversation(row)
    for row in named.conversations if target.kind == "item" else ():
        posts = erasing.posts[row["id"]]
        taking.redacted(row, redact_posts(connection, row, posts, weigh=erasing.weigh, now=erasing.now))
    for user in _users(scope, target):
        taking.user(user, erasing.weigh)
    taken = take(connection, scope.tenant, named.memories, anew=False)
    taking.took(taken)
    taking.stays["sourcePosts"] += taken.sources
    for row, each in named.told:
        taking.told(row, each)
    taking.stop()
    return taking


def _forget(connection: sqlite3.Connection, scope: Scope, erasing: Erasing, failpoints: Failpoints) -> Receipt:
    failpoints("forget.begin")
    tenant, target = scope.tenant, erasing.target
    named = _find(connection, scope, erasing)
    epoch = epochs.raised(connection, tenant)
    for owner in target.ids:
        epochs.raised(connection, tenant, target.kind, owner)
    taking = _erase(connection, scope, erasing, named)
    if sum(taking.rows.values()):
        run(connection, "optimize_text")
    bare = erasing.receipt
    concerned = _concerned(scope, target, named.reached(), named.memories)
    concerns = tuple(sorted(salted(user, bare.salt) for user in concerned))
    receipt = replace(bare, counts=dict(sorted(taking.counts().items())), epoch=epoch, concerns=concerns)
    values = {"id": receipt.id, "state": receipt.state, "body": _encode(receipt), "now": erasing.now}
    run(connection, "receipt_insert", tenant=tenant, **values)
    failpoints("forget.stored")
    return receipt


class _UndoneError(Exception):
    """Takes back what a transaction did, once it is known."""

    def __init__(self, found: WouldForget) -> None:
        super().__init__()
        self.found = found


def _would_forget(connection: sqlite3.Connection, scope: Scope, erasing: Erasing) -> None:
    """Forget, say what that took, and take it back: no other way would say exactly that. Raises _UndoneError."""
    target = erasing.target
    named = _find(connection, scope, erasing)
    taking = _erase(connection, scope, erasing, named)
    stays = taking.left()
    if target.kind == "user":
        keys = rows(connection, "keys_of", tenant=scope.tenant)
        stays["keys"] = sum(each["user_id"] in _users(scope, target) for each in keys)
    seen = [row for row in taking.gone if scope.user in (None, *_users_of(row))]
    raise _UndoneError(
        WouldForget(
            kind=target.kind,
            counts={name: count for name, count in sorted(taking.counts().items()) if count},
            conversations=tuple(taking.touched[:NAMED]),
            more_conversations=len(taking.touched[NAMED:]),
            memories=tuple(
                Going(memory_id=row["id"], scope=row["kind"], category=row["category"], text=row["text"])
                for row in seen[:NAMED]
            ),
            more_memories=len(taking.gone) - len(seen[:NAMED]),
            stays={kind: count for kind, count in stays.items() if count},
        )
    )


def delete(connection: sqlite3.Connection, scope: Scope, conversation: str, failpoints: Failpoints) -> dict[str, int]:
    """Forget a conversation and all that was derived from it, without a receipt. Counts of rows by table."""
    row = base.need(connection, scope, conversation)
    epochs.raised(connection, scope.tenant)
    taking = Taking(connection, scope, now=row["updated_at"])
    taking.conversation(row)
    taking.stop()
    run(connection, "optimize_text")
    failpoints("delete.stored")
    return dict(taking.rows)


def _users(scope: Scope, target: Target) -> list[str]:
    """Give the users a forget takes; who is a user takes themselves only."""
    named = dict.fromkeys(target.ids) if target.kind == "user" else ()
    return [user for user in named if scope.user in (None, user)]


def _named_rows(connection: sqlite3.Connection, scope: Scope, target: Target) -> Iterator[Row]:
    """Give the rows of the conversations a forget names, or of those its users own or speak in."""
    if target.kind == "conversation":
        for name in dict.fromkeys(target.ids):
            row = one(connection, "conversation_by_id", tenant=scope.tenant, id=name)
            if row is not None and base.visible(row, scope):
                yield row
    elif target.kind == "user":
        for user in _users(scope, target):
            yield from rows(connection, "conversations_of_user", tenant=scope.tenant, user=user)
            if user not in ROLES:
                yield from heard(connection, scope.tenant, user)


def _named_memories(connection: sqlite3.Connection, scope: Scope, target: Target) -> list[Row]:
    """Give memories of a persona or an organization, or by their ids; who is a user names their own only."""
    tenant, user = scope.tenant, scope.user
    found: list[Row] = []
    for name in target.ids:
        if target.kind == "persona":
            found += rows(connection, "memories_of_persona", tenant=tenant, persona=name, user=user)
        elif target.kind == "organization" and user is None:
            found += rows(connection, "memory_of_place", tenant=tenant, kind="organization", owner=name)
        elif target.kind == "memory":
            found += rows(connection, "memory_by_id", tenant=tenant, id=name.removeprefix("memory:"))
    if target.kind == "memory" and user is not None:
        own = {row["no"] for row in rows(connection, "memories_of_user", tenant=tenant, user=user)}
        found = [row for row in found if row["no"] in own]
    return found


def _users_of(memory: Row) -> list[str]:
    """Return the users that a memory belongs to: its owner, or the user a persona knows it of."""
    owner, _, user = memory["owner"].partition("\x1f")
    return [*([owner] if memory["kind"] == "user" else []), *([user] if user else [])]


def _concerned(scope: Scope, target: Target, found: Iterable[Row], memories: Iterable[Row]) -> set[str]:
    """Give the users whose it is that goes, and the one who asked."""
    asking = {scope.user} if scope.user else set()
    if target.kind == "user":
        return asking | set(_users(scope, target))
    owners = {user for row in memories for user in _users_of(row)}
    return asking | owners | {row["user_id"] for row in found if row["user_id"]}
