"""Where `registry.json` and the files below `prompts/` say different things, for `registry check` in CI.

| kind | what |
| --- | --- |
| form | the registry was edited by hand or merged: making it anew gives other bytes |
| twice | two entries of one version, or two heads of one branch |
| no_file, no_entry | one is there without the other |
| unreadable | a file that is no prompt, with its line |
| digest | the text was edited since the registry was made |
| metadata | description, tags or another field differs |
| object | an older version's text is not the one its place is named after |
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Struct

from cuebook.errors import InvalidInput
from cuebook.prompts.digest import digest_of
from cuebook.prompts.files import read_file, said
from cuebook.prompts.registry import FILE, OBJECTS, Entry, Registry, complete, is_object, render
from cuebook.records.prompt import Version

Kind = Literal["form", "twice", "no_file", "no_entry", "unreadable", "digest", "metadata", "object"]

#: What to do about a registry that lags behind.
_ANEW = f"`cuebook prompt pull` makes {FILE} anew"
#: Files that are prompts; others may lie beside them.
_ENDING = ".md"
#: What an entry says that the file says too: the entry's field and the version's.
_FIELDS = (
    ("id", "slug"), ("branch", "branch"), ("version", "semver"), ("type", "type"), ("description", "description"),
    ("author", "author"), ("tags", "tags"), ("sync", "sync"),
)  # fmt: skip


class Disagreement(Struct, frozen=True):
    """What registry and files do not agree about, and where."""

    kind: Kind
    path: str
    id: str
    message: str


def check(registry: Registry, files: Mapping[str, str | bytes]) -> list[Disagreement]:
    """Return all disagreements, by path. `files` is all that lies below `prompts/`, by path; none means all is well."""
    found = [*_of_form(registry), *_of_entries(registry.entries)]
    for entry in registry.entries:
        found += _of_entry(entry, files.get(entry.path))
    listed = {entry.path for entry in registry.entries}
    for path in files:
        if path not in listed and path.endswith(_ENDING):
            found.append(Disagreement("no_entry", path, "", f"{path}: is not in {FILE}; {_ANEW}"))
        elif path not in listed and path.startswith(OBJECTS):
            found.append(Disagreement("no_entry", path, "", f"{path}: is the text of no version in {FILE}"))
    return sorted(found, key=lambda each: (each.path, each.id, each.kind, each.message))


def _of_form(registry: Registry) -> Iterator[Disagreement]:
    if registry.text and registry.text != render(registry.entries):
        yield Disagreement("form", FILE, "", f"{FILE}: was edited by hand or merged; {_ANEW}")


def _of_entries(entries: tuple[Entry, ...]) -> Iterator[Disagreement]:
    versions = Counter((entry.id, entry.branch, entry.number or entry.version) for entry in entries)
    heads = Counter((entry.id, entry.branch) for entry in entries if entry.head)
    branches = {(entry.id, entry.branch) for entry in entries}
    for (slug, branch, version), count in versions.items():
        if count > 1:
            yield Disagreement(
                "twice", FILE, slug, f"{FILE}: {slug}@{branch}:{version} is listed {count} times; keep one"
            )
    for slug, branch in branches:
        if heads[slug, branch] != 1:
            count = heads[slug, branch]
            yield Disagreement("twice", FILE, slug, f"{FILE}: {slug}@{branch} has {count} heads instead of one")


def _of_entry(entry: Entry, text: str | bytes | None) -> Iterator[Disagreement]:
    if text is None:
        yield Disagreement(
            "no_file", entry.path, entry.id, f"{entry.path}: is missing; {FILE} has {entry.name} there: commit it too"
        )
        return
    if entry.path.startswith(OBJECTS) and not is_object(entry.path, text):
        message = f"{entry.path}: is not the text it is named after; take it from the history"
        yield Disagreement("object", entry.path, entry.id, message)
        return
    try:
        version = read_file(text, path=entry.path)
        version = version if said(text, path=entry.path) else complete(version, entry)
        digest = digest_of(version)
    except InvalidInput as error:
        yield Disagreement("unreadable", entry.path, entry.id, str(error))
        return
    yield from _of_version(entry, version, digest)


def _of_version(entry: Entry, version: Version, digest: str) -> Iterator[Disagreement]:
    if entry.digest and digest != entry.digest:
        message = f"{entry.path}: was edited since {FILE} was made; push it, or {_ANEW}"
        yield Disagreement("digest", entry.path, entry.id, message)
    said_by_file = {name: getattr(version, field) for name, field in _FIELDS}
    said_by_file["params"] = tuple(param.name for param in version.params)
    for name, value in said_by_file.items():
        listed = getattr(entry, name)
        if listed != value:
            message = f"{entry.path}: {name} is {value!r:.80}, and {listed!r:.80} in {FILE}; {_ANEW}"
            yield Disagreement("metadata", entry.path, entry.id, message)
