"""Back up a project to one file while it is in use, and restore it: database, settings, prompts, personas and keys.

A restore extracts and checks everything in a folder beside the target, repeats the erasures that the backup does not
have, and renames that folder to the target in the end.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from cuebook.app.cuebook import Cuebook
from cuebook.app.forgetting import read_receipt
from cuebook.app.reports.prices import FILE as PRICES
from cuebook.app.setup.archive import Manifest, exists, read_archive, write_archive
from cuebook.app.setup.compose import check_key_file, database_of, file_beside_database, key_file_of
from cuebook.app.setup.project_files import FILE, load_config
from cuebook.config import SERVERS, Config, build
from cuebook.engine.core.audit_records import receipt as audit_record
from cuebook.engine.jobs import erasure
from cuebook.engine.jobs.audit_mirror import verifying_key
from cuebook.errors import BackendError, Conflict, InvalidInput, NotFound
from cuebook.providers.clock_and_ids import SystemClock
from cuebook.records.answer import Answer, Time
from cuebook.records.audit import EXPORT, plain_record
from cuebook.records.erasure import Receipt, Target, salted
from cuebook.records.expression import counted
from cuebook.records.memory import DEFAULT_TENANT, Scope
from cuebook.storage.database import postgres_dump
from cuebook.storage.database.sqlite_files import MEMORY, folder_for_copies, rows_in, snapshot
from cuebook.storage.store import open_store

#: Called with the pages copied and their total.
Progress = Callable[[int, int], None]
#: Where the archive has files that the project has elsewhere, and the dump of a server's database.
_HOME: Final = ".cuebook"
_DUMP: Final = f"{_HOME}/database.dump"
#: Endings of the files beside the database that are not copied from elsewhere: what was pushed and synced.
_STATE: Final = (".prompts", ".sync")
#: Settings with which a restored project is opened: it calls no model and writes nothing outside of its folder.
_QUIET: Final = {
    "model.provider": "none", "work.model": "none", "embedder.provider": "none", "upstream.url": "",
    "prompts.autopush": False, "logs.prompts": "", "memory.sink": "", "memory.recall_model": "",
    "experience.selection": "off",
}  # fmt: skip


class BackupReport(Answer, frozen=True, kw_only=True):
    """A finished backup. `outside` are settings whose files are outside of the project, which it lacks."""

    file: str
    created_at: str
    bytes: int
    files: int
    encrypted: bool
    with_keys: bool
    outside: tuple[str, ...]

    def __str__(self) -> str:
        size = f"{self.bytes / 1e6:,.1f} MB{', encrypted' if self.encrypted else ''}"
        return f"wrote {self.file} ({counted(self.files, 'file')}, {size})"


class RepeatedErasure(Struct, frozen=True, kw_only=True, rename="camel"):
    """A repeated erasure that came after the backup: its receipt, the new one, and how many rows it erased."""

    receipt_id: str
    kind: str
    repeated_id: str | None
    rows: int


class RestoreReport(Answer, frozen=True, kw_only=True):
    """A finished restore. `kept` is where the old project is, `unknown` are sentences on what could not be restored."""

    folder: str
    created_at: str
    kept: str | None
    erasures: tuple[RepeatedErasure, ...]
    revoked_keys: int
    unknown: tuple[str, ...]

    def lines(self) -> list[str]:
        """Return the lines to print."""
        lines = [f"restored the backup of {self.created_at} to {self.folder}"]
        lines += [f"the old project is in {self.kept}"] if self.kept else []
        for each in self.erasures:
            erased = counted(each.rows, "row") if each.rows else "nothing: the backup does not have it"
            lines.append(f"repeated erasure {each.receipt_id} ({each.kind}): {erased}")
        if self.revoked_keys:
            lines.append(f"revoked {counted(self.revoked_keys, 'API key')} again")
        return [*lines, *(f"note: {each}" for each in self.unknown)]


# ---- back up --------------------------------------------------------------------------------------------------------


def back_up(
    config: Config,
    target: Path,
    *,
    settings: Path | None = None,
    with_keys: bool = True,
    passphrase: str = "",
    progress: Progress = lambda *_: None,
) -> BackupReport:
    """Write a backup of a project to a new file, while others use it. `settings` is its settings file. Blocks.

    Raises Conflict if the file exists, NotFound without a database, InvalidInput, BackendError.
    """
    database = _source(config)
    if target.exists():
        raise exists(target)
    on_server = database.startswith(SERVERS)
    key = key_file_of(config) if with_keys else None
    if with_keys:
        check_key_file(config)
    home = Path(config.folder) if on_server else Path(database).parent
    with folder_for_copies(home) as folder:
        outside: list[str] = []
        for name, file in _files(config, settings, outside).items():
            _copy(file, folder / name)
        key_name = _name(config, key) if key is not None and key.is_file() else ""
        if key is not None and key_name:
            _copy(key, folder / key_name)
        database_name = _DUMP if on_server else _name(config, Path(database))
        copied = folder / database_name
        copied.parent.mkdir(parents=True, exist_ok=True)
        created_at = str(Time(SystemClock().now()))
        asyncio.run(_record_export(database, target.name, created_at))
        if on_server:
            schema = postgres_dump.dump(database, copied, with_keys=with_keys)
        else:
            schema = snapshot(database, str(copied), with_keys=with_keys, progress=progress)
        manifest = write_archive(
            target,
            folder,
            Manifest(
                created_at=created_at,
                cuebook=version("cuebook"),
                database="postgresql" if on_server else "sqlite",
                database_file=database_name,
                schema=schema or 0,
                key_file=key_name,
                with_keys=with_keys,
                outside=tuple(outside),
            ),
            passphrase=passphrase,
        )
    return BackupReport(
        file=str(target), created_at=created_at, bytes=target.stat().st_size, files=len(manifest.files),
        encrypted=bool(passphrase), with_keys=with_keys, outside=manifest.outside,
    )  # fmt: skip


async def _record_export(database: str, name: str, created_at: str) -> None:
    """Record a backup in the audit log, so that the receipts of later erasures name it."""
    with suppress(BackendError):  # a read-only or full database can still be backed up
        store = await asyncio.to_thread(open_store, database)
        try:
            await store.audit.append(
                Scope(), [plain_record(EXPORT, "backup", timestamp=created_at, selection={"file": name})]
            )
        finally:
            await store.aclose()


def _source(config: Config) -> str:
    """Return the database to back up. Raises InvalidInput for one in memory, NotFound."""
    database = database_of(config)
    if database == MEMORY:
        msg = f"store.url: {MEMORY} cannot be backed up. Set it to a file."
        raise InvalidInput(msg, where="store.url")
    if not database.startswith(SERVERS) and not Path(database).is_file():
        msg = f"There is no database {database!r}. Choose another project with -C DIR."
        raise NotFound(msg)
    return database


def _files(config: Config, settings: Path | None, outside: list[str]) -> dict[str, Path]:
    """Return the files of a project without its database, by their names in an archive."""
    values, folder = config.settings, Path(config.folder)
    places = {
        "memory.presets": values.memory.presets, "prompts.folder": values.prompts.folder,
        "persona.folder": values.persona.folder, "experience.folder": values.experience.folder, PRICES: PRICES,
    }  # fmt: skip
    files = {FILE: settings or folder / FILE}
    for name, place in places.items():
        path = folder / place
        if not path.resolve().is_relative_to(folder.resolve()):
            outside.append(f"{name} = {place!r}")
            continue
        files |= {_name(config, each): each for each in (path, *sorted(path.rglob("*")))}
    database = file_beside_database(config, "")
    for ending in _STATE if database is not None else ():
        path = Path(f"{database}{ending}")
        files |= {_name(config, path, each): each for each in (path, *sorted(path.rglob("*")))}
    live = {_name(config, Path(f"{database}{ending}")) for ending in ("", "-wal", "-shm", ".key")}
    return {name: file for name, file in files.items() if file.is_file() and name not in live}


def _name(config: Config, path: Path, below: Path | None = None) -> str:
    """Return the name of a path in an archive: the one in the project, or one in its folder of hidden files."""
    folder = Path(config.folder).resolve()
    inside = path.absolute()
    inside = inside if inside.is_relative_to(folder) else inside.resolve()
    name = inside.relative_to(folder) if inside.is_relative_to(folder) else Path(_HOME, path.name)
    return (name if below is None else name / below.relative_to(path)).as_posix()


def _copy(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)


# ---- restore --------------------------------------------------------------------------------------------------------


def restore(
    file: Path,
    into: Path,
    *,
    replace: bool = False,
    receipts: Sequence[Receipt] = (),
    database: str = "",
    passphrase: str = "",
) -> RestoreReport:
    """Restore a backup into a folder, and repeat the erasures of `receipts` and of a replaced project. Blocks.

    `database` is the URL of the new PostgreSQL database, by default the one of the settings. Raises Conflict for a
    folder with files unless `replace` keeps it beside, InvalidInput for a damaged or foreign file, BackendError.
    """
    into = into.resolve()
    filled = into.exists() and (not into.is_dir() or any(into.iterdir()))
    if filled and not (replace and into.is_dir()):
        msg = (
            f"{str(into)!r} is not empty. Choose another folder with --into, or keep the old one beside with --replace."
        )
        raise Conflict(msg)
    into.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{into.name}-restore-", dir=into.parent))
    try:
        manifest = read_archive(file, folder, passphrase=passphrase)
        old = _old_project(into) if filled else None
        config, unknown = _prepare(folder, manifest, database, old)
        erasures, revoked = asyncio.run(_complete(config, manifest, receipts, old, unknown))
        kept = _swap(folder, into, keep=filled)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if old is None and manifest.with_keys:
        unknown.append(
            "Keys that were revoked since the backup are valid again. Revoke them with `cuebook key revoke`."
        )
    if old is None and not receipts:
        unknown.append("Erasures since the backup are not known here. Pass their receipts with --receipts.")
    return RestoreReport(
        folder=str(into), created_at=manifest.created_at, kept=kept, erasures=erasures, revoked_keys=revoked,
        unknown=(f"What was stored since {manifest.created_at} is not in the backup.", *unknown),
    )  # fmt: skip


async def _complete(
    config: Config, manifest: Manifest, receipts: Sequence[Receipt], old: Config | None, unknown: list[str]
) -> tuple[tuple[RepeatedErasure, ...], int]:
    """Check the restored database, repeat the erasures and revocations since the backup, and record all that."""
    async with Cuebook.open(config, worker=False) as cue:
        state = await cue.services.store.check(whole=True)
        if state["integrity"] != "ok":
            msg = f"The database of the backup is damaged: {state['integrity']}. Use another backup."
            raise InvalidInput(msg, where="file")
        erasures = [each async for each in _repeat_erasures(cue, receipts, old, unknown)]
        revoked = await _revoke_again(cue, old, unknown)
        context = {"createdAt": manifest.created_at, "erasures": len(erasures), "revokedKeys": revoked}
        await cue.services.audit.append(Scope(), [audit_record(cue.services, "backup", "restore", context=context)])
    return tuple(erasures), revoked


def receipts_in(document: bytes) -> list[Receipt]:
    """Parse the receipts in the output of `memory receipt list --json`, or one receipt. Raises InvalidInput."""
    try:
        listed = msgspec.json.decode(document)
        items = listed.get("items") if isinstance(listed, dict) else listed
        return [read_receipt(msgspec.json.encode(each)) for each in ([listed] if items is None else items)]
    except (ValueError, TypeError, RecursionError) as error:
        msg = f"receipts: {error}. Pass the output of `cuebook memory receipt list --json`."
        raise InvalidInput(msg, where="receipts") from error


def _old_project(folder: Path) -> Config | None:
    """Return the settings of the project that is replaced, if its database is a file."""
    with suppress(InvalidInput):
        config = _settings_in(folder)
        if Path(database_of(config)).is_file():
            return config
    return None


def _settings_in(folder: Path, arguments: Mapping[str, Any] | None = None) -> Config:
    """Load the settings of a project's folder, which may have no settings file."""
    if (folder / FILE).exists():
        return load_config(folder, arguments=arguments)
    return build(environment=os.environ, arguments=arguments, folder=str(folder))


