"""The Markdown file of an owner's memories of one category: parse, render, compare and name it.

A file has the digest of each text as it was pulled, so that a comparison with the database is a three-way merge.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final, Literal
from urllib.parse import quote, unquote

from msgspec import Struct, field

from cuebook.app.files import Sign, load_yaml
from cuebook.errors import InvalidInput
from cuebook.memory.scopes import PROJECT, persona_place
from cuebook.records.memory import Place
from cuebook.records.memory_answers import StoredMemory

State = Literal["edited", "new", "conflict", "changed", "added", "ended", "removed", "invalid"]
#: The kinds of owners that have files, each with the number of folders of a file's path.
DEPTHS: Final = {"project": 1, "user": 2, "organization": 2, "persona": 3}
#: The id of a text that is to be added.
NEW: Final = "new"
#: The line before each memory's text, with its id.
_MARK = re.compile(r"^<!-- memory ([0-9a-f]{16}|new) -->\r?$", re.MULTILINE)
#: Such a line in a memory's text gets a backslash in the file, so that no text can pretend to be another memory.
_LIKE_A_MARK = re.compile(r"^(\\*<!-- memory )", re.MULTILINE)
_ESCAPED = re.compile(r"^\\(\\*<!-- memory )", re.MULTILINE)
#: A memory's entry in the front matter.
_ENTRY = re.compile(r"^- id: '?([0-9a-f]{16})'?\r?\n(?: .*\r?\n)*", re.MULTILINE)
_FENCE = "---\n"
#: Characters that a file system may refuse in a name.
_UNSAFE = re.compile(r'[\x00-\x1f"%*/:<>?\\|\x7f]')
#: The lines of a conflict, as git writes them.
_OURS, _BETWEEN, _THEIRS = "<<<<<<< file", "=======", ">>>>>>> database"
_CONFLICT = re.compile(rf"{_OURS}\n(.*)\n{_BETWEEN}\n(.*)\n{_THEIRS}", re.DOTALL)


class MemoryFile(Struct, kw_only=True):
    """The content of a file: texts by memory id, the digests of these texts when they were pulled, and new texts.

    `content` and `sign` are those of the file on disk when it was read.
    """

    owner: str = ""
    category: str = ""
    texts: dict[str, str] = field(default_factory=dict)
    pulled: dict[str, str] = field(default_factory=dict)
    new: list[str] = field(default_factory=list)
    content: str = ""
    sign: Sign | None = None


class FileChange(Struct, frozen=True, kw_only=True):
    """A difference between a file and the database.

    edited, new, removed: in the file. changed, added, ended: in the database. conflict: in both. invalid: the file
    cannot be used, and `text` says why.
    """

    state: State
    file: str
    memory: str
    text: str


# ---- names ----------------------------------------------------------------------------------------------------------


def folder_of(place: Place) -> str:
    """Return the folder of an owner's files, such as "user/ann" or "persona/ann/guide"."""
    return "/".join([place.kind, *(_safe(each) for each in reversed(place.id.split("\x1f")) if place != PROJECT)])


def place_of(name: str) -> Place:
    """Return the owner of a file."""
    kind, *ids = (unquote(each) for each in name.split("/")[:-1])
    if kind == "persona":
        return persona_place(*ids)
    return Place(kind, *ids) if ids else PROJECT


def file_of(place: Place, category: str) -> str:
    """Return the path of the file of an owner's category."""
    return f"{folder_of(place)}/{_safe(category)}.md"


def check_path(name: str) -> None:
    """Check that a path is the one that its owner and category have. Raises InvalidInput."""
    expected = file_of(place_of(name), category_of(name))
    if name != expected:
        msg = f"{name}: not the path of this owner and category. Rename it to {expected}."
        raise InvalidInput(msg, where=name)


def category_of(name: str) -> str:
    """Return the category of a file."""
    return unquote(PurePosixPath(name).stem)


def is_memory_file(name: str) -> bool:
    """Return whether a path in the folder is that of a memory file. Other files are left alone."""
    kind, *rest = name.split("/")
    return DEPTHS.get(kind) == len(rest) and name.endswith(".md") and not rest[-1].startswith(".")


def _safe(name: str) -> str:
    """Return a name that every file system accepts."""
    encoded = _UNSAFE.sub(lambda found: quote(found[0], safe=""), name)
    return encoded.replace(".", "%2E") if encoded.startswith(".") else encoded


# ---- comparison -----------------------------------------------------------------------------------------------------


def compare(name: str, file: MemoryFile, current: Mapping[str, StoredMemory]) -> Iterator[FileChange]:
    """Yield the differences between a file and the current memories of its owner and category."""
    for id_, text in file.texts.items():
        here, pulled = digest_of(text), file.pulled.get(id_)
        there = digest_of(current[id_].text) if id_ in current else None
        state: State | None = None
        if here not in (pulled, there):
            state = "edited" if there is not None and there == pulled and not is_marked(text) else "conflict"
        elif there is None:
            state = "ended"
        elif here != there:
            state = "changed"
        if state is not None:
            yield FileChange(state=state, file=name, memory=id_, text=text)
    for id_, memory in current.items():
        if id_ not in file.texts:
            state = "removed" if file.pulled.get(id_) == digest_of(memory.text) else "added"
            yield FileChange(state=state, file=name, memory=id_, text=memory.text.strip())
    for text in file.new:
        yield FileChange(state="new", file=name, memory=NEW, text=text)


