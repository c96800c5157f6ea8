"""Erase data (forget): one transaction deletes everything, and a receipt records what and how much."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from cuebook.errors import BackendError
from cuebook.memory.owner_memories import is_earlier_version
from cuebook.memory.scopes import owner_of
from cuebook.records.answer import Time
from cuebook.records.audit import FORGET, Record, plain_record
from cuebook.records.conversation import ASSISTANT, SYSTEM, TOOL, PathPost, digest_of
from cuebook.records.erasure import (
    STAYS,
    AffectedConversation,
    ForgetPreview,
    KeptRecords,
    Kind,
    MemoryToErase,
    Receipt,
    Staying,
    Target,
    no_receipt,
    salted,
)
from cuebook.records.memory import Correction, Memory, Scope
from cuebook.records.prompt import Observation
from cuebook.storage import access
from cuebook.storage.access import ConversationRow, conversation_row, current_epoch, raise_epoch
from cuebook.storage.audit import chained, read_record
from cuebook.storage.corrections import forgotten
from cuebook.storage.database.columns import Row, decode, encode, encode_json
from cuebook.storage.database.transaction import Database, Noun, Transaction, read, read_all, write
from cuebook.storage.memories import ErasureTally, take, unlearn
from cuebook.storage.prompts import nameless
from cuebook.storage.reads import ConversationReader
from cuebook.storage.redact import ErasedPosts, redact, redact_posts, stop
from cuebook.storage.tree import SPEAKERS
from cuebook.storage.turns import parallel_turns
from cuebook.storage.writes import take_out


class ErasureInput(Struct, frozen=True, kw_only=True):
    """An erasure: its target, its receipt so far, the time, and two functions: `weigh` counts the tokens of a redacted
    post, and `sign` signs the selection of the erasure's audit record.
    """

    target: Target
    receipt: Receipt
    now: float
    weigh: Callable[[PathPost], int]
    sign: Callable[[dict[str, object]], dict[str, object]]
    corrections: tuple[Correction, ...] = ()  # removed from conversations
    posts: Mapping[str, Collection[int]] = {}  # of items: by conversation, their posts by seq


# ---- one run --------------------------------------------------------------------------------------------------------


#: Senders that are roles: a user of such a name is found by their own conversations only.
ROLES = frozenset({"user", ASSISTANT, SYSTEM, TOOL})
#: Prompt values that contain the user.
_USER = ("user", "userId", "user_id", "user_name")
#: Field of a record with the participants of a conversation.
_COMPANY = "participants"
#: The tables of a conversation by their names in a receipt.
NAMES = {
    "blobs": "texts",
    "conversation": "conversations",
    "idempotency": "keys",
    "blob_uses": "",  # tables with progress marks only
    "delivery": "",
    "embedded": "",
    "outbox": "",
    "participants": "",
}


def _erase_conversation(row: ConversationRow, tally: ErasureTally) -> None:
    """Erase a conversation with all of its own data."""
    counts = take_out(row)
    tally.whole.add(row.no)
    tally.rows.update(counts)
    tally.touched.append(AffectedConversation(conversation_id=row.id, posts=counts["posts"], left=0))
    unlearn(row, tally)
    _erase_audit(row.transaction, tally, row.id, lambda _: True)
    tally.counts["observations"] += _rename(row.transaction, tally.salt, conversation=row.id)


def _redacted(row: ConversationRow, erased: ErasedPosts | None, tally: ErasureTally) -> None:
    """Record an erasure in a remaining conversation, and erase audit texts that repeat the erased text."""
    if erased is None:
        return
    posts, left = len(erased.gone), row.value("posts_left")
    tally.touched.append(AffectedConversation(conversation_id=row.id, posts=posts, left=left))
    tally.stays.update({"othersPosts": left, "emptyPlaces": posts})
    _erase_audit(row.transaction, tally, row.id, lambda record: repeats(record, erased))


def _erase_user(transaction: Transaction, user: str, tally: ErasureTally) -> None:
    """Erase all data of a user."""
    for row in owned_by(transaction, user):
        _erase_conversation(row, tally)
    for row in conversations_of_others(transaction, user):
        _redacted(row, redact(row, user, tally), tally)
    memories = transaction.records(Memory, "memories_of_user", user=user)
    take(transaction, memories, tally, anew=False)
    transaction.run("embedded_of_user", user=user)
    transaction.run("places_of_user", user=user)
    tally.counts["documents"] += transaction.delete("document", "documents_of_user", user=user)
    prefix = access.own_key(Scope(user=user), "")
    tally.rows["idempotency"] += transaction.run("keys_of_user", prefix=prefix).rowcount
    tally.counts["observations"] += _rename(transaction, tally.salt, user=user)
    _erase_audit(transaction, tally, "", lambda record: was_told(record, user), user=user)


def _counts(tally: ErasureTally) -> dict[str, int]:
    """Return the counts of erased objects, by kind as in a receipt."""
    counts = Counter({NAMES.get(name, name): count for name, count in tally.rows.items()})
    counts.update(tally.counts)
    counts.pop("", None)
    return dict(sorted(counts.items()))


def _left(tally: ErasureTally) -> Counter[Staying]:
    """Return the counts of affected objects that remain."""
    more: Counter[Staying] = Counter({
        "memoriesByHand": tally.by_hand,
        "memoriesFromOthers": sum(bool(values - tally.whole) for values in tally.others),
        "auditRecords": tally.counts["auditTexts"],
        "observations": tally.counts["observations"],
    })  # fmt: skip
    return tally.stays + more


def _stop(transaction: Transaction, tally: ErasureTally) -> None:
    """End the turns that repeat erased data, whose late writes are refused; delete answers that may repeat it."""
    transaction.run("answers_drop")
    for no in sorted(tally.running):
        row = access.by_no(transaction, no)
        if row is not None:
            stop(row, now=tally.now)


def owned_by(transaction: Transaction, user: str) -> list[ConversationRow]:
    """Return the conversations that a user owns."""
    return [conversation_row(transaction, each) for each in transaction.rows("conversations_of_user", user=user)]


def conversations_of_others(transaction: Transaction, user: str) -> list[ConversationRow]:
    """Return conversations of others in which a user spoke or takes part.

    With many speakers, not all names are stored, so such conversations may be included.
    """
    if user in ROLES:
        return []
    found = transaction.rows("conversations_heard", user=user, many=SPEAKERS)
    rows = (conversation_row(transaction, each) for each in found)
    return [
        row for row in rows if user in row.participants or user in row.speakers or row.one("post_sent_by", user=user)
    ]


# ---- audit log and observations -------------------------------------------------------------------------------------


def _erase_audit(
    transaction: Transaction,
    tally: ErasureTally,
    conversation: str,
    which: Callable[[Record], bool],
    *,
    user: str = "",
) -> None:
    """Erase the texts of audit records of a conversation, or with values that name a user."""
    erased = [seq for seq, _ in audit_naming(transaction, conversation, which, user=user)]
    for seq in erased:
        transaction.run("audit_erase", seq=seq, texts=b"{}")
    if erased:
        raise_epoch(transaction, "audit")
    tally.audit.update(erased)
    tally.counts["auditTexts"] += len(erased)


def _document(
    transaction: Transaction,
    tally: ErasureTally,
    receipt: Receipt | None = None,
    sign: Callable[[dict[str, object]], dict[str, object]] = dict,
) -> None:
    """Append an audit record of an erasure: salted hashes of its targets, and the records that lost their texts."""
    ranges: list[list[int]] = []
    for seq in sorted(tally.audit):
        if ranges and ranges[-1][1] == seq - 1:
            ranges[-1][1] = seq
        else:
            ranges.append([seq, seq])
    selection: dict[str, object] = {"records": ranges}
    if receipt is not None:
        selection |= {
            "kind": receipt.kind,
            "asked": list(receipt.asked),
            "salt": receipt.salt,
            "counts": receipt.counts,
        }
    about = receipt.id if receipt else ""
    bare = plain_record(FORGET, about, timestamp=str(Time(tally.now)), selection=sign(selection))
    chained(transaction, [bare])


def audit_naming(
    transaction: Transaction, conversation: str, which: Callable[[Record], bool], *, user: str = ""
) -> Iterator[tuple[int, Record | None]]:
    """Yield audit records with texts, of a conversation or with values that name a user; None for a damaged one."""
    needle = encode_json(conversation) if conversation else f'"agent":{encode(user).decode()}'
    inside = encode_json(encode_json(user))[1:-1] if user else None  # JSON within JSON
    for row in transaction.rows("audit_naming", needle=needle, inside=inside):
        record = read_record(row["body"], row["texts"])
        # a damaged record fails verification anyway, and its text must go
        if record is None or ((not conversation or record.conversation == conversation) and which(record)):
            yield row["seq"], record


def repeats(record: Record, erased: ErasedPosts) -> bool:
    """Return whether a record's texts belong to erased turns, or repeat erased posts."""
    return record.turn in erased.turns or any(erased.quoted.stand_in(text.text) for text in record.texts.values())


