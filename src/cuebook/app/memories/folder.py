"""Watch a folder of memory files: push edits, write changed memories, and remove the files of erased owners.

A file beside the database lists each folder that was ever watched, with the last erasure that its files reflect. So a
forget by any process, also after the setting changed, erases in all of them.
"""

import asyncio
import logging
import os
import re
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from cuebook.app.files import Sign, sign_of, write_whole
from cuebook.app.memories.file_text import folder_of, place_of, pulled_ids, without
from cuebook.app.memories.files import FileSync, MemoryFiles, locked, names_in, sync_files
from cuebook.app.setup.compose import file_beside_database
from cuebook.config import Config
from cuebook.engine.core.services import Services
from cuebook.errors import BackendError
from cuebook.memory.scopes import owner_of
from cuebook.records.erasure import Receipt, salted
from cuebook.records.memory import Place, Scope

_log = logging.getLogger("cuebook.memory_files")
#: A file that changed less than this before may be half written.
_UNSURE_NS = 1_000_000_000
#: Seconds that an erasure waits for another process that writes the files.
_PATIENCE_S = 1.0
#: Receipts that are read for the erasures since the last one.
_RECEIPTS = 10_000
#: A file that a killed process left while it wrote another one.
_LEFTOVER = re.compile(r"\..+\.md\.[0-9a-f]{8}")


async def memory_folder_of(memories: MemoryFiles, services: Services, config: Config) -> "MemoryFolder":
    """Return the watched folder of a project, with its place in the record. Raises BackendError."""
    name, record = config.settings.memory.folder, file_beside_database(config, ".memories")
    folder = MemoryFolder(memories, services, base=Path(config.folder), name=name, record=record)
    await folder.begin()
    return folder


class MemoryFolder:
    """The watched folder of a project, and those that were watched before."""

    def __init__(
        self, memories: MemoryFiles, services: Services, *, base: Path, name: str, record: Path | None
    ) -> None:
        """`name` is the folder's in the settings, "" for none; `record` is the file that lists the folders."""
        self._memories, self._services = memories, services
        self._base, self._name, self._record = base, name, record
        self._marks: dict[str, str] = {}  # the last erasure that each folder reflects, without a record
        self._signs: dict[str, Sign | None] = {}
        self._generations: dict[Place, int] = {}
        self._seen: tuple[int, int] = (-1, -1)  # the number and the changes of owners at the last synchronization
        self._problems: set[str] = set()

    async def begin(self) -> None:
        """Record the folder. Raises BackendError if it cannot be recorded: a forget would not find its files."""
        marks = await asyncio.to_thread(self._read)
        if self._name and self._name not in marks:
            await asyncio.to_thread(self._write, marks | {self._name: await self._last_erasure()})

    # ---- synchronization

    async def is_due(self, *, hurry: bool = False) -> bool:
        """Return whether files or memories may have changed. With `hurry`, also files that may be half written."""
        if not self._name:
            return False
        if self._seen != await self._services.store.memories.changes(Scope()):
            return True
        found = await asyncio.to_thread(self._scan)
        changed = [name for name in {*found, *self._signs} if found.get(name) != self._signs.get(name)]
        return any(hurry or self._is_ready(found.get(name)) for name in changed)

    async def sync(self, *, hurry: bool = False) -> bool:
        """Push and pull what changed since the last time. Return whether anything did.

        Does nothing while another process writes the files. Raises BackendError if the folder cannot be read.
        """
        root = self._base / self._name
        try:
            await asyncio.to_thread(root.mkdir, parents=True, exist_ok=True)
            if not await self.erase():
                return False
            async with locked(root) as is_ours:
                return is_ours and await self._sync(root, hurry=hurry)
        except OSError as error:
            msg = f"memory.folder: {str(root)!r} cannot be used ({error.strerror}). Check its permissions."
            raise BackendError(msg) from error

    async def _sync(self, root: Path, *, hurry: bool) -> bool:
        store = self._services.store.memories
        seen, generations = await store.changes(Scope()), await store.generations(Scope())
        found = await asyncio.to_thread(self._scan)
        places, below = None, [""]
        if self._generations:
            before = self._generations
            changed = {each for each in {*generations, *before} if generations.get(each) != before.get(each)}
            names = {name for name in {*found, *self._signs} if found.get(name) != self._signs.get(name)}
            places = sorted(changed | set(map(place_of, names)))
            below = [f"{folder_of(each)}/" for each in places] + sorted(names)
        is_ready = None if hurry else self._is_ready
        result = await sync_files(self._memories, self._services, root, places, below, is_ready=is_ready)
        self._signs = {name: sign for name, sign in self._signs.items() if name in found} | result.signs
        self._generations, self._seen = generations, seen
        self._report(result, below)
        return bool(result.done or result.taken)

    def _scan(self) -> dict[str, Sign | None]:
        root = self._base / self._name
        return {name: sign_of(root / name) for name in names_in(root)}

    @staticmethod
    def _is_ready(sign: Sign | None) -> bool:
        return sign is None or abs(time.time_ns() - sign[0]) > _UNSURE_NS

    def _report(self, result: FileSync, below: Sequence[str]) -> None:
        """Log what was done, and each problem once. The log contains no text of a memory."""
        problems = {*result.refused, *(each.text for each in result.invalid)}
        for each in sorted(problems - self._problems):
            _log.warning("%s", self._services.writer.clean(each))
        others = {each for each in self._problems if not each.startswith(tuple(below))}
        for name in sorted({each.partition(": ")[0] for each in self._problems - others - problems}):
            _log.info("%s: valid again.", name)
        self._problems = others | problems
        if result.done or result.taken:
            _log.info("Memory files: %d edits stored, %d changes written.", len(result.done), len(result.taken))

    # ---- erasure

    async def erase(self) -> bool:
        """Remove the files and texts that were erased since the last time. Return False while any may be left."""
        is_clean = True
        for name, mark in (await asyncio.to_thread(self._read)).items():
            folder = self._base / name
            receipts = await self._since(mark)
            if not receipts or not folder.is_dir():
                continue
            try:
                async with locked(folder, patience_s=_PATIENCE_S) as is_ours:
                    if is_ours:
                        await self._erase(folder, receipts)
                        marks = await asyncio.to_thread(self._read)
                        await asyncio.to_thread(self._write, marks | {name: receipts[0].id})
                    is_clean = is_clean and is_ours
            except OSError as error:
                _log.warning("Cannot remove erased memories from %s (%s).", error.filename or folder, error.strerror)
                is_clean = False
        return is_clean

    def remains(self) -> str:
        """Return where copies of the files may be, "" if there are no files."""
        names = [name for name in self._read() if (self._base / name).is_dir()]
        return ", ".join(f"copies of the memory files in {name} (git, editors, backups)" for name in names)

    async def _last_erasure(self) -> str:
        receipts = await self._services.store.erasure.receipts(Scope(), limit=1)
        return receipts[0].id if receipts else ""

    async def _since(self, mark: str) -> list[Receipt]:
        """Return the receipts after one, newest first."""
        if await self._last_erasure() == mark:
            return []
        receipts = await self._services.store.erasure.receipts(Scope(), limit=_RECEIPTS)
        ids = [each.id for each in receipts]
        return receipts[: ids.index(mark)] if mark in ids else [*receipts]

    async def _erase(self, folder: Path, receipts: Sequence[Receipt]) -> None:
        names = [name for name in await asyncio.to_thread(names_in, folder) if (folder / name).is_file()]
        owners = {name.rpartition("/")[0]: place_of(name) for name in names}
        owners |= {place: place_of(f"{place}/") for place in await asyncio.to_thread(_folders_in, folder)}
        erased = [place for place, owner in owners.items() if any(_names(each, owner) for each in receipts)]
        await asyncio.to_thread(_remove, folder, erased)
        left = [name for name in names if name.rpartition("/")[0] not in erased]
        concerned = [name for name in left if any(_concerns(each, place_of(name)) for each in receipts)]
        ids = await asyncio.to_thread(_pulled, folder, concerned)
        gone = ids - await self._services.store.memories.known(Scope(), sorted(ids))
        await asyncio.to_thread(_cut, folder, concerned, gone)

    # ---- the list of folders

    def _read(self) -> dict[str, str]:
        if self._record is None:
            return self._marks
        try:
            return msgspec.json.decode(self._record.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            return {}

    def _write(self, marks: Mapping[str, str]) -> None:
        if self._record is None:
            self._marks = dict(marks)
            return
        try:
            self._record.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._record, [msgspec.json.encode(marks)])
        except OSError as error:
            msg = f"{str(self._record)!r} cannot be written ({error.strerror}): it lists the folders of memory files."
            raise BackendError(f"{msg} Check its folder.") from error


