"""What changed between two versions, and what that asks of a semantic version.

| change | bump |
| --- | --- |
| a parameter is gone or renamed, must be given now, or takes less than before | major |
| a parameter is new and may be left out, or takes more; a section is new or gone; engine, type or parent | minor |
| text, the order of sections, a parameter's default or description, metadata | patch |
| nothing that counts for the digest (author, tags, …) | none |
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from cuebook.errors import InvalidInput
from cuebook.prompts.digest import canonical, level
from cuebook.prompts.lines import unified
from cuebook.records.prompt import Param, Version

Kind = Literal["added", "removed", "changed"]
Bump = Literal["major", "minor", "patch", "none"]

#: What of a version is compared as a whole, in the order it is shown.
FIELDS: Final = ("type", "engine", "inherits", "metadata", "description", "author", "tags", "sync")

_MINOR_FIELDS: Final = frozenset({"type", "engine", "inherits"})
_PATCH_FIELDS: Final = frozenset({"metadata", "order"})
_ORDER: Final[tuple[Bump, ...]] = ("none", "patch", "minor", "major")
_SEMVER = re.compile(
    r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})"
    r"(?:-((?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?"
)
#: Characters of a semantic version.
_LONGEST_SEMVER: Final = 64


class SectionChange(Struct, frozen=True):
    """A section that is new, gone or other; `lines` as in a unified diff. `override` tells the two kinds apart."""

    name: str
    kind: Kind
    lines: tuple[str, ...]
    override: bool = False


class ParamChange(Struct, frozen=True):
    """A parameter that is new (no `before`), gone (no `after`) or other."""

    name: str
    before: Param | None
    after: Param | None

    @property
    def kind(self) -> Kind:
        """What happened to it."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


class FieldChange(Struct, frozen=True):
    """Another field with its two values; `order` is that of the sections both have."""

    name: str
    before: Any
    after: Any


class Difference(Struct, frozen=True):
    """What is in the second version and not in the first, the other way round, and what is other."""

    sections: tuple[SectionChange, ...] = ()
    params: tuple[ParamChange, ...] = ()
    fields: tuple[FieldChange, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.sections or self.params or self.fields)


def difference(before: Version, after: Version) -> Difference:
    """Return what changed from one version to another, without their places (slug, branch, number) and semver."""
    before, after = level(before), level(after)
    old = {param.name: param for param in before.params}
    new = {param.name: param for param in after.params}
    names = [*old, *(name for name in new if name not in old)]
    return Difference(
        (
            *_sections(before.sections, after.sections, override=False),
            *_sections(before.override_sections, after.override_sections, override=True),
        ),
        tuple(ParamChange(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)),
        tuple(_fields(before, after)),
    )


def bump(change: Difference) -> Bump:
    """Return what a difference asks of the semantic version, by the table above."""
    asked: list[Bump] = ["none"]
    asked += ["patch" if section.kind == "changed" else "minor" for section in change.sections]
    asked += [_of_param(param.before, param.after) for param in change.params]
    asked += ["minor" for field in change.fields if field.name in _MINOR_FIELDS]
    asked += ["patch" for field in change.fields if field.name in _PATCH_FIELDS]
    return max(asked, key=_ORDER.index)


def next_semver(semver: str, by: Bump) -> str:
    """Return the semantic version after this one. A pre-release becomes the release it announces if that is enough."""
    core, _, early = check_semver(semver).partition("+")[0].partition("-")
    major, minor, patch = map(int, core.split("."))
    whole = {"major": not minor and not patch, "minor": not patch, "patch": True}
    if by == "none":
        return semver
    if early and whole[by]:
        return f"{major}.{minor}.{patch}"
    if by == "major":
        return f"{major + 1}.0.0"
    return f"{major}.{minor + 1}.0" if by == "minor" else f"{major}.{minor}.{patch + 1}"


def check_semver(semver: object, *, where: str = "semver") -> str:
    """Return a semantic version (2.0.0) as it is; raise InvalidInput with why."""
    if not isinstance(semver, str) or len(semver) > _LONGEST_SEMVER or not _SEMVER.fullmatch(semver):
        shown = repr(semver[:_LONGEST_SEMVER]) if isinstance(semver, str) else f"a {type(semver).__name__}"
        raise InvalidInput(f"{where}: {shown} is no semantic version; write three numbers, as 1.2.0", where=where)
    return semver


def _sections(before: Mapping[str, str], after: Mapping[str, str], *, override: bool) -> Iterator[SectionChange]:
    """Give the sections that changed: those of the older version in its order, then the new ones."""
    for name, text in before.items():
        if name not in after:
            yield SectionChange(name, "removed", tuple(f"-{line}" for line in text.split("\n")), override)
        elif after[name] != text:
            yield SectionChange(name, "changed", unified(text, after[name]), override)
    for name, text in after.items():
        if name not in before:
            yield SectionChange(name, "added", tuple(f"+{line}" for line in text.split("\n")), override)


def _fields(before: Version, after: Version) -> Iterator[FieldChange]:
    for old, new in (
        (before.sections, after.sections),
        (before.override_sections, after.override_sections),
    ):
        was = [name for name in old if name in new]
        now = [name for name in new if name in old]
        if was != now:
            yield FieldChange("order", tuple(was), tuple(now))
    for name in FIELDS:
        was, now = getattr(before, name), getattr(after, name)
        # In Python True is 1; their canonical forms differ, and so do the digests.
        if (canonical(was, where=name) != canonical(now, where=name)) if name == "metadata" else (was != now):
            yield FieldChange(name, was, now)


def _of_param(before: Param | None, after: Param | None) -> Bump:
    """Return what a parameter's change asks for: whether values that were taken still are."""
    if after is None:
        return "major"
    needed = after.required and after.default is None
    if before is None:
        return "major" if needed else "minor"
    was_needed = before.required and before.default is None
    wider = after.type == "string" or (before.type, after.type) == ("integer", "number")
    if (needed and not was_needed) or (before.type != after.type and not wider):
        return "major"
    return "minor" if before.type != after.type or needed != was_needed else "patch"
