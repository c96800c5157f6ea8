"""Anthropic's memory tool: the files that Claude writes to `/memories` are documents of a user."""

import re
from collections.abc import Sequence
from typing import Final

from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
from anthropic.types import beta
from msgspec import Struct

from cuebook.app.cuebook import Cuebook
from cuebook.errors import Conflict, NotFound
from cuebook.integrations.connection import Connection, Where, both, documents_in
from cuebook.records.document import Document, DocumentChange

#: The path of the memory directory, as Claude names it.
_MOUNT: Final = "/memories"
#: The place of the files; a directory is a place in it, and the key is the file's name.
_ROOT: Final = ("anthropic", "memories")
#: Levels of directories that `view` lists, and the width of the number of a line.
_DEPTH, _WIDTH = 2, 6
#: Names of a path, characters of a name, and characters that no name has: control characters and half pairs.
_DEEPEST, _LONGEST, _UNUSABLE = 30, 1000, re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
#: Lines of context before and after a replacement.
_CONTEXT: Final = 2


class _Path(Struct, frozen=True):
    """A path below the memory directory: as the model wrote it, and its names."""

    text: str
    names: tuple[str, ...]

    @property
    def space(self) -> tuple[str, ...]:
        """Return its place as a directory."""
        return (*_ROOT, *self.names)