def _names(receipt: Receipt, owner: Place) -> bool:
    """Return whether an erasure was that of an owner."""
    user = owner_of(owner)
    if receipt.kind == "persona" and owner.kind == "persona":
        persona = owner.id.partition("\x1f")[0]
        return salted(persona, receipt.salt) in receipt.asked and salted(user or "", receipt.salt) in receipt.concerns
    name = owner.id if owner.kind == "organization" else user
    is_kind = receipt.kind == ("organization" if owner.kind == "organization" else "user")
    return is_kind and name is not None and salted(name, receipt.salt) in receipt.asked


def _concerns(receipt: Receipt, owner: Place) -> bool:
    """Return whether an erasure may have erased memories of an owner."""
    user = owner_of(owner)
    return user is None or salted(user, receipt.salt) in receipt.concerns


def _folders_in(folder: Path) -> list[str]:
    """Return the folders of owners, also those without a memory file."""
    found = [*folder.glob("user/*"), *folder.glob("organization/*"), *folder.glob("persona/*/*")]
    return [each.relative_to(folder).as_posix() for each in found if each.is_dir()]


def _remove(root: Path, owners: Collection[str]) -> None:
    """Remove the folders of owners after overwriting the bytes of their files."""
    for owner in owners:
        place = root / owner
        for file in sorted(place.rglob("*")) if not place.is_symlink() else ():
            if file.is_file() and not file.is_symlink():
                _blank(file)
        place.unlink() if place.is_symlink() else shutil.rmtree(place)
        with suppress(OSError):  # a user's other personas are in it
            place.parent.rmdir()


def _pulled(root: Path, names: Sequence[str]) -> set[str]:
    return {id_ for name in names for id_ in pulled_ids((root / name).read_text("utf-8", "surrogateescape"))}


def _cut(root: Path, names: Sequence[str], ids: Collection[str]) -> None:
    """Remove the texts of memories from files, and the files that a killed process left."""
    for name in names:
        path = root / name
        before = path.read_text("utf-8", "surrogateescape")
        after = without(before, ids)
        if after != before:
            with path.open("r+b") as old:
                if after:
                    write_whole(path, [after.encode("utf-8", "surrogateescape")])
                else:
                    path.unlink()
                _overwrite(old.fileno())
    for file in root.rglob(".*"):
        if _LEFTOVER.fullmatch(file.name) and file.is_file():
            _blank(file)
            file.unlink()


def _blank(file: Path) -> None:
    with file.open("r+b") as opened:
        _overwrite(opened.fileno())


def _overwrite(descriptor: int) -> None:
    """Overwrite an open file with zeros."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, bytes(size))
    os.fsync(descriptor)
