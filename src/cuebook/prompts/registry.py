"""Parse, write and check `prompts/registry.json`: the list of versions, and where each version's text is stored.

It has one object per version, in a fixed order with sorted keys, one key per line. Branches that add different versions
merge in Git, and the same versions always give the same bytes. `id, version, description, author, last_updated, tags,
params, path, sync` are from kAI; `type, branch, number, digest, head, labels` and `active` (if it is not the head) are
additions; unknown keys are kept.

`path` is the place of a version's text: an active one's is its working file, another's `.objects/sha256/ab/…`, named by
the SHA-256 of its bytes, so that `sha256sum` can check it and no change goes unnoticed.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from msgspec import Meta, Struct, to_builtins
from msgspec.structs import replace

from cuebook.errors import InvalidInput
from cuebook.prompts.digest import digest_of, unix
from cuebook.prompts.files import read_stated, write_file
from cuebook.prompts.names import DEFAULT, ENDING, check_branch, check_slug
from cuebook.prompts.pages import decoded
from cuebook.prompts.params import bare, read_params
from cuebook.prompts.strict_json import parse
from cuebook.records.prompt import MAIN, Branch, BranchPlace, Label, Param, Version
from cuebook.validate import check as validated

#: The registry's format version; a greater number is from a later Cuebook.
FORMAT: Final = 1
FILE: Final = "registry.json"
OBJECTS: Final = ".objects/sha256/"
#: Key of a branch's origin, such as `main:3`, in the entry of its first version.
ORIGIN: Final = "branched_from"
#: The folders of kAI's layout and ours; other ids are below `default/`.
FOLDERS: Final = ("_meta", "default", "projects", "system")

_OBJECT = re.compile(r"\.objects/sha256/([0-9a-f]{2})/([0-9a-f]{64})")
_SEMVER = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})(-)?.*", re.DOTALL)
_CONFLICT = re.compile(r"^(?:<{7}|={7}|>{7})", re.MULTILINE)


class RegistryEntry(Struct, frozen=True, kw_only=True):
    """A version in the registry."""

    id: str
    version: str = "1.0.0"  # semver
    number: Annotated[int, Meta(ge=0)] = 0
    branch: str = MAIN
    type: str = "prompt"
    description: str = ""
    author: str = ""
    last_updated: str = ""  # ISO 8601, UTC; "" if unknown
    tags: tuple[str, ...] = ()
    params: tuple[str, ...] = ()  # names without `$`
    path: str = ""  # relative to `prompts/`
    digest: str = ""
    head: bool = False
    active: bool | None = None  # None: same as `head`
    labels: tuple[str, ...] = ()
    sync: bool = False
    extra: Mapping[str, Any] = {}


#: Fields that both an entry and a version have: the entry's field and the version's.
_SAME = (
    ("id", "slug"), ("branch", "branch"), ("version", "semver"), ("type", "type"), ("description", "description"),
    ("author", "author"), ("tags", "tags"), ("sync", "sync"),
)  # fmt: skip
#: The keys of an entry; others are kept in `extra`.
_FIELDS: Final = frozenset(RegistryEntry.__struct_fields__) - {"extra"}


class Registry(Struct, frozen=True):
    """A parsed registry. `text` is its source, "" for kAI's bare forms, which others write."""

    entries: tuple[RegistryEntry, ...]
    text: str = ""


# ---------------------------------------------------------------- places
def path_of(slug: str, branch: str = MAIN) -> str:
    """Return the path of a branch's head below `prompts/`: `default/persona/a.md`, `default/persona/a@trial.md`."""
    first, below, _ = slug.partition("/")
    folder = "" if below and first in FOLDERS else "default/"
    return f"{folder}{slug}{'' if branch == MAIN else f'@{in_file(branch)}'}.md"


def in_file(branch: str) -> str:
    """Return a branch's form in a file name: `sync/b` is `sync+b`."""
    return branch.replace("/", "+")


def from_file(branch: str) -> str:
    """Return the branch of its form in a file name."""
    return branch.replace("+", "/")


