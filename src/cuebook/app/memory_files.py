"""Keep memories as Markdown files: one file per owner and category, edited and versioned with git.

The database is the truth, and a file is a view of it with the digest of each text as it was pulled. Pull and push are
three-way merges: an edit on one side is taken, and edits on both sides are a conflict, marked as git does. No edit is
discarded.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote

from msgspec import Struct

from cuebook.app.blocking.cuebook import BlockingCuebook
from cuebook.app.files import decode, read_bytes, write_whole
from cuebook.errors import CuebookError, InvalidInput
from cuebook.records.memory_answers import StoredMemory

State = Literal["edited", "new", "conflict", "changed", "added", "ended", "removed"]
#: The line before each memory's text, with its id; "new" for one that is to be added.
_MARK = re.compile(r"^<!-- memory ([0-9a-f]{16}|new) -->$", re.MULTILINE)
#: Such a line in a memory's text gets a backslash in the file, so that no text can pretend to be another memory.
_LIKE_A_MARK = re.compile(r"^(\\*<!-- memory )", re.MULTILINE)
_ESCAPED = re.compile(r"^\\(\\*<!-- memory )", re.MULTILINE)
_FENCE = "---\n"
#: The lines of a conflict, as git writes them.
_OURS, _BETWEEN, _THEIRS = "<<<<<<< file", "=======", ">>>>>>> database"
_NEW = "new"


class MemoryFile(Struct, kw_only=True):
    """The content of a file: texts by memory id, the digests of these texts when they were pulled, and new texts."""

    owner: str = ""
    category: str = ""
    texts: dict[str, str] = {}
    pulled: dict[str, str] = {}
    new: list[str] = []


class FileChange(Struct, frozen=True, kw_only=True):
    """A difference between a file and the database.

    edited, new, removed: in the file. changed, added, ended: in the database. conflict: in both.
    """

    state: State
    file: str
    memory: str
    text: str


def pull(cue: BlockingCuebook, folder: Path, *, user: str | None = None) -> list[FileChange]:
    """Write the current memories into files, and return what was taken. Edits in the files are kept.

    A memory that was edited in both gets conflict markers. Raises InvalidInput naming an unreadable file.
    """
    stored = _stored(cue, user)
    files = _load(folder, user)
    taken: list[FileChange] = []
    for name in sorted({*stored, *files}):
        current = {each.id: each for each in stored.get(name, ())}
        file = files.get(name) or MemoryFile()
        changes = list(_compare(name, file, current))
        merged = {id_: each.text.strip() for id_, each in current.items()}
        merged |= {each.memory: each.text for each in changes if each.state == "edited"}
        for each in changes:
            if each.state == "conflict":
                theirs = current[each.memory].text.strip() if each.memory in current else ""
                is_marked = _is_marked(each.text)
                merged[each.memory] = (
                    each.text if is_marked else f"{_OURS}\n{each.text}\n{_BETWEEN}\n{theirs}\n{_THEIRS}"
                )
        removed = {each.memory for each in changes if each.state == "removed"}
        _write(folder / name, current, {id_: text for id_, text in merged.items() if id_ not in removed}, file)
        taken += [each for each in changes if each.state in ("changed", "added", "ended", "conflict")]
    return taken


def status(cue: BlockingCuebook, folder: Path, *, user: str | None = None) -> list[FileChange]:
    """Return the differences between the files and the database."""
    stored, files = _stored(cue, user), _load(folder, user)
    return [
        each
        for name in sorted({*stored, *files})
        for each in _compare(name, files.get(name) or MemoryFile(), {each.id: each for each in stored.get(name, ())})
    ]


def push(cue: BlockingCuebook, folder: Path, *, user: str | None = None) -> tuple[list[FileChange], list[str]]:
    """Store the edits of the files as corrections and new texts as memories; return both and what was refused.

    Conflicts and removed texts change nothing. Afterwards, the files are pulled.
    """
    done: list[FileChange] = []
    refused: list[str] = []
    for each in status(cue, folder, user=user):
        try:
            if each.state == "edited":
                cue.memory.update(each.memory, each.text)
            elif each.state == "new":
                owner, category = _owner_of(each.file)
                if owner not in ("user", "project"):
                    refused.append(
                        f"{each.file}: a memory of {owner} cannot be added. Add it to a user or the project."
                    )
                    continue
                cue.memory.add(each.text, category=category, user=_user_of(each.file))
            else:
                if each.state == "conflict":
                    refused.append(
                        f"{each.file}: memory {each.memory}: changed in the database too. Edit it and push again."
                    )
                continue
            done.append(each)
        except CuebookError as error:
            refused.append(f"{each.file}: memory {each.memory}: {error}")
    added = {(each.file, each.text) for each in done if each.state == "new"}
    for name in {each.file for each in done if each.state == "new"}:
        file = _read(folder / name, name)
        file.new = [text for text in file.new if (name, text) not in added]
        write_whole(folder / name, [_render(file)])
    pull(cue, folder, user=user)
    return done, refused


def _compare(name: str, file: MemoryFile, current: Mapping[str, StoredMemory]) -> Iterator[FileChange]:
    for id_, text in file.texts.items():
        here, pulled = _digest(text), file.pulled.get(id_)
        there = _digest(current[id_].text) if id_ in current else None
        state: State | None = None
        if here not in (pulled, there):
            state = "edited" if there is not None and there == pulled and not _is_marked(text) else "conflict"
        elif there is None:
            state = "ended"
        elif here != there:
            state = "changed"
        if state is not None:
            yield FileChange(state=state, file=name, memory=id_, text=text)
    for id_, memory in current.items():
        if id_ not in file.texts:
            state = "removed" if file.pulled.get(id_) == _digest(memory.text) else "added"
            yield FileChange(state=state, file=name, memory=id_, text=memory.text.strip())
    for text in file.new:
        yield FileChange(state="new", file=name, memory=_NEW, text=text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.replace("\r\n", "\n").strip().encode()).hexdigest()[:16]


def _is_marked(text: str) -> bool:
    return any(line.startswith(("<<<<<<< ", ">>>>>>> ")) for line in text.split("\n"))


# ---- files ----------------------------------------------------------------------------------------------------------


def _stored(cue: BlockingCuebook, user: str | None) -> dict[str, list[StoredMemory]]:
    """Return the current memories by file name."""
    files: dict[str, list[StoredMemory]] = {}
    cursor = None
    while True:
        page = cue.memory.list(user=user, limit=1_000, cursor=cursor)
        for each in page.items:
            files.setdefault(_name_of(each), []).append(each)
        if not (cursor := page.next):
            return files


def _name_of(memory: StoredMemory) -> str:
    owner = [
        each for each in (memory.user_id, memory.persona_id, memory.organization_id) if isinstance(each, str) and each
    ]
    return "/".join([memory.scope, *map(_safe, owner), f"{_safe(memory.category)}.md"])


def _safe(name: str) -> str:
    """Return a name that every file system accepts."""
    return quote(name, safe=" @+,=").replace(".", "%2E") if name.startswith(".") else quote(name, safe=" @+,=.")


def _owner_of(name: str) -> tuple[str, str]:
    """Return the scope and the category of a file."""
    return name.partition("/")[0], Path(name).stem


def _user_of(name: str) -> str | None:
    scope, *owner, _ = name.split("/")
    return unquote(owner[0]) if scope == "user" and owner else None


def _load(folder: Path, user: str | None) -> dict[str, MemoryFile]:
    """Read the files of a folder by name; with `user` only that user's."""
    names = [file.relative_to(folder).as_posix() for file in sorted(folder.rglob("*.md"))]
    own = [name for name in names if name.count("/") and not name.startswith(".")]
    if user is not None:
        own = [name for name in own if name.split("/")[1] == _safe(user)]
    return {name: _read(folder / name, name) for name in own}


