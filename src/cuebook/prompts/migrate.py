"""Plan the import of a migration file: all of it or nothing, and nothing the second time.

| form | what |
| --- | --- |
| Cortex's documented array, also as `{"prompts": […]}` | a row per version, with the fields of `POST /api/prompts` |
| `{"prompts", "versions", "inheritance"}` | the input of Cortex's own program |

Rows of one slug and branch are its versions in order, by `version` if they have one. A row that exists already is
skipped: the branch's versions are matched in order, so an earlier import is recognized even if versions were added
later. A row without `inherits` keeps the parent of the previous version.

The plan is returned only if all of it can be written: each parent exists, no cycle, each section is a text. Errors
name their place, `prompts[3].sections`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Final

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from cuebook.errors import InvalidInput
from cuebook.prompts.difference import Difference, bump, check_semver, difference, free_semver, next_semver
from cuebook.prompts.digest import sealed
from cuebook.prompts.inherit import parents_first, resolve
from cuebook.prompts.names import candidates, check_branch, check_section, check_slug, parse_reference
from cuebook.prompts.params import read_params
from cuebook.prompts.strict_json import parse
from cuebook.records.prompt import MAIN, BranchPlace, Engine, Version
from cuebook.validate import Document, check, format_value, join

# ---- rows of a migration file ---------------------------------------------------------------------------------------


_ALIASES: Final = {"overrideSections": "override_sections", "inherits_from": "inherits"}
_Number = Annotated[int, Meta(ge=1)]
_Chains = dict[BranchPlace, list[Version]]  # oldest first


class MigrationRow(Struct, frozen=True):
    """A version of the file: its place there, its `order` by number, and whether it has a `semver`.

    `inherits` is the place of its parent or of null, "" if not set. `plan` adds the version's number on its branch, and
    its change from the previous version.
    """

    place: str
    version: Version
    order: int = 0
    semver: bool = False
    inherits: str = ""
    change: Difference = Difference()


class Skip(Struct, frozen=True):
    """A skipped row: the version exists already, with this number."""

    place: str
    slug: str
    branch: str
    number: int = field(name="version")


class _Version(Document, frozen=True, kw_only=True, rename=None):
    """A version in the array, with the fields of `POST /api/prompts`."""

    slug: str
    type: str = ""
    branch: str = MAIN
    version: Annotated[int, Meta(ge=0, description="a whole number from 1 (the semantic version is `semver`)")] = 0
    semver: str = ""
    sections: Mapping[str, str] = {}
    override_sections: tuple[str, ...] | Mapping[str, str] = ()
    inherits: str = ""
    metadata: Mapping[str, Any] = {}
    params: Any = None
    engine: Engine = "dollar"
    tags: tuple[str, ...] = ()
    author: str = ""
    description: str = ""
    sync: bool = False


class _Prompt(Document, frozen=True, kw_only=True, rename=None):
    """The common fields of a prompt's versions, in the form of Cortex's program."""

    slug: str
    name: str = ""
    type: str = ""
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = {}
    description: str = ""


class _Content(Document, frozen=True, kw_only=True, rename=None):
    type: str = ""
    sections: Mapping[str, Any] = {}
    metadata: Mapping[str, Any] = {}


class _NumberedVersion(Document, frozen=True, kw_only=True, rename=None):
    """A version in the form of Cortex's program."""

    slug: str
    version: _Number
    content: _Content
    branch: str = MAIN
    author: str = ""
    override_sections: Mapping[str, Any] = {}


class _Link(Document, frozen=True, kw_only=True, rename=None):
    child_slug: str
    parent_slug: str
    child_branch: str = MAIN
    parent_branch: str = MAIN


class _File(Document, frozen=True, kw_only=True, rename=None):
    """Either form: `prompts` are versions, or the common fields of `versions`."""

    prompts: tuple[Any, ...] = ()
    versions: tuple[Any, ...] = ()
    inheritance: tuple[_Link, ...] = ()


