"""A project's handwritten experiences on disk, read again when a file changed.

| what | rule |
| --- | --- |
| an experience | `handcrafted_exp_*.yaml` (or `.yml`) in the folder itself, in the order of the names |
| two of one id | the first file's holds; both are named |
| changed | another time, size or inode; looked for whenever a turn asks |
| broken by an edit | what it said last holds while the process runs; told once in the log, and by `experience list` |
"""

import asyncio
import logging
import os
import stat
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from cuebook.errors import InvalidInput, TooLarge
from cuebook.memory.experience import read_experience
from cuebook.prompts import yaml_text
from cuebook.records.persona import Experience

log = logging.getLogger("cuebook.experience")

BEGINNING: Final = "handcrafted_exp_"
ENDINGS: Final = (".yaml", ".yml")
#: How files begin that TaskWeaver writes beside them.
LEARNED: Final = ("exp_", "raw_exp_")
#: Bytes of a file; a character of `yaml_text.MAX_CHARS` has at most four.
MAX_BYTES: Final = 4 * yaml_text.MAX_CHARS
#: Files of a folder that are read: a model can be shown no more, and each is looked at in every turn.
MOST: Final = 1_000

#: What changes with a file: its time in nanoseconds, its size, its inode.
Mark = tuple[int, int, int]


class FileExperience(Struct, frozen=True, kw_only=True):
    """An experience and the file it stands in."""

    experience: Experience
    file: str


class Shelf(Struct, frozen=True, kw_only=True):
    """All experiences of a folder in the order of their files, and what is wrong or odd with any of them."""

    kept: tuple[FileExperience, ...] = ()
    problems: tuple[str, ...] = ()


class _ExperienceFile(Struct, kw_only=True):
    """A file as it was last read. `said` is what it said last when it could be read."""

    mark: Mark
    said: Experience | None
    fault: str = ""
    unknown: tuple[str, ...] = ()


