"""Load the handwritten experiences of a project, and reload files that changed.

| what | rule |
| --- | --- |
| an experience | `handcrafted_exp_*.yaml` (or `.yml`) in the folder itself, in the order of the names |
| duplicate id | the first file wins; both are reported |
| changed | different time, size or inode; checked in every turn |
| invalid after an edit | the last valid content stays in effect until restart; logged once; see `experience list` |
"""

import asyncio
import logging
import os
import threading
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import ClassVar, Final

from msgspec import Struct

from cuebook.app.files import Sign, decode, read_bytes, signs_in
from cuebook.errors import InvalidInput
from cuebook.memory.experience import read_experience
from cuebook.prompts import yaml_text
from cuebook.records.answer import as_answer
from cuebook.records.persona import Experience

log = logging.getLogger("cuebook.experience")

BEGINNING: Final = "handcrafted_exp_"
ENDINGS: Final = (".yaml", ".yml")
#: Prefixes of files that TaskWeaver writes in the same folder.
LEARNED: Final = ("exp_", "raw_exp_")
#: Maximum file size in bytes; a character of `yaml_text.MAX_CHARS` has at most four.
MAX_BYTES: Final = 4 * yaml_text.MAX_CHARS
#: Maximum number of files: a model cannot be shown more, and each is checked in every turn.
MOST: Final = 1_000


class ExperienceEntry(Experience, frozen=True, kw_only=True):
    """An experience with the field names of its file, and the file."""

    COLUMNS: ClassVar = ("exp_id", "who", "when", "file")

    who: tuple[str, ...]  # always in JSON
    when: str
    what: str
    file: str


class Shelf(Struct, frozen=True, kw_only=True):
    """All experiences of a folder in the order of their files, and the problems found."""

    kept: tuple[ExperienceEntry, ...] = ()
    problems: tuple[str, ...] = ()


class _ExperienceFile(Struct, kw_only=True):
    """A file as last read. `said` is its last valid content."""

    mark: Sign | None
    said: Experience | None
    fault: str = ""
    unknown: tuple[str, ...] = ()


class ExperienceFiles:
    """The experience files of a folder. Thread-safe."""

    def __init__(self, folder: Path, *, shown: str) -> None:
        """Create it; `shown` is the folder's name in messages."""
        self._folder = folder
        self._shown = shown
        self._files: dict[str, _ExperienceFile] = {}
        self._shelf = Shelf()
        self._fault = ""
        self._told: set[str] = set()
        self._lock = threading.Lock()

    def read(self, *, quiet: bool = False) -> Shelf:
        """Return the current experiences. Costs one `stat` per file; only changed files are parsed.

        Problems are logged once, unless `quiet`: then the caller reports them.
        """
        with self._lock:
            marks, fault = self._look()
            changed = [
                name for name, mark in marks.items() if name not in self._files or self._files[name].mark != mark
            ]
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

    async def __call__(self) -> Sequence[Experience]:
        """Return the current experiences for a turn."""
        return (await asyncio.to_thread(self.read)).kept

    def unread(self) -> list[str]:
        """Return a message for each ignored file that looks like an experience but has another kind of name.

        TaskWeaver's own files, `exp_*` and `raw_exp_*`, are skipped without a message.
        """
        try:
            names = sorted(file.name for file in self._folder.iterdir() if file.suffix in ENDINGS)
        except OSError:
            return []
        others = [name for name in names if not name.startswith((BEGINNING, *LEARNED))]
        return [f"{self._named(name)}: ignored. Experiences are named {BEGINNING}NAME.yaml." for name in others]

    def _look(self) -> tuple[dict[str, Sign | None], str]:
        """Return each file's signature by name, and the error if the folder is unreadable: then no file changed."""
        try:
            results = signs_in(self._folder, lambda name: name.startswith(BEGINNING) and name.endswith(ENDINGS))
        except FileNotFoundError:
            return {}, ""
        except OSError as error:
            known = {name: file.mark for name, file in self._files.items()}
            holds = ". Keeping the previous content." if known else ". Check its permissions."
            return known, f"{self._shown}: the experiences cannot be read ({error.strerror}){holds}"
        if len(results) > MOST:
            fault = f"{self._shown}: {len(results):,} experiences. Only the first {MOST:,} are used."
            return dict(islice(results.items(), MOST)), fault
        return results, ""

    def _read(self, name: str, mark: Sign | None) -> _ExperienceFile:
        before, label = self._files.get(name), self._named(name)
        try:
            text = decode(read_bytes(self._folder / name, label, most=MAX_BYTES), label)
            document = {key: yaml_text.texts(node) for key, node in yaml_text.load(text, where=label).items()}
            experience, unknown = read_experience(document, file=label)
        except InvalidInput as error:
            kept = before.said if before else None
            holds = ". Keeping the previous content." if kept else ". Ignoring the file."
            return _ExperienceFile(mark=mark, said=kept, fault=str(error).rstrip(".") + holds)
        return _ExperienceFile(mark=mark, said=experience, unknown=unknown)

    def _named(self, name: str) -> str:
        """Return a file's path for messages; escape bytes that are not UTF-8."""
        return f"{self._shown}/{os.fsencode(name).decode('utf-8', 'backslashreplace')}"

    def _gathered(self, fault: str) -> Shelf:
        entries: dict[str, ExperienceEntry] = {}
        problems = [fault] if fault else []
        for name in sorted(self._files):
            file, text = self._files[name], self._named(name)
            if file.fault:
                problems.append(file.fault)
            if file.unknown:
                keys = ", ".join(file.unknown[:5])
                problems.append(f"{text}: {keys}: unknown, ignored. An experience has exp_id, who, when and what.")
            if file.said is None:
                continue
            first = entries.get(file.said.exp_id)
            if first is not None:
                problems.append(f"{text}: exp_id {file.said.exp_id!r} is already used by {first.file}. Choose another.")
                continue
            entries[file.said.exp_id] = as_answer(ExperienceEntry, file.said, file=text)
        return Shelf(kept=tuple(entries.values()), problems=tuple(problems))


def strangers(shelf: Shelf, names: Sequence[str]) -> list[str]:
    """Return a message for each `who` of an experience that is not a persona's id or a role."""
    known = {name.casefold() for name in names}
    return [
        f"{each.file}: who: unknown persona or role {name!r}. Available: {', '.join(sorted(set(names)))}."
        for each in shelf.kept
        for name in each.who
        if name.casefold() not in known
    ]
