"""Resolve inheritance between prompt versions, and merge two versions by section and by field.

Inheritance: the parent's sections first, in its order; the child's text after the parent's with a blank
line between, new sections last. `override_sections` replace; an empty one removes the section from the text.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from cuebook.errors import InvalidInput
from cuebook.prompts.difference import merge_lines
from cuebook.prompts.names import candidates, parse_reference
from cuebook.prompts.template import touched
from cuebook.records.prompt import MAIN, BranchPlace, Param, ResolvedVersion, Version

T = TypeVar("T")

#: Separates the texts of two sections, and of a parent and its child.
BLANK_LINE: Final = "\n\n"
#: Maximum steps from a version to its first ancestor (design 007).
DEPTH: Final = 8


#: Fields that are merged as a whole; sections and metadata are merged by name.
_FIELDS: Final = ("type", "params", "engine", "inherits", "tags", "description")
#: A merge conflict: both sides changed a `section` (or a field) differently; `base`, `ours` or `theirs` is None if it
#: has none.
Clash = dict[str, str | None]


def parents_first(items: Iterable[T], version_of: Callable[[T], Version]) -> list[T]:
    """Return items branch by branch, each after its prompt's `main` and its parents; no branch waits for itself."""
    branches: dict[BranchPlace, list[T]] = {}
    for item in items:
        branches.setdefault(version_of(item).place, []).append(item)
    ordered: dict[BranchPlace, list[T]] = {}
    for wanted in branches:
        way = [wanted]
        while way:
            ahead = [key for each in branches[way[-1]] for key in _ahead(version_of(each))]
            due = next((key for key in ahead if key in branches and key not in ordered and key not in way), None)
            if due is not None:
                way.append(due)
            else:
                ordered.setdefault(way[-1], branches[way.pop()])
    return [item for group in ordered.values() for item in group]


def _ahead(version: Version) -> Iterator[BranchPlace]:
    """Yield the branches that must exist before a version."""
    yield version.slug, MAIN
    if version.inherits:
        reference = parse_reference(version.inherits, where="inherits")
        yield from ((slug, reference.branch or MAIN) for slug in candidates(reference.slug))


def resolve(version: Version, parent_of: Callable[[str], Version | None]) -> ResolvedVersion:
    """Return a version with its ancestors merged in. `parent_of` receives `inherits` as written.

    Raises InvalidInput, `where` "inherits": a missing parent, a cycle or more than `DEPTH` steps (both named), or an
    ancestor whose placeholders the version's engine would interpret differently.
    """
    line = _line(version, parent_of)
    sections: dict[str, str] = {}
    params: dict[str, Param] = {}
    for each in line:
        _lay(each, sections)
        params.update((param.name, param) for param in each.params)
    _check_engines(line, params)
    return ResolvedVersion(
        version=version,
        sections=sections,
        params=tuple(params.values()),
        lineage=tuple(each.source for each in line),
    )


def text_of(resolved: ResolvedVersion) -> str:
    """Return the full text, not rendered: the non-empty sections, separated by blank lines."""
    return BLANK_LINE.join(text for text in resolved.sections.values() if text.strip())


def merge3(
    base: Mapping[str, str], ours: Mapping[str, str], theirs: Mapping[str, str]
) -> tuple[dict[str, str], list[Clash]]:
    """Return the three-way merge with `base`, also within a section if the edits do not touch, and the conflicts.

    A section in conflict has our text, or theirs if we have none. Sections follow the order of the side that moved
    some, ours if both did; new ones come after their predecessor.
    """
    merged: dict[str, str] = {}
    conflicts: list[Clash] = []
    for name in _order(base, ours, theirs):
        was, our, their = base.get(name), ours.get(name), theirs.get(name)
        text, clash = _section(was, our, their)
        if clash:
            conflicts.append({"section": name, "base": was, "ours": our, "theirs": their})
        if text is not None:
            merged[name] = text
    return merged, conflicts