def rows_of(document: Any) -> list[MigrationRow]:
    """Return the rows of a parsed migration file. Raises InvalidInput naming the path of a fault."""
    if not isinstance(document, list | Mapping):
        raise InvalidInput(
            f"document: expected an object or a list of them, got {format_value(document)}", where="document"
        )
    whole = document if isinstance(document, Mapping) else {"prompts": document}
    file = check(whole, _File)
    if "versions" in whole or "inheritance" in whole:
        listed = check(file.prompts, tuple[_Prompt, ...], "prompts")
        paths = [(row, f"versions[{at}]") for at, row in enumerate(file.versions)]
        versions = [check(_renamed(row, path), _NumberedVersion, path) for row, path in paths]
        return _of_cortex(listed, versions, file.inheritance)
    rows = []
    for at, row in enumerate(file.prompts):
        path = f"prompts[{at}]"
        renamed = _renamed(row, path)
        version = check(renamed, _Version, path)
        rows.append(_row(version, path, parent=f"{path}.inherits" if "inherits" in renamed else ""))
    return rows


def _renamed(row: Any, path: str) -> Any:
    """Return a row with canonical names instead of aliases."""
    if not isinstance(row, Mapping):
        return row
    for alias, name in _ALIASES.items():
        if alias in row and name in row:
            raise InvalidInput(f"{path}.{alias}: duplicate of {name!r}. Keep one.", where=f"{path}.{alias}")
    return {_ALIASES.get(name, name): value for name, value in row.items()}


