"""`/api/memories/forget`, the deletion of one memory, and `/api/receipts`."""

from typing import Annotated, Any

from litestar import Response, delete, get, post
from litestar.params import FromPath, JSONBody, QueryParameter
from msgspec import Meta

from cuebook.app.forgetting import preview_shape, receipt_shape
from cuebook.records.erasure import Kind, Receipt, Staying, WouldForget, no_receipt
from cuebook.server.api.types import In, Text, answers
from cuebook.server.authorization import AnyRequest, book_of, caller_of, check_first, user_of
from cuebook.server.guard import name_in
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import UserQuery, json_of

OrganizationQuery = Annotated[str | None, QueryParameter(name="organizationId", description="The organization's")]


class ForgetBody(In, frozen=True, kw_only=True):
    """What to forget, one of these, and why. `dryRun`: only say what would go and what would stay."""

    user_id: Text | None = None
    conversation_id: Text | None = None
    persona_id: Text | None = None
    organization_id: Text | None = None
    memory_ids: Annotated[list[Text], Meta(min_length=1, max_length=10_000)] | None = None
    reason: Annotated[str, Meta(max_length=500)] = ""
    dry_run: bool = False


class ReceiptAnswer(In, frozen=True, kw_only=True):
    """What went: the ids asked for and the users it concerns as salted hashes, counts by kind, times, a signature."""

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
    """A conversation that would be reached: how many of its posts would go, and how many would stay."""

    conversation_id: str
    posts: int
    left: int


class GoingAnswer(In, frozen=True, kw_only=True):
    """A memory that would go."""

    memory_id: str
    scope: str
    category: str
    text: str


class StaysAnswer(In, frozen=True, kw_only=True):
    """What would stay of what is reached, and why."""

    what: Staying
    count: int
    why: str


class WouldForgetAnswer(In, frozen=True, kw_only=True):
    """What would go, by the counts of a receipt; of conversations and memories the first are named."""

    kind: Kind
    counts: dict[str, int]
    conversations: list[TouchedAnswer]
    more_conversations: int
    memories: list[GoingAnswer]
    more_memories: int
    stays: list[StaysAnswer]


class ForgetAnswer(In, frozen=True, kw_only=True):
    """The receipt of a forget; of a dry run what it would take."""

    receipt: ReceiptAnswer | None = None
    would_forget: WouldForgetAnswer | None = None


class Forgotten(In, frozen=True, kw_only=True):
    """The receipt of a forget."""

    receipt: ReceiptAnswer


@post("/api/memories/forget", dto=JsonBody[ForgetBody], status_code=200, responses=answers(ForgetAnswer, pending=True))
async def forget(request: AnyRequest, data: JSONBody[ForgetBody]) -> Response[bytes]:
    """Forget one thing with everything derived from it; a user's transcripts too. What is not there counts nothing.

    202 while another process still reads what a file holds: the receipt is `pending`, and signed when no byte is left.
    With `dryRun` nothing is changed: the answer is what would go and stay.
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
    return _answer(await book_of(request).memory.forget(**target, reason=data.reason))


async def would_forget(request: AnyRequest, target: Any) -> WouldForget:
    """Return what a forget would take, one at a time. Raises Busy, InvalidInput."""
    async with request.app.state.measures.hold("a dry run of a forget"):
        return await book_of(request).memory.would_forget(**target)


async def _check(request: AnyRequest, data: ForgetBody) -> None:
    """Refuse a forget of others: a user's key forgets what is its user's, an admin's its organizations, an owner's all.

    Raises Denied.
    """
    caller = caller_of(request)
    if data.organization_id:
        caller.need("admin", "forgetting an organization")
    elif caller.user is None:
        caller.need("owner", "forgetting what is others'")
    if data.conversation_id:
        await check_first(request, data.conversation_id, caller.user, "forgetting another's conversation")


@delete("/api/memories/{memory:str}", status_code=200, responses=answers(Forgotten, pending=True))
async def delete_memory(
    request: AnyRequest, memory: FromPath[str], user_id: UserQuery = None, organization_id: OrganizationQuery = None
) -> Response[bytes]:
    """Forget a memory, with its words in windows that said it. What was said before does not bring it back."""
    return _answer(await forget_one(request, name_in(memory), user_of(request, user_id), organization_id))


@get("/api/receipts/{receipt:str}", responses=answers(Forgotten, pending=True))
async def get_receipt(request: AnyRequest, receipt: FromPath[str], user_id: UserQuery = None) -> Response[bytes]:
    """Return the receipt of a forget; 202 while it is `pending`. `cuebook memory receipt verify` checks it.

    An admin reads all, a user those that concern them: something of theirs went, or they asked for it.
    """
    return _answer(await read_receipt(request, name_in(receipt), user_of(request, user_id)))


async def read_receipt(request: AnyRequest, name: str, user: str | None) -> Receipt:
    """Return a receipt to who may read it. Raises NotFound."""
    caller = caller_of(request)
    if caller.key and caller.may("admin"):
        user = None
    elif user is None and not caller.may("admin"):
        raise no_receipt(name)
    return await book_of(request).receipts.get(name, user=user)


async def forget_one(request: AnyRequest, name: str, user: str | None, organization: str | None) -> Receipt:
    """Forget a memory for who may. Raises NotFound, Denied, Conflict."""
    caller = caller_of(request)
    if organization:
        caller.need("admin", "forgetting what an organization knows")
    elif user is None:
        caller.need("owner", "forgetting what is others'")
    return await book_of(request).memories.remove(name, user=user, organization=organization)


async def forget_several(request: AnyRequest, names: list[str], user: str | None, reason: str) -> Receipt:
    """Forget memories for who may: their own, or an owner anybody's. Raises Denied, InvalidInput, Conflict."""
    if user is None:
        caller_of(request).need("owner", "forgetting what is others'")
    return await book_of(request).memory.forget(memories=names, reason=reason, by=user)


def _answer(receipt: Receipt) -> Response[bytes]:
    answer = json_of({"receipt": receipt_shape(receipt)})
    answer.status_code = 202 if receipt.state == "pending" else 200
    return answer


ROUTES = [forget, delete_memory, get_receipt]