def was_told(record: Record, user: str) -> bool:
    """Return whether a record names a user as its recipient or among the participants, or who rendered a prompt."""
    if record.event == "render" and record.agent == user and not record.conversation:
        return True
    context = record.texts.get("input_context")
    values = json.loads(context.text) if context else {}
    company = values.get(_COMPANY)
    return any(values.get(name) == user for name in _USER) or (isinstance(company, list) and user in company)


def _rename(transaction: Transaction, salt: bytes, *, user: str = "", conversation: str = "") -> int:
    """Replace a user or conversation in observations by a pseudonym, so that they stay grouped."""
    renamed = 0
    for row, observation in observations_naming(transaction, user=user, conversation=conversation):
        own = {}
        if user and observation.user == user:
            own["user"] = _pseudonym(user, salt)
        if conversation and observation.conversation == conversation:
            own["conversation"] = _pseudonym(conversation, salt)
        body = encode(replace(observation, **own))
        changed = own.get("user", row["user_id"])
        if conversation and row["user_id"] == nameless(conversation):
            changed = nameless(own["conversation"])
        renamed += transaction.run("observation_rename", no=row["no"], user=changed, body=body).rowcount
    return renamed


def observations_naming(
    transaction: Transaction, *, user: str = "", conversation: str = ""
) -> Iterator[tuple[Row, Observation]]:
    """Yield the observations of a user or of a conversation, with their rows."""
    needle = encode(conversation or user).decode()
    for row in transaction.rows("observations_naming", user=user or None, needle=needle):
        observation = decode(Observation, row["body"])
        if (user and observation.user == user) or (conversation and observation.conversation == conversation):
            yield row, observation


