"""Serve `/api/audit`: list audit records, verify their integrity (hash chain), and check replays."""

from typing import Annotated, Any, Literal

from litestar import Response, get, post
from litestar.params import FromPath, QueryParameter
from msgspec import Struct

from cuebook.app.reports import audit_shapes as shapes
from cuebook.app.reports.audit import HIGHEST
from cuebook.server.api.types import answers
from cuebook.server.authorization import AnyRequest, cue_of
from cuebook.server.route_parts import Limit, json_of

ALL = "/api/audit"
ONE = ALL + "/{n:int}"

After = Annotated[int, QueryParameter(name="after", ge=0, le=HIGHEST, description="Only records after this number")]
Cursor = Annotated[int, QueryParameter(name="cursor", ge=0, le=HIGHEST, description="`next` of the previous page")]


class RecordAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """An audit record. An erased text is null, an absent one is empty."""

    seq: int
    timestamp: str
    event: str
    agent: str
    prompt_id: str
    version: str
    digest: str
    render_id: str
    conversation_id: str | None
    turn: int | None
    input_context: Any
    interpolated_text: str | None
    output_summary: str | None
    propensity: float | None
    selection: dict[str, Any] | None
    prev: str
    hash: str


class RecordPage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Records, oldest first; `next` is the `cursor` of the next page: the number of the last record here."""

    items: list[RecordAnswer]
    next: int | None = None


class VerdictAnswer(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The result of a verification. `firstBad` is the first record that was changed."""

    ok: bool
    records: int
    first_bad: int | None = None
    reason: str = ""


class RenderedAgain(Struct, frozen=True, kw_only=True):
    """The result of a replay check. `changed`: an inherited prompt has a different text now."""

    seq: int
    verdict: Literal["identical", "changed", "erased", "gone"]
    text: str


@get(ALL, responses=answers(RecordPage))
async def list_records(request: AnyRequest, after: After = 0, cursor: Cursor = 0, limit: Limit = 50) -> Response[bytes]:
    """List audit records, oldest first; `next` is the `cursor` of the next page."""
    records = await cue_of(request).audit.records(after=max(after, cursor), limit=limit + 1)
    page = records[:limit]
    more = {"next": page[-1].seq} if len(records) > limit else {}
    return json_of({"items": [shapes.record(each) for each in page]} | more)


@get(ONE, responses=answers(RecordAnswer))
async def get_record(request: AnyRequest, n: FromPath[int]) -> Response[bytes]:
    """Return a record by its number."""
    return json_of(shapes.record(await cue_of(request).audit.get(n)))


@post(ALL + "/verify", status_code=200, responses=answers(VerdictAnswer))
async def verify(request: AnyRequest) -> Response[bytes]:
    """Verify the integrity of all records in the table and the mirror file: hashes, order, signed checkpoints."""
    async with request.app.state.measures.hold("an audit verification"):
        return json_of(shapes.verdict(await cue_of(request).audit.verify()))


@post(ONE + "/replay", status_code=200, responses=answers(RenderedAgain))
async def replay(request: AnyRequest, n: FromPath[int]) -> Response[bytes]:
    """Render a record's prompt again from the same version and values, and compare. Stores nothing."""
    return json_of(shapes.replayed(await cue_of(request).audit.replay(n)))


ROUTES = [list_records, get_record, verify, replay]
