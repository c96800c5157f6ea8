"""Forgetting in SQLite: one transaction takes everything, and a receipt stays that says what and how much."""

import json
import secrets
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from cuebook.backends.failpoints import Failpoints
from cuebook.backends.sqlite import base, epochs, holds
from cuebook.backends.sqlite.base import Run, one, rows, run
from cuebook.backends.sqlite.correction_store import conversation_of, forgotten
from cuebook.backends.sqlite.prompts import nameless
from cuebook.backends.sqlite.redact import Redacted, redact, redact_posts, stop
from cuebook.backends.sqlite.rows import Row
from cuebook.backends.sqlite.tree import SPEAKERS
from cuebook.backends.sqlite.unlearn import Taken, take, unlearn
from cuebook.backends.sqlite.writes import take_out
from cuebook.errors import Conflict, NotFound
from cuebook.ports.erasure import Erasing
from cuebook.records.audit import Record, Text
from cuebook.records.conversation import ASSISTANT, SYSTEM, TOOL, PathPost
from cuebook.records.digest import digest_of
from cuebook.records.erasure import Hold, Receipt, Target, no_receipt, salted
from cuebook.records.memory import Correction, Scope
from cuebook.records.prompt import Observation

_receipt = msgspec.json.Decoder(Receipt).decode
_record = msgspec.json.Decoder(Record).decode
_texts = msgspec.json.Decoder(dict[str, Text]).decode
_observation = msgspec.json.Decoder(Observation).decode
_encode = msgspec.json.Encoder().encode
#: Senders that are roles: who has such a name is told by their own conversations alone.
_ROLES = frozenset({"user", ASSISTANT, SYSTEM, TOOL})
#: Under which a prompt's values name who it is for.
_USER = ("user", "userId", "user_id", "user_name")
#: Under which a record names who takes part in a conversation.
_COMPANY = "participants"
#: How a receipt names the tables of a conversation.
NAMES = {
    "blobs": "texts",
    "conversation": "conversations",
    "idempotency": "keys",
    "blob_uses": "",  # and what only notes how far something is
    "delivery": "",
    "embedded": "",
    "outbox": "",
    "participants": "",
    "sealed": "vault",
}


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

    async def hold(self, scope: Scope, hold: Hold) -> None:
        """Keep a hold."""

        def write(connection: sqlite3.Connection) -> None:
            try:
                run(connection, "hold_insert", tenant=scope.tenant, id=hold.id, body=_encode(hold))
            except sqlite3.IntegrityError:
                msg = f"there is a hold {hold.id!r} already; release it first, or choose another id"
                raise Conflict(msg) from None

        await self._write(write)

    async def holds(self, scope: Scope) -> Sequence[Hold]:
        """Give the holds."""
        return await self._read(lambda c: holds.holds(c, scope.tenant))

    async def release(self, scope: Scope, hold: str) -> None:
        """End a hold."""
        if not await self._write(lambda c: run(c, "hold_delete", tenant=scope.tenant, id=hold).rowcount):
            msg = f"no hold {hold!r}; `cuebook hold list` names those there are"
            raise NotFound(msg)

    async def idle(self, *, before: float, limit: int) -> list[tuple[str, str]]:
        """Give conversations nothing was said in, and that no hold keeps."""
        return await self._read(lambda c: holds.idle(c, "conversations_idle", holds.owners, before, limit))

    async def untouched(self, *, before: float, limit: int) -> list[tuple[str, str]]:
        """Give memories nobody touched, and that no hold keeps."""
        return await self._read(lambda c: holds.idle(c, "memories_untouched", holds.owners_of_memory, before, limit))


# ---- what is taken --------------------------------------------------------------------------------------------------


