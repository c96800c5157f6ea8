"""Delete (forget) data of a user, conversation, persona or organization, and check the signed deletion receipts."""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from cuebook.app.arguments import OWNER, CallerOf, IdempotencyKey, Text, User
from cuebook.app.namespace import Namespace, check_first
from cuebook.engine.core.drafts import check_text
from cuebook.engine.core.recall import memory_store
from cuebook.engine.jobs import erasure as forgetting
from cuebook.engine.jobs.audit_mirror import verifying_key
from cuebook.errors import InvalidInput
from cuebook.operations import Argument, operation
from cuebook.records.answer import Answer
from cuebook.records.erasure import ForgetPreview, Kind, Receipt, Target, no_receipt, salted
from cuebook.records.memory import Scope

#: Maximum length of a reason, in characters.
REASON = 500
#: Maximum number of ids in one forget call.
MOST = 10_000


#: Labels of the counts in a receipt, where the field name is not clear enough.
IN_WORDS: Final[Mapping[str, str]] = {
    "auditTexts": "texts of audit records",
    "fullText": "entries of the full-text index",
    "items": "memory items of conversations",
    "keys": "stored answers for idempotency keys",
    "steps": "model calls",
    "texts": "texts of prompts",
}


class ForgetAnswer(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """The receipt, or with `dryRun` the preview."""

    receipt: Receipt | None = None
    would_forget: ForgetPreview | None = None

    @property
    def pending(self) -> bool:
        """Return whether bytes may still be left in a file."""
        return self.receipt is not None and self.receipt.pending


class ReceiptCheck(Struct, frozen=True, kw_only=True):
    """The result of checking a receipt. `names`: whether it covers the given id, None without one."""

    ok: bool
    reason: str = ""
    names: bool | None = None


def target_of(
    *,
    user: str | None = None,
    conversation: str | Sequence[str] | None = None,
    persona: str | None = None,
    organization: str | None = None,
    memories: Sequence[str] = (),
) -> Target:
    """Return the target of a forget. Raises InvalidInput unless exactly one argument is given."""
    conversations = (conversation,) if isinstance(conversation, str) else tuple(conversation or ())
    named: dict[Kind, tuple[str, ...]] = {
        "user": (user,) if user is not None else (),
        "conversation": conversations,
        "persona": (persona,) if persona is not None else (),
        "organization": (organization,) if organization is not None else (),
        "memory": tuple(memories),
    }
    values = [(kind, ids) for kind, ids in named.items() if ids]
    if len(values) != 1:
        msg = "target: pass exactly one of user, conversation, persona, organization, memories."
        raise InvalidInput(msg, where="userId")
    kind, ids = values[0]
    if len(ids) > MOST:
        msg = f"{kind}: {len(ids):,} ids exceed the limit of {MOST:,}. Forget them in several calls."
        raise InvalidInput(msg, where=kind)
    for each in ids:
        check_text(each, kind)
        if not each:
            msg = f"{kind}: empty. Provide an id."
            raise InvalidInput(msg, where=kind)
    return Target(kind, tuple(dict.fromkeys(ids)))


class Forgetting(Namespace):
    """Forgetting, and the signed receipts, which prove what was deleted without naming the subject."""

    @operation("", role="editor", stores=True)
    async def forget(
        self,
        *,
        user: str | None = None,
        conversation: str | Sequence[str] | None = None,
        persona: str | None = None,
        organization: str | None = None,
        memories: Sequence[str] = (),
        reason: str = "",
        by: str | None = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Receipt:
        """Delete one of these with everything derived from it, a user's transcripts included. Return the receipt.

        The receipt is `pending` while another process reads the database file; a background job signs it later. An id
        that is unknown, or not of user `by`, counts as 0. Raises InvalidInput, and Conflict naming a hold.
        """
        target = target_of(
            user=user, conversation=conversation, persona=persona, organization=organization, memories=memories
        )
        check_text(reason, "reason")
        if len(reason) > REASON:
            msg = f"reason: {len(reason)} characters exceed the limit of {REASON}."
            raise InvalidInput(msg, where="reason")
        services = self._services
        record = memories[0] if len(memories) == 1 else None
        store = target.kind if record else memory_store(services, target.kind, "\n".join(target.ids))
        with services.tracing.memory("delete_memory", store=store, gen_ai__memory__record__id=record):
            return await forgetting.forget(services, Scope(user=by), target, reason=reason)

    @operation("POST /api/memories/forget", role="editor", stores=True, heavy="a forget request")
    async def erase(
        self,
        *,
        user: Annotated[Text | None, Meta(description="Forget all data of this user, transcripts included.")] = None,
        conversation: Annotated[Text | None, Meta(description="Forget this conversation.")] = None,
        persona: Annotated[Text | None, Meta(description="Forget the memories of this persona.")] = None,
        organization: Annotated[Text | None, Meta(description="Forget the memories of this organization.")] = None,
        memory_ids: Annotated[
            tuple[Text, ...] | None, Meta(min_length=1, max_length=MOST, description="Forget these memories.")
        ] = None,
        reason: Annotated[str, Meta(max_length=REASON, description="Reason, recorded in the receipt.")] = "",
        dry_run: Annotated[bool, Meta(description="Only return a preview, and change nothing.")] = False,
        by: Annotated[str | None, Argument(source="acting")] = None,
        caller: CallerOf = OWNER,
        idempotency_key: IdempotencyKey = None,
    ) -> ForgetAnswer:
        """Forget one target with everything derived from it, for a user also the transcripts. A missing one counts 0.

        202 while another process still reads a database file: the receipt is `pending`, and signed once all bytes are
        erased. A user's key may forget that user's data, an admin's its organizations', an owner's all. Raises
        InvalidInput, Denied, and Conflict naming a hold.
        """
        if organization:
            caller.need("admin", "Forgetting an organization")
        elif caller.user is None:
            caller.need("owner", "Forgetting other users' memories")
        if conversation:
            await check_first(
                self._services, conversation, caller.user, caller, "Forgetting another user's conversation"
            )
        target: Any = {
            "user": user,
            "conversation": conversation,
            "persona": persona,
            "organization": organization,
            "memories": memory_ids or (),
            "by": None if organization and caller.key else caller.acts_as(user, by),
        }
        if dry_run:
            return ForgetAnswer(would_forget=await self.would_forget(**target))
        return ForgetAnswer(receipt=await self.forget(**target, reason=reason))

    async def would_forget(
        self,
        *,
        user: str | None = None,
        conversation: str | Sequence[str] | None = None,
        persona: str | None = None,
        organization: str | None = None,
        memories: Sequence[str] = (),
        by: str | None = None,
    ) -> ForgetPreview:
        """Return what `forget` would delete now, and what would stay.

        Changes nothing, but blocks writes as long as `forget` does. Raises InvalidInput.
        """
        target = target_of(
            user=user, conversation=conversation, persona=persona, organization=organization, memories=memories
        )
        return await forgetting.would_forget(self._services, Scope(user=by), target)

    @operation("GET /api/receipts/{receipt}", role="viewer", wrap="receipt")
    async def receipt(
        self,
        receipt: Annotated[str, Meta(description="Receipt ID.")],
        *,
        user: User = None,
        caller: CallerOf = OWNER,
    ) -> Receipt:
        """Return a receipt, finished first if it is pending. Verify it with `cuebook memory receipt verify`.

        Admins may read all receipts, users those of their data or their requests. Raises NotFound.
        """
        if caller.key and caller.may("admin"):
            user = None
        elif user is None and not caller.may("admin"):
            raise no_receipt(receipt)
        found = await self._services.store.erasure.receipt(Scope(), receipt)
        if user is not None and salted(user, found.salt) not in found.concerns:
            raise no_receipt(receipt)
        return found if found.state == "done" else await forgetting.finish(self._services, Scope(), found)

    async def earlier_erasures(
        self, *, users: Collection[str] = (), conversations: Collection[str] = ()
    ) -> Sequence[Receipt]:
        """Return the receipts of erasures that named one of these users or conversations, newest first."""
        named: Mapping[str, Collection[str]] = {"user": users, "conversation": conversations}
        found = await self._services.store.erasure.receipts(Scope(), limit=MOST)
        return [
            each for each in found if any(salted(name, each.salt) in each.asked for name in named.get(each.kind, ()))
        ]

    async def receipts(self, *, limit: int = 100) -> Sequence[Receipt]:
        """Return the newest receipts, newest first."""
        if not 1 <= limit <= MOST:
            msg = f"limit: {limit}. Must be between 1 and {MOST}."
            raise InvalidInput(msg, where="limit")
        return await self._services.store.erasure.receipts(Scope(), limit=limit)

    async def finish_receipts(self) -> int:
        """Remove the deleted data's bytes from the database file, then sign the receipts. Return how many are pending.

        A background job does this automatically. Writes are blocked meanwhile, about 7 s per GB.
        """
        return await forgetting.finish_all(self._services)

    def verify_receipt(self, receipt: Receipt | bytes | str, *, name: str | None = None) -> ReceiptCheck:
        """Check a receipt (record or JSON) against this project's key; with `name`, also that it covers that id.

        Raises InvalidInput if it is not a receipt.
        """
        return verify_receipt(receipt, public_key=verifying_key(self._services.settings.key), name=name)


def verify_receipt(receipt: Receipt | bytes | str, *, public_key: bytes, name: str | None = None) -> ReceiptCheck:
    """Check a receipt against a project's public key (32 bytes). Raises InvalidInput."""
    found = receipt if isinstance(receipt, Receipt) else read_receipt(receipt)
    fault = forgetting.fault_of(found, public_key)
    names = None
    if name is not None:
        try:
            names = salted(name, found.salt) in found.asked
        except ValueError:
            names = False
        fault = fault or ("" if names else f"it does not cover {name!r}")
    return ReceiptCheck(ok=not fault, reason=fault, names=names)


def read_receipt(raw: bytes | str) -> Receipt:
    """Parse a receipt from JSON, alone or inside the response of a forget. Raises InvalidInput."""
    try:
        result: Any = msgspec.json.decode(raw)
        inner = result.get("receipt", result) if isinstance(result, dict) else result
        return msgspec.convert(inner, Receipt)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        msg = f"Not a receipt: {error}. Pass the JSON that a forget returned."
        raise InvalidInput(msg, where="receipt") from error


def in_words(name: str) -> str:
    """Return the label of a count in a receipt or a preview."""
    return IN_WORDS.get(name) or "".join(f" {each.lower()}" if each.isupper() else each for each in name)
