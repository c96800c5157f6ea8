"""Serve `/api/memories/forget`, the deletion of one memory, and signed receipts at `/api/receipts`."""

from typing import Annotated, Any

from litestar import Response, delete, get, post
from litestar.params import FromPath, JSONBody, QueryParameter
from msgspec import Meta

from cuebook.app.forgetting import preview_shape, receipt_shape
from cuebook.records.erasure import Kind, Receipt, Staying, WouldForget, no_receipt
from cuebook.server.api.types import In, Text, answers
from cuebook.server.authorization import AnyRequest, caller_of, check_first, cue_of, user_of
from cuebook.server.guard import name_in
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import UserQuery, json_of

OrganizationQuery = Annotated[str | None, QueryParameter(name="organizationId", description="Of this organization")]


class ForgetBody(In, frozen=True, kw_only=True):
    """A forget request: exactly one target, and the reason. `dryRun`: only return a preview."""

    user_id: Text | None = None
    conversation_id: Text | None = None
    persona_id: Text | None = None
    organization_id: Text | None = None
    memory_ids: Annotated[list[Text], Meta(min_length=1, max_length=10_000)] | None = None
    reason: Annotated[str, Meta(max_length=500)] = ""
    dry_run: bool = False


class ReceiptAnswer(In, frozen=True, kw_only=True):
    """A receipt: requested ids and affected users as salted hashes, counts by kind, times, and a signature."""

    id: str
    state: str
    kind: str
    asked: list[str]
    salt: str
    concerns: list[str]
    reason: str
    counts: dict[str, int]
    epoch: int
    requested_at: str
    finished_at: str
    origin: str
    signature: str


class TouchedAnswer(In, frozen=True, kw_only=True):
    """An affected conversation: number of posts to delete and to keep."""

    conversation_id: str
    posts: int
    left: int


class GoingAnswer(In, frozen=True, kw_only=True):
    """A memory that would be deleted."""

    memory_id: str
    scope: str
    category: str
    text: str


class StaysAnswer(In, frozen=True, kw_only=True):
    """Affected records that would be kept, and the reason."""

    what: Staying
    count: int
    why: str


class WouldForgetAnswer(In, frozen=True, kw_only=True):
    """A preview: counts as in a receipt, and the first conversations and memories."""

    kind: Kind
    counts: dict[str, int]
    conversations: list[TouchedAnswer]
    more_conversations: int
    memories: list[GoingAnswer]
    more_memories: int
    stays: list[StaysAnswer]


class ForgetAnswer(In, frozen=True, kw_only=True):
    """The receipt, or with `dryRun` the preview."""

    receipt: ReceiptAnswer | None = None
    would_forget: WouldForgetAnswer | None = None


class Forgotten(In, frozen=True, kw_only=True):
    """The receipt of a deletion."""

    receipt: ReceiptAnswer


@post("/api/memories/forget", dto=JsonBody[ForgetBody], status_code=200, responses=answers(ForgetAnswer, pending=True))
async def forget(request: AnyRequest, data: JSONBody[ForgetBody]) -> Response[bytes]:
    """Forget one target with everything derived from it, for a user also the transcripts. A missing target counts 0.

    202 while another process still reads a database file: the receipt is `pending`, and signed once all bytes are
    erased. With `dryRun` nothing is changed and the answer is a preview.
    """
    await _check(request, data)
    target: Any = {
        "user": data.user_id,
        "conversation": data.conversation_id,
        "persona": data.persona_id,
        "organization": data.organization_id,
        "memories": data.memory_ids or (),
        "by": None if data.organization_id and caller_of(request).key else user_of(request, data.user_id),
    }
    if data.dry_run:
        return json_of({"wouldForget": preview_shape(await would_forget(request, target))})
    return _answer(await cue_of(request).memory.forget(**target, reason=data.reason))


async def would_forget(request: AnyRequest, target: Any) -> WouldForget:
    """Return a preview of forgetting, one at a time. Raises Busy, InvalidInput."""
    async with request.app.state.measures.hold("a forget preview"):
        return await cue_of(request).memory.would_forget(**target)


async def _check(request: AnyRequest, data: ForgetBody) -> None:
    """Check the target: a user's key may forget that user's data, an admin's its organizations', an owner's all.

    Raises Denied.
    """
    caller = caller_of(request)
    if data.organization_id:
        caller.need("admin", "Forgetting an organization")
    elif caller.user is None:
        caller.need("owner", "Forgetting other users' memories")
    if data.conversation_id:
        await check_first(request, data.conversation_id, caller.user, "Forgetting another user's conversation")


@delete("/api/memories/{memory:str}", status_code=200, responses=answers(Forgotten, pending=True))
async def delete_memory(
    request: AnyRequest, memory: FromPath[str], user_id: UserQuery = None, organization_id: OrganizationQuery = None
) -> Response[bytes]:
    """Forget a memory, also in recorded windows. It is not derived from earlier posts again."""
    return _answer(await forget_one(request, name_in(memory), user_of(request, user_id), organization_id))


@get("/api/receipts/{receipt:str}", responses=answers(Forgotten, pending=True))
async def get_receipt(request: AnyRequest, receipt: FromPath[str], user_id: UserQuery = None) -> Response[bytes]:
    """Return a receipt; 202 while it is `pending`. Verify it with `cuebook memory receipt verify`.

    Admins may read all receipts, users those of their data or their requests.
    """
    return _answer(await read_receipt(request, name_in(receipt), user_of(request, user_id)))


async def read_receipt(request: AnyRequest, name: str, user: str | None) -> Receipt:
    """Return a receipt if the caller may read it. Raises NotFound."""
    caller = caller_of(request)
    if caller.key and caller.may("admin"):
        user = None
    elif user is None and not caller.may("admin"):
        raise no_receipt(name)
    return await cue_of(request).receipts.get(name, user=user)


async def forget_one(request: AnyRequest, name: str, user: str | None, organization: str | None) -> Receipt:
    """Forget a memory if the caller may. Raises NotFound, Denied, Conflict."""
    caller = caller_of(request)
    if organization:
        caller.need("admin", "Forgetting an organization's memory")
    elif user is None:
        caller.need("owner", "Forgetting other users' memories")
    return await cue_of(request).memories.remove(name, user=user, organization=organization)


async def forget_several(request: AnyRequest, names: list[str], user: str | None, reason: str) -> Receipt:
    """Forget memories of the user, or as owner of anyone. Raises Denied, InvalidInput, Conflict."""
    if user is None:
        caller_of(request).need("owner", "Forgetting other users' memories")
    return await cue_of(request).memory.forget(memories=names, reason=reason, by=user)


def _answer(receipt: Receipt) -> Response[bytes]:
    answer = json_of({"receipt": receipt_shape(receipt)})
    answer.status_code = 202 if receipt.state == "pending" else 200
    return answer


ROUTES = [forget, delete_memory, get_receipt]
