"""Erasure and retention: delete a user, conversation, persona, organization, memories, or expired data, with a receipt.

The store deletes everything in one transaction under a new epoch. Then the audit mirror is rewritten, the write-ahead
log is truncated, and the receipt is signed. If the process dies in between, the receipt stays pending and a background
job finishes it.
"""

import asyncio
import hashlib
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from cuebook.engine.core.conversation_items import item_of, parted
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.audit_mirror import erase_mirror, signing_key, verifying_key
from cuebook.engine.jobs.delivery import DELIVERY
from cuebook.engine.jobs.job import DueQuery, DueWork, Job, run_due
from cuebook.errors import BackendError, NotFound, StoreFull
from cuebook.memory.corrections import correction_of, corrections_of, says
from cuebook.memory.scopes import owner_of
from cuebook.prompts.chain import is_signed, is_signed_erasure, sign, sign_erasure
from cuebook.records.answer import Time
from cuebook.records.audit import Record
from cuebook.records.conversation import is_guest
from cuebook.records.erasure import ForgetPreview, Kind, Receipt, Target, salted
from cuebook.records.memory import Correction, Scope
from cuebook.storage.erasure import ErasureInput

log = logging.getLogger("cuebook.forget")

#: Milliseconds that an erasure waits for readers to release the write-ahead log.
PATIENCE_MS = 1000
DAY_S = 86_400.0
#: Kinds of target whose conversations remain.
_KEPT = ("persona", "organization")
#: Kinds whose receipts identify their target.
_ONES = ("user", "conversation")
#: Receipts checked for erasures since a time, and the precision of their times in seconds.
RECEIPTS, _TICK_S = 100, 0.001
#: Exports that a receipt names.
_NAMED = 20
#: Name of the audit texts among a receipt's counts.
_AUDIT = "auditTexts"


async def forget(
    services: Services,
    scope: Scope,
    target: Target,
    *,
    reason: str = "",
    conversations: bool = True,
    posts: Mapping[str, Collection[int]] | None = None,
) -> Receipt:
    """Erase a target. Return its receipt: signed, or pending while bytes may remain.

    `posts` are the posts of items by conversation; they stay in their tree as empty posts.

    With `conversations`, a memory is also removed from the summaries of its source conversations.

    Missing targets and targets of another owner count as zero.
    """
    if target.kind in _KEPT:
        await run_due(services, DELIVERY)  # deliver earlier messages first, so that they are erased too
    erasing = await _erasing(services, scope, target, reason=reason, conversations=conversations, posts=posts or {})
    try:
        receipt = await services.store.erasure.forget(scope, erasing)
    except StoreFull:
        if not await asyncio.to_thread(services.store.database.release_reserve):
            raise
        receipt = await services.store.erasure.forget(scope, erasing)
    services.caches.drop_erased(receipt.epoch)
    services.notify_jobs()
    return await _complete(services, scope, receipt)


async def would_forget(services: Services, scope: Scope, target: Target) -> ForgetPreview:
    """Return what an erasure would delete and keep, and what forbids it. Change nothing."""
    return await services.store.erasure.would_forget(scope, await _erasing(services, scope, target))


async def _erasing(
    services: Services,
    scope: Scope,
    target: Target,
    *,
    reason: str = "",
    conversations: bool = True,
    posts: Mapping[str, Collection[int]] = MappingProxyType({}),
) -> ErasureInput:
    """Return all inputs that the store needs for an erasure."""
    salt = hashlib.blake2b(
        services.dice.new_id("salt").encode(), key=services.settings.key[:64], digest_size=16
    ).hexdigest()
    bare = Receipt(
        id=services.dice.new_id("receipt"),
        state="pending",
        kind=target.kind,
        asked=tuple(salted(each, salt) for each in target.ids),
        salt=salt,
        tenant=salted(services.settings.tenant, salt),
        reason=services.writer.clean(reason),
        requested_at=str(Time(services.clock.now())),
        origin=verifying_key(services.settings.key).hex(),
    )
    corrections: tuple[Correction, ...] = ()
    if target.kind == "memory" and conversations:
        target, corrections = await _from_conversations(services, scope, target)
    return ErasureInput(
        target=target,
        receipt=bare,
        now=services.clock.now(),
        weigh=services.writer.tokens,
        sign=partial(sign_erasure, private_key=signing_key(services.settings.key)),
        corrections=corrections,
        posts=posts,
    )