class _Taking:
    """One forget under way: what it has taken so far, and what was said where."""

    def __init__(self, connection: sqlite3.Connection, scope: Scope, *, now: float) -> None:
        self.connection = connection
        self.scope = scope
        self.now = now
        self.salt = secrets.token_bytes(16)  # of the names that stand for those forgotten; kept nowhere
        self.running: set[int] = set()
        self.rows: Counter[str] = Counter()
        self.more: Counter[str] = Counter()

    def conversation(self, row: Row) -> None:
        """Take a conversation with all that is its own."""
        tenant = self.scope.tenant
        self.rows.update(take_out(self.connection, row))
        self.took(unlearn(self.connection, tenant, row["no"]))
        self.more["auditTexts"] += _erase_audit(self.connection, tenant, row["id"], lambda _: True)
        self.more["observations"] += _rename(self.connection, tenant, self.salt, conversation=row["id"])

    def said(self, row: Row, user: str, weigh: Callable[[PathPost], int]) -> None:
        """Take what a user said in a conversation of others."""
        self.redacted(row, redact(self.connection, row, user, weigh=weigh, now=self.now))

    def redacted(self, row: Row, found: Redacted | None) -> None:
        """Note what was erased in a conversation that stays, and take what of the audit repeats it."""
        if found is None:
            return
        self.rows.update(found.counts)
        self.running |= found.running
        self.more["auditTexts"] += _erase_audit(
            self.connection, self.scope.tenant, row["id"], lambda record: _repeats(record, found)
        )

    def user(self, user: str, weigh: Callable[[PathPost], int]) -> None:
        """Take all of a user's."""
        connection, tenant = self.connection, self.scope.tenant
        for row in rows(connection, "conversations_of_user", tenant=tenant, user=user):
            self.conversation(row)
        if user not in _ROLES:
            for row in _heard(connection, tenant, user):
                self.said(row, user, weigh)
        self.took(take(connection, tenant, rows(connection, "memories_of_user", tenant=tenant, user=user), anew=False))
        run(connection, "embedded_of_user", tenant=tenant, user=user)
        run(connection, "places_of_user", tenant=tenant, user=user)
        self.rows["idempotency"] += run(
            connection, "keys_of_user", tenant=tenant, prefix=base.own_key(Scope(user=user), "")
        ).rowcount
        self.more["observations"] += _rename(connection, tenant, self.salt, user=user)
        self.more["auditTexts"] += _erase_audit(
            connection, tenant, "", lambda record: _was_told(record, user), user=user
        )

    def told(self, row: Row, correction: Correction) -> None:
        """Take what a conversation derived of something; a turn that runs there may say it."""
        counts = forgotten(self.connection, row, correction)
        self.more.update(counts)
        if counts and row["lease_until"]:
            self.running.add(row["no"])

    def took(self, taken: Taken) -> None:
        """Note what was taken of memories."""
        self.more.update(taken.counts)
        self.running |= taken.running

    def stop(self) -> None:
        """End the turns that say what was taken; their late writes are refused."""
        for no in sorted(self.running):
            row = one(self.connection, "conversation_by_no", tenant=self.scope.tenant, no=no)
            if row is not None:
                stop(self.connection, row, now=self.now)


def _forget(connection: sqlite3.Connection, scope: Scope, erasing: Erasing, failpoints: Failpoints) -> Receipt:
    failpoints("forget.begin")
    tenant, target = scope.tenant, erasing.target
    named = Target("conversation", tuple(erasing.posts)) if target.kind == "item" else target
    found, memories = list(_named_rows(connection, scope, named)), _named_memories(connection, scope, target)
    told = [
        (row, each) for each in erasing.corrections if (row := conversation_of(connection, scope, each.conversation))
    ]
    of_told = {row["no"]: row for row, _ in told}.values()
    holds.check(
        connection, tenant, target, {*map(holds.owners, (*found, *of_told)), *map(holds.owners_of_memory, memories)}
    )
    epoch = epochs.raised(connection, tenant)
    for owner in target.ids:
        epochs.raised(connection, tenant, target.kind, owner)
    taking = _Taking(connection, scope, now=erasing.now)
    for row in found if target.kind == "conversation" else ():
        taking.conversation(row)
    for row in found if target.kind == "item" else ():
        posts = erasing.posts[row["id"]]
        taking.redacted(row, redact_posts(connection, row, posts, weigh=erasing.weigh, now=erasing.now))
    for user in _users(scope, target):
        taking.user(user, erasing.weigh)
    taking.took(take(connection, tenant, memories, anew=False))
    for row, each in told:
        taking.told(row, each)
    taking.stop()
    if sum(taking.rows.values()):
        run(connection, "optimize_text")
    counts = Counter({NAMES.get(name, name): count for name, count in taking.rows.items()})
    counts.update(taking.more)
    counts.pop("", None)
    bare = erasing.receipt
    concerns = tuple(
        sorted(salted(user, bare.salt) for user in _concerned(scope, target, (*found, *of_told), memories))
    )
    receipt = replace(bare, counts=dict(sorted(counts.items())), epoch=epoch, concerns=concerns)
    values = {"id": receipt.id, "state": receipt.state, "body": _encode(receipt), "now": erasing.now}
    run(connection, "receipt_insert", tenant=tenant, **values)
    failpoints("forget.stored")
    return receipt


