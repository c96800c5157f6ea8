"""The audit log's public API (`cue.audit`): search records, verify integrity, export, and replay renders."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from cuebook.engine.core.instructions import own_versions
from cuebook.engine.core.prompt_reading import resolved_of
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.audit_mirror import first_cut, keep_mirror, verifying_key
from cuebook.errors import BackendError, InvalidInput, NotFound
from cuebook.prompts.chain import read_mirror, verify
from cuebook.prompts.inherit import text_of
from cuebook.prompts.params import coerce
from cuebook.prompts.template import render
from cuebook.records.audit import Checkpoint, Record, Verdict
from cuebook.records.memory import Scope

_PAGE = 1000
#: Number of records scanned per search.
LOOKED_AT = 5_000
#: Greater than every seq.
HIGHEST = 2**53 - 1


class ReplayedRender(Struct, frozen=True, kw_only=True):
    """A record's prompt re-rendered. `changed`: an ancestor that it follows has changed since."""

    seq: int
    verdict: Literal["identical", "changed", "erased", "gone"]
    text: str = ""


class FoundRecords(Struct, frozen=True, kw_only=True):
    """Matching records, newest first. `before`: where the next search continues, None if all were searched."""

    records: tuple[Record, ...]
    before: int | None = None


class Audit:
    """The audit log of a project."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def records(self, *, after: int = 0, limit: int = 50) -> list[Record]:
        """Return records after a seq, oldest first. Raises InvalidInput."""
        if not 1 <= limit <= _PAGE or not 0 <= after <= HIGHEST:
            msg = f"limit: {limit}, after: {after}. The limit must be 1 to {_PAGE}, after a record's number."
            raise InvalidInput(msg, where="limit")
        return await self._services.audit.records(Scope(), after=after, limit=limit)

    async def get(self, seq: int) -> Record:
        """Return a record. Raises NotFound."""
        records = await self._services.audit.records(Scope(), after=seq - 1, limit=1) if 0 < seq <= HIGHEST else []
        if not records or records[0].seq != seq:
            msg = f"Unknown audit record {seq}. Show the newest with `cuebook audit tail`."
            raise NotFound(msg)
        return records[0]

    async def tail(self, last: int = 10) -> list[Record]:
        """Return the newest records, oldest first."""
        newest, _ = await self._services.audit.last(Scope())
        return await self.records(after=max(0, newest - last), limit=max(1, last))

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
        records: list[Record] = []
        while end > stop:
            start = max(stop, end - _PAGE)
            page = await self._services.audit.records(Scope(), after=start - 1, limit=end - start)
            for each in reversed(page):
                if all(getattr(each, name) == value for name, value in asked.items()):
                    records.append(each)
                if len(records) == limit:
                    return FoundRecords(records=tuple(records), before=each.seq if each.seq > 1 else None)
            end = start
        return FoundRecords(records=tuple(records), before=end if end > 1 else None)

    async def export(self) -> AsyncIterator[Record]:
        """Yield all records, oldest first."""
        after = 0
        while page := await self._services.audit.records(Scope(), after=after, limit=_PAGE):
            for record in page:
                yield record
            after = page[-1].seq

    async def checkpoints(self) -> list[Checkpoint]:
        """Return the signed checkpoints in order. Copies stored elsewhere reveal tampering that this store cannot."""
        return await self._services.audit.checkpoints(Scope())

    async def verify(self, *, kept: Iterable[Checkpoint] = ()) -> Verdict:
        """Verify the hash chain against its signed checkpoints and those `kept` elsewhere, then the mirror file.

        A mirror without records that a checkpoint covers was truncated: this is reported before they are written again.
        """
        kept = tuple(kept)
        verdict = await self._verify(kept)
        file = self._services.settings.audit_mirror
        if not verdict.ok or file is None:
            return verdict
        if cut := await first_cut(self._services):
            reason = (
                f"in {file.name}: the records from {cut} on are missing, which a signed checkpoint covers: it was"
                " truncated; the database is intact, and the file is completed from it now."
            )
            return structs.replace(verdict, ok=False, first_bad=cut, reason=reason)
        try:
            await keep_mirror(self._services)
            mirrored = await self.verify_mirror(file, kept=kept)
        except (BackendError, FileNotFoundError):  # nothing written yet, not writable, or of another project
            return await self._not_cut(verdict, file)
        if mirrored.ok:
            return verdict
        reason = f"in {file.name}: {mirrored.reason}; the database is intact. Recreate the file by audit export."
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

    async def _verify(self, kept: Iterable[Checkpoint]) -> Verdict:
        checkpoints = [
            *await self.checkpoints(),
            *kept,
        ]  # loaded first: one signed meanwhile would cover records not yet read
        records = [record async for record in self.export()]
        return await asyncio.to_thread(
            verify, records, checkpoints, public_key=verifying_key(self._services.settings.key)
        )

    async def verify_mirror(self, file: Path, *, kept: Iterable[Checkpoint] = ()) -> Verdict:
        """Verify a mirror file or an export in the same way. Raises OSError."""
        checkpoints = [*await self.checkpoints(), *kept]
        key = verifying_key(self._services.settings.key)

        def check() -> Verdict:
            with file.open("rb") as lines:
                return verify(read_mirror(lines), checkpoints, public_key=key)

        return await asyncio.to_thread(check)

    async def replay(self, seq: int) -> ReplayedRender:
        """Render a record's prompt again from the same version and values. Raises NotFound, InvalidInput."""
        record = await self.get(seq)
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
        text = render(text_of(resolved), fields, engine=resolved.engine, declared=set(fields))
        same = self._services.writer.clean(text) == committed_text.text
        return ReplayedRender(seq=seq, verdict="identical" if same else "changed", text=text)


def _lost(file: Path, hashes: Mapping[int, str]) -> int:
    """Return the first record that continues the table's chain in the mirror but not in the table; 0 for none."""
    before = ""
    try:
        with file.open("rb") as lines:
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