async def _from_conversations(
    services: Services, scope: Scope, target: Target
) -> tuple[Target, tuple[Correction, ...]]:
    """Return the target with related memories, and the corrections that remove memories from their conversations."""
    store, corrections = services.store.memories, list[Correction]()
    names = dict.fromkeys(target.ids)
    for name in target.ids:
        if parted(name):
            with suppress(NotFound):
                item = await item_of(services, scope, name)
                if item is not None and not is_guest(await services.store.conversation(scope, item[0]), scope.user):
                    correction = correction_of(item[0], item[1].sources, item[1].text, "")
                    corrections.append(correction)
                    of_it = await store.said_in(scope, item[0], correction.posts)
                    names |= dict.fromkeys(each.id for each in of_it if says(each.text, correction))
            continue
        for memory in await store.get(scope, name.removeprefix("memory:")):
            if scope.user in (None, owner_of(memory.place)):
                corrections += corrections_of(memory, "")
    return replace(target, ids=tuple(names)), tuple(corrections)


async def finish(services: Services, scope: Scope, receipt: Receipt) -> Receipt:
    """Remove the erased data from all files, then sign a stored receipt. Return the current one.

    It stays pending while another process reads, or until a background job has rewritten a large file.
    """
    return await _complete(services, scope, receipt) if await _is_recorded(services, scope, receipt) else receipt


async def _is_recorded(services: Services, scope: Scope, receipt: Receipt) -> bool:
    """Return whether the audit log records a pending receipt: the key must not sign what somebody else stored."""
    _, records = await services.audit.receipts(scope)
    if fault := _difference(receipt, _recorded(records), verifying_key(services.settings.key)):
        log.warning("Receipt %s is not signed: it %s.", receipt.id, fault)
    return not fault


async def _complete(services: Services, scope: Scope, receipt: Receipt) -> Receipt:
    if not await _removed(services, [receipt]):
        return receipt
    return await _signed(services, scope, receipt)


async def _removed(services: Services, receipts: Sequence[Receipt], *, large: bool = False) -> bool:
    """Remove erased data from all files and the database. Return False if that is not possible yet."""
    if any(receipt.counts.get(_AUDIT) for receipt in receipts):
        try:
            if not await erase_mirror(services):
                return False
        except BackendError as error:
            log.warning("%s Pending receipts: %s", error, ", ".join(each.id for each in receipts))
            return False
    services.failpoint("forget.mirror")
    if services.memory_folder is not None and not await services.memory_folder.erase():
        return False
    kinds = {receipt.kind for receipt in receipts if any(receipt.counts.values())}
    if kinds and not await services.erase_logs(kinds):
        return False
    return await services.store.erasure.emptied(patience_ms=0 if large else PATIENCE_MS, large=large)


async def _signed(services: Services, scope: Scope, receipt: Receipt) -> Receipt:
    services.failpoint("forget.log")
    now, remains = str(Time(services.clock.now())), await _copies(services, scope)
    done = replace(receipt, state="done", finished_at=now, remains=remains)
    signed = sign(done, signing_key(services.settings.key))
    if not await services.store.erasure.finish(scope, signed):
        signed = await services.store.erasure.receipt(scope, receipt.id)  # another process was first
    services.failpoint("forget.signed")
    return signed


async def _copies(services: Services, scope: Scope) -> str:
    """Return where copies of erased data may be: in the database's system, sinks and exports; "" for nowhere."""
    exports = await services.audit.exports(scope)
    shown = ", ".join(map(str, sorted(exports[:_NAMED])))
    more = f" and {len(exports) - _NAMED} older" if len(exports) > _NAMED else ""
    copies = [
        await services.store.database.remains(),
        *(f"the sink {name}" for name in services.sinks),
        f"the exports and backups of audit records {shown}{more}" if exports else "",
        await asyncio.to_thread(services.memory_folder.remains) if services.memory_folder is not None else "",
    ]
    return ", ".join(filter(None, copies))


# ---- Background jobs ------------------------------------------------------------------------------------------------


async def finish_all(services: Services) -> int:
    """Remove erased data from files of any size, then sign all pending receipts. Return how many are still pending."""
    waiting = await services.store.erasure.pending()
    if not waiting and not services.store.database.unclean:
        return 0
    if not await _removed(services, [receipt for _, receipt in waiting], large=True):
        return len(waiting)
    unsigned = 0
    for tenant, receipt in waiting:
        if await _is_recorded(services, Scope(tenant), receipt):
            await _signed(services, Scope(tenant), receipt)
        else:
            unsigned += 1
    return unsigned


async def _pending(services: Services, query: DueQuery) -> list[DueWork[int]]:
    """Return one piece of work for all unsigned receipts, because one rewrite of the files serves them all."""
    count = len(await services.store.erasure.pending(limit=query.limit))
    return [DueWork("", "receipts", count, count)] if count or services.store.database.unclean else []