def merged(name: str, file: MemoryFile, current: Mapping[str, StoredMemory]) -> tuple[MemoryFile, list[FileChange]]:
    """Return a file with the changes of the database, and these changes. Edits stay; conflicts get both texts."""
    changes = list(compare(name, file, current))
    texts = {id_: each.text.strip() for id_, each in current.items()}
    pulled = {id_: digest_of(each.text) for id_, each in current.items()}
    for each in changes:
        if each.state == "edited":
            texts[each.memory] = each.text
        elif each.state == "removed":
            del texts[each.memory]
        elif each.state == "conflict":
            texts[each.memory] = _with_both(each.text, texts.get(each.memory, ""))
            if each.memory not in pulled and each.memory in file.pulled:
                pulled[each.memory] = file.pulled[each.memory]  # an erasure of the memory finds it
    first = next(iter(current.values()), None)
    owner, category = (first.owner, first.category) if first else (file.owner, file.category)
    after = MemoryFile(owner=owner, category=category, texts=texts, pulled=pulled, new=file.new)
    return after, [each for each in changes if each.state in ("changed", "added", "ended", "conflict")]


def digest_of(text: str) -> str:
    """Return the digest of a text without its outer white space."""
    return hashlib.sha256(text.replace("\r\n", "\n").strip().encode()).hexdigest()[:16]


def is_marked(text: str) -> bool:
    """Return whether a text has the marker of a conflict that is not resolved."""
    return any(line in (_OURS, _THEIRS) for line in text.split("\n"))


def _with_both(ours: str, theirs: str) -> str:
    """Return both texts between conflict markers. An unchanged conflict gets the newest text of the database."""
    if before := _CONFLICT.fullmatch(ours):
        ours = before[1]
    elif is_marked(ours):
        return ours
    return f"{_OURS}\n{ours}\n{_BETWEEN}\n{theirs}\n{_THEIRS}"


# ---- content --------------------------------------------------------------------------------------------------------


def parse(content: str, name: str) -> MemoryFile:
    """Parse a file. Raises InvalidInput naming it."""
    text = content.replace("\r\n", "\n")
    head, fence, body = text.removeprefix(_FENCE).partition(f"\n{_FENCE}")
    if not text.startswith(_FENCE) or not fence:
        msg = f"{name}: no front matter. Restore its beginning, between two lines ---."
        raise InvalidInput(msg, where=name)
    try:
        about: Any = load_yaml(head, name, what="front matter", first_line=2)
        pulled = {str(each["id"]): str(each["digest"]) for each in about.get("memories") or ()}
        owner, category = str(about["owner"]), str(about["category"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        msg = f"{name}: invalid front matter ({_reason(error)}). Restore it."
        raise InvalidInput(msg, where=name) from error
    _, *pieces = _MARK.split(body)
    values = [(id_, _ESCAPED.sub(r"\1", text.strip())) for id_, text in zip(pieces[::2], pieces[1::2], strict=True)]
    texts = {id_: text for id_, text in values if id_ != NEW and text}
    if len(texts) < len([id_ for id_, text in values if id_ != NEW and text]):
        msg = f"{name}: the same memory stands in it twice. Remove one, or replace its ID by `new`."
        raise InvalidInput(msg, where=name)
    new = [text for id_, text in values if id_ == NEW and text]
    return MemoryFile(owner=owner, category=category, texts=texts, pulled=pulled, new=new, content=content)


def _reason(error: Exception) -> str:
    """Return the reason of an error without values: logs contain no memories."""
    return f"{error} is missing" if isinstance(error, KeyError) else type(error).__name__


def render(file: MemoryFile, memories: Iterable[StoredMemory] = ()) -> str:
    """Return the content of a file."""
    import yaml

    about = {each.id: each for each in memories}
    entries = [_entry(id_, digest, about.get(id_)) for id_, digest in file.pulled.items()]
    head = yaml.safe_dump(
        {"cuebook": 1, "owner": file.owner, "category": file.category, "memories": entries},
        allow_unicode=True, sort_keys=False, width=1_000,
    )  # fmt: skip
    sections = [*file.texts.items(), *((NEW, text) for text in file.new)]
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


# ---- erasure --------------------------------------------------------------------------------------------------------


def pulled_ids(content: str) -> set[str]:
    """Return the ids of the memories that a file got from the database, also of an invalid file."""
    return {entry[1] for entry in _ENTRY.finditer(content)}


def without(content: str, ids: Collection[str]) -> str:
    """Return a file's content without the entries and texts of these memories, "" if no text is left.

    It works on the lines, so that the texts are also removed from an invalid file.
    """
    start, *pieces = _MARK.split(content)
    start = _ENTRY.sub(lambda entry: "" if entry[1] in ids else entry[0], start)
    left = [(id_, text) for id_, text in zip(pieces[::2], pieces[1::2], strict=True) if id_ not in ids]
    return start + "".join(f"<!-- memory {id_} -->{text}" for id_, text in left) if left else ""
