"""Background job for the audit log: append to its mirror file and sign checkpoints. No turn waits for either.

The table is the source of truth. Each machine has its own file. One process at a time locks it and appends the missing
records. A line that a crash cut off is written again. A file that ends with a record unknown to the table stays as it
is: another project writes it, or the table was truncated. A file that lacks records which it had stays as it is too,
until somebody rebuilds it.

Each tenant has its own log. Only that of the default tenant has a mirror.

Beside the checkpoints in the table, the key file has the last one of each tenant, and the last record that the mirror
had then: who can write to the database only can remove neither.

The table counts its erasures. A file beside the mirror contains the count up to which the mirror is clean, so each
machine cleans its own mirror after an erasure by any of them.
"""

import asyncio
import hashlib
import logging
import os
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from shutil import copymode
from typing import BinaryIO

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.job import DueQuery, DueWork, Job
from cuebook.errors import BackendError, InvalidInput
from cuebook.prompts.chain import erase, mirror_line, parse_mirror, public_key_of, sign
from cuebook.providers.clock_and_ids import read_note, write_note
from cuebook.providers.regular_files import open_regular, read_regular
from cuebook.records.answer import Time
from cuebook.records.audit import Checkpoint, MirrorReport, Record
from cuebook.records.memory import DEFAULT_TENANT, Scope
from cuebook.records.prompt import Version

if sys.platform != "win32":
    import fcntl

log = logging.getLogger("cuebook.audit")

#: A checkpoint is signed after this many new records or this many seconds.
RECORDS, SECONDS = 1000, 60.0
_PAGE = 1000
_BLOCK = 1 << 20
#: Attempts to lock the file at shutdown, 50 ms apart.
_PATIENCE = 20


def signing_key(key: bytes) -> bytes:
    """Return the Ed25519 private key of a project, derived from its key file."""
    return hashlib.blake2b(key, person=b"cuebook-audit", digest_size=32).digest()


def verifying_key(key: bytes) -> bytes:
    """Return the public key as bytes."""
    return public_key_of(signing_key(key))


class MirrorProgress(Struct):
    """State of the mirror in this process: last seq, size and erasures at the last write, and the last checkpoint."""

    end: tuple[int, int, int] | None = None
    signed: tuple[int, float] | None = None
    tenants_signed: float | None = None  # when the logs of other tenants were last looked at
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    writing: set[asyncio.Task[bool]] = field(default_factory=set)


async def _due(services: Services, _: DueQuery) -> list[DueWork[int]]:
    """Return the newest record if the file may lack records or contain erased texts, or if a checkpoint is due."""
    file, progress = services.settings.audit_mirror, services.caches.progress_of(MirrorProgress)
    async with progress.lock:
        last, _root = await services.audit.last(Scope())
        erasures = await services.audit.erasures(Scope())
        written = file is None or progress.end == (last, _size(file), erasures)
        unsigned = await _is_unsigned(services, last)
        if not unsigned and (written or not last) and not await _unsigned_tenants(services):
            return []
        count = 0 if file is None or written else await _missing(file, last, erasures)
        return [DueWork("", "the audit log", last, count)]


async def _run(services: Services, _: Scope, __: int) -> bool:
    return await keep_mirror(services)


AUDIT_MIRROR = Job(name="audit", due=_due, run=_run, is_local=True)


async def keep_mirror(services: Services, *, closing: bool = False) -> bool:
    """Sign due checkpoints and append missing records. Return False while another process writes the file.

    With `closing`, sign any unsigned records and never raise. Otherwise raises BackendError if the file cannot be
    written: the table has all records, and the next run retries.
    """
    # The caller may be canceled in the middle of a line: finish writing the line anyway, and keep track of the task.
    writing = services.caches.progress_of(MirrorProgress).writing
    task = asyncio.create_task(_keep(services, Scope(), closing=closing))
    writing.add(task)
    task.add_done_callback(writing.discard)
    task.add_done_callback(lambda task: task.cancelled() or task.exception())  # the caller gets the error
    try:
        return await asyncio.shield(task)
    except BackendError as error:
        if not closing:
            raise
        log.warning("%s", error)
        return False