def _prepare(folder: Path, manifest: Manifest, url: str, old: Config | None) -> tuple[Config, list[str]]:
    """Restore the database on a server, if it is one. Return the settings to open the project, and what to tell."""
    named = _settings_in(folder)
    unknown = [f"The backup does not have the files of {each}." for each in manifest.outside]
    key = manifest.key_file
    if not manifest.with_keys:
        unknown.append("The backup has no API keys. Create new ones with `cuebook key new`.")
        if old is not None and (file := key_file_of(old)) is not None and file.is_file():
            key = f"{manifest.database_file}.key"
            (folder / key).write_bytes(file.read_bytes().partition(b"\n")[0])  # the checkpoint is of the newer log
        else:
            unknown.append("It has no key: the audit log and old receipts verify only with that of the old project.")
    if manifest.database == "sqlite" and url:
        msg = "The backup is of a SQLite database. Restore it without --database, then use `cuebook db copy`."
        raise InvalidInput(msg, where="database")
    if manifest.database == "postgresql":
        url = url or database_of(named)
        if not url.startswith(SERVERS):
            msg = "The backup is of a PostgreSQL database. Name a new one with --database postgresql://…"
            raise InvalidInput(msg, where="database")
        postgres_dump.restore(url, folder / manifest.database_file)
        (folder / manifest.database_file).unlink()
        place = url
    else:
        place = str(folder / manifest.database_file)
    if database_of(named) != place:
        shown = "the one of --database" if manifest.database == "postgresql" else manifest.database_file
        unknown.append(f"The settings name another database. Set store.url to {shown}.")
    arguments: dict[str, Any] = _QUIET | {"store.url": place}
    if key:
        arguments["secrets.key_file"] = str(folder / key)
    return _settings_in(folder, arguments), unknown


