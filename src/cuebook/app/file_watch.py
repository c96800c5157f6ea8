"""Watch the persona and presets files of a project, and reload changed files when a turn begins.

A scan costs one folder listing and one `stat` per file, in a thread; only changed files are parsed again.
An unreadable file keeps its previous content in effect and is logged once. Deleting a file removes its persona,
except for the default persona.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.prompts import Prompts
from cuebook.app.setup.persona_files import PersonaFile, bytes_of, document_of, folder_of, means_persona, persona_of
from cuebook.app.setup.project_files import (
    PLAIN,
    check_instructions,
    files_of,
    load_compaction,
    load_presets,
    load_profiles,
    with_own,
)
from cuebook.config import Config
from cuebook.engine.core.services import Services
from cuebook.errors import InvalidInput
from cuebook.records.persona import Persona
from cuebook.signals.profiles import Profiles
from cuebook.signals.sentiment import methods_of

#: A file changed less than this before reading may change again with the same time stamp, so it is read again.
_UNSURE_NS = 2_000_000_000

#: Seconds until an invalid presets file is retried: what it refers to may exist by then.
_RETRY_S = 2.0
#: The consequence of an unreadable file, in log lines.
_HOLDS = ". Keeping the previous content."
_OUT = ". Ignoring the file."

_log = logging.getLogger("cuebook.files")

#: Modification time in ns, size in bytes, inode: at least one differs after a write or a replacement.
Sign = tuple[int, int, int]


class _PersonaFile(Struct, frozen=True, kw_only=True):
    """A file as last read. `good` is its last valid persona."""

    sign: Sign | None
    read_ns: int
    digest: bytes
    read: PersonaFile
    good: Persona | None


class _Scan(Struct, frozen=True, kw_only=True):
    """The result of a scan: every file as read, and the personas and problems found."""

    kept: Mapping[str, _PersonaFile] = {}
    owners: Mapping[str, str] = {}  # the file of each persona
    found: Mapping[str, Persona] = {}
    told: Mapping[str, str] = {}  # the problem of each invalid file
    presets: tuple[Sign | None, int, bytes] = (None, 0, b"")  # the presets file: sign, when it was read, digest
    presets_fault: str = ""


class FileWatch:
    """Watches the files of a project. `all_services` returns those of all tenants, `known` the ids of all prompts."""

    def __init__(
        self,
        config: Config,
        all_services: Callable[[], Iterable[Services]],
        known: Callable[[], Awaitable[set[str]]],
    ) -> None:
        self._config = config
        self._all_services = all_services
        self._known = known
        self._turn = asyncio.Lock()
        self._begun = self._done = 0  # the numbers of the last started and the last finished scan
        self._presets = Path(config.folder) / config.settings.memory.presets
        self._tried_s = 0.0
        self._seen = _Scan()

    async def begin(self) -> None:
        """Store the state of the files at the time the project is opened."""
        personas = dict(next(iter(self._all_services())).settings.personas)
        self._seen = replace(await self._scan(_Scan(found=personas)), found=personas)

    async def look(self) -> None:
        """Apply the changes since the last scan. A canceled scan loses nothing: the next one finds the same changes.

        Concurrent turns share a scan: a scan that started after a turn began has seen every file that the turn needs.
        """
        begun = self._begun
        async with self._turn:
            if self._done > begun:
                return
            self._begun += 1
            before = self._seen
            scan = await self._scan(before)
            again = before.presets_fault and self._now() - self._tried_s > _RETRY_S
            if scan.presets[2] != before.presets[2] or again:
                fault = await self._take_presets(gone=scan.presets[0] is None)
                # the profiles that personas refer to may have changed
                persona_files = before.kept if fault else {file: _again(each) for file, each in before.kept.items()}
                scan = await self._scan(replace(before, kept=persona_files, presets_fault=fault))
            self._take(scan)
            self._done = self._begun

    def _take(self, scan: _Scan) -> None:
        """Apply the result of a scan in one step."""
        before, self._seen = self._seen, scan
        for name, why in scan.told.items():
            if before.told.get(name) != why:
                _log.warning("%s", why)
        for name in before.told.keys() - scan.told.keys():
            _log.info("%s: valid again.", name)
        if scan.found != before.found:
            for services in self._all_services():
                services.settings = replace(services.settings, personas=dict(scan.found))
            _log.info("Personas reloaded: %s", ", ".join(sorted(scan.found)))

    async def _take_presets(self, *, gone: bool) -> str:
        """Apply the presets file, all of it or nothing. Return the problem, "" if none."""
        name, self._tried_s = self._config.settings.memory.presets, self._now()
        if gone:
            return f"{name}: missing or unreadable{_HOLDS}"
        try:
            compaction = await asyncio.to_thread(load_compaction, self._config)
            profiles = await asyncio.to_thread(load_profiles, self._config, self._methods())
            known = await self._known()
            presets = await asyncio.to_thread(load_presets, self._config, known)
            check_instructions(
                self._config, compaction, known | next(iter(self._all_services())).settings.builtin.keys()
            )
        except InvalidInput as error:
            return f"{error}{_HOLDS}"
        for services in self._all_services():
            changed: dict[str, Any] = {"compaction": compaction, "profiles": profiles, "presets": presets}
            services.settings = replace(services.settings, **changed)
        _log.info("%s: reloaded.", name)
        return ""

    def _now(self) -> float:
        return next(iter(self._all_services())).clock.now()

    def _methods(self) -> tuple[str, ...]:
        return methods_of(name for services in self._all_services() for name in services.analyzers)

    async def _scan(self, before: _Scan) -> _Scan:
        services = next(iter(self._all_services()))
        data: dict[str, Any] = {"profiles": services.settings.profiles, "methods": self._methods()}
        return await asyncio.to_thread(_scan, self._config, before, default=services.settings.default_persona, **data)


# ---- a scan, in a thread --------------------------------------------------------------------------------------------


def _scan(config: Config, before: _Scan, *, profiles: Profiles, methods: tuple[str, ...], default: str) -> _Scan:
    """Return the state of the files, parsing only those that changed since `before`."""
    folder, presets = folder_of(config), config.settings.memory.presets
    values = {presets: before.presets_fault} if before.presets_fault else {}
    before = replace(before, presets=_presets(Path(config.folder) / presets, before.presets))
    try:
        files = _listed(folder) if before.kept or folder.exists() else []
    except OSError as error:
        values[str(folder)] = f"{str(folder)!r} cannot be read ({error.strerror}). Keeping the current personas."
        return replace(before, told=values)
    persona_files: dict[str, _PersonaFile] = {}
    for file, sign in files:
        name = f"{config.settings.persona.folder}/{file}"
        persona_files[name] = _read(
            folder / file, sign, name, before.kept.get(name), profiles=profiles, methods=methods
        )
    if before.kept.keys() == persona_files.keys() and all(
        each is before.kept[name] for name, each in persona_files.items()
    ):
        same = {name: why for name, why in before.told.items() if name not in (presets, str(folder))}
        return replace(before, told=same | values)
    for name, each in persona_files.items():
        if each.read.faults:
            values[name] = f"{name}: {each.read.faults[0]}{_HOLDS if each.good else _OUT}"
    personas, owners = _cast({name: each.good for name, each in persona_files.items() if each.good}, before, values)
    if default not in personas and default in before.owners:
        name = owners[default] = before.owners[default]
        personas[default] = before.found[default]
        values.setdefault(name, f"{name}: no longer defines the default persona {default!r}. Keeping the previous one.")
    personas.setdefault(PLAIN.id, PLAIN)
    return replace(before, kept=persona_files, owners=owners, found=personas, told=values)


def _read(
    file: Path,
    sign: Sign | None,
    name: str,
    before: _PersonaFile | None,
    *,
    profiles: Profiles,
    methods: tuple[str, ...],
) -> _PersonaFile:
    """Return a file's state, parsed again only if its content changed."""
    now = time.time_ns()
    if before and sign and sign == before.sign and before.read_ns - sign[0] > _UNSURE_NS:
        return before
    good = before.good if before else None
    try:
        data = bytes_of(file, name)
        digest = blake2b(data).digest()
        if before and digest == before.digest:
            return _PersonaFile(sign=sign, read_ns=now, digest=digest, read=before.read, good=good)
        persona_file = persona_of(document_of(data, name), name=name, profiles=profiles, methods=methods)
    except InvalidInput as error:
        digest, persona_file = b"", PersonaFile(name=name, faults=(str(error).removeprefix(f"{name}: "),))
    return _PersonaFile(sign=sign, read_ns=now, digest=digest, read=persona_file, good=persona_file.whole or good)


