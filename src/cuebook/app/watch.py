"""How a running book takes over what changed in its personas and presets files: when a turn begins.

A look costs a folder's listing and a `stat` a file, in a thread; what a file says is read again only where it changed.
What cannot be read leaves what it said before in force, and the log says so once. A file gone takes its persona with
it, but for the default one.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct

from cuebook.app.load import (
    PLAIN,
    check_instructions,
    files_of,
    load_compaction,
    load_presets,
    load_profiles,
    with_own,
)
from cuebook.app.persona_files import PersonaFile, bytes_of, document_of, folder_of, means_persona, persona_of
from cuebook.app.prompts import Prompts
from cuebook.config import Config
from cuebook.engine.desk import Desk
from cuebook.errors import InvalidInput
from cuebook.records.persona import Persona
from cuebook.signals.profiles import Profiles
from cuebook.signals.sentiment import methods_of

#: A file changed so shortly before it was read may change again without its time telling: it is read again.
_UNSURE_NS = 2_000_000_000

#: What comes of a file that cannot be read.
_HOLDS = "; what it said before holds"
_OUT = "; it is left out"

_log = logging.getLogger("cuebook.files")

#: Modification time in ns, bytes, number on the disk: what differs where a file was written to or replaced.
Sign = tuple[int, int, int]


class _Kept(Struct, frozen=True, kw_only=True):
    """A file as it was read last. `good` is the last persona it held that nothing was wrong about."""

    sign: Sign | None
    read_ns: int
    digest: bytes
    read: PersonaFile
    good: Persona | None


class Watch:
    """Looks at the files of a book's project. `desks` are those of all tenants, `known` the ids of its prompts."""

    def __init__(
        self,
        config: Config,
        desks: Callable[[], Iterable[Desk]],
        known: Callable[[], Awaitable[set[str]]],
    ) -> None:
        self._config = config
        self._desks = desks
        self._known = known
        self._turn = asyncio.Lock()
        self._kept: dict[str, _Kept] = {}
        self._presets_file = Path(config.folder) / config.settings.memory.presets
        self._presets_sign: Sign | None = None
        self._presets_fault = ""
        self._told: dict[str, str] = {}  # by file what the log was told
        self._owners: dict[str, str] = {}  # the file of each persona
        self._found: Mapping[str, Persona] = {}

    async def begin(self) -> None:
        """Note how the files are now, as the book was opened with them."""
        desk = next(iter(self._desks()))
        self._found = dict(desk.personas)
        self._presets_sign, *_ = await asyncio.to_thread(self._scan, desk.profiles, desk.default_persona)

    async def look(self) -> None:
        """Take over what changed since the last look."""
        async with self._turn:
            desk = next(iter(self._desks()))
            sign, found, told = await asyncio.to_thread(self._scan, desk.profiles, desk.default_persona)
            if sign != self._presets_sign:
                self._presets_sign = sign
                await self._take_presets()
                _, found, told = await asyncio.to_thread(self._scan, desk.profiles, desk.default_persona)
            self._tell(told)
            if found != self._found:
                self._found = found
                for each in self._desks():
                    each.personas = dict(found)
                _log.info("the personas are now %s", ", ".join(sorted(found)))

    # ---- the presets file -------------------------------------------------------------------------------------------

    async def _take_presets(self) -> None:
        name = self._config.settings.memory.presets
        if self._presets_sign is None:
            self._presets_fault = f"{name}: is gone or cannot be read{_HOLDS}"
            return
        try:
            compaction = await asyncio.to_thread(load_compaction, self._config)
            profiles = await asyncio.to_thread(load_profiles, self._config, self._methods())
            known = await self._known()
            presets = await asyncio.to_thread(load_presets, self._config, known)
            builtin = next(iter(self._desks())).builtin
            check_instructions(self._config, compaction, known | builtin.keys())
        except InvalidInput as error:
            self._presets_fault = f"{error}{_HOLDS}"
            return
        for desk in self._desks():
            desk.compaction, desk.profiles, desk.presets = compaction, profiles, presets
        self._presets_fault = ""
        self._kept = {file: _again(kept) for file, kept in self._kept.items()}  # profiles they name may be others now
        _log.info("%s was read again", name)

    # ---- persona files ----------------------------------------------------------------------------------------------

    def _scan(self, profiles: Profiles, default: str) -> tuple[Sign | None, Mapping[str, Persona], dict[str, str]]:
        """Read what changed. Gives the presets file's sign, all personas by id, and by file what is wrong."""
        folder = folder_of(self._config)
        told = {self._config.settings.memory.presets: self._presets_fault} if self._presets_fault else {}
        presets = _sign(self._presets_file)
        try:
            files = _listed(folder) if self._kept or folder.exists() else []
        except OSError as error:
            told[str(folder)] = f"{str(folder)!r} cannot be read ({error.strerror}); the personas stay as they were"
            return presets, self._found, told
        before = self._kept
        self._kept = {}
        for file, sign in files:
            name = f"{self._config.settings.persona.folder}/{file}"
            self._kept[name] = kept = self._read(folder / file, sign, name, before.get(name), profiles)
            if kept.read.faults:
                told[name] = f"{name}: {kept.read.faults[0]}{_HOLDS if kept.good else _OUT}"
        if before.keys() == self._kept.keys() and all(kept is before[name] for name, kept in self._kept.items()):
            return presets, self._found, {file: why for file, why in self._told.items() if file != str(folder)} | told
        found, owners = self._cast(told)
        if default not in found and default in self._found and default in self._owners:
            found[default] = self._found[default]
            name = owners[default] = self._owners[default]
            told.setdefault(name, f"{name}: is gone, and {default!r} is the default persona; it stays as it was")
        self._owners = owners
        found.setdefault(PLAIN.id, PLAIN)
        return presets, found, told

    def _methods(self) -> tuple[str, ...]:
        return methods_of(name for desk in self._desks() for name in desk.analyzers)

    def _read(self, file: Path, sign: Sign | None, name: str, before: _Kept | None, profiles: Profiles) -> _Kept:
        """Read a file, if it is not the one read before."""
        now = time.time_ns()
        if before and sign and sign == before.sign and before.read_ns - sign[0] > _UNSURE_NS:
            return before
        good = before.good if before else None
        try:
            data = bytes_of(file, name)
            digest = blake2b(data).digest()
            if before and digest == before.digest:
                return _Kept(sign=sign, read_ns=now, digest=digest, read=before.read, good=good)
            read = persona_of(document_of(data, name), name=name, profiles=profiles, methods=self._methods())
        except InvalidInput as error:
            digest, read = b"", PersonaFile(name=name, faults=(str(error).removeprefix(f"{name}: "),))
        return _Kept(sign=sign, read_ns=now, digest=digest, read=read, good=read.whole or good)

    def _cast(self, told: dict[str, str]) -> tuple[dict[str, Persona], dict[str, str]]:
        """Give the personas by id and the file each is from; of two files with one id the one that had it has it."""
        good = {name: kept.good for name, kept in sorted(self._kept.items()) if kept.good}
        found: dict[str, Persona] = {}
        owners: dict[str, str] = {}
        for name in sorted(good, key=lambda each: self._owners.get(good[each].id) != each):
            persona = good[name]
            if persona.id in found:
                taken = f"is taken by {owners[persona.id]}; give each persona its own{_OUT}"
                told[name] = f"{name}: id: {persona.id!r} {taken}"
            else:
                found[persona.id], owners[persona.id] = persona, name
        return found, owners

    def _tell(self, told: dict[str, str]) -> None:
        """Say in the log what is wrong, once, and what is well again."""
        for name, why in told.items():
            if self._told.get(name) != why:
                _log.warning("%s", why)
        for name in self._told.keys() - told.keys():
            _log.info("%s is well again", name)
        self._told = told


async def known_prompts(prompts: Prompts, config: Config) -> set[str]:
    """Give the ids an add-on may name: prompts in the book, and files that are pushed into it."""
    known, after = set(files_of(config)), ""
    while True:
        page = await prompts.page(limit=200, after=after)
        known.update(family.slug for family in page.items)
        if page.next is None:
            return with_own(config, known)
        after = page.next


def _listed(folder: Path) -> list[tuple[str, Sign | None]]:
    """Give a folder's files that mean a persona, by name. Raises OSError."""
    with os.scandir(folder) as entries:
        return sorted((each.name, _sign(each)) for each in entries if means_persona(each.name))


def _sign(file: Path | os.DirEntry[str]) -> Sign | None:
    """Give what tells a changed file from the one read before; None for none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _again(kept: _Kept) -> _Kept:
    """Give a file as one that is to be read again."""
    return _Kept(sign=None, read_ns=0, digest=b"", read=kept.read, good=kept.good)