def twin(slug: str) -> str | None:
    """Return the other id with the same file, None for none: `default/a` and `a` are one prompt."""
    other = slug.removeprefix(DEFAULT) if slug.startswith(DEFAULT) else DEFAULT + slug
    return other if path_of(other) == path_of(slug) else None


def object_path(text: str) -> str:
    """Return the path of an older version's text, by its content."""
    name = hashlib.sha256(text.encode()).hexdigest()
    return f"{OBJECTS}{name[:2]}/{name}"


def is_object(path: str, text: str | bytes) -> bool:
    """Return whether a text matches the hash in its path."""
    data = text.encode() if isinstance(text, str) else text
    named = _OBJECT.fullmatch(path)
    return named is not None and named[2].startswith(named[1]) and hashlib.sha256(data).hexdigest() == named[2]


# ---------------------------------------------------------------- writing
def layout(
    versions: Iterable[Version],
    branches: Mapping[BranchPlace, Branch],
    labels: Mapping[str, Sequence[Label]],
    *,
    paths: Mapping[BranchPlace, str],
    others: Iterable[RegistryEntry] = (),
) -> dict[str, str]:
    """Return all files of these versions below `prompts/`: active ones, objects of the others, the registry itself.

    `labels` are by slug. A branch without a path gets that of `path_of`. The registry lists `others` too. Raises
    InvalidInput if two would share a file.
    """
    files: dict[str, str] = {}
    owners: dict[str, str] = {}
    entries: list[RegistryEntry] = []
    for version in versions:
        branch = branches[version.place]
        head, chosen = branch.head == version.number, branch.active == version.number
        text = write_file(version)
        path = (paths.get(version.place) or path_of(*version.place)) if chosen else object_path(text)
        if chosen and owners.setdefault(path.lower(), version.source) != version.source:
            raise InvalidInput(
                f"{path}: would contain {owners[path.lower()]} and {version.source}. Rename one.", where=path
            )
        files[path] = text
        entry = _entry(version, path=path, head=head, labels=labels.get(version.slug, ()))
        entries.append(entry if chosen == head else replace(entry, active=chosen))
    files[FILE] = render([*entries, *others])
    return files