async def _repeat_erasures(
    cue: Cuebook, receipts: Sequence[Receipt], old: Config | None, unknown: list[str]
) -> AsyncIterator[RepeatedErasure]:
    """Repeat the erasures of receipts that the database does not have."""
    for each in receipts:
        checked = cue.memory.verify_receipt(each)
        if not checked.ok:
            msg = f"Receipt {each.id!r} cannot be repeated: {checked.reason}. Remove it from the file. If it is of this"
            raise InvalidInput(f"{msg} project, use `cuebook memory forget` after the restore.", where="receipts")
    tenants = {DEFAULT_TENANT, *await cue.services.store.erasure.tenants()}
    due = [(_tenant_of(each, tenants), each) for each in receipts]
    unknown += [each async for each in _missing(cue, due)] if old is None else []
    due += _old_receipts(old, unknown) if old is not None else []
    own, done = verifying_key(cue.services.settings.key).hex(), set()
    for tenant, each in due:
        store = cue.services.store.erasure
        if each.id in done:
            continue
        done.add(each.id)
        if each.origin != own:
            unknown.append(f"Erasure {each.id} was not repeated: its receipt is of a project with another key.")
            continue
        if not tenant:
            yield RepeatedErasure(receipt_id=each.id, kind=each.kind, repeated_id=None, rows=0)
            continue
        with suppress(NotFound):
            await store.receipt(Scope(tenant), each.id)
            continue
        if each.kind == "item":
            unknown.append(f"Erasure {each.id} removed items of a conversation, which its receipt does not name.")
            continue
        names = [name for name in await store.names(Scope(tenant), each.kind) if salted(name, each.salt) in each.asked]
        new = None
        if names:
            target, tenanted = Target(each.kind, tuple(names)), cue.of(tenant).services
            new = await erasure.forget(tenanted, Scope(), target, reason=each.reason)
        rows_erased = sum(new.counts.values()) if new else 0
        yield RepeatedErasure(receipt_id=each.id, kind=each.kind, repeated_id=new.id if new else None, rows=rows_erased)
    await erasure.finish_all(cue.services)