def _metadata(data: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return metadata, with numbers in `context_weights`."""
    weights: Any = Mapping[str, float]
    check(data.get("context_weights", {}), weights, f"{path}.metadata.context_weights")
    return dict(data)


def _sections(data: Mapping[str, Any], path: str) -> dict[str, str]:
    """Return sections by name; other values than texts are encoded as JSON."""
    sections: dict[str, str] = {}
    for name, value in data.items():
        place = join(path, name)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        if value is None:
            raise InvalidInput(f"{place}: expected a string, got null", where=place)
        if "\x00" in text:
            raise InvalidInput(f"{place}: contains a NUL character. Remove it.", where=place)
        sections[check_section(name, where=place)] = text
    return sections


def _row(read: _Version, path: str, *, parent: str, inside: str = "") -> MigrationRow:
    """Return a row; `parent` is the path of its parent, `inside` that of its sections below `path`."""
    sections = _sections(read.sections, f"{path}{inside}.sections")
    overriding = _overriding(read, path, sections)
    if read.inherits:
        parse_reference(read.inherits, where=f"{path}.inherits")
    version = Version(
        slug=check_slug(read.slug, where=f"{path}.slug"),
        branch=check_branch(read.branch, where=f"{path}.branch"),
        semver=check_semver(read.semver, where=f"{path}.semver") if read.semver else "1.0.0",
        type=read.type or "prompt",
        sections={name: text for name, text in sections.items() if name not in overriding},
        override_sections=overriding,
        params=read_params(read.params, where=f"{path}.params"),
        engine=read.engine,
        inherits=read.inherits or None,
        metadata=_metadata(read.metadata, f"{path}{inside}"),
        tags=read.tags,
        author=read.author,
        description=read.description,
        sync=read.sync,
    )
    return MigrationRow(path, version, read.version, bool(read.semver), parent)


def _overriding(version: _Version, path: str, sections: Mapping[str, str]) -> dict[str, str]:
    """Return the overriding sections: texts by name, or the named ones of `sections`."""
    place = f"{path}.override_sections"
    if isinstance(version.override_sections, Mapping):
        texts = _sections(version.override_sections, place)
        for name in texts.keys() & sections.keys():
            raise InvalidInput(f"{place}.{name}: also in `sections`. Keep one.", where=f"{place}.{name}")
        return texts
    for at, name in enumerate(version.override_sections):
        if name not in sections:
            raise InvalidInput(f"{place}[{at}]: {name!r} is not in `sections`", where=f"{place}[{at}]")
    return {name: text for name, text in sections.items() if name in version.override_sections}


# ---------------------------------------------------------------- prompts, versions, inheritance
def _of_cortex(
    listed: Sequence[_Prompt], versions: Sequence[_NumberedVersion], links: Sequence[_Link]
) -> list[MigrationRow]:
    """Return the rows of Cortex's form: a prompt completes its versions, and links define the parents."""
    prompts: dict[str, tuple[_Prompt, str]] = {}
    for at, prompt in enumerate(listed):
        path, slug = f"prompts[{at}]", check_slug(prompt.slug, where=f"prompts[{at}].slug")
        if slug in prompts:
            where = f"{path}.slug"
            raise InvalidInput(f"{where}: {slug!r} is a duplicate of {prompts[slug][1]}", where=where)
        prompts[slug] = (prompt, path)
    parents = _parents(links)
    rows = [_numbered(each, f"versions[{at}]", prompts.get(each.slug), parents) for at, each in enumerate(versions)]
    written = {row.version.place for row in rows}
    for child, (_, where) in parents.items():
        if child not in written:
            raise InvalidInput(f"{where}: {'@'.join(child)} is not among the versions", where=where)
    return rows


def _parents(links: Sequence[_Link]) -> dict[BranchPlace, tuple[str, str]]:
    """Return the parent of each branch, with the path of the link."""
    parents: dict[BranchPlace, tuple[str, str]] = {}
    for at, link in enumerate(links):
        path = f"inheritance[{at}]"
        child, parent = [
            (
                check_slug(getattr(link, f"{end}_slug"), where=f"{path}.{end}_slug"),
                check_branch(getattr(link, f"{end}_branch"), where=f"{path}.{end}_branch"),
            )
            for end in ("child", "parent")
        ]
        reference = parent[0] if parent[1] == MAIN else "@".join(parent)
        if parents.setdefault(child, (reference, path))[0] != reference:
            where = f"{path}.child_slug"
            raise InvalidInput(f"{where}: {'@'.join(child)} already inherits from {parents[child][0]}", where=where)
    return parents


def _numbered(
    numbered: _NumberedVersion,
    path: str,
    prompt: tuple[_Prompt, str] | None,
    parents: Mapping[BranchPlace, tuple[str, str]],
) -> MigrationRow:
    shared, shared_path = prompt or (_Prompt(slug=numbered.slug), "")
    content, overriding = numbered.content, numbered.override_sections
    parent, parent_path = parents.get((numbered.slug, numbered.branch), ("", ""))
    version = _Version(
        slug=numbered.slug,
        branch=numbered.branch,
        version=numbered.version,
        type=content.type or shared.type,
        sections={name: text for name, text in content.sections.items() if name not in overriding},
        override_sections=overriding,
        inherits=parent,
        metadata={
            **({"name": shared.name} if shared.name else {}),
            **_metadata(shared.metadata, shared_path),
            **content.metadata,
        },
        tags=shared.tags,
        author=numbered.author,
        description=shared.description,
    )
    return _row(version, path, parent=parent_path, inside=".content")


def read_document(data: bytes, *, name: str) -> Any:
    """Return a parsed migration file. Raises InvalidInput naming the file for invalid JSON and duplicate keys."""
    return parse(data.removeprefix(b"\xef\xbb\xbf"), where=name)


def slugs(document: Any) -> tuple[str, ...]:
    """Return the ids that a document writes or inherits from: `plan` needs their versions. Raises like `plan`."""
    named: dict[str, None] = {}
    for row in rows_of(document):
        named[row.version.slug] = None
        if row.version.inherits:
            named |= dict.fromkeys(candidates(parse_reference(row.version.inherits).slug))
    return tuple(named)


def plan(document: Any, existing: Iterable[Version]) -> tuple[tuple[MigrationRow, ...], tuple[Skip, ...]]:
    """Return the rows to write, parents and `main` first, and the skipped rows.

    `existing` are all versions of `slugs` and of their ancestors.

    Raises InvalidInput naming the place of the first fault; then nothing may be written.
    """
    chains: _Chains = {}
    for version in sorted(existing, key=lambda version: version.number):
        chains.setdefault(version.place, []).append(version)
    added: list[MigrationRow] = []
    skipped: list[Skip] = []
    for branch, rows in _grouped(rows_of(document)).items():
        _follow(rows, chains.get(branch, []), added, skipped)
    ordered = tuple(_named_apart(parents_first(added, lambda row: row.version), chains))
    for row in ordered:
        chains.setdefault(row.version.place, []).append(row.version)
    for row in ordered:
        _check_parents(row, chains)
    return ordered, tuple(skipped)


def _named_apart(rows: Iterable[MigrationRow], chains: _Chains) -> Iterator[MigrationRow]:
    """Yield the rows, none with the semantic version of another text of its prompt."""
    named: dict[str, list[Version]] = {}
    for (slug, _), chain in chains.items():
        named.setdefault(slug, []).extend(chain)
    for row in rows:
        version, known = row.version, named.setdefault(row.version.slug, [])
        taken = {each.semver for each in known if each.digest != version.digest}
        version = replace(version, semver=free_semver(version.semver, taken))
        known.append(version)
        yield replace(row, version=version)


def _grouped(rows: Iterable[MigrationRow]) -> dict[BranchPlace, list[MigrationRow]]:
    """Group rows by branch: `main` before the other branches of a slug, versions in order."""
    groups: dict[BranchPlace, list[MigrationRow]] = {}
    for row in rows:
        groups.setdefault(row.version.place, []).append(row)
    first = {slug: at for at, (slug, _) in reversed(list(enumerate(groups)))}
    ordered = sorted(groups, key=lambda key: (first[key[0]], key[1] != MAIN))
    for group in groups.values():
        group.sort(key=lambda row: row.order)
        for row, following in pairwise(group):
            if row.order and row.order == following.order:
                where = f"{following.place}.version"
                raise InvalidInput(f"{where}: {row.order} is a duplicate of {row.place}", where=where)
    return {key: groups[key] for key in ordered}


def _follow(
    rows: Sequence[MigrationRow], chain: Sequence[Version], added: list[MigrationRow], skipped: list[Skip]
) -> None:
    """Plan a branch: skip the first rows that exist in this order, append the others to its head."""
    at, number = 0, chain[-1].number if chain else 0
    last = chain[-1] if chain else None
    fresh = False
    for row in rows:
        found = next((place for place in range(at, len(chain)) if _same(row, chain[place])), None)
        if found is not None and not fresh:
            skipped.append(Skip(row.place, row.version.slug, row.version.branch, chain[found].number))
            at = found + 1
            continue
        fresh = True  # later rows in the file follow it on the branch
        number += 1
        before = last or Version(slug=row.version.slug, branch=row.version.branch, type=row.version.type)
        version = replace(_sealed(row, before), number=number)
        change = difference(before, version)
        if last and not row.semver:
            version = replace(version, semver=next_semver(last.semver, bump(change)))
        added.append(replace(row, version=version, change=change))
        last = version


def _same(row: MigrationRow, version: Version) -> bool:
    """Return whether a row equals a version."""
    return _sealed(row, version).digest == (version.digest or sealed(version).digest)


def _sealed(row: MigrationRow, before: Version) -> Version:
    """Return a row's version in stored form, with the parent of the version before if it names none."""
    try:
        return sealed(row.version if row.inherits else replace(row.version, inherits=before.inherits))
    except InvalidInput as error:
        raise InvalidInput(f"{row.place}.{error}", where=f"{row.place}.{error.where}") from error


def _check_parents(row: MigrationRow, chains: _Chains) -> None:
    """Check that a version can be resolved among all existing and added versions. Raises InvalidInput."""

    def parent_of(text: str) -> Version | None:
        reference = parse_reference(text)
        for slug in candidates(reference.slug):
            chain = chains.get((slug, reference.branch or MAIN), ())
            versions = [version for version in chain if reference.number in (None, version.number)]
            if versions:
                return versions[-1]
        return None

    try:
        resolve(row.version, parent_of)
    except InvalidInput as error:
        place = row.inherits or f"{row.place}.inherits"
        raise InvalidInput(f"{place}: {error}", where=place) from error