async def _finish(services: Services, _: Scope, __: int) -> bool:
    return not await finish_all(services)


FORGET = Job(name="forget", due=_pending, run=_finish)


async def _expired(services: Services, query: DueQuery) -> list[DueWork[Target]]:
    """Return conversations and memories that were inactive for too long, by tenant."""
    retention, results = services.config.retention, list[DueWork[Target]]()
    ages: tuple[tuple[Kind, str, float], ...] = (
        ("conversation", "conversations_idle", retention.conversations_days),
        ("memory", "memories_untouched", retention.memories_days),
    )
    for kind, statement, days in ages:
        names: dict[str, list[str]] = {}
        before = services.clock.now() - days * DAY_S
        due = await services.store.due_pairs(statement, before=before, limit=query.limit) if days else ()
        for tenant, name in due:
            names.setdefault(tenant, []).append(name)
        results += [DueWork(tenant, f"old {kind}", Target(kind, tuple(ids)), len(ids)) for tenant, ids in names.items()]
    return results


async def _delete_expired(services: Services, scope: Scope, target: Target) -> Receipt:
    return await forget(services, scope, target, reason="retention", conversations=False)


RETENTION = Job(name="retention", due=_expired, run=_delete_expired, batch_size=50)


# ---- Erasures since a time -------------------------------------------------------------------------------------------


async def forgotten_since(
    services: Services, scope: Scope, when: float, *, user: str | None, conversation: str | None
) -> bool:
    """Return whether erasures since a time may include a user's messages, in a conversation if one is named.

    Receipts contain no names: one that covers several users or conversations may cover any.
    """
    newest: list[Receipt] = []
    for limit in (1, RECEIPTS):  # usually the newest receipt is older
        receipts = await services.store.erasure.receipts(scope, limit=limit)
        newest = [each for each in receipts if datetime.fromisoformat(each.requested_at).timestamp() + _TICK_S > when]
        if not newest:
            return False
    return len(newest) == RECEIPTS or any(_may_name(each, user, conversation) for each in newest)


def _may_name(receipt: Receipt, user: str | None, conversation: str | None) -> bool:
    if receipt.kind not in _ONES or (user is None and receipt.kind == "conversation"):
        return True
    named = {salted(each, receipt.salt) for each in (user, conversation) if each is not None}
    return not named.isdisjoint((*receipt.asked, *receipt.concerns))


# ---- Receipts -------------------------------------------------------------------------------------------------------


def altered_receipts(
    receipts: Mapping[str, Receipt | None], records: Sequence[Record], public_key: bytes
) -> Iterator[str]:
    """Yield the stored receipts that differ from their records in the audit log, and how."""
    recorded = _recorded(records)
    for id_, receipt in receipts.items():
        if receipt is None or receipt.id != id_:
            yield f"receipt {id_!r} is damaged"
        elif fault := _difference(receipt, recorded, public_key):
            yield f"receipt {id_!r} {fault}"
    yield from (f"receipt {id_!r} was removed" for id_ in recorded if id_ not in receipts)


def _recorded(records: Sequence[Record]) -> dict[str, Mapping[str, Any]]:
    """Return what the records of erasures have of receipts, by the receipts' IDs."""
    return {each.prompt_id: each.selection or {} for each in records if each.prompt_id}


def _difference(receipt: Receipt, recorded: Mapping[str, Mapping[str, Any]], public_key: bytes) -> str:
    """Return how a receipt differs from its record, which is signed from the beginning; "" if it does not."""
    selection = recorded.get(receipt.id, {})
    if not is_signed_erasure(selection, public_key):
        return "was inserted: the audit log has no signed record of it"
    fields = {"kind": receipt.kind, "asked": [*receipt.asked], "salt": receipt.salt, "counts": receipt.counts}
    if any(value != selection.get(name) for name, value in fields.items()):
        return "was changed: its record in the audit log differs"
    fault = "" if receipt.pending else fault_of(receipt, public_key)
    return f"was changed: {fault}" if fault else ""


def fault_of(receipt: Receipt, public_key: bytes) -> str:
    """Return the reason why a receipt is invalid, or "" if this key signed exactly this receipt."""
    if receipt.state != "done" or not receipt.signature:
        return "it is pending and unsigned: data may remain"
    if receipt.origin != public_key.hex():
        return f"it belongs to another project ({receipt.origin[:16]}…)"
    return "" if is_signed(receipt, public_key) else "its signature does not match: the receipt was changed"