def _tenant_of(receipt: Receipt, tenants: Collection[str]) -> str:
    """Return the tenant of a receipt, which has only its hash; "" if the backup does not have it."""
    return next((each for each in tenants if salted(each, receipt.salt) == receipt.tenant), "")


async def _missing(cue: Cuebook, due: Sequence[tuple[str, Receipt]]) -> AsyncIterator[str]:
    """Yield what the given receipts cannot tell: erasures between them, and after the newest one."""
    for tenant in sorted({tenant for tenant, _ in due}):
        numbers = {each.epoch for name, each in due if name == tenant}
        first = await cue.services.store.erasure.epoch(Scope(tenant)) + 1 if tenant else max(numbers)
        if count := len({*range(first, max(numbers))} - numbers):
            yield f"The receipts lack {counted(count, 'erasure')} since the backup. List more of them with --limit."
    if due:
        newest = max(each.requested_at for _, each in due)
        yield f"Erasures after the newest receipt, of {newest}, are not known here."


def _old_receipts(old: Config, unknown: list[str]) -> list[tuple[str, Receipt]]:
    """Return the receipts of a replaced project with their tenants."""
    try:
        rows = rows_in(database_of(old), "SELECT tenant, id, body FROM receipt ORDER BY created_at")
    except BackendError as error:
        unknown.append(f"{error} Erasures since the backup are not known. Pass their receipts with --receipts.")
        return []
    results = []
    for tenant, id_, body in rows:
        try:
            results.append((tenant, read_receipt(body)))
        except InvalidInput:
            unknown.append(f"Receipt {id_!r} of the replaced project is damaged. Its erasure was not repeated.")
    return results


async def _revoke_again(cue: Cuebook, old: Config | None, unknown: list[str]) -> int:
    """Revoke the API keys that are revoked in the replaced project. Return how many."""
    if old is None:
        return 0
    count = 0
    try:
        revoked = rows_in(database_of(old), "SELECT tenant, id FROM api_key WHERE revoked_at IS NOT NULL")
    except BackendError as error:
        unknown.append(f"{error} Keys that were revoked since the backup are valid again.")
        return 0
    for tenant, key in revoked:
        keys = cue.of(tenant).keys
        if any(each.id == key and each.state != "revoked" for each in await keys.list()):
            await keys.revoke(key, by="restore")
            count += 1
    return count


def _swap(folder: Path, into: Path, *, keep: bool) -> str | None:
    """Rename the finished folder to its place, and the old one beside it. Return the old one's new path."""
    kept = into.with_name(f"{into.name}-before-{str(Time(SystemClock().now())).replace(':', '')}")
    try:
        if keep:
            into.rename(kept)
        elif into.exists():
            into.rmdir()
        folder.rename(into)
    except OSError as error:
        if keep and kept.exists() and not into.exists():
            kept.rename(into)
        msg = f"{str(into)!r} cannot be replaced ({error.strerror}). Restore into another folder with --into."
        raise BackendError(msg) from error
    return str(kept) if keep else None