def merge_versions(
    base: Version, ours: Version, theirs: Version, *, prefer_theirs: bool = False
) -> tuple[dict[str, Any], list[Clash]]:
    """Return the merged fields of two versions by name (three-way), and the conflicts.

    What is in conflict has our value, or theirs with `prefer_theirs`.
    """
    fields: dict[str, Any] = {"metadata": {}}
    conflicts: list[Clash] = []
    versions, kinds = (base, ours, theirs), ("sections", "override_sections")
    for kind in kinds:
        fields[kind], clashes = merge3(getattr(base, kind), getattr(ours, kind), getattr(theirs, kind))
        conflicts += clashes
        if prefer_theirs:
            fields[kind] |= {each["section"]: each["theirs"] for each in clashes}
            fields[kind] = {name: text for name, text in fields[kind].items() if text is not None}
    for name in sorted(fields["sections"].keys() & fields["override_sections"].keys()):  # one side made it an override
        conflicts.append(_clash(name, *({**each.sections, **each.override_sections}.get(name) for each in versions)))
        overrides = name in (theirs if prefer_theirs else ours).override_sections
        del fields[kinds[not overrides]][name]
    pairs = [(fields, name, [getattr(each, name) for each in versions]) for name in _FIELDS]
    keys = dict.fromkeys((*ours.metadata, *theirs.metadata))
    pairs += [(fields["metadata"], name, [each.metadata.get(name) for each in versions]) for name in keys]
    for target, name, (before, our, their) in pairs:
        value = their if our == before or (prefer_theirs and their != before) else our
        if before not in (our, their) and our != their:
            conflicts.append(_clash(name, before, our, their))
        if value is not None or target is fields:
            target[name] = value
    return fields, conflicts


def _clash(name: str, *values: Any) -> Clash:
    """Return a conflict in a field, with its values as texts."""
    texts = [each if each is None or isinstance(each, str) else msgspec.json.encode(each).decode() for each in values]
    return {"section": name, "base": texts[0], "ours": texts[1], "theirs": texts[2]}


def _line(version: Version, parent_of: Callable[[str], Version | None]) -> list[Version]:
    """Return a version and its ancestors, oldest first.

    A cycle is a repeated version, or a branch that is followed twice: a draft that inherits its own branch would find
    itself once stored. A pin to another number is no cycle.
    """
    line = [version]
    followed = {version.place}
    while (written := line[-1].inherits) is not None:
        pinned = parse_reference(written, where="inherits").number is not None
        parent = parent_of(written)
        if parent is None:
            raise InvalidInput(f"{_name(line[-1])} inherits {written!r}, which does not exist", where="inherits")
        repeated = any((parent.place, parent.number) == (each.place, each.number) for each in line)
        if repeated or (not pinned and parent.place in followed):
            raise InvalidInput(f"circular inheritance: {_chain([*line, parent])}", where="inherits")
        line.append(parent)
        if len(line) > DEPTH + 1:
            raise InvalidInput(f"inheritance has more than {DEPTH} steps: {_chain(line)}", where="inherits")
        if not pinned:
            followed.add(parent.place)
    return line[::-1]


def _chain(line: Sequence[Version]) -> str:
    return " → ".join(map(_name, line))


def _name(version: Version) -> str:
    return f"{version.slug}@{version.branch}:{version.number}" if version.number else f"{version.slug}@{version.branch}"


def _lay(version: Version, sections: dict[str, str]) -> None:
    """Apply a version's sections on top of those of its ancestors."""
    for name, text in version.sections.items():
        over = sections.get(name, "")
        sections[name] = f"{over}{BLANK_LINE}{text}" if over and text else over or text
    sections.update(version.override_sections)


def _check_engines(line: Sequence[Version], declared: Collection[str]) -> None:
    """Raise InvalidInput if an ancestor's text means something else to the version's engine, which renders it all."""
    engine = line[-1].engine
    for each in line[:-1]:
        if each.engine == engine:
            continue
        for text in (*each.sections.values(), *each.override_sections.values()):
            names = touched(text, each.engine, declared) | touched(text, engine, declared)
            if names:
                raise InvalidInput(
                    f"{_name(line[-1])} renders with engine {engine!r}, but inherits {min(names)!r} from "
                    f"{_name(each)}, written for {each.engine!r}. Use the same engine for both.",
                    where="inherits",
                )


def _section(base: str | None, ours: str | None, theirs: str | None) -> tuple[str | None, bool]:
    """Return a section's merged text, and whether the sides conflict."""
    if theirs in (ours, base):
        return ours, False
    if ours == base:
        return theirs, False
    if base is None or ours is None or theirs is None:
        return ours if ours is not None else theirs, True
    merged = merge_lines(base, ours, theirs)
    return (ours, True) if merged is None else (merged, False)


def _order(base: Mapping[str, str], ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Return all names of both sides in the order of the merge."""
    moved = [name for name in ours if name in base] != [name for name in base if name in ours]
    lead, other = (ours, theirs) if moved else (theirs, ours)
    order = dict.fromkeys(lead)
    behind: dict[str | None, list[str]] = {}
    last: str | None = None
    for name in other:
        if name not in order:
            behind.setdefault(last, []).append(name)
        else:
            last = name
    return list(_placed(order, behind))


def _placed(order: Mapping[str, None], behind: Mapping[str | None, Sequence[str]]) -> Iterator[str]:
    yield from behind.get(None, ())
    for name in order:
        yield name
        yield from behind.get(name, ())
