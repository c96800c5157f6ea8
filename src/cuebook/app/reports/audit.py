"""The audit log's public API (`cue.audit`): search records, verify integrity, export, and replay renders."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, structs

from cuebook.app.arguments import Cursor, PageSize
from cuebook.app.namespace import Namespace
from cuebook.app.paging import LIMIT, read_cursor, write_cursor
from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.instructions import own_versions
from cuebook.engine.core.prompt_reading import resolved_of
from cuebook.engine.jobs.audit_mirror import mirror_state, read_anchor, rebuild_mirror, verifying_key
from cuebook.engine.jobs.erasure import altered_receipts
from cuebook.errors import BackendError, InvalidInput, NotFound
from cuebook.operations import Argument, operation
from cuebook.prompts.chain import mirror_line, read_mirror, verify
from cuebook.prompts.inherit import text_of
from cuebook.prompts.params import coerce
from cuebook.prompts.template import render
from cuebook.providers.regular_files import open_regular
from cuebook.records.answer import Page, Time
from cuebook.records.audit import (
    EXPORT,
    AcceptedRows,
    AuditRecord,
    Checkpoint,
    MirrorReport,
    Record,
    ReplayedRender,
    SealReport,
    Verdict,
    audit_record,
)
from cuebook.records.memory import Scope

_PAGE = 1000
#: Altered receipts that a verification names.
_NAMED = 10
#: Number of records scanned per search.
LOOKED_AT = 5_000
#: Greater than every seq.
HIGHEST = 2**53 - 1


class FoundRecords(Struct, frozen=True, kw_only=True):
    """Matching records, newest first. `before`: where the next search continues, None if all were searched."""

    records: tuple[AuditRecord, ...]
    before: int | None = None


Seq = Annotated[int, Meta(description="Record number."), Argument(metavar="SEQ")]


class Audit(Namespace):
    """The audit log of a project."""

    @operation("GET /api/audit", role="admin")
    async def list(
        self,
        *,
        after: Annotated[int, Meta(ge=0, le=HIGHEST, description="Only records after this number.")] = 0,
        limit: PageSize = LIMIT,
        cursor: Cursor = None,
    ) -> Page[AuditRecord]:
        """List audit records, oldest first. Raises InvalidInput."""
        start = int(read_cursor(cursor, "audit")[0]) if cursor is not None else after
        records = await self._services.audit.records(Scope(), after=start, limit=limit + 1)
        more = write_cursor("audit", records[limit - 1].seq) if len(records) > limit else None
        return Page(items=tuple(map(audit_record, records[:limit])), next=more)

    @operation("GET /api/audit/{seq}", role="admin")
    async def get(self, seq: Seq) -> AuditRecord:
        """Return a record by its number. Raises NotFound."""
        return audit_record(await self._record(seq))

    async def _record(self, seq: int) -> Record:
        records = await self._services.audit.records(Scope(), after=seq - 1, limit=1) if 0 < seq <= HIGHEST else []
        if not records or records[0].seq != seq:
            msg = f"Unknown audit record {seq}. Show the newest with `cuebook audit tail`."
            raise NotFound(msg)
        return records[0]

    @operation(
        "",
        role="admin",
        cli="audit tail",
        examples=("cuebook audit tail", "cuebook audit tail --last 50 --json"),
        none="no records yet. A record is written when a prompt is written, rendered or selected.",
    )
    async def tail(
        self,
        last: Annotated[int, Meta(ge=1, le=_PAGE, description="Show at most N records."), Argument(flag="last")] = 10,
    ) -> Page[AuditRecord]:
        """Return the newest records, oldest first."""
        newest, _ = await self._services.audit.last(Scope())
        records = await self._services.audit.records(Scope(), after=max(0, newest - last), limit=last)
        return Page(items=tuple(map(audit_record, records)))

    async def find(
        self,
        *,
        event: str | None = None,
        prompt: str | None = None,
        conversation: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> FoundRecords:
        """Search for the newest records of an event, a prompt or a conversation, before a seq if given.

        One search scans at most LOOKED_AT records. Raises InvalidInput.
        """
        if not 1 <= limit <= _PAGE or (before is not None and not 1 <= before <= HIGHEST):
            msg = f"limit: {limit}, before: {before}. The limit must be 1 to {_PAGE}, before a record's number."
            raise InvalidInput(msg, where="limit")
        newest, _ = await self._services.audit.last(Scope())
        end = newest + 1 if before is None else min(before, newest + 1)
        stop = max(1, end - LOOKED_AT)
        wanted = {"event": event, "prompt_id": prompt, "conversation": conversation}
        asked = {name: value for name, value in wanted.items() if value}
        records: Any = []
        while end > stop:
            start = max(stop, end - _PAGE)
            page = await self._services.audit.records(Scope(), after=start - 1, limit=end - start)
            for each in reversed(page):
                if all(getattr(each, name) == value for name, value in asked.items()):
                    records.append(each)
                if len(records) == limit:
                    return FoundRecords(
                        records=tuple(map(audit_record, records)), before=each.seq if each.seq > 1 else None
                    )
            end = start
        return FoundRecords(records=tuple(map(audit_record, records)), before=end if end > 1 else None)

    async def record_export(self, what: str, *, user: str | None = None) -> None:
        """Record that data is exported, so that the receipts of later erasures name the copy."""
        record = receipt(self._services, what, EXPORT, agent=user or "", context={"user": user})
        await self._services.audit.append(Scope(), [record])

    async def export(self) -> AsyncIterator[Record]:
        """Yield all records, oldest first."""
        after = 0
        while page := await self._services.audit.records(Scope(), after=after, limit=_PAGE):
            for record in page:
                yield record
            after = page[-1].seq

    @operation(
        "",
        role="admin",
        cli="audit checkpoints",
        examples=(
            "cuebook audit checkpoints",
            "cuebook audit checkpoints --json > /mnt/elsewhere/checkpoints.json",
        ),
        none="no checkpoints yet. One is signed after 1,000 records or a minute, and when the database is closed.",
    )
    async def checkpoints(self) -> Page[Checkpoint]:
        """List the signed checkpoints. Store copies where database users cannot write: they reveal a truncated log."""
        return Page(items=tuple(await self._services.audit.checkpoints(Scope())))

    @operation("POST /api/audit/verify", role="admin", heavy="an audit verification")
    async def verify(self, *, kept: Annotated[Iterable[Checkpoint], Argument(source="python")] = ()) -> Verdict:
        """Verify the audit log in the table and the mirror file (hashes, order, checkpoints), documents and memories.

        It finds changed, moved and removed records, a truncated tail, also with its checkpoints, texts that were
        removed without an erasure, a mirror that was cut, emptied or removed, receipts, documents and memories that
        were changed, removed or inserted without Cuebook, and an older copy of the database. It only reports.
        """
        verdict = await self._verify_log(kept)
        data = await self._services.store.seals.check(Scope())
        return structs.replace(verdict, ok=verdict.ok and not data.reason, data=data if data != SealReport() else None)

    async def _verify_log(self, kept: Iterable[Checkpoint]) -> Verdict:
        """Verify the records in the table and the mirror file."""
        kept, key = tuple(kept), verifying_key(self._services.settings.key)
        stored = [*await self.checkpoints()]  # first: one signed meanwhile covers records not yet read
        anchor = await asyncio.to_thread(read_anchor, self._services)
        newest = anchor.checkpoints.get(self._services.settings.tenant)
        checkpoints = [*stored, *kept, *([newest] if newest else [])]
        records = [record async for record in self.export()]
        verdict = await asyncio.to_thread(verify, records, checkpoints, public_key=key)
        if newest is not None and all(each.size < newest.size for each in stored):
            size = newest.size
            what = f"the checkpoint over {size} records was removed from the database, or an older copy was restored"
            lost = f"{what}: the key file has it"
            reason = f"{verdict.reason}; {lost}" if verdict.reason else lost
            return structs.replace(verdict, ok=False, first_bad=verdict.first_bad or None, reason=reason)
        verdict = await self._verify_receipts(verdict, key) if verdict.ok else verdict
        file = self._services.settings.audit_mirror
        return await self._verify_own_mirror(file, verdict, checkpoints) if verdict.ok and file else verdict

    async def _verify_receipts(self, verdict: Verdict, key: bytes) -> Verdict:
        """Return the verdict, or a negative one that names the first receipts that were altered."""
        faults = [*altered_receipts(*await self._services.audit.receipts(Scope()), key)]
        if not faults:
            return verdict
        more = [f"{len(faults) - _NAMED:,} more receipts were altered"] if len(faults) > _NAMED else []
        return structs.replace(verdict, ok=False, reason="; ".join([*faults[:_NAMED], *more]))

    async def _verify_own_mirror(self, file: Path, verdict: Verdict, checkpoints: Sequence[Checkpoint]) -> Verdict:
        """Return the verdict on the table, or a negative one on the mirror file."""
        try:
            state = await mirror_state(self._services, file)
        except OSError as error:
            reason = f"{file.name} cannot be read ({error.strerror}); the database is intact"
            reason = f"{reason}. Make it readable, or move it away and run `cuebook audit mirror --rebuild`."
            return structs.replace(verdict, ok=False, reason=reason)
        if not state.is_ours:
            return await self._not_cut(verdict, file)
        if state.missing_from:
            what = "emptied" if await asyncio.to_thread(file.exists) else "removed"
            what = f"the records from {state.missing_from} on were removed" if state.last else f"the file was {what}"
            reason = f"in {file.name}: {what}; the database is intact. Run `cuebook audit mirror --rebuild`."
            return structs.replace(verdict, ok=False, first_bad=state.missing_from, reason=reason)
        if not state.last:  # nothing written yet
            return verdict
        covering = [each for each in checkpoints if each.size <= state.last]  # others are not yet written
        mirrored = await self._verify_file(file, covering, is_own=True)
        if mirrored.ok:
            return verdict
        reason = f"in {file.name}: {mirrored.reason}; the database is intact. Run `cuebook audit mirror --rebuild`."
        return structs.replace(verdict, ok=False, first_bad=mirrored.first_bad, reason=reason)

    async def _not_cut(self, verdict: Verdict, file: Path) -> Verdict:
        """Return the verdict, or a negative one if the mirror has records that the table lacks."""
        hashes = {record.seq: record.hash async for record in self.export()}
        lost = await asyncio.to_thread(_lost, file, hashes)
        if not lost:
            return verdict
        reason = (
            f"record {lost} is in {file.name}, not in the database: it was truncated or an older copy restored. "
            "Keep the file."
        )
        return structs.replace(verdict, ok=False, first_bad=lost, reason=reason)

    @operation(
        "",
        role="admin",
        cli="audit mirror",
        examples=("cuebook audit mirror", "cuebook audit mirror --rebuild"),
    )
    async def mirror(
        self,
        *,
        rebuild: Annotated[bool, Meta(description="Write the file again from the database, and record that.")] = False,
    ) -> MirrorReport:
        """Show whether the mirror file has all records that it had. The command exits with 1 if not.

        Raises BackendError for a file of another project, InvalidInput without a mirror.
        """
        if rebuild:
            return await rebuild_mirror(self._services)
        file = self._services.settings.audit_mirror
        if file is None:
            msg = "There is no audit mirror: the database is in memory."
            raise InvalidInput(msg, where="store.url")
        try:
            state = await mirror_state(self._services, file)
        except OSError as error:
            msg = f"Audit mirror {file.name!r} cannot be read ({error.strerror}). Make it readable, or move it"
            raise BackendError(f"{msg} away and run `cuebook audit mirror --rebuild`.") from error
        return MirrorReport(file=str(file), records=state.last, missing_from=state.missing_from or None, rebuilt=False)

    async def verify_mirror(self, file: Path, *, kept: Iterable[Checkpoint] = ()) -> Verdict:
        """Verify a mirror file or an export in the same way. Raises OSError, and InvalidInput for any other file."""
        return await self._verify_file(file, [*await self.checkpoints(), *kept])

    async def _verify_file(self, file: Path, checkpoints: Sequence[Checkpoint], *, is_own: bool = False) -> Verdict:
        """Verify a file. The own mirror may end in a line that is being written, and lag behind erasures."""
        key = verifying_key(self._services.settings.key)

        def check() -> Verdict:
            with open(file, "rb", opener=open_regular) as lines:
                readable = (not isinstance(each, InvalidInput) for each in read_mirror(lines))
                if not any(readable) and lines.tell():
                    msg = (
                        f"Not an audit log: {str(file)!r}. Pass a mirror file or the output of `cuebook audit export`."
                    )
                    raise InvalidInput(msg, where="mirror")
                lines.seek(0)
                whole = (line for line in lines if line.endswith(b"\n") or not is_own)
                return verify(read_mirror(whole), checkpoints, public_key=key, erasures=not is_own)

        return await asyncio.to_thread(check)

    @operation(
        "",
        role="admin",
        cli="audit accept",
        examples=("cuebook audit accept",),
    )
    async def accept(self) -> AcceptedRows:
        """Seal all documents and memories as they are now, and record how many were altered.

        Run it after you changed rows in the database by hand, or copied it without its key.
        """
        timestamp = str(Time(self._services.clock.now()))
        report = await self._services.store.seals.accept(Scope(), timestamp=timestamp)
        return AcceptedRows(rows=report.rows, altered=report.found)

    @operation(
        "POST /api/audit/{seq}/replay",
        role="admin",
        cli="audit replay",
        examples=("cuebook audit replay 2", "cuebook audit replay 2 --json"),
    )
    async def replay(self, seq: Seq) -> ReplayedRender:
        """Render a record's prompt again from the same version and values, and compare. Stores nothing.

        The command exits with 1 if it differs or the version is deleted. Raises NotFound, InvalidInput.
        """
        record = await self._record(seq)
        if record.event != "render":
            msg = f"Cannot replay record {seq}: {record.event} has no prompt. Choose a render."
            raise InvalidInput(msg, where="seq")
        committed_text = record.texts.get("interpolated_text")
        if committed_text is None:
            return ReplayedRender(seq=seq, verdict="erased")
        context = record.texts.get("input_context")
        values: dict[str, Any] = json.loads(context.text) if context else {}
        versions = await self._services.prompts.versions(Scope(), record.prompt_id)
        versions += [each for each in (self._services.settings.builtin.get(record.prompt_id),) if each is not None]
        versions += own_versions(self._services, record.prompt_id)
        version = next((each for each in versions if each.digest == record.digest), None)
        if version is None:
            return ReplayedRender(seq=seq, verdict="gone")
        resolved = await resolved_of(self._services, version)
        fields = coerce(resolved.params, values)
        text = render(text_of(resolved), fields, engine=resolved.version.engine, declared=set(fields))
        same = self._services.writer.clean(text) == committed_text.text
        return ReplayedRender(seq=seq, verdict="identical" if same else "changed", text=text)


def _lost(file: Path, hashes: Mapping[int, str]) -> int:
    """Return the first record that continues the table's chain in the mirror but not in the table; 0 for none."""
    before = ""
    try:
        with open(file, "rb", opener=open_regular) as lines:
            for record in read_mirror(lines):
                if isinstance(record, InvalidInput):  # not a record
                    return 0
                if hashes.get(record.seq) == record.hash:
                    before = record.hash
                else:
                    return record.seq if before and record.prev == before else 0
    except OSError:  # no mirror, or unreadable
        return 0
    return 0


def checkpoints_of(document: bytes | str) -> Sequence[Checkpoint]:
    """Parse checkpoints stored elsewhere: a list of them, or `{"items": [...]}`. Raises InvalidInput."""
    try:
        result = msgspec.json.decode(document)
        listed = result.get("items") if isinstance(result, dict) else result
        return msgspec.convert(listed, list[Checkpoint])
    except (ValueError, RecursionError) as error:
        msg = f"checkpoints: {error}. Pass the output of `cuebook audit checkpoints --json`."
        raise InvalidInput(msg, where="checkpoints") from error


def mirror_lines(records: Iterable[Record]) -> Iterator[str]:
    """Yield records as lines of the mirror file, which anyone can verify."""
    return map(mirror_line, records)
