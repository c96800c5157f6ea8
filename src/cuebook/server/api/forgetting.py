"""Serve `/api/memories/forget`: delete data with everything derived from it, or preview that."""

from typing import Annotated, Any

from litestar import Response, post
from litestar.params import JSONBody
from msgspec import Meta

from cuebook.app.forgetting import preview_shape
from cuebook.records.erasure import Kind, Receipt, Staying, WouldForget
from cuebook.server.api.types import In, Text, answers
from cuebook.server.authorization import AnyRequest, caller_of, check_first, cue_of, idempotency_key, user_of
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import json_of


class ForgetBody(In, frozen=True, kw_only=True):
    """A forget request: exactly one target, and the reason. `dryRun`: only return a preview."""

    user_id: Text | None = None
    conversation_id: Text | None = None
    persona_id: Text | None = None
    organization_id: Text | None = None
    memory_ids: Annotated[list[Text], Meta(min_length=1, max_length=10_000)] | None = None
    reason: Annotated[str, Meta(max_length=500)] = ""
    dry_run: bool = False


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

    receipt: Receipt | None = None
    would_forget: WouldForgetAnswer | None = None


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
    receipt = await cue_of(request).memory.forget(
        **target, reason=data.reason, idempotency_key=idempotency_key(request.scope)
    )
    return json_of({"receipt": receipt}, 202 if receipt.pending else 200)


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


async def forget_several(request: AnyRequest, names: list[str], user: str | None, reason: str) -> Receipt:
    """Forget memories of the user, or as owner of anyone. Raises Denied, InvalidInput, Conflict."""
    if user is None:
        caller_of(request).need("owner", "Forgetting other users' memories")
    return await cue_of(request).memory.forget(memories=names, reason=reason, by=user)


ROUTES = [forget]
