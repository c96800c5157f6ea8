"""`/api/memories/forget` and `/api/receipts`."""

from litestar import Response, get, post
from litestar.params import FromPath, JSONBody

from cuebook.app.forgetting import receipt_shape
from cuebook.records.erasure import Receipt
from cuebook.server import wire
from cuebook.server.caller import AnyRequest, book_of, caller_of, check_first, user_of
from cuebook.server.edge import JsonBody
from cuebook.server.guard import name_in
from cuebook.server.lists import json_of


@post("/api/memories/forget", dto=JsonBody[wire.ForgetBody], status_code=200, responses=wire.answers(wire.Forgotten))
async def forget(request: AnyRequest, data: JSONBody[wire.ForgetBody]) -> Response[bytes]:
    """Forget one thing with everything derived from it; a user's transcripts too. What is not there counts nothing.

    202 while another process still reads what a file holds: the receipt is `pending`, and signed when no byte is left.
    A legal hold forbids it: 409 names it.
    """
    await _check(request, data)
    receipt = await book_of(request).memory.forget(
        user=data.user_id,
        conversation=data.conversation_id,
        persona=data.persona_id,
        organization=data.organization_id,
        memories=data.memory_ids or (),
        reason=data.reason,
        by=None if data.organization_id and caller_of(request).key else user_of(request, data.user_id),
    )
    return _answer(receipt)


async def _check(request: AnyRequest, data: wire.ForgetBody) -> None:
    """Refuse a forget of others: a user's key forgets what is its user's, an admin's its organizations, an owner's all.

    Raises Denied.
    """
    caller = caller_of(request)
    if data.organization_id:
        caller.need("admin", "forgetting an organization")
    elif caller.user is None:
        caller.need("owner", "forgetting what is others'")
    if data.conversation_id:
        await check_first(request, data.conversation_id, caller.user)


@get("/api/receipts/{receipt:str}", responses=wire.answers(wire.Forgotten))
async def get_receipt(request: AnyRequest, receipt: FromPath[str]) -> Response[bytes]:
    """Give the receipt of a forget; 202 while it is `pending`. `cuebook memory receipt verify` checks it."""
    return _answer(await book_of(request).receipts.get(name_in(receipt)))


def _answer(receipt: Receipt) -> Response[bytes]:
    answer = json_of({"receipt": receipt_shape(receipt)})
    answer.status_code = 202 if receipt.state == "pending" else 200
    return answer


ROUTES = [forget, get_receipt]