class _MemoryTool(Connection):
    """The commands of the memory tool, each a method of its name."""

    def __init__(
        self,
        where: Where = None,
        *,
        user: str | None = None,
        cache_control: beta.BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        """Connect to a project; `user` owns the files. Other users have other files."""
        Connection.__init__(self, where)
        self._user, self._cache_control = user, cache_control

    async def _view(self, cue: Cuebook, command: beta.BetaMemoryTool20250818ViewCommand) -> str:
        path = _path_of(command.path)
        if (file := await self._file(cue, path)) is not None:
            return _numbered(path, file.value["text"], command.view_range)
        found = await documents_in(cue, path.space, user=self._user)
        _require(found or not path.names, f"The path {path.text} does not exist. Please provide a valid path.")
        return _listing(path, found)

    async def _create(self, cue: Cuebook, command: beta.BetaMemoryTool20250818CreateCommand) -> str:
        path = _path_of(command.path)
        exists = await self._file(cue, path) is not None or await self._is_directory(cue, path)
        _require(not exists, f"File {path.text} already exists")
        await self._check_parents(cue, path)
        await self._put(cue, _change(path.names, command.file_text))
        return f"File created successfully at: {path.text}"

    async def _str_replace(self, cue: Cuebook, command: beta.BetaMemoryTool20250818StrReplaceCommand) -> str:
        path = _path_of(command.path)
        text = (await self._existing(cue, path)).value["text"]
        asked = f"old_str `{command.old_str}`"
        missing = f"No replacement was performed, {asked} did not appear verbatim in {path.text}."
        _require(command.old_str in text, missing)
        if text.count(command.old_str) > 1:
            starts = (at for at in range(len(text) + 1) if text.startswith(command.old_str, at))
            lines = ", ".join(str(text.count("\n", 0, at) + 1) for at in starts)
            msg = f"No replacement was performed. Multiple occurrences of {asked} in lines: {lines}. "
            raise ToolError(msg + "Please ensure it is unique")
        at = text.count("\n", 0, text.index(command.old_str))
        changed = text.replace(command.old_str, command.new_str)
        await self._put(cue, _change(path.names, changed, before=text))
        first = max(0, at - _CONTEXT)
        snippet = _numbers(changed.split("\n")[first : at + _CONTEXT + 1], first=first + 1)
        edited = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
        return f"{edited}\n{snippet}"

    async def _insert(self, cue: Cuebook, command: beta.BetaMemoryTool20250818InsertCommand) -> str:
        path, at = _path_of(command.path), command.insert_line
        text = (await self._existing(cue, path)).value["text"]
        lines = text.removesuffix("\n").split("\n") if text else []
        valid = f"It should be within the range [0, {len(lines)}]."
        _require(0 <= at <= len(lines), f"Invalid `insert_line` parameter: {at}. {valid}")
        lines.insert(at, command.insert_text.rstrip("\n"))
        changed = "\n".join(lines).removesuffix("\n") + "\n"
        await self._put(cue, _change(path.names, changed, before=text))
        return f"The file {path.text} has been edited."

    async def _delete(self, cue: Cuebook, command: beta.BetaMemoryTool20250818DeleteCommand) -> str:
        path = _path_of(command.path)
        _require(path.names, f"Cannot delete the {_MOUNT} directory itself")
        existed = await cue.documents.put([_change(path.names, None)], user=self._user)
        existed = existed or await cue.documents.delete(path.space, user=self._user)
        _require(existed, f"The path {path.text} does not exist")
        return f"Successfully deleted {path.text}"

    async def _rename(self, cue: Cuebook, command: beta.BetaMemoryTool20250818RenameCommand) -> str:
        old, new = _path_of(command.old_path), _path_of(command.new_path)
        _require(old.names, f"Cannot rename the {_MOUNT} directory itself")
        exists = await self._file(cue, new) is not None or await self._is_directory(cue, new)
        _require(not exists, f"The destination {new.text} already exists")
        file = await self._file(cue, old)
        found = [file] if file is not None else await documents_in(cue, old.space, user=self._user)
        _require(found, f"The path {old.text} does not exist")
        _require(new.names[: len(old.names)] != old.names, f"Cannot move {old.text} into itself")
        await self._check_parents(cue, new)
        changes: list[DocumentChange] = []
        for each in found:
            names = (*each.space[len(_ROOT) :], each.key)
            text, target = each.value["text"], (*new.names, *names[len(old.names) :])
            changes += [_change(names, None, before=text), _change(target, text)]
        await self._put(cue, *changes)
        return f"Successfully renamed {old.text} to {new.text}"

    async def _perform(self, cue: Cuebook, command: beta.BetaMemoryTool20250818Command) -> str:
        """Return the answer to a command. Raises ToolError, whose message the model reads."""
        answer: str = await getattr(self, f"_{command.command}")(cue, command)
        return answer

    perform, aperform = both(_perform)

    async def _clear(self, cue: Cuebook) -> str:
        await cue.documents.delete(_ROOT, user=self._user)
        return "All memory cleared"

    clear, aclear = both(_clear)

    async def _file(self, cue: Cuebook, path: _Path) -> Document | None:
        if not path.names:
            return None
        try:
            return await cue.documents.get((*_ROOT, *path.names[:-1]), path.names[-1], user=self._user)
        except NotFound:
            return None

    async def _existing(self, cue: Cuebook, path: _Path) -> Document:
        """Return a file. Raises ToolError."""
        file = await self._file(cue, path)
        if file is None:
            missing = f"The path {path.text} does not exist. Please provide a valid path."
            raise ToolError(f"The path {path.text} is not a file." if await self._is_directory(cue, path) else missing)
        return file

    async def _is_directory(self, cue: Cuebook, path: _Path) -> bool:
        return not path.names or bool(await cue.documents.list(path.space, limit=1, user=self._user))

    async def _check_parents(self, cue: Cuebook, path: _Path) -> None:
        """Check that no directory of a path is a file. Raises ToolError."""
        for depth in range(1, len(path.names)):
            file = await self._file(cue, _Path(path.text, path.names[:depth]))
            _require(file is None, f"The path {'/'.join((_MOUNT, *path.names[:depth]))} is a file, not a directory")

    async def _put(self, cue: Cuebook, *changes: DocumentChange) -> None:
        """Store changes, all or none. Raises ToolError if another session has changed a file meanwhile."""
        try:
            await cue.documents.put(changes, user=self._user)
        except Conflict as conflict:
            names = ", ".join(each.key for each in changes)
            msg = f"Changed meanwhile by another session: {names}. View it, then try again."
            raise ToolError(msg) from conflict


class CuebookMemoryTool(_MemoryTool, BetaAbstractMemoryTool):
    """Claude's memory: `client.beta.messages.tool_runner(tools=[CuebookMemoryTool("my-project")], …)`."""

    view = create = str_replace = insert = delete = rename = _MemoryTool.perform
    clear_all_memory = _MemoryTool.clear


class AsyncCuebookMemoryTool(_MemoryTool, BetaAsyncAbstractMemoryTool):
    """Claude's memory for `AsyncAnthropic`."""

    view = create = str_replace = insert = delete = rename = _MemoryTool.aperform
    clear_all_memory = _MemoryTool.aclear


def _require(condition: object, message: str) -> None:
    """Raise ToolError, which the model reads, unless a condition is met."""
    if not condition:
        raise ToolError(message)


def _path_of(text: str) -> _Path:
    """Return a path without its "." and "..". Raises ToolError for one outside the memory directory."""
    _require(f"{text}/".startswith(f"{_MOUNT}/"), f"Path must start with {_MOUNT}, got: {text}")
    names: list[str] = []
    for name in text.split("/")[2:]:
        if name == "..":
            _require(names, f"Path {text} would escape {_MOUNT} directory")
            names.pop()
        elif name not in ("", "."):
            names.append(name)
    usable = len(names) <= _DEEPEST and all(len(name) <= _LONGEST and not _UNUSABLE.search(name) for name in names)
    _require(usable, f"Path {text!r} is too long or contains control characters")
    return _Path(text, tuple(names))


def _change(names: Sequence[str], text: str | None, *, before: str | None = None) -> DocumentChange:
    """Return the change of a file's text: its deletion without a `text`, a new file without the text `before`."""
    value, expected = (None if each is None else {"text": each} for each in (text, before))
    new = before is None and text is not None
    return DocumentChange(space=(*_ROOT, *names[:-1]), key=names[-1], value=value, new=new, expected=expected)


def _listing(path: _Path, files: Sequence[Document]) -> str:
    """Return the files and directories below a directory, each with its size; hidden ones are left out."""
    sizes: dict[tuple[str, ...], int] = {(): 0}
    directories: set[tuple[str, ...]] = set()
    for each in files:
        names = (*each.space[len(path.space) :], each.key)
        for depth in range(min(len(names), _DEPTH) + 1):
            part = names[:depth]
            sizes[part] = sizes.get(part, 0) + len(each.value["text"].encode())
            directories.update({part} if depth < len(names) else ())
    shown = [names for names in sorted(sizes) if not any(name.startswith(".") for name in names)]
    header = f"Here're the files and directories up to {_DEPTH} levels deep in {path.text}, excluding hidden items:"
    lines = [
        f"{_size(sizes[names])}\t{'/'.join((path.text, *names))}{'/' if names and names in directories else ''}"
        for names in shown
    ]
    return "\n".join((header, *lines))


def _size(size: int) -> str:
    unit = min((size.bit_length() - 1) // 10, 3) if size else 0
    number = size / 1024**unit
    return f"{number:.0f}{'BKMG'[unit]}" if number == int(number) else f"{number:.1f}{'BKMG'[unit]}"


def _numbered(path: _Path, text: str, lines_asked: Sequence[int] | None) -> str:
    lines, first = text.split("\n"), 1
    if lines_asked and len(lines_asked) == 2:
        first, last = max(1, lines_asked[0]), lines_asked[1]
        lines = lines[first - 1 : None if last == -1 else last]
    return f"Here's the content of {path.text} with line numbers:\n{_numbers(lines, first=first)}"


def _numbers(lines: Sequence[str], *, first: int) -> str:
    return "\n".join(f"{number:>{_WIDTH}}\t{line}" for number, line in enumerate(lines, first))