def _pseudonym(name: str, salt: bytes) -> str:
    return f"erased-{digest_of(salt + name.encode('utf-8', 'surrogatepass')).hex()[:16]}"


#: Conversations and memories that a preview lists.
NAMED = 100


class ErasureStore(Noun):
    """Erases data, and stores only receipts of it."""

    def __init__(self, database: Database, conversations: ConversationReader) -> None:
        super().__init__(database)
        self._conversations = conversations

    @write
    def forget(self, transaction: Transaction, erasing: ErasureInput) -> Receipt:
        """Raise the epoch and erase everything in one transaction. Return the pending receipt.

        Missing targets and targets of another owner count as zero. Earlier work fails its compare-and-set. Raises
        Conflict naming the hold that forbids it.
        """
        transaction.failpoint("forget.begin")
        target = erasing.target
        subject = _find(transaction, erasing)
        epoch = raise_epoch(transaction)
        for owner in target.ids:
            raise_epoch(transaction, target.kind, owner)
        tally = _erase(transaction, erasing, subject)
        if sum(tally.rows.values()):
            transaction.run("optimize_text")
        bare = erasing.receipt
        concerns = tuple(sorted(salted(user, bare.salt) for user in _concerned(transaction.scope, target, subject)))
        receipt = replace(bare, counts=_counts(tally), epoch=epoch, concerns=concerns)
        values = {"id": receipt.id, "state": receipt.state, "body": encode(receipt), "now": erasing.now}
        transaction.run("receipt_insert", **values)
        _document(transaction, tally, receipt, erasing.sign)
        transaction.failpoint("forget.stored")
        return receipt

    async def would_forget(self, scope: Scope, erasing: ErasureInput) -> ForgetPreview:
        """Return what `forget` would delete, and what forbids it. Change nothing. It takes as long."""
        try:
            await self.database.write(
                lambda transaction: _would_forget(transaction.within(scope), erasing), tenant=scope.tenant
            )
        except _UndoneError as undone:
            preview: ForgetPreview = undone.args[0]
            return preview
        msg = "The preview of the erasure is missing."
        raise BackendError(msg)

    async def emptied(self, *, patience_ms: int = 0, large: bool = False) -> bool:
        """Remove all bytes of erased data from the files. Return False while another reader uses them.

        Do work of many seconds only if `large`, else return False.
        """
        if self._conversations.paths:
            self._conversations.paths.clear()
        return await self.database.clean(patience_ms=patience_ms, large=large)

    @read
    def receipt(self, transaction: Transaction, receipt: str) -> Receipt:
        """Return a receipt. Raises NotFound."""
        body = transaction.value("receipt_get", id=receipt)
        if body is None:
            raise no_receipt(receipt)
        return decode(Receipt, body)

    @read
    def names(self, transaction: Transaction, kind: Kind) -> set[str]:
        """Return all ids of a kind that an erasure can name."""
        if kind in ("persona", "organization"):
            owners = transaction.run("memory_owners", kind=kind)
            return {owner.partition("\x1f")[0] for (owner,) in owners}
        statement = {"user": "user_names", "conversation": "conversation_names"}.get(kind, "memory_names")
        return {name for (name,) in transaction.run(statement)}

    @read_all
    def tenants(self, transaction: Transaction) -> list[str]:
        """Return all tenants with data that an erasure can name."""
        return [tenant for (tenant,) in transaction.run("tenants_all")]

    @read
    def epoch(self, transaction: Transaction) -> int:
        """Return the number of erasures so far. Each receipt has its number."""
        return current_epoch(transaction)

    @read
    def receipts(self, transaction: Transaction, *, limit: int = 100) -> list[Receipt]:
        """Return the newest receipts, newest first."""
        return [decode(Receipt, body) for (body,) in transaction.run("receipts_last", limit=limit)]

    @read_all
    def pending(self, transaction: Transaction, *, limit: int = 100) -> list[tuple[str, Receipt]]:
        """Return unsigned receipts of all tenants, with their tenant."""
        return [(tenant, decode(Receipt, body)) for tenant, body in transaction.run("receipts_pending", limit=limit)]

    @write
    def finish(self, transaction: Transaction, receipt: Receipt) -> bool:
        """Replace a pending receipt by its signed form. Return False if another process did."""
        values = {"id": receipt.id, "body": encode(receipt)}
        return transaction.run("receipt_finish", **values).rowcount > 0