def delete(connection: sqlite3.Connection, scope: Scope, conversation: str, failpoints: Failpoints) -> dict[str, int]:
    """Forget a conversation and all that was derived from it, without a receipt. Counts of rows by table."""
    row = base.need(connection, scope, conversation)
    epochs.raised(connection, scope.tenant)
    taking = _Taking(connection, scope, now=row["updated_at"])
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
            if user not in _ROLES:
                yield from _heard(connection, scope.tenant, user)


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


def _concerned(scope: Scope, target: Target, found: Iterable[Row], memories: Iterable[Row]) -> set[str]:
    """Give the users whose it is that goes, and the one who asked."""
    asking = {scope.user} if scope.user else set()
    if target.kind == "user":
        return asking | set(_users(scope, target))
    owners = {name for row in memories for kind, name in holds.owners_of_memory(row) if kind == "user"}
    return asking | owners | {row["user_id"] for row in found if row["user_id"]}


def _heard(connection: sqlite3.Connection, tenant: str, user: str) -> list[Row]:
    """Give conversations of others in which a user spoke or takes part; of many speakers not all are known by name."""
    found = rows(connection, "conversations_heard", tenant=tenant, user=user, many=SPEAKERS)
    return [
        row
        for row in found
        if user in json.loads(row["participants"])
        or user in json.loads(row["speakers"])
        or one(connection, "post_sent_by", tenant=tenant, no=row["no"], user=user)
    ]


# ---- what lies beside -----------------------------------------------------------------------------------------------


def _erase_audit(
    connection: sqlite3.Connection, tenant: str, conversation: str, which: Callable[[Record], bool], *, user: str = ""
) -> int:
    """Take the texts off records of a conversation, or of values that name a user; answers with how many."""
    needle = _encode(conversation).decode() if conversation else "\x00"
    inside = _encode(_encode(user).decode()).decode()[1:-1] if user else "\x00"  # JSON within JSON
    erased = 0
    for row in rows(connection, "audit_naming", tenant=tenant, needle=needle, inside=inside):
        try:
            record = replace(_record(row["body"]), texts=_texts(row["texts"]))
        except (ValueError, TypeError):  # damaged: it proves nothing any more, and its words must not stay
            record = None
        if record is None or ((not conversation or record.conversation == conversation) and which(record)):
            erased += run(connection, "audit_erase", tenant=tenant, seq=row["seq"]).rowcount
    return erased


def _repeats(record: Record, redacted: Redacted) -> bool:
    return record.turn in redacted.turns or any(redacted.quoted.stand_in(text.text) for text in record.texts.values())


def _was_told(record: Record, user: str) -> bool:
    """Whether a record says a user's id as who it is for, or among who takes part."""
    context = record.texts.get("input_context")
    values = json.loads(context.text) if context else {}
    company = values.get(_COMPANY)
    return any(values.get(name) == user for name in _USER) or (isinstance(company, list) and user in company)


def _rename(connection: sqlite3.Connection, tenant: str, salt: bytes, *, user: str = "", conversation: str = "") -> int:
    """Let observations name a user, or a conversation, no more; those of one stay told together."""
    needle = _encode(conversation or user).decode()
    renamed = 0
    for row in rows(connection, "observations_naming", tenant=tenant, user=user or None, needle=needle):
        observation = _observation(row["body"])
        own = {}
        if user and observation.user == user:
            own["user"] = _pseudonym(user, salt)
        if conversation and observation.conversation == conversation:
            own["conversation"] = _pseudonym(conversation, salt)
        if own:
            body = _encode(replace(observation, **own))
            changed = own.get("user", row["user_id"])
            if conversation and row["user_id"] == nameless(conversation):
                changed = nameless(own["conversation"])
            renamed += run(connection, "observation_rename", no=row["no"], user=changed, body=body).rowcount
    return renamed


def _pseudonym(name: str, salt: bytes) -> str:
    return f"erased-{digest_of(salt + name.encode('utf-8', 'surrogatepass')).hex()[:16]}"