class ExperienceFiles:
    """The files of one folder. Any thread may read."""

    def __init__(self, folder: Path, *, shown: str) -> None:
        """`shown` is how the folder is called in what is said about it."""
        self._folder = folder
        self._shown = shown
        self._files: dict[str, _ExperienceFile] = {}
        self._shelf = Shelf()
        self._fault = ""
        self._told: set[str] = set()
        self._lock = threading.Lock()

    def read(self, *, quiet: bool = False) -> Shelf:
        """Return what the files say now. Costs a look at each file; only a changed one is read.

        What is wrong is told once in the log, not to who is `quiet`: that one tells it itself.
        """
        with self._lock:
            marks, fault = self._look()
            changed = [name for name, mark in marks.items() if self._mark(name) != mark]
            gone = self._files.keys() - marks.keys()
            if changed or gone or fault != self._fault:
                self._fault = fault
                for name in gone:
                    del self._files[name]
                for name in changed:
                    self._files[name] = self._read(name, marks[name])
                self._shelf = self._gathered(fault)
            for problem in () if quiet else self._shelf.problems:
                if problem not in self._told:
                    log.warning("%s", problem)
            self._told = self._told if quiet else set(self._shelf.problems)
            return self._shelf

    def unread(self) -> list[str]:
        """Say of files that look like experiences and are not named like one that they are not read.

        What TaskWeaver learns by itself, `exp_*` and `raw_exp_*`, is meant for nobody here.
        """
        try:
            names = sorted(file.name for file in self._folder.iterdir() if file.suffix in ENDINGS)
        except OSError:
            return []
        others = [name for name in names if not name.startswith((BEGINNING, *LEARNED))]
        return [f"{self._named(name)}: not read; an experience is named {BEGINNING}NAME.yaml" for name in others]

    def _mark(self, name: str) -> Mark | None:
        return self._files[name].mark if name in self._files else None

    def _look(self) -> tuple[dict[str, Mark], str]:
        """Return what tells whether a file changed, by name, and why the folder cannot be read: then none did."""
        try:
            with os.scandir(self._folder) as entries:
                found = [
                    (entry.name, _mark(entry))
                    for entry in entries
                    if entry.name.startswith(BEGINNING) and entry.name.endswith(ENDINGS)
                ]
        except FileNotFoundError:
            return {}, ""
        except OSError as error:
            known = {name: file.mark for name, file in self._files.items()}
            holds = "; what its files said before holds" if known else "; check its permissions"
            return known, f"{self._shown}: the experiences cannot be read ({error.strerror}){holds}"
        found.sort()
        if len(found) > MOST:
            return dict(found[:MOST]), f"{self._shown}: {len(found):,} experiences; the first {MOST:,} are read"
        return dict(found), ""

    def _read(self, name: str, mark: Mark) -> _ExperienceFile:
        before = self._files.get(name)
        try:
            said, unknown = self._experience(name)
        except InvalidInput as error:
            kept = before.said if before else None
            holds = "; what it said before holds" if kept else "; it is left out"
            return _ExperienceFile(mark=mark, said=kept, fault=f"{error}{holds}")
        return _ExperienceFile(mark=mark, said=said, unknown=unknown)

    def _experience(self, name: str) -> tuple[Experience, tuple[str, ...]]:
        file, shown = self._folder / name, self._named(name)
        try:
            status = file.stat()
            if not stat.S_ISREG(status.st_mode):
                raise InvalidInput(f"{shown}: is no file", where=shown)
            if status.st_size > MAX_BYTES:
                msg = f"{shown}: {status.st_size:,} bytes are over the limit of {MAX_BYTES:,}; shorten it"
                raise TooLarge(msg, where=shown)
            text = file.read_bytes().decode("utf-8-sig")
        except OSError as error:
            msg = f"{shown}: cannot be read ({error.strerror}); check its permissions"
            raise InvalidInput(msg, where=shown) from error
        except UnicodeDecodeError as error:
            msg = f"{shown}: is no UTF-8 text ({error.reason} at byte {error.start}); convert it"
            raise InvalidInput(msg, where=shown) from error
        nodes = yaml_text.load(text, where=shown)
        document = {key: _value(node) for key, node in nodes.items()}
        return read_experience(document, file=shown)

    def _named(self, name: str) -> str:
        """Return a file as it is called in what is said about it; bytes that are no UTF-8 are written out."""
        return f"{self._shown}/{os.fsencode(name).decode('utf-8', 'backslashreplace')}"

    def _gathered(self, fault: str) -> Shelf:
        kept: dict[str, FileExperience] = {}
        problems = [fault] if fault else []
        for name in sorted(self._files):
            file, shown = self._files[name], self._named(name)
            if file.fault:
                problems.append(file.fault)
            if file.unknown:
                keys = ", ".join(file.unknown[:5])
                problems.append(f"{shown}: {keys}: not read; an experience has exp_id, who, when and what")
            if file.said is None:
                continue
            first = kept.get(file.said.exp_id)
            if first is not None:
                problems.append(f"{shown}: exp_id {file.said.exp_id!r} is taken by {first.file}; give it another")
                continue
            kept[file.said.exp_id] = FileExperience(experience=file.said, file=shown)
        return Shelf(kept=tuple(kept.values()), problems=tuple(problems))


class Reader:
    """What a turn asks for the experiences of now."""

    def __init__(self, files: ExperienceFiles) -> None:
        self.files = files

    async def __call__(self) -> Sequence[Experience]:
        shelf = await asyncio.to_thread(self.files.read)
        return [each.experience for each in shelf.kept]


def _mark(entry: "os.DirEntry[str]") -> Mark:
    """Return what changes with a file; the same for one that cannot be looked at, which is told when it is read."""
    try:
        status = entry.stat()
    except OSError:
        return (0, -1, 0)
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def _value(node: yaml_text.Node) -> object:
    """Return a value with every scalar as the text that stands there: an id 007 is none 7."""
    if isinstance(node.value, list):
        return [_value(child) for child in node.value]
    if isinstance(node.value, dict):
        return {key: _value(child) for key, child in node.value.items()}
    return None if node.empty else node.value


def strangers(shelf: Shelf, names: Sequence[str]) -> list[str]:
    """Name whom experiences are for and who is no persona's id and no role."""
    known = {name.casefold() for name in names}
    return [
        f"{each.file}: who: no persona or role {name!r}; there are {', '.join(sorted(set(names)))}"
        for each in shelf.kept
        for name in each.experience.who
        if name.casefold() not in known
    ]
