"""Find conversations in a file, a folder or a zip archive: detect the program that wrote them, and read them."""

import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from cuebook.app.files import ZIP_ERRORS, decode, open_zip, read_bytes
from cuebook.app.transcripts import account_exports as exports
from cuebook.app.transcripts import agent_logs as logs
from cuebook.app.transcripts.account_exports import ForeignMemory
from cuebook.app.transcripts.agent_databases import MAGIC, read_database
from cuebook.app.transcripts.history import ImportNotes
from cuebook.app.transcripts.posts import read_messages
from cuebook.app.transcripts.sniff import MOST_BYTES, TOO_LARGE, parse_document, transcripts_of
from cuebook.app.transcripts.transcript import FilePlace, Transcript
from cuebook.errors import InvalidInput
from cuebook.providers.regular_files import open_regular

#: Programs whose sessions are JSONL: a test of the rows, and a reader.
_LOGS: tuple[tuple[Callable[..., bool], Callable[..., list[Transcript]]], ...] = (
    (logs.is_claude_code, logs.read_claude_code),
    (logs.is_codex, logs.read_codex),
)
#: Programs whose conversations are JSON objects.
_OBJECTS: tuple[tuple[Callable[..., bool], Callable[..., list[Transcript]]], ...] = (
    (exports.is_chatgpt, exports.read_chatgpt),
    (exports.is_claude_ai, exports.read_claude_ai),
    (logs.is_hermes, logs.read_hermes),
    (
        logs.is_opencode,
        lambda value, place, stem, notes: logs.read_opencode(value["info"], value["messages"], place, stem, notes),
    ),
)
#: Fields of a document with a list of mem0's memories.
_MEM0_LISTS = ("results", "memories")
_SUFFIXES = (".json", ".jsonl", ".yaml", ".yml")
#: How many times its compressed size a large member of an archive may have. Exports of chats have 3 to 20.
_MOST_EXPANSION = 100
_LARGE = 10 << 20


class ImportedFile(Struct, frozen=True, kw_only=True):
    """The contents of one file, and its parts that cannot be imported."""

    name: str
    transcripts: tuple[Transcript, ...] = ()
    memories: tuple[ForeignMemory, ...] = ()
    skipped: tuple[str, ...] = ()  # unreadable records, with file and position
    left_out: Mapping[str, int] = {}  # counts of records that are no messages, by kind


def read_sources(path: Path) -> Iterator[ImportedFile]:
    """Yield what each file at a path contains, in the order of names. Raises InvalidInput if there is no such file."""
    if not path.exists():
        msg = f"File not found: {str(path)!r}. Check the path."
        raise InvalidInput(msg, where=str(path))
    if not path.is_dir():
        yield from _file(path, path.name, only=True)
        return
    stores = [
        each
        for each in sorted({path, *path.rglob("storage")})
        if (each / "session").is_dir() and (each / "part").is_dir()
    ]
    for store in stores:
        yield from _opencode_storage(store, str(store.relative_to(path)))
    for file in sorted(path.rglob("*")):
        if file.is_file() and not any(store in file.parents for store in stores):
            yield from _file(file, str(file.relative_to(path)))


def _file(file: Path, name: str, *, only: bool = False) -> Iterator[ImportedFile]:
    notes = ImportNotes()
    try:
        with open(file, "rb", opener=open_regular) as stream:
            is_database = stream.read(len(MAGIC)) == MAGIC
    except OSError as error:
        msg = f"{name}: cannot be read ({error.strerror}). Check its permissions."
        yield ImportedFile(name=name, skipped=(msg,))
        return
    if is_database:
        try:
            for transcript in read_database(file, name, notes):
                yield ImportedFile(name=name, transcripts=(transcript,))
        except InvalidInput as error:
            notes.skip(error)
        yield ImportedFile(name=name, skipped=tuple(notes.skipped), left_out=notes.left_out)
    elif file.suffix.lower() == ".zip" and zipfile.is_zipfile(file):
        yield from _archive(file, name)
    elif only or file.suffix.lower() in _SUFFIXES:
        try:
            data = read_bytes(file, name, most=MOST_BYTES, advice=TOO_LARGE)
        except InvalidInput as error:
            yield ImportedFile(name=name, skipped=(str(error),))
        else:
            yield _document(data, name)
    else:
        yield ImportedFile(name=name, left_out=Counter({"files of other types": 1}))


def _archive(file: Path, name: str) -> Iterator[ImportedFile]:
    with open(file, "rb", opener=open_regular) as stream:
        try:
            archive = open_zip(stream)
        except ZIP_ERRORS as error:
            yield _damaged(name, error)
            return
        for member in sorted(archive.infolist(), key=lambda each: each.filename):
            yield from _member(archive, member, f"{name}/{member.filename}")


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, place: str) -> Iterator[ImportedFile]:
    if member.filename.endswith("/"):  # `is_dir` fails for an empty name
        return
    if PurePosixPath(member.filename).suffix.lower() not in _SUFFIXES:
        yield ImportedFile(name=place, left_out=Counter({"files of other types": 1}))
        return
    if problem := _oversize(member):
        yield ImportedFile(name=place, skipped=(f"{place}: {problem}",))
        return
    try:
        data = archive.read(member)  # at most the size that the archive states
    except ZIP_ERRORS as error:
        yield _damaged(place, error)
        return
    yield _document(data, place)