async def _keep(services: Services, scope: Scope, *, closing: bool) -> bool:
    file, progress = services.settings.audit_mirror, services.caches.progress_of(MirrorProgress)
    async with progress.lock:
        await _sign_tenants(services, closing=closing)
        last, root = await services.audit.last(scope)
        if await _is_unsigned(services, last, closing=closing):
            await services.store.seals.record(scope, timestamp=str(Time(services.clock.now())))
            last, root = await services.audit.last(scope)
        if not last:
            return False
        try:
            erasures = await services.audit.erasures(scope)
            if file is not None and progress.end != (last, _size(file), erasures):
                if not file.exists():
                    await _check_complete(services, file, 0)
                tries = _PATIENCE if closing else 1
                if await _erased(services, scope, file, erasures, tries):
                    progress.end = await _appended(services, scope, file, erasures, tries)
        except OSError as error:
            name = file.name if file else ""
            raise BackendError(f"Cannot write audit mirror {name!r}: {error.strerror}.") from error
        finally:  # after the file: what a checkpoint covers and the file lacks was removed from the file
            if await _is_unsigned(services, last, closing=closing):
                await _sign(services, scope, last, root)
        return file is None or (progress.end is not None and progress.end[0] >= last)


class Anchor(Struct, frozen=True):
    """The last checkpoint of each tenant, as the key file has it, and the last record that a mirror had then."""

    checkpoints: Mapping[str, Checkpoint] = {}
    mirror: str = ""  # its path: another machine may use the same key file
    mirrored: int = 0


def read_anchor(services: Services) -> Anchor:
    """Return the last checkpoints in the key file. Blocks."""
    file = services.settings.key_file
    note = read_note(file) if file is not None else b""
    try:
        return msgspec.json.decode(note, type=Anchor) if note else Anchor()
    except (msgspec.MsgspecError, UnicodeDecodeError):  # torn: a process died while it wrote it
        return Anchor()


class MirrorState(Struct, frozen=True):
    """A mirror as it is now: its last record, the first one that it had and lacks (0: none), whether it is ours."""

    last: int
    missing_from: int
    is_ours: bool


async def mirror_state(services: Services, file: Path) -> MirrorState:
    """Return the state of a mirror. Raises OSError if it cannot be read."""
    try:
        record = await asyncio.to_thread(_last_in, file)
    except FileNotFoundError:
        record = None
    seq, is_ours = record.seq if record else 0, record is None or await _is_ours(services, Scope(), record)
    return MirrorState(seq, await asyncio.to_thread(_missing_from, services, file, seq), is_ours)


async def _check_complete(services: Services, file: Path, seq: int) -> None:
    """Raise BackendError if a mirror whose last record is this one has had later ones."""
    if missing := await asyncio.to_thread(_missing_from, services, file, seq):
        msg = f"Audit mirror {str(file)!r} lacks the records from {missing} on, which it had: somebody removed them."
        raise BackendError(f"{msg} Restore the file, or run `cuebook audit mirror --rebuild`.")


def _missing_from(services: Services, file: Path, seq: int) -> int:
    """Return the first record after a mirror's last one that it had, 0 for none."""
    anchor = read_anchor(services)
    had = anchor.mirrored if anchor.mirror == str(file.resolve()) else 0
    return seq + 1 if had > seq else 0


async def rebuild_mirror(services: Services) -> MirrorReport:
    """Write the mirror again from the table, and record what it and the key file had.

    From then on, the table as it is now counts as complete. Raises BackendError, InvalidInput without a mirror.
    """
    file, progress = services.settings.audit_mirror, services.caches.progress_of(MirrorProgress)
    if file is None:
        msg = "A database in memory has no audit mirror. Set store.url to a file."
        raise InvalidInput(msg, where="store.url")
    async with progress.lock:
        mirror = await asyncio.to_thread(_open_locked, file, _PATIENCE)
        if mirror is None:
            msg = f"Another process writes the audit mirror {file.name!r}. Try again."
            raise BackendError(msg, retryable=True)
        with mirror:
            record, _ = await asyncio.to_thread(_last, mirror)
            if record is not None and not await _is_ours(services, Scope(), record):
                raise _unknown_record(file)
            anchor = await asyncio.to_thread(read_anchor, services)
            had = {"records": record.seq if record else 0, "sha256": await asyncio.to_thread(_digest, mirror)}
            newest = anchor.checkpoints.get(DEFAULT_TENANT)
            had |= {"signed": newest.size, "root": newest.root} if newest else {}
            about = Version(slug="audit-mirror", semver="")
            await services.audit.append(Scope(), [receipt(services, about, "mirror-rebuild", selection=had)])
            erasures = await services.audit.erasures(Scope())
            mirror.truncate(0)
            progress.end = await _append_after(services, Scope(), mirror, 0, erasures)
        last, root = await services.audit.last(Scope())
        await _sign(services, Scope(), last, root, anew=True)
    return MirrorReport(file=str(file), records=progress.end[0], missing_from=None, rebuilt=True)