def _cast(
    good: Mapping[str, Persona], before: _Scan, values: dict[str, str]
) -> tuple[dict[str, Persona], dict[str, str]]:
    """Return the personas by id and the file of each. If two files share an id, the file that had it first wins.

    The other file keeps the id it had before, if that id is still free.
    """
    personas: dict[str, Persona] = {}
    owners: dict[str, str] = {}
    late: list[str] = []
    for name in sorted(good, key=lambda each: (before.owners.get(good[each].id) != each, each)):
        persona = good[name]
        if persona.id in personas:
            late.append(name)
        else:
            personas[persona.id], owners[persona.id] = persona, name
    for name in late:
        taken = f"{name}: id: {good[name].id!r} is already used by {owners[good[name].id]}; each persona needs its own"
        had = next((each for each, file in before.owners.items() if file == name and each not in personas), None)
        values[name] = f"{taken}{_HOLDS if had else _OUT}"
        if had:
            personas[had], owners[had] = before.found[had], name
    return personas, owners


def _presets(file: Path, before: tuple[Sign | None, int, bytes]) -> tuple[Sign | None, int, bytes]:
    """Return the state of the presets file: its signature, when it was read, and the digest of its content."""
    sign, now = _sign(file), time.time_ns()
    if sign and sign == before[0] and before[1] - sign[0] > _UNSURE_NS:
        return before
    try:
        return sign, now, blake2b(file.read_bytes()).digest()
    except OSError:
        return None, now, b""


async def known_prompts(prompts: Prompts, config: Config) -> set[str]:
    """Return the prompt ids that an add-on may refer to: stored prompts, and files that will be pushed."""
    known, after = set(files_of(config)), ""
    while True:
        page = await prompts.page(limit=200, after=after)
        known.update(family.slug for family in page.items)
        if page.next is None:
            return with_own(config, known)
        after = page.next


def _listed(folder: Path) -> list[tuple[str, Sign | None]]:
    """Return the persona files of a folder, by name. Raises OSError."""
    with os.scandir(folder) as entries:
        return sorted((each.name, _sign(each)) for each in entries if means_persona(each.name))


def _sign(file: Path | os.DirEntry[str]) -> Sign | None:
    """Return the signature that detects a changed file, None if there is no file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _again(persona_file: _PersonaFile) -> _PersonaFile:
    """Return the file's state marked as stale, so that the next scan reads it."""
    return _PersonaFile(sign=None, read_ns=0, digest=b"", read=persona_file.read, good=persona_file.good)