def _oversize(member: zipfile.ZipInfo) -> str:
    """Return why a member would take too much memory, "" if it does not."""
    if member.file_size > MOST_BYTES:
        return f"exceeds {MOST_BYTES:,} bytes. Extract it, split it, and import the parts."
    if member.file_size > max(_LARGE, _MOST_EXPANSION * member.compress_size):
        return f"expands to more than {_MOST_EXPANSION} times its size. If you trust it, extract it, and import that."
    return ""


def _damaged(name: str, error: Exception) -> ImportedFile:
    """Return what is known of an archive or a member that cannot be extracted."""
    return ImportedFile(name=name, skipped=(f"{name}: damaged or encrypted ({error}). Extract it, and import that.",))


def _document(data: bytes, name: str) -> ImportedFile:
    """Read one JSON, JSONL or YAML file. What cannot be read is noted."""
    notes, place, memories = ImportNotes(), FilePlace(name), list[ForeignMemory]()
    transcripts: list[Transcript] = []
    stem = PurePosixPath(name.replace("\\", "/")).stem or "import"
    try:
        document, places = parse_document(decode(data, name), place, notes.skip)
        memories = _memories(document, place, notes)
        if not memories:
            transcripts = _conversations(document, places, place, stem, notes)
    except InvalidInput as error:
        notes.skip(error)
    return ImportedFile(
        name=name, transcripts=tuple(transcripts), memories=tuple(memories), skipped=tuple(notes.skipped),
        left_out=notes.left_out,
    )  # fmt: skip


def _memories(document: Any, place: FilePlace, notes: ImportNotes) -> list[ForeignMemory]:
    key = next(
        (key for key in _MEM0_LISTS if isinstance(document, Mapping) and isinstance(document.get(key), list)), ""
    )
    values = document[key] if key else document
    if not isinstance(values, list) or not any(map(exports.is_mem0, values)):
        return []
    where = place.at(key) if key else place
    memories: list[ForeignMemory] = []
    for n, value in enumerate(values):
        if exports.is_mem0(value):
            memories += exports.read_mem0(value, where.at(n), notes)
        else:
            notes.left_out["records without a memory"] += 1
    return memories


def _conversations(
    document: Any, places: list[FilePlace], place: FilePlace, stem: str, notes: ImportNotes
) -> list[Transcript]:
    values = document if isinstance(document, list) else [document]
    places = places or ([place.at(n) for n in range(len(values))] if isinstance(document, list) else [place])
    rows = [(here, value) for here, value in zip(places, values, strict=True) if isinstance(value, Mapping)]
    for is_log, read_log in _LOGS:
        if is_log(rows):
            return read_log(rows, stem, notes)
    known = [(value, read) for value in values for is_object, read in _OBJECTS if is_object(value)]
    if not known and not isinstance(document, list):
        return transcripts_of(document, [], place, stem)
    if not known:
        good = [(here, value) for here, value in zip(places, values, strict=True) if _is_readable(value, here, notes)]
        return transcripts_of([value for _, value in good], [here for here, _ in good], place, stem) if good else []
    transcripts: list[Transcript] = []
    for n, (here, value) in enumerate(zip(places, values, strict=True), 1):
        read = next((read for is_object, read in _OBJECTS if is_object(value)), None)
        if read is None:
            notes.left_out["records of another format"] += 1
        else:
            transcripts += read(value, here, stem if len(values) == 1 else f"{stem}-{n}", notes)
    return transcripts


def _is_readable(value: object, place: FilePlace, notes: ImportNotes) -> bool:
    """Return whether a value is no chat message, or a valid one. Note an invalid one."""
    if isinstance(value, Mapping) and "role" in value and "sendFrom" not in value:
        try:
            read_messages([value], [place])
        except InvalidInput as error:
            notes.skip(error)
            return False
    return True


def _opencode_storage(folder: Path, name: str) -> Iterator[ImportedFile]:
    """Yield the sessions of OpenCode's older storage: a folder of JSON files for sessions, messages and parts."""
    for file in sorted(folder.glob("session/*/*.json")):
        notes, place = ImportNotes(), FilePlace(f"{name}/session/{file.parent.name}/{file.name}")
        session = _object(file, place, notes)
        messages = [_object(each, place, notes) for each in sorted(folder.glob(f"message/{file.stem}/*.json"))]
        whole = [
            {
                "info": each,
                "parts": [_object(part, place, notes) for part in sorted(folder.glob(f"part/{each['id']}/*.json"))],
            }
            for each in messages
            if each.get("id")
        ]
        transcripts = logs.read_opencode(session, whole, place, file.stem, notes)
        yield ImportedFile(
            name=place.file, transcripts=tuple(transcripts), skipped=tuple(notes.skipped), left_out=notes.left_out
        )


def _object(file: Path, place: FilePlace, notes: ImportNotes) -> dict[str, Any]:
    """Return a JSON object, an empty one for a file that cannot be read, which is noted."""
    here = FilePlace(f"{place.file}: {file.name}")
    try:
        document, _ = parse_document(
            decode(read_bytes(file, file.name, most=MOST_BYTES, advice=TOO_LARGE), here.file), here, notes.skip
        )
        return dict(here.mapping(document))
    except InvalidInput as error:
        notes.skip(error)
        return {}