def _read(path: Path, name: str) -> MemoryFile:
    import yaml

    text = decode(read_bytes(path, name), name).replace("\r\n", "\n")
    head, fence, body = text.removeprefix(_FENCE).partition(f"\n{_FENCE}")
    if not text.startswith(_FENCE) or not fence:
        msg = f"{name}: no front matter. Restore its beginning, between two lines ---."
        raise InvalidInput(msg, where=name)
    try:
        about: Any = yaml.safe_load(head)
        pulled = {str(each["id"]): str(each["digest"]) for each in about.get("memories") or ()}
        owner, category = str(about["owner"]), str(about["category"])
    except (yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        msg = f"{name}: invalid front matter ({' '.join(str(error).split())}). Restore it."
        raise InvalidInput(msg, where=name) from error
    _, *pieces = _MARK.split(body)
    values = [(id_, _ESCAPED.sub(r"\1", text.strip())) for id_, text in zip(pieces[::2], pieces[1::2], strict=True)]
    texts = {id_: text for id_, text in values if id_ != _NEW and text}
    if len(texts) < len([id_ for id_, text in values if id_ != _NEW and text]):
        msg = f"{name}: the same memory stands in it twice. Remove one, or replace its ID by `new`."
        raise InvalidInput(msg, where=name)
    new = [text for id_, text in values if id_ == _NEW and text]
    return MemoryFile(owner=owner, category=category, texts=texts, pulled=pulled, new=new)


def _write(path: Path, current: Mapping[str, StoredMemory], texts: Mapping[str, str], before: MemoryFile) -> None:
    """Write a file if its content changes; delete it if it has no memory."""
    if not current and not texts and not before.new:
        path.unlink(missing_ok=True)
        return
    pulled = {id_: _digest(each.text) for id_, each in current.items()}
    any_ = next(iter(current.values()), None)
    owner, category = (any_.owner, any_.category) if any_ else (before.owner, before.category)
    file = MemoryFile(owner=owner, category=category, texts=dict(texts), pulled=pulled, new=before.new)
    content = _render(file, current.values())
    if not path.exists() or path.read_text("utf-8") != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, [content])


def _render(file: MemoryFile, memories: Iterable[StoredMemory] = ()) -> str:
    import yaml

    about = {each.id: each for each in memories}
    entries = [_entry(id_, digest, about.get(id_)) for id_, digest in file.pulled.items()]
    head = yaml.safe_dump(
        {"cuebook": 1, "owner": file.owner, "category": file.category, "memories": entries},
        allow_unicode=True, sort_keys=False, width=1_000,
    )  # fmt: skip
    sections = [*file.texts.items(), *((_NEW, text) for text in file.new)]
    escaped = ((id_, _LIKE_A_MARK.sub(r"\\\1", text)) for id_, text in sections)
    body = "\n".join(f"<!-- memory {id_} -->\n{text}\n" for id_, text in escaped)
    return f"{_FENCE}{head}{_FENCE}\n{body}"


def _entry(id_: str, digest: str, memory: StoredMemory | None) -> dict[str, Any]:
    """Return a memory's front matter: id, validity and sources, and the digest of its pulled text."""
    entry: dict[str, Any] = {"id": id_, "digest": digest}
    if memory is not None:
        entry["since"] = str(memory.valid_from)
        entry |= {"key": memory.key} if isinstance(memory.key, str) and memory.key != memory.text else {}
        sources = [f"{each.conversation_id}/{each.post_id}" for each in memory.sources]
        entry |= {"sources": sources} if sources else {}
    return entry
