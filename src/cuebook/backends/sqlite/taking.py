"""One forget under way in SQLite: what it takes of conversations, users and memories, and how much of each."""

import json
import secrets
import sqlite3
from collections import Counter
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from cuebook.backends.sqlite import base
from cuebook.backends.sqlite.base import one, rows, run
from cuebook.backends.sqlite.correction_store import forgotten
from cuebook.backends.sqlite.prompts import nameless
from cuebook.backends.sqlite.redact import Redacted, redact, stop
from cuebook.backends.sqlite.rows import Row
from cuebook.backends.sqlite.tree import SPEAKERS
from cuebook.backends.sqlite.unlearn import Taken, take, unlearn
from cuebook.backends.sqlite.writes import take_out
from cuebook.records.audit import Record, Text
from cuebook.records.conversation import ASSISTANT, SYSTEM, TOOL, PathPost
from cuebook.records.digest import digest_of
from cuebook.records.erasure import Staying, Touched
from cuebook.records.memory import Correction, Scope
from cuebook.records.prompt import Observation

_record = msgspec.json.Decoder(Record).decode
_texts = msgspec.json.Decoder(dict[str, Text]).decode
_observation = msgspec.json.Decoder(Observation).decode
_encode = msgspec.json.Encoder().encode
#: Senders that are roles: who has such a name is told by their own conversations alone.
ROLES = frozenset({"user", ASSISTANT, SYSTEM, TOOL})
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
}


class Taking:
    """One forget under way: what it has taken so far, and what was said where."""

    def __init__(self, connection: sqlite3.Connection, scope: Scope, *, now: float) -> None:
        self.connection = connection
        self.scope = scope
        self.now = now
        self.salt = secrets.token_bytes(16)  # of the names that stand for those forgotten; kept nowhere
        self.running: set[int] = set()
        self.rows: Counter[str] = Counter()
        self.more: Counter[str] = Counter()
        self.touched: list[Touched] = []
        self.gone: list[Row] = []  # memories
        self.stays: Counter[Staying] = Counter()
        self._whole: set[int] = set()  # conversations that went
        self._others: list[set[int]] = []  # by memory that went, where it is told too

    def conversation(self, row: Row) -> None:
        """Take a conversation with all that is its own."""
        tenant = self.scope.tenant
        counts = take_out(self.connection, row)
        self._whole.add(row["no"])
        self.rows.update(counts)
        self.touched.append(Touched(conversation_id=row["id"], posts=counts["posts"], left=0))
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
        posts, [left] = found.counts["posts"], run(self.connection, "posts_left", tenant=row["tenant"], no=row["no"])
        self.touched.append(Touched(conversation_id=row["id"], posts=posts, left=left[0]))
        self.stays.update({"othersPosts": left[0], "emptyPlaces": posts})
        self._told_of(found.taken)
        self.more["auditTexts"] += _erase_audit(
            self.connection, self.scope.tenant, row["id"], lambda record: _repeats(record, found)
        )

    def user(self, user: str, weigh: Callable[[PathPost], int]) -> None:
        """Take all of a user's."""
        connection, tenant = self.connection, self.scope.tenant
        for row in rows(connection, "conversations_of_user", tenant=tenant, user=user):
            self.conversation(row)
        if user not in ROLES:
            for row in heard(connection, tenant, user):
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
        self._told_of(taken)

    def _told_of(self, taken: Taken) -> None:
        self.running |= taken.running
        self.gone += taken.gone
        self._others += taken.anew
        self.stays["memoriesByHand"] += taken.by_hand

    def counts(self) -> Counter[str]:
        """Give what was taken, by kind as a receipt names it."""
        counts = Counter({NAMES.get(name, name): count for name, count in self.rows.items()})
        counts.update(self.more)
        counts.pop("", None)
        return counts

    def left(self) -> Counter[Staying]:
        """Give what stays of what was reached."""
        from_others = sum(bool(told - self._whole) for told in self._others)
        more: Counter[Staying] = Counter({
            "memoriesFromOthers": from_others,
            "auditRecords": self.more["auditTexts"],
            "observations": self.more["observations"],
        })  # fmt: skip
        return self.stays + more

    def stop(self) -> None:
        """End the turns that say what was taken; their late writes are refused."""
        for no in sorted(self.running):
            row = one(self.connection, "conversation_by_no", tenant=self.scope.tenant, no=no)
            if row is not None:
                stop(self.connection, row, now=self.now)


def heard(connection: sqlite3.Connection, tenant: str, user: str) -> list[Row]:
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
