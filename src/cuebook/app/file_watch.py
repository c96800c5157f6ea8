"""Watch the persona and presets files of a project, and reload changed files when a turn begins.

A scan costs one folder listing and one `stat` per persona file, in a thread. If one has changed, all are parsed again.
An unreadable file keeps its previous content in effect and is logged once. Deleting a file removes its persona,
except for the default persona.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.files import Sign, signs_in
from cuebook.app.setup.persona_files import means_persona, read_file
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
from cuebook.memory.rolling import RELAY, choose, with_profile
from cuebook.providers.regular_files import read_regular
from cuebook.records.memory import Scope
from cuebook.records.persona import Persona
from cuebook.signals.sentiment import methods_of
from cuebook.storage.prompts import PromptStore

#: A file changed less than this before reading may change again with the same time stamp, so it is read again.
_UNSURE_NS = 2_000_000_000

#: Seconds until an invalid presets file is retried: what it refers to may exist by then.
_RETRY_S = 2.0
#: The consequence of an unreadable file, in log lines.
_HOLDS = ". Keeping the previous content."
_OUT = ". Ignoring the file."

_log = logging.getLogger("cuebook.files")


class _Scan(Struct, frozen=True, kw_only=True):
    """The result of a scan: the state of every file, and the personas and problems found."""

    signs: Mapping[str, Sign | None] = {}  # of the persona files
    read_ns: int = 0  # when they were read
    good: Mapping[str, Persona] = {}  # the last valid persona of each file
    owners: Mapping[str, str] = {}  # the file of each persona
    found: Mapping[str, Persona] = {}
    told: Mapping[str, str] = {}  # the problem of each invalid file
    presets: bytes = b""  # the digest of the presets file, empty if it cannot be read
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
        self._methods: tuple[str, ...] = ()  # of sentiment

    @property
    def _services(self) -> Services:
        return next(iter(self._all_services()))

    async def begin(self) -> None:
        """Store the state of the files at the time the project is opened."""
        personas, self._methods = dict(self._services.settings.personas), methods_of(self._services.analyzers)
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
            again = before.presets_fault and self._services.clock.now() - self._tried_s > _RETRY_S
            if scan.presets != before.presets or again:
                fault = await self._take_presets(gone=not scan.presets)
                before = replace(before, presets_fault=fault)
                scan = await self._scan(before, fresh=not fault)  # the profiles of personas may have changed
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
        name, self._tried_s = self._config.settings.memory.presets, self._services.clock.now()
        if gone:
            return f"{name}: missing or unreadable{_HOLDS}"
        try:
            compaction = await asyncio.to_thread(load_compaction, self._config)
            profiles = await asyncio.to_thread(load_profiles, self._config, self._methods)
            known = await self._known()
            presets = await asyncio.to_thread(load_presets, self._config, known)
            check_instructions(self._config, compaction, known | self._services.settings.builtin.keys())
        except InvalidInput as error:
            return f"{error}{_HOLDS}"
        for services in self._all_services():
            changed: dict[str, Any] = {"compaction": compaction, "profiles": profiles, "presets": presets}
            chosen = services.settings.profile
            if chosen in compaction.profiles:
                changed["compaction"] = with_profile(compaction, chosen, where="profile")
            services.settings = replace(services.settings, **changed)
        if self._services.store.announces:
            await self._services.store.announce(choose(self._services.settings.compaction, RELAY).id)
        _log.info("%s: reloaded.", name)
        return ""

    async def _scan(self, before: _Scan, *, fresh: bool = False) -> _Scan:
        """Return the state of the files; parse the personas if one changed since `before`, or for a `fresh` state."""
        return await asyncio.to_thread(self._read_files, before, fresh=fresh)

    def _read_files(self, before: _Scan, *, fresh: bool) -> _Scan:
        settings, now = self._services.settings, time.time_ns()
        label, presets = self._config.settings.persona.folder, self._config.settings.memory.presets
        folder, default = Path(self._config.folder) / label, settings.default_persona
        values = {presets: before.presets_fault} if before.presets_fault else {}
        before = replace(before, presets=_digest(self._presets))
        try:
            signs = signs_in(folder, means_persona) if before.signs or folder.exists() else {}
        except OSError as error:
            values[str(folder)] = f"{str(folder)!r} cannot be read ({error.strerror}). Keeping the current personas."
            return replace(before, told=values)
        sure = all(sign and before.read_ns - sign[0] > _UNSURE_NS for sign in signs.values())
        if signs == before.signs and sure and not fresh:
            same = {name: why for name, why in before.told.items() if name.startswith(f"{label}/")}
            return replace(before, told=same | values)
        good: dict[str, Persona] = {}
        for file in signs:
            name = f"{label}/{file}"
            read = read_file(folder / file, name=name, profiles=settings.profiles, methods=self._methods)
            if last := read.whole or before.good.get(name):
                good[name] = last
            if read.faults:
                values[name] = f"{name}: {read.faults[0]}{_HOLDS if last else _OUT}"
        personas, owners = _cast(good, before, values)
        if default not in personas and default in before.owners:
            name = owners[default] = before.owners[default]
            personas[default] = before.found[default]
            fault = f"{name}: no longer defines the default persona {default!r}. Keeping the previous one."
            values.setdefault(name, fault)
        personas.setdefault(PLAIN.id, PLAIN)
        return replace(before, signs=signs, read_ns=now, good=good, owners=owners, found=personas, told=values)


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


def _digest(file: Path) -> bytes:
    """Return the digest of a file's content, empty if it cannot be read."""
    try:
        return blake2b(read_regular(file)).digest()
    except OSError:
        return b""


async def known_prompts(prompts: PromptStore, config: Config) -> set[str]:
    """Return the prompt ids that an add-on may refer to: stored prompts, and files that will be pushed."""
    return with_own(config, {*files_of(config), *await prompts.every(Scope())})