# ---- targets --------------------------------------------------------------------------------------------------------


#: The resolved targets of an erasure: conversations, memories, and facts that conversations must no longer mention.
_Subject = tuple[list[ConversationRow], list[Memory], list[tuple[ConversationRow, Correction]]]


def _find(transaction: Transaction, erasing: ErasureInput) -> _Subject:
    target = erasing.target
    named = Target("conversation", tuple(erasing.posts)) if target.kind == "item" else target
    told = [(access.accessible(transaction, each.conversation), each) for each in erasing.corrections]
    rows, memories = list(_named_rows(transaction, named)), _named_memories(transaction, target)
    return rows, memories, [(row, each) for row, each in told if row]


def _erase(transaction: Transaction, erasing: ErasureInput, subject: _Subject) -> ErasureTally:
    target, tally = erasing.target, ErasureTally(erasing.now, erasing.weigh)
    conversations, memories, told = subject
    for row in conversations:
        if target.kind == "conversation":
            _erase_conversation(row, tally)
        elif target.kind == "item":
            _redacted(row, redact_posts(row, erasing.posts[row.id], tally), tally)
    for user in _users(transaction.scope, target):
        _erase_user(transaction, user, tally)
    tally.stays["sourcePosts"] += take(transaction, memories, tally, anew=False)
    for row, each in told:
        counts = forgotten(row, each)
        tally.counts.update(counts)
        if counts and (row.lease_until or parallel_turns(row)):  # the running turn may repeat it
            tally.running.add(row.no)
    _stop(transaction, tally)
    return tally


