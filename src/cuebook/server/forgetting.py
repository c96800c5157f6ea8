"""`/api/memories/forget` and `/api/receipts`."""

from litestar import Response, get, post
from litestar.params import FromPath, JSONBody

from cuebook.app.forgetting import receipt_shape
from cuebook.records.erasure import Receipt
from cuebook.server import wire
from cuebook.server.caller import AnyRequest, book_of, user_of
from cuebook.server.edge import JsonBody
from cuebook.server.guard import name_in
from cuebook.server.lists import json_of


@post("/api/memories/forget", dto=JsonBody[wire.ForgetBody], status_code=200, responses=wire.answers(wire.Forgotten))
async def forget(request: AnyRequest, data: JSONBody[wire.ForgetBody]) -> Response[bytes]:
    """Forget one thing with everything derived from it; a user's transcripts too. What is not there counts nothing.

    202 while another process still reads what a file holds: the receipt is `pending`, and signed when no byte is left.
    A legal hold forbids it: 409 names it.
    """
    receipt = await book_of(request).memory.forget(
        user=data.user_id,
        conversation=data.conversation_id,
        persona=data.persona_id,
        organization=data.organization_id,
        memories=data.memory_ids or (),
        reason=data.reason,
        by=user_of(request, data.user_id),
    )
    return _answer(receipt)


@get("/api/receipts/{receipt:str}", responses=wire.answers(wire.Forgotten))
async def get_receipt(request: AnyRequest, receipt: FromPath[str]) -> Response[bytes]:
    """Give the receipt of a forget; 202 while it is `pending`. `cuebook memory receipt verify` checks it."""
    return _answer(await book_of(request).receipts.get(name_in(receipt)))


def _answer(receipt: Receipt) -> Response[bytes]:
    answer = json_of({"receipt": receipt_shape(receipt)})
    answer.status_code = 202 if receipt.state == "pending" else 200
    return answer


ROUTES = [forget, get_receipt]