async def erase_mirror(services: Services) -> bool:
    """Remove erased texts from the file. Return False while another process writes the file.

    The hash chain stays valid, because commitments and hashes do not change. Raises BackendError.
    """
    file, progress = services.settings.audit_mirror, services.caches.progress_of(MirrorProgress)
    if file is None or not file.exists():
        return True
    async with progress.lock:
        try:
            return await _erased(services, Scope(), file, await services.audit.erasures(Scope()), _PATIENCE)
        except OSError as error:
            raise BackendError(f"Cannot write audit mirror {file.name!r}: {error.strerror}.") from error


async def _erased(services: Services, scope: Scope, file: Path, erasures: int, tries: int) -> bool:
    """Remove erased texts from the file, unless it is clean. Return False while another process writes the file."""
    if _erasures_of(file) == erasures:
        return True
    mirror = await asyncio.to_thread(_open_locked, file, tries)
    if mirror is None:
        return False
    with mirror:
        erased: set[str] = set()
        after = 0
        while records := await services.audit.records(scope, after=after, limit=_PAGE):
            erased.update(  # their commitments remain
                each.hash
                for each in records
                if not each.texts and (each.input_context or each.interpolated_text or each.output_summary)
            )
            after = records[-1].seq
        await asyncio.to_thread(rewrite, file, erased)
        await asyncio.to_thread(_mark, file, erasures)
    return True


def _mark_of(file: Path) -> Path:
    """Return the file with the number of erasures up to which a mirror is clean."""
    return file.with_suffix(".erasures")


def _mark(file: Path, erasures: int) -> None:
    with open(_mark_of(file), "wb", opener=open_regular) as mark:
        mark.write(str(erasures).encode())


def _erasures_of(file: Path) -> int:
    try:
        return int(read_regular(_mark_of(file)))
    except (OSError, ValueError):
        return 0


async def _missing(file: Path, last: int, erasures: int) -> int:
    """Return the number of records missing from the file, all if it cannot be read, and 1 for erased texts in it."""
    try:
        record = await asyncio.to_thread(_last_in, file)
    except OSError:
        return last
    return max(0, last - (record.seq if record else 0)) + (_erasures_of(file) != erasures)


async def _appended(
    services: Services, scope: Scope, file: Path, erasures: int, tries: int
) -> tuple[int, int, int] | None:
    """Append the missing records under the file lock. Return the file's last seq and size, and the erasures."""
    mirror = await asyncio.to_thread(_open_locked, file, tries)
    if mirror is None:  # another process holds the lock; the next run appends what is missing
        return services.caches.progress_of(MirrorProgress).end
    with mirror:
        record, end = await asyncio.to_thread(_last, mirror)
        seq = record.seq if record else 0
        if record is not None and not await _is_ours(services, scope, record):
            raise _unknown_record(file)
        await _check_complete(services, file, seq)
        mirror.truncate(end)  # without an incomplete last line
        return await _append_after(services, scope, mirror, seq, erasures)


async def _append_after(
    services: Services, scope: Scope, mirror: BinaryIO, seq: int, erasures: int
) -> tuple[int, int, int]:
    """Append the records after one to an open mirror. Return its last seq and size, and the erasures."""
    while records := await services.audit.records(scope, after=seq, limit=_PAGE):
        await asyncio.to_thread(_append, mirror, records)
        seq = records[-1].seq
    return seq, mirror.tell(), erasures


def _unknown_record(file: Path) -> BackendError:
    return BackendError(
        f"Audit mirror {str(file)!r} ends with a record unknown to the table: another project writes it, "
        "or the table was truncated. Move the file elsewhere and keep it, and run `cuebook audit mirror --rebuild`."
    )


