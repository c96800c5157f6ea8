"""Host the spaces of other projects: list, read and publish their repositories below `/klp/v1/SPACE/`."""

import asyncio
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from unicodedata import normalize

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from cuebook.app.files import write_whole
from cuebook.app.namespace import Namespace
from cuebook.app.prompts.files import ProjectPrompts
from cuebook.app.setup.compose import file_beside_database
from cuebook.app.sync.locations import (
    check_name,
    copy_repository,
    read_repository_file,
    unpack,
)
from cuebook.app.sync.plan import SyncedState
from cuebook.app.sync.repository import Published, check_installed, read_fingerprints, revisions_of, verify
from cuebook.config import Config
from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.services import Services
from cuebook.errors import CuebookError, InvalidInput, NotFound, SyncRefused
from cuebook.records.answer import Answer, Time
from cuebook.records.memory import DEFAULT_TENANT, Scope
from cuebook.records.prompt import Version

#: The file in which syncs remember what they did.
STATE: Final = "state.json"


class SyncPeer(Answer, frozen=True, kw_only=True):
    """Another project of a space: the fingerprint of its key, the last sync with it, and when its metadata expires."""

    project: str
    location: str
    fingerprint: str
    last_sync: Time
    expires_at: Time


class SyncState(Struct, frozen=True, kw_only=True):
    """The state of earlier syncs, in the file STATE. `prompts` is by slug.

    `keys` are trusted fingerprints by project; those that no project has used yet are under "". `replaced` are keys
    that their projects have replaced, and that are never trusted again.
    """

    prompts: dict[str, SyncedState] = {}
    peers: tuple[SyncPeer, ...] = ()
    keys: Mapping[str, Collection[str]] = {}
    replaced: Collection[str] = ()
    location: str = ""
    at: Time | None = None


def trusted_keys(state: SyncState, trust: Collection[str], published: Iterable[Published]) -> SyncState:
    """Return the state with the keys of these projects trusted, each for its project, and no replaced ones."""
    found = tuple(published)
    replaced = {*state.replaced, *(key for each in found for key in each.replaced)}
    keys = {project: {*listed} for project, listed in state.keys.items()}
    for each in found:
        keys.setdefault(each.project, set()).update(each.signers)
    keys[""] = keys.get("", set()).union(trust).difference(*(each.signers for each in found))
    listed = {project: sorted(fingerprints - replaced) for project, fingerprints in keys.items()}
    return replace(state, keys=listed, replaced=sorted(replaced))


class SyncLock(Struct):
    """Serializes the syncs of this process."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class SyncHub(Namespace):
    """The spaces that this project hosts for others, and the state of its own syncs."""

    def __init__(self, services: Services, config: Config, tenant: str) -> None:
        super().__init__(services)
        self._config, self._settings = config, config.settings.sync
        self._prompts = ProjectPrompts(services, config)
        own = "" if tenant == DEFAULT_TENANT else f"/tenants/{sha256(tenant.encode()).hexdigest()[:32]}"
        self._place = file_beside_database(config, f".sync{own}")

    @property
    def project(self) -> str:
        """This project's name in a space: the setting, else one made of the name of its folder."""
        folder = normalize("NFKD", Path(self._config.folder).resolve().name.lower())
        derived = re.sub("[^a-z0-9]+", "-", folder.encode("ascii", "ignore").decode()).strip("-")
        try:
            return check_name(self._settings.name or derived or "project")
        except SyncRefused as error:
            msg = f"sync.name: {error} Set a name such as team-a."
            raise InvalidInput(msg, where="sync.name") from error

    async def hosted(self, space: str) -> list[str]:
        """Return the names of the projects that publish in a space of this server. Raises InvalidInput."""
        place = self._space(space)
        return await asyncio.to_thread(
            lambda: sorted(each.name for each in place.glob("*") if not each.name.startswith("."))
        )

    async def hosted_file(self, space: str, project: str, path: str) -> bytes:
        """Return a file of a project's repository. Raises NotFound, InvalidInput."""
        folder = self._space(space) / check_name(project)
        try:
            return await asyncio.to_thread(read_repository_file, folder, path)
        except FileNotFoundError:
            msg = f"Project {project!r} has no file {path!r} in space {space!r}."
            raise NotFound(msg) from None

    async def host(self, space: str, project: str, archive: bytes, *, by: str = "") -> None:
        """Publish a project's repository in a space, if it passes all checks. The first key of a name owns it.

        Raises SyncRefused, InvalidInput.
        """
        place = self._space(space)
        async with self._lock:
            try:
                await asyncio.to_thread(_host, place, check_name(project), archive)
            except CuebookError as error:
                await self._refused(error, by, location=f"{space}/{project}")
                raise
            await self._record(by, location=f"{space}/{project}", result="accepted", detail="published")

    # ---- inside

    @property
    def _lock(self) -> asyncio.Lock:
        return self._services.caches.progress_of(SyncLock).lock

    def _folder(self) -> Path:
        """Return the folder of keys and state. Raises InvalidInput."""
        check_installed()
        if self._place is None:
            msg = "Prompt sync needs a database file. Set store.url to a file."
            raise InvalidInput(msg, where="store.url")
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._place

    def _space(self, space: str) -> Path:
        return self._folder() / "hub" / check_name(space, "space name")

    def _state(self) -> SyncState:
        """Return what earlier syncs stored. Blocks."""
        with suppress(FileNotFoundError):
            data = (self._folder() / STATE).read_bytes()
            return msgspec.json.decode(data, type=SyncState, dec_hook=lambda kind, value: kind(value))
        return SyncState()

    def _write_state(self, state: SyncState) -> None:
        write_whole(self._folder() / STATE, [msgspec.json.encode(state, enc_hook=float)])

    def _accepted(self, state: SyncState, trust: Collection[str], project: str) -> set[str]:
        """Return the fingerprints that are trusted for a project: of `sync.keys`, of earlier syncs, and `trust`."""
        pinned = read_fingerprints(self._settings.keys, where="sync.keys")
        listed = {*pinned, *state.keys.get("", ()), *state.keys.get(project, ())}
        return listed.difference(state.replaced).union(trust)

    async def _refused(self, error: CuebookError, by: str, **context: Any) -> None:
        reason = error.reason if isinstance(error, SyncRefused) else type(error).__name__
        await self._record(by, result="refused", reason=reason, detail=str(error), **context)

    async def _record(self, by: str, *, detail: str, **context: Any) -> None:
        """Append the audit record of a sync. `detail` are its changes, or why it was refused."""
        text = f"{context['result']}: {detail}"
        record = receipt(self._services, Version(slug="", semver=""), "sync", agent=by, context=context, text=text)
        await self._services.audit.append(Scope(), [replace(record, selection=None)])


def _host(place: Path, project: str, archive: bytes) -> None:
    """Verify an uploaded repository as a reader would, then replace the hosted one. Blocks."""
    trusted = place / ".trusted" / project
    with tempfile.TemporaryDirectory(prefix="cuebook-hub-") as name:
        upload, scratch = Path(name) / "upload", Path(name) / "trusted"
        unpack(archive, upload)
        if trusted.exists():
            shutil.copytree(trusted, scratch, symlinks=True)
        published = verify(partial(read_repository_file, upload), scratch, project, accepted=None)
        revisions_of([published])
        copy_repository(upload, place / project)
        shutil.rmtree(trusted, ignore_errors=True)
        shutil.copytree(scratch, trusted, symlinks=True)
