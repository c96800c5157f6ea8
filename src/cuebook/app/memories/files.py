"""Keep memories as Markdown files: one file per owner and category, edited and versioned with git.

The database is the truth, and a file is a view of it. Pull and push are three-way merges: an edit on one side is taken,
and edits on both sides are a conflict, marked as git does. No edit is discarded. An invalid file changes nothing.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec import Struct, field

from cuebook.app.files import Sign, decode, read_bytes, sign_of, write_whole
from cuebook.app.memories.file_text import (
    DEPTHS,
    FileChange,
    MemoryFile,
    category_of,
    check_path,
    compare,
    digest_of,
    file_of,
    folder_of,
    is_memory_file,
    merged,
    parse,
    place_of,
    render,
)
from cuebook.app.memories.writing import MemoryWriting
from cuebook.config import Config
from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.services import Services
from cuebook.errors import Conflict, CuebookError, InvalidInput
from cuebook.records.audit import EXPORT
from cuebook.records.memory import Place, Scope
from cuebook.records.memory_answers import StoredMemory, stored_memory

if sys.platform != "win32":
    import fcntl

#: Maximum bytes of a file: a million memories of one sentence have less.
_MAX_BYTES = 256 * 1024 * 1024
#: Memories that are read at once.
_PAGE = 1_000
#: Seconds that a command waits for a server that writes the files, and the pause between two attempts.
_PATIENCE_S, _PAUSE_S = 10.0, 0.05
#: Why a conflict is refused.
_CHANGED = "changed in the database too. Edit it and push again."
_GONE = "no longer in the database. Replace its ID by `new` to store it again, or delete it."


class FileSync(Struct, kw_only=True):
    """The result of a synchronization: what was stored, refused (messages) and taken, and invalid files.

    `signs` are those of the files that were read and written, None for a file that is gone. `busy` were left alone.
    """

    done: list[FileChange] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    taken: list[FileChange] = field(default_factory=list)
    invalid: list[FileChange] = field(default_factory=list)
    signs: dict[str, Sign | None] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)


class MemoryFiles(MemoryWriting):
    """Memories as Markdown files: pull, push and status."""

    _config: Config

    async def pull(self, folder: str | Path | None = None, *, user: str | None = None) -> list[FileChange]:
        """Write the current memories into files, and return what was taken and invalid files. Edits are kept.

        A memory that was edited in both gets conflict markers. `folder` is by default the setting `memory.folder`.
        """
        result = await self._by_hand(folder, user=user, pushes=False)
        return [*result.taken, *result.invalid]

    async def push(
        self, folder: str | Path | None = None, *, user: str | None = None
    ) -> tuple[list[FileChange], list[str]]:
        """Store the edits of the files as corrections and new texts as memories; return both and what was refused.

        Conflicts, removed texts and invalid files change nothing. Afterwards, the files are pulled.
        """
        result = await self._by_hand(folder, user=user, pushes=True)
        return result.done, [*result.refused, *(each.text for each in result.invalid)]

    async def status(self, folder: str | Path | None = None, *, user: str | None = None) -> list[FileChange]:
        """Return the differences between the files and the database, and invalid files."""
        root = self._folder(folder)
        stored = await _stored(self._services, await self.places(user=user))
        files, result = await asyncio.to_thread(_load, root, _below(user), _always)
        changes = [
            each
            for name in sorted({*stored, *files} - {each.file for each in result.invalid})
            for each in compare(name, files.get(name) or MemoryFile(), stored.get(name, {}))
        ]
        return [*changes, *result.invalid]

    async def _by_hand(self, folder: str | Path | None, *, user: str | None, pushes: bool) -> FileSync:
        root, places = self._folder(folder), await self.places(user=user)
        await asyncio.to_thread(root.mkdir, parents=True, exist_ok=True)
        async with locked(root, patience_s=_PATIENCE_S) as is_ours:
            if not is_ours:
                msg = f"Another process writes the memory files in {str(root)!r}. Try again."
                raise Conflict(msg)
            result = await sync_files(self, self._services, root, places, _below(user), pushes=pushes)
        if result.taken and not (self._watched and self._watched.resolve() == root.resolve()):
            record = receipt(self._services, "memory-files", EXPORT, context={"user": user})
            await self._services.audit.append(Scope(), [record])
        return result

    @property
    def _watched(self) -> Path | None:
        name = self._config.settings.memory.folder
        return Path(self._config.folder) / name if name else None

    def _folder(self, folder: str | Path | None) -> Path:
        root = self._watched if folder is None else Path(folder)
        if root is None:
            msg = "memory.folder: not set. Name the folder of the files, or set it in cuebook.toml."
            raise InvalidInput(msg, where="memory.folder")
        return root


async def sync_files(
    memories: MemoryFiles,
    services: Services,
    root: Path,
    places: Sequence[Place] | None,
    below: Sequence[str],
    *,
    pushes: bool = True,
    is_ready: Callable[[Sign], bool] | None = None,
) -> FileSync:
    """Push and pull the files below some folders, which are those of some owners (None: all).

    A file that is not ready is left alone. The caller has the lock of the folder.
    """
    files, result = await asyncio.to_thread(_load, root, below, is_ready or _always)
    stored = await _stored(services, places)
    if pushes:
        for name, file in files.items():
            await _push(memories, name, file, stored.get(name, {}), result)
        if result.done:
            stored = await _stored(services, places)
    names = sorted({*stored, *files} - result.busy - {each.file for each in result.invalid})
    await asyncio.to_thread(_merge, root, names, stored, files, result)
    return result


async def _stored(services: Services, places: Sequence[Place] | None) -> dict[str, dict[str, StoredMemory]]:
    """Return the current memories of owners by file and id."""
    files: dict[str, dict[str, StoredMemory]] = {}
    for some in [None] if places is None else [[each] for each in places]:
        after = 0
        while page := await services.store.memories.page(Scope(), some, after=after, limit=_PAGE):
            for each in page:
                if each.place.kind in DEPTHS:
                    files.setdefault(file_of(each.place, each.category), {})[each.id] = stored_memory(each)
            after = page[-1].no
    return files


async def _push(
    memories: MemoryFiles, name: str, file: MemoryFile, current: Mapping[str, StoredMemory], result: FileSync
) -> None:
    """Store the edits and new texts of a file, and record in `file` what was stored."""
    for each in [*compare(name, file, current)]:
        try:
            if each.state == "edited":
                before = current[each.memory].text
                stored = await memories._correct(each.memory, each.text, erase=False, before=before)  # noqa: SLF001
                file.texts[each.memory] = stored.text.strip()  # without secrets
                file.pulled[each.memory] = digest_of(stored.text)
            elif each.state == "new":
                place = place_of(name)
                if place.kind not in ("user", "project"):
                    msg = f"A memory of {place.kind} cannot be added. Add it to a user or the project."
                    raise InvalidInput(msg)
                await memories.add(each.text, category=category_of(name), user=place.id or None)
                file.new.remove(each.text)
            elif each.state == "conflict":
                raise Conflict(_CHANGED if each.memory in current else _GONE)
            else:
                continue
            result.done.append(each)
        except CuebookError as error:
            result.refused.append(f"{name}: memory {each.memory}: {error}")


@asynccontextmanager
async def locked(folder: Path, *, patience_s: float = 0.0) -> AsyncIterator[bool]:
    """Lock a folder against other processes that write memory files. Yield False if one has the lock."""
    if sys.platform == "win32":
        yield True
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        is_ours = _lock(descriptor)
        for _ in range(int(patience_s / _PAUSE_S)):
            if not is_ours:
                await asyncio.sleep(_PAUSE_S)
                is_ours = _lock(descriptor)
        yield is_ours
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # this file system has no locks
    return True


def names_in(root: Path, below: Sequence[str] = ("",)) -> list[str]:
    """Return the paths of the memory files below some folders, "" for all. Raises OSError."""
    found = [
        f"{kind}{folder.removeprefix(str(root / kind)).replace(os.sep, '/')}/{name}"
        for kind in DEPTHS
        for folder, _, names in os.walk(root / kind)
        for name in names
    ]
    return sorted(name for name in found if is_memory_file(name) and name.startswith(tuple(below)))


def _always(_: Sign) -> bool:
    return True


def _below(user: str | None) -> list[str]:
    """Return the beginnings of the paths of a user's files."""
    own = folder_of(Place("user", user or ""))
    return [""] if user is None else [f"{own}/", f"persona/{own.removeprefix('user/')}/"]