def _entry(version: Version, *, path: str, head: bool, labels: Iterable[Label]) -> RegistryEntry:
    when = datetime.fromtimestamp(version.created_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if version.created_at else ""
    here = (version.branch, version.number)
    return RegistryEntry(
        **{name: getattr(version, field) for name, field in _SAME},
        number=version.number,
        last_updated=when,
        params=tuple(param.name for param in version.params),
        path=path,
        digest=version.digest,
        head=head,
        labels=tuple(sorted(label.name for label in labels if (label.branch, label.number) == here)),
        extra={ORIGIN: version.branched_from} if version.branched_from and version.branch != MAIN else {},
    )


def render(entries: Iterable[RegistryEntry]) -> str:
    """Return entries in canonical form: sorted by id, branch and number, keys sorted, one per line."""
    ordered = sorted(
        entries, key=lambda entry: (entry.id, entry.branch, entry.number, rank(entry.version), entry.version)
    )
    document = {"format": FORMAT, "prompts": [_form(entry) for entry in ordered]}
    return json.dumps(document, ensure_ascii=False, indent=2, sort_keys=True) + "\n"


def _form(entry: RegistryEntry) -> dict[str, Any]:
    form = to_builtins(entry) | {"params": [f"${name}" for name in entry.params]}
    del form["extra"]
    if not entry.labels:
        del form["labels"]
    if entry.active is None:
        del form["active"]
    return {**entry.extra, **form}


def rank(semver: str) -> tuple[int, int, int, bool]:
    """Return the sort key of a semantic version, as far as a head needs it: a pre-release precedes its release."""
    parts = _SEMVER.fullmatch(semver)
    return (int(parts[1]), int(parts[2]), int(parts[3]), not parts[4]) if parts else (0, 0, 0, False)


def rebuilt(texts: Mapping[str, Version]) -> Registry:
    """Return the registry that the front matter of working files and objects implies, by path, for a lost one.

    A branch's texts are numbered by semantic version; its working file is active. Labels, times and origins are lost.
    """
    branches: dict[BranchPlace, dict[tuple[str, str], RegistryEntry]] = {}
    for path, version in sorted(
        texts.items(), key=lambda each: each[0].startswith(OBJECTS)
    ):  # a file before its object
        entry = _entry(replace(version, digest=digest_of(version)), path=path, head=False, labels=())
        branches.setdefault(version.place, {}).setdefault((entry.version, entry.digest), entry)
    entries: list[RegistryEntry] = []
    for found in branches.values():
        ordered = sorted(found.values(), key=lambda entry: rank(entry.version))
        for number, entry in enumerate(ordered, 1):
            active = not entry.path.startswith(OBJECTS)
            entries.append(replace(entry, number=number, head=number == len(ordered), active=active))
    return Registry(tuple(entries))


# ---------------------------------------------------------------- reading
def read(text: str | bytes) -> Registry:
    """Return a parsed registry: ours, or kAI's single object or list. Raises InvalidInput naming the entry and key."""
    text = unix(decoded(text, FILE).removeprefix("\ufeff"))
    if _CONFLICT.search(text):
        raise InvalidInput(
            f"{FILE}: contains Git conflict markers. Run `cuebook prompt pull` to rebuild it.", where=FILE
        )
    document = parse(text, where=FILE)
    ours = isinstance(document, dict) and "prompts" in document
    if ours and document.get("format") != FORMAT:
        raise InvalidInput(
            f"{FILE}: format {document.get('format')!r} is not supported. This Cuebook supports {FORMAT}", where=FILE
        )
    rows = document["prompts"] if ours else [document] if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise InvalidInput(f"{FILE}: expected a list of prompts", where=FILE)
    entries = tuple(_read_entry(row, f"prompts[{place}]") for place, row in enumerate(rows))
    return Registry(entries, text) if ours else Registry(_with_heads(entries))


def _with_heads(entries: tuple[RegistryEntry, ...]) -> tuple[RegistryEntry, ...]:
    """Mark the newest version of each prompt as head, as in kAI: `latest` is the highest version."""
    newest: dict[BranchPlace, RegistryEntry] = {}
    for entry in sorted(entries, key=lambda entry: rank(entry.version), reverse=True):
        newest.setdefault((entry.id, entry.branch), entry)
    return tuple(replace(entry, head=newest[entry.id, entry.branch] is entry) for entry in entries)


def _read_entry(row: Any, where: str) -> RegistryEntry:
    where = f"{FILE}: {where}"
    if not isinstance(row, dict) or "id" not in row:
        raise InvalidInput(f"{where}: expected an object with an `id`", where=where)
    known = {key: value for key, value in row.items() if key in _FIELDS}
    entry = validated(known, RegistryEntry, where)
    check_slug(entry.id, where=f"{where}.id")
    check_branch(entry.branch, where=f"{where}.branch")
    params = read_params([bare(name) for name in entry.params], where=f"{where}.params")
    return replace(
        entry,
        params=tuple(param.name for param in params),
        path=_below(entry.path or path_of(entry.id, entry.branch), where),
        extra={key: value for key, value in row.items() if key not in _FIELDS},
    )


def _below(path: str, where: str) -> str:
    """Return a path below `prompts/`. kAI's begin elsewhere (`~/.kos/prompts/default/…`). No path may lead outside."""
    parts = path.replace("\\", "/").split("/")
    if parts[0] not in (*FOLDERS, ".objects") and "prompts" in parts:
        parts = parts[parts.index("prompts") + 1 :]
    below = "/".join(parts)
    if _OBJECT.fullmatch(below):
        return below
    plain, _, branch = parts[-1].removesuffix(".md").partition("@") if parts else ("", "", "")
    try:
        check_slug("/".join([*parts[:-1], plain]), where=f"{where}.path")
        check_branch(from_file(branch) or MAIN, where=f"{where}.path")
    except InvalidInput as error:
        raise InvalidInput(f"{where}.path: {path!r} is not a path below `prompts/`", where=f"{where}.path") from error
    return below


def complete(version: Version, entry: RegistryEntry) -> Version:
    """Return the version of a file without front matter (kAI's), completed from its registry entry."""
    return replace(
        version,
        **{field: getattr(entry, name) for name, field in _SAME},
        number=entry.number,
        params=tuple(Param(name=name) for name in entry.params),
        created_at=time_of(entry.last_updated),
    )


def time_of(text: str) -> float:
    """Return an entry's time; 0 if it is invalid or has no zone: it would be read in this machine's zone."""
    try:
        when = datetime.fromisoformat(text)
        return max(0.0, when.timestamp()) if when.tzinfo is not None else 0.0
    except (ValueError, OverflowError):
        return 0.0


# ---- differences from the files -------------------------------------------------------------------------------------


#: Advice for a stale registry.
_ANEW = f"run `cuebook prompt pull` to rebuild {FILE}"
#: A mismatch between registry and files: the path, the prompt's id ("" for none) and the message.
Disagreement = tuple[str, str, str]


def check(registry: Registry, files: Mapping[str, str | bytes]) -> list[Disagreement]:
    """Return all mismatches, by path, none if all is well. `files` are all files below `prompts/`, by path.

    Objects that are not listed are those of other projects.
    """
    disagreements = [*_of_list(registry)]
    for entry in registry.entries:
        disagreements += [(entry.path, entry.id, why) for why in _of_entry(entry, files.get(entry.path))]
    listed = {entry.path for entry in registry.entries}
    disagreements += [
        (path, "", f"{path}: not in {FILE}; {_ANEW}") for path in files if path not in listed and path.endswith(ENDING)
    ]
    return sorted(disagreements)


def _of_list(registry: Registry) -> Iterator[Disagreement]:
    if registry.text and registry.text != render(registry.entries):
        yield FILE, "", f"{FILE}: was edited by hand or merged; {_ANEW}"
    entries = registry.entries
    versions = Counter((entry.id, entry.branch, entry.number or entry.version) for entry in entries)
    heads = Counter((entry.id, entry.branch) for entry in entries if entry.head)
    for (slug, branch, version), count in versions.items():
        if count > 1:
            yield FILE, slug, f"{FILE}: {slug}@{branch}:{version} is listed {count} times. Keep one."
    for slug, branch in {(entry.id, entry.branch) for entry in entries}:
        if heads[slug, branch] != 1:
            yield FILE, slug, f"{FILE}: {slug}@{branch} has {heads[slug, branch]} heads instead of one"


def _of_entry(entry: RegistryEntry, text: str | bytes | None) -> Iterator[str]:
    path = entry.path
    if text is None:
        name = f"{entry.id}@{entry.branch}" + (f":{entry.number}" if entry.number else "")
        yield f"{path}: missing, but {FILE} lists {name} there. Commit it."
        return
    if path.startswith(OBJECTS) and not is_object(path, text):
        yield f"{path}: does not match the hash in its name. Restore it from the Git history."
        return
    try:
        version, keys = read_stated(text, path=path)
        version = version if keys else complete(version, entry)
        digest = digest_of(version)
    except InvalidInput as error:
        yield str(error)
        return
    if entry.digest and digest != entry.digest:
        yield f"{path}: was edited after {FILE} was written; push it, or {_ANEW}"
    in_file = {name: getattr(version, field) for name, field in _SAME}
    in_file["params"] = tuple(param.name for param in version.params)
    if "@" in path:
        in_file["branch"] = entry.branch  # the path names it
    for name, value in in_file.items():
        listed = getattr(entry, name)
        if listed != value:
            yield f"{path}: {name} is {value!r:.80}, and {listed!r:.80} in {FILE}; {_ANEW}"
