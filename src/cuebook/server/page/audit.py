"""Render the audit log: list and show records, verify their integrity (hash chain), check a replay."""

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlencode

from litestar import Response, get, post
from litestar.params import FromPath, FromQuery, QueryParameter

from cuebook.app.reports.audit import HIGHEST, FoundRecords
from cuebook.records.audit import AuditRecord, ReplayedRender, Verdict
from cuebook.server.caller import AnyRequest, cue_of
from cuebook.server.page.render import show
from cuebook.server.route_parts import ConversationQuery

ALL = "/page/audit"
ONE = ALL + "/{n:int}"
#: Maximum number of records on a page.
LISTED = 50

Prompt = Annotated[str | None, QueryParameter(name="promptId", description="Records of this prompt")]
Before = Annotated[int | None, QueryParameter(name="before", ge=1, le=HIGHEST, description="Before this record number")]


@get(ALL, role="admin")
async def records(
    request: AnyRequest,
    *,
    event: FromQuery[str | None] = None,
    prompt_id: Prompt = None,
    conversation_id: ConversationQuery = None,
    before: Before = None,
) -> Response[bytes]:
    """Render the newest records, optionally filtered by event, prompt or conversation."""
    found = await cue_of(request).audit.find(
        event=event, prompt=prompt_id, conversation=conversation_id, before=before, limit=LISTED
    )
    return _list_page(found, {"event": event, "promptId": prompt_id, "conversationId": conversation_id})


def _list_page(
    found: FoundRecords, filters: Mapping[str, str | None], verdict: Verdict | None = None
) -> Response[bytes]:
    query = {name: value for name, value in filters.items() if value}
    more = f"{ALL}?{urlencode({**query, 'before': found.before})}" if found.before else ""
    return show("audit.html", filters=filters, records=found.records, more=more, verdict=verdict)


@get(ONE, role="admin")
async def record(request: AnyRequest, n: FromPath[int]) -> Response[bytes]:
    """Render a record: text, prompt version, selection and its place in the hash chain."""
    return _record_page(await cue_of(request).audit.get(n))


@post(ALL + "/verify", role="admin", status_code=200)
async def verify(request: AnyRequest) -> Response[bytes]:
    """Verify the integrity of all records, and render the result above the newest ones."""
    audit = cue_of(request).audit
    async with request.app.state.measures.hold("an audit verification"):
        verdict = await audit.verify()
    return _list_page(await audit.find(limit=LISTED), {}, verdict)


@post(ONE + "/replay", role="admin", status_code=200)
async def replay(request: AnyRequest, n: FromPath[int]) -> Response[bytes]:
    """Render a record's prompt again, and show whether the text is identical."""
    audit = cue_of(request).audit
    replayed_render = await audit.replay(n)
    return _record_page(await audit.get(n), replayed_render)


def _record_page(record: AuditRecord, replay: ReplayedRender | None = None) -> Response[bytes]:
    chosen = record.selection or {}
    is_stored = "branch" in chosen and bool(chosen.get("number"))  # a built-in prompt has no number in the database
    at = f"{chosen['branch']}:{chosen['number']}" if is_stored else ""
    selection = {name: value for name, value in chosen.items() if name not in ("branch", "number")}
    return show("audit_record.html", record=record, at=at, selection=selection, replay=replay)


ROUTES = [records, record, verify, replay]