def _load(root: Path, below: Sequence[str], is_ready: Callable[[Sign], bool]) -> tuple[dict[str, MemoryFile], FileSync]:
    """Return the files below some folders by path, and a result with the signatures and the invalid ones."""
    files, result = dict[str, MemoryFile](), FileSync()
    for name in names_in(root, below):
        sign = sign_of(root / name)
        if sign is None:
            continue
        if not is_ready(sign):
            result.busy.add(name)
            continue
        result.signs[name] = sign
        try:
            check_path(name)
            file = parse(decode(read_bytes(root / name, name, most=_MAX_BYTES), name), name)
        except InvalidInput as error:
            result.invalid.append(_invalid(name, str(error)))
        else:
            file.sign = sign
            files[name] = file
    return files, result


def _merge(
    root: Path,
    names: Iterable[str],
    stored: Mapping[str, Mapping[str, StoredMemory]],
    files: Mapping[str, MemoryFile],
    result: FileSync,
) -> None:
    """Write the changes of the database into the files, and record them in the result."""
    for name in names:
        before, current = files.get(name) or MemoryFile(), stored.get(name, {})
        after, taken = merged(name, before, current)
        try:
            written = _write(root, name, before, after, current)
        except OSError as error:
            result.invalid.append(_invalid(name, f"{name}: cannot be written ({error.strerror})."))
            continue
        if written:
            result.signs[name] = sign_of(root / name)
            result.taken += taken


def _write(root: Path, name: str, before: MemoryFile, after: MemoryFile, current: Mapping[str, StoredMemory]) -> bool:
    """Write a file if its content changes; delete it if it has no memory. Return False if it was edited meanwhile."""
    path = root / name
    content = render(after, current.values()) if after.texts or after.pulled or after.new else ""
    if content == before.content:
        return True
    if sign_of(path) != before.sign:
        return False
    if content:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, [content])
        return True
    path.unlink()
    with suppress(OSError):  # until a folder has other files
        for folder in [*path.relative_to(root).parents][:-1]:
            (root / folder).rmdir()
    return True


def _invalid(name: str, why: str) -> FileChange:
    return FileChange(state="invalid", file=name, memory="", text=why)