def _digest(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    file.seek(0)
    while block := file.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()


async def _is_unsigned(services: Services, last: int, *, closing: bool = False) -> bool:
    """Return whether a checkpoint is due: after RECORDS records or SECONDS seconds, or at once when closing.

    Changes of documents and memories count as records: a record of them precedes the checkpoint.
    """
    now, progress = services.clock.now(), services.caches.progress_of(MirrorProgress)
    if progress.signed is None:
        checkpoints = await services.audit.checkpoints(Scope())
        progress.signed = (checkpoints[-1].size if checkpoints else 0, now)
    size, at = progress.signed
    count = last - size + await services.store.seals.unrecorded(Scope())
    return count > 0 and (closing or count >= RECORDS or now - at >= SECONDS)


async def _sign(services: Services, scope: Scope, last: int, root: str, *, anew: bool = False) -> None:
    checkpoint = await _checkpoint(services, scope, last, root)
    services.caches.progress_of(MirrorProgress).signed = (last, services.clock.now())
    await _keep_anchor(services, {DEFAULT_TENANT: checkpoint}, anew=anew)


async def _checkpoint(services: Services, scope: Scope, last: int, root: str) -> Checkpoint:
    """Sign a checkpoint and store it in the table."""
    now, key = services.clock.now(), services.settings.key
    bare = Checkpoint(origin=verifying_key(key).hex(), size=last, root=root, time=str(Time(now)))
    checkpoint = sign(bare, signing_key(key))
    await services.audit.keep_checkpoint(scope, checkpoint)
    return checkpoint


async def _unsigned_tenants(services: Services, *, closing: bool = False) -> list[str]:
    """Return the other tenants whose logs need a checkpoint: every SECONDS seconds, or at once when closing."""
    now, progress = services.clock.now(), services.caches.progress_of(MirrorProgress)
    if progress.tenants_signed is None:
        progress.tenants_signed = now
    if not closing and now - progress.tenants_signed < SECONDS:
        return []
    heads = [each for each in await services.audit.heads() if each.tenant != DEFAULT_TENANT]
    result = [each.tenant for each in heads if each.last > each.signed or each.unrecorded > 0]
    if services.settings.key_file is not None:  # it lacks those of a rebuilt mirror
        known = (await asyncio.to_thread(read_anchor, services)).checkpoints
        result += [each.tenant for each in heads if each.last == each.signed > 0 and each.tenant not in known]
    if not result:
        progress.tenants_signed = now
    return result


async def _sign_tenants(services: Services, *, closing: bool) -> None:
    """Sign the logs of the other tenants that need it."""
    checkpoints = {}
    for tenant in await _unsigned_tenants(services, closing=closing):
        scope = Scope(tenant)
        await services.store.seals.record(scope, timestamp=str(Time(services.clock.now())))
        last, root = await services.audit.last(scope)
        checkpoints[tenant] = await _checkpoint(services, scope, last, root)
    if checkpoints:
        services.caches.progress_of(MirrorProgress).tenants_signed = services.clock.now()
        await _keep_anchor(services, checkpoints, anew=False)


async def _keep_anchor(services: Services, checkpoints: Mapping[str, Checkpoint], *, anew: bool) -> None:
    """Store checkpoints in the key file, unless the table lacks the record under the one there, or with `anew`.

    With `anew`, they replace those of all tenants. A key file that cannot be written stays as it is.
    """
    file, mirror, progress = (
        services.settings.key_file,
        services.settings.audit_mirror,
        services.caches.progress_of(MirrorProgress),
    )
    before = await asyncio.to_thread(read_anchor, services)
    if file is None:
        return
    anchor = Anchor(checkpoints, str(mirror.resolve()) if mirror else "", progress.end[0] if progress.end else 0)
    if not anew:
        newer = {tenant: each for tenant, each in checkpoints.items() if await _follows(services, tenant, before, each)}
        if not newer:
            return
        anchor = replace(anchor, checkpoints={**before.checkpoints, **newer})
        if before.mirror == anchor.mirror:
            anchor = replace(anchor, mirrored=max(anchor.mirrored, before.mirrored))
    with suppress(OSError):
        await asyncio.to_thread(write_note, file, msgspec.json.encode(anchor))


async def _follows(services: Services, tenant: str, before: Anchor, checkpoint: Checkpoint) -> bool:
    """Return whether a log with this checkpoint still has the record under the one in the key file."""
    old = before.checkpoints.get(tenant)
    if old is None:
        return True
    found = await services.audit.records(Scope(tenant), after=old.size - 1, limit=1)
    return old.size <= checkpoint.size and bool(found) and found[0].hash == old.root


async def _is_ours(services: Services, scope: Scope, record: Record) -> bool:
    """Return whether the table contains the last record of a mirror."""
    records = await services.audit.records(scope, after=record.seq - 1, limit=1)
    return bool(records) and (records[0].seq, records[0].hash) == (record.seq, record.hash)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return -1


def _open_locked(file: Path, tries: int) -> BinaryIO | None:
    """Open and lock a mirror, or return None if another process has the lock. Without file locks, only open it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    for again in range(tries - 1, -1, -1):
        mirror = os.fdopen(open_regular(file, os.O_RDWR | os.O_CREAT | os.O_APPEND), "a+b")
        try:
            if sys.platform != "win32":
                fcntl.flock(mirror, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05 if again else 0.0)
        except OSError:
            return mirror
        else:
            if _is_at(mirror, file):
                return mirror
        mirror.close()
    return None


def _is_at(mirror: BinaryIO, file: Path) -> bool:
    """Return whether an open file still has its path: an erasure replaces the file."""
    try:
        return sys.platform == "win32" or os.path.samestat(os.fstat(mirror.fileno()), file.stat())
    except FileNotFoundError:
        return False


def _last_in(file: Path) -> Record | None:
    with open(file, "rb", opener=open_regular) as mirror:
        return _last(mirror)[0]


def _last(file: BinaryIO) -> tuple[Record | None, int]:
    """Return the last readable record of a mirror, or None, and the offset at which its last complete line ends."""
    tail, start = b"", file.seek(0, 2)
    while start > 0:
        step = min(_BLOCK, start)
        start -= step
        file.seek(start)
        tail = file.read(step) + tail
        whole = tail.rfind(b"\n") + 1
        lines = tail[:whole].splitlines()
        readable = (_read(line) for line in reversed(lines[1:] if start else lines))  # the first line may be incomplete
        record = next((each for each in readable if each is not None), None)
        if record is not None or not start:
            return record, start + whole
    return None, 0


def _read(line: bytes) -> Record | None:
    try:
        return parse_mirror(line)
    except (InvalidInput, msgspec.MsgspecError):
        return None


def _append(file: BinaryIO, records: list[Record]) -> None:
    file.seek(0, 2)
    file.writelines(mirror_line(each).encode() for each in records)
    file.flush()
    os.fsync(file.fileno())


# ---- Erasure --------------------------------------------------------------------------------------------------------


def rewrite(file: Path, erased: Collection[str]) -> bool:
    """Remove the texts of records with these hashes from the file. Return whether there were any.

    The file is replaced atomically, and the bytes of the old file are overwritten. Raises OSError.
    """
    beside = file.with_name(f"{file.name}.new")  # overwrite what a killed process left
    changed = False
    with open(file, "r+b", opener=open_regular) as old:
        with open(beside, "wb", opener=open_regular) as new:
            for line in old:
                record = _read(line) if line.strip() else None
                if record is not None and record.texts and record.hash in erased:
                    new.write(mirror_line(erase(record)).encode())
                    changed = True
                else:
                    new.write(line)
            new.flush()
            os.fsync(new.fileno())
        if not changed:
            beside.unlink()
            return False
        copymode(file, beside)
        beside.replace(file)
        _keep_folder(file.parent)
        _blank(old.fileno())
    return True


def _blank(file: int) -> None:
    """Overwrite a file that no process can open any more."""
    left = os.lseek(file, 0, os.SEEK_END)
    os.lseek(file, 0, os.SEEK_SET)
    while left > 0:
        left -= os.write(file, bytes(min(left, _BLOCK)))
    os.fsync(file)


def _keep_folder(folder: Path) -> None:
    with suppress(OSError):  # not every system can open directories
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