class _UndoneError(Exception):
    """Rolls back the transaction of a preview and carries its result."""


def _would_forget(transaction: Transaction, erasing: ErasureInput) -> None:
    """Erase, record the result and roll back, so that the preview is exact. Raises _UndoneError."""
    target = erasing.target
    tally = _erase(transaction, erasing, _find(transaction, erasing))
    stays, touched, gone = _left(tally), tally.touched, tally.gone
    if target.kind == "user":
        keys = transaction.rows("keys_of")
        stays["keys"] = sum(each["user_id"] in _users(transaction.scope, target) for each in keys)
    seen = [row for row in gone if transaction.scope.user in (None, owner_of(row.place))]
    raise _UndoneError(
        ForgetPreview(
            kind=target.kind,
            counts={name: count for name, count in _counts(tally).items() if count},
            conversations=tuple(touched[:NAMED]),
            more_conversations=len(touched[NAMED:]),
            memories=tuple(
                MemoryToErase(memory_id=row.id, scope=row.kind, category=row.category, text=row.text)
                for row in seen[:NAMED]
            ),
            more_memories=len(gone) - len(seen[:NAMED]),
            stays=tuple(KeptRecords(what=each, count=count, why=STAYS[each]) for each, count in stays.items() if count),
        )
    )


def delete(transaction: Transaction, conversation: str) -> dict[str, int]:
    """Delete a conversation and all data derived from it, without a receipt. Return the rows per table."""
    row = access.need(transaction, conversation)
    raise_epoch(transaction)
    tally = ErasureTally(row.updated_at)
    _erase_conversation(row, tally)
    _stop(transaction, tally)
    _document(transaction, tally)
    transaction.run("optimize_text")
    transaction.failpoint("delete.stored")
    return dict(tally.rows)


def _users(scope: Scope, target: Target) -> list[str]:
    """Return the users to erase; a caller that is a user can only erase themselves."""
    named = dict.fromkeys(target.ids) if target.kind == "user" else ()
    return [user for user in named if scope.user in (None, user)]


def _named_rows(transaction: Transaction, target: Target) -> Iterator[ConversationRow]:
    """Yield the rows of the named conversations, or of those that the named users own or speak in."""
    if target.kind == "conversation":
        for name in dict.fromkeys(target.ids):
            if (row := access.accessible(transaction, name)) is not None:
                yield row
    elif target.kind == "user":
        for user in _users(transaction.scope, target):
            yield from owned_by(transaction, user)
            yield from conversations_of_others(transaction, user)


def _named_memories(transaction: Transaction, target: Target) -> list[Memory]:
    """Return memories of a persona or an organization, or by id; users can only name their own."""
    user = transaction.scope.user
    items: list[Memory] = []
    for name in target.ids:
        if target.kind == "persona":
            items += transaction.records(Memory, "memories_of_persona", persona=name, user=user)
        elif target.kind == "organization" and user is None:
            items += transaction.records(Memory, "memory_of_place", kind="organization", owner=name)
        elif target.kind == "memory":
            items += _versions(transaction, name.removeprefix("memory:"))
    if target.kind == "memory" and user is not None:
        own = {row.no for row in transaction.records(Memory, "memories_of_user", user=user)}
        items = [row for row in items if row.no in own]
    return items


def _versions(transaction: Transaction, name: str) -> list[Memory]:
    """Return a memory and the earlier versions that corrections ended."""
    items = transaction.records(Memory, "memory_by_id", id=name)
    for each in items:  # grows while it is read
        before = transaction.records(Memory, "memory_by_id", id=each.supersedes) if each.supersedes else []
        items += [row for row in before if row.place == each.place and is_earlier_version(row)]
    return items


def _concerned(scope: Scope, target: Target, subject: _Subject) -> set[str]:
    """Return the users whose data is erased, and the requesting user."""
    asking = {scope.user} if scope.user else set()
    if target.kind == "user":
        return asking | set(_users(scope, target))
    conversations, memories, told = subject
    owners = {user for row in memories if (user := owner_of(row.place))}
    rows = (*conversations, *(row for row, _ in told))
    return asking | owners | {row.user for row in rows if row.user}
