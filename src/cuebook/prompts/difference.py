"""Compute the diff between two versions, and the semantic version bump that it requires.

| change | bump |
| --- | --- |
| a parameter is removed or renamed, becomes required, or accepts less than before | major |
| a new optional parameter, or one that accepts more; a section added or removed; engine, type or parent | minor |
| text, the order of sections, a parameter's default or description, metadata | patch |
| nothing that the digest covers (author, tags, …) | none |
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from cuebook.errors import InvalidInput
from cuebook.prompts.digest import canonical, level
from cuebook.records.prompt import Param, Version

# ---- lines ----------------------------------------------------------------------------------------------------------


#: Context lines of `unified` around a change, as in diff.
CONTEXT: Final = 3
#: Limit of the pairs of equal lines that are compared, so that a diff takes 0.2 s at most. Beyond, everything between
#: the equal start and the equal end counts as one edit.
MOST_PAIRS: Final = 100_000


class Edit(NamedTuple):
    """Replace lines `start` to `end` of a text (from 0, `end` exclusive) by `new`."""

    start: int
    end: int
    new: tuple[str, ...]


def edits(before: Sequence[str], after: Sequence[str]) -> list[Edit]:
    """Return the edits that turn `before` into `after`, in order; no two are adjacent."""
    head = 0
    shorter = min(len(before), len(after))
    while head < shorter and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < shorter - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    frequency = Counter(old)
    if sum(frequency[line] for line in new) > MOST_PAIRS:
        return [Edit(head, head + len(old), tuple(new))]
    return [
        Edit(head + start, head + end, tuple(new[first:last]))
        for kind, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if kind != "equal"
    ]


def unified(before: str, after: str) -> tuple[str, ...]:
    """Return the hunks of a unified diff, without the two file name lines; none for equal texts."""
    old = before.split("\n")
    hunks: list[list[Edit]] = []
    for edit in edits(old, after.split("\n")):
        if hunks and edit.start - hunks[-1][-1].end <= 2 * CONTEXT:
            hunks[-1].append(edit)
        else:
            hunks.append([edit])
    lines: list[str] = []
    added = 0  # lines that earlier hunks added
    for hunk in hunks:
        at, end = max(0, hunk[0].start - CONTEXT), min(len(old), hunk[-1].end + CONTEXT)
        grown = sum(len(edit.new) - (edit.end - edit.start) for edit in hunk)
        lines.append(f"@@ -{_span(at, end - at)} +{_span(at + added, end - at + grown)} @@")
        added += grown
        for edit in hunk:
            lines += [f" {line}" for line in old[at : edit.start]]
            lines += [f"-{line}" for line in old[edit.start : edit.end]]
            lines += [f"+{line}" for line in edit.new]
            at = edit.end
        lines += [f" {line}" for line in old[at:end]]
    return tuple(lines)


def merge_lines(base: str, ours: str, theirs: str) -> str | None:
    """Return `base` with both sides' edits, None if they touch and differ."""
    lines = base.split("\n")
    both = sorted({*edits(lines, ours.split("\n")), *edits(lines, theirs.split("\n"))})
    merged: list[str] = []
    last = -1
    at = 0
    for edit in both:
        if edit.start <= last:
            return None
        merged += lines[at : edit.start]
        merged += edit.new
        at = last = edit.end
    return "\n".join(merged + lines[at:])


def _span(start: int, count: int) -> str:
    """Return a hunk's line range as diff writes it: from 1, and the line before it for an empty one."""
    if count == 1:
        return str(start + 1)
    return f"{start + 1 if count else start},{count}"


Kind = Literal["added", "removed", "changed"]
Bump = Literal["major", "minor", "patch", "none"]

#: Fields of a version that are compared as a whole, in display order.
FIELDS: Final = ("type", "engine", "inherits", "metadata", "description", "author", "tags", "sync")

_MINOR_FIELDS: Final = frozenset({"type", "engine", "inherits"})
_PATCH_FIELDS: Final = frozenset({"metadata", "order"})
_ORDER: Final[tuple[Bump, ...]] = ("none", "patch", "minor", "major")
_SEMVER = re.compile(
    r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})"
    r"(?:-((?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?"
)
#: Maximum characters of a semantic version.
_LONGEST_SEMVER: Final = 64


class SectionDifference(Struct, frozen=True):
    """A section that was added, removed or changed; `lines` as in a unified diff. `override` tells the kinds apart."""

    name: str
    kind: Kind
    override: bool
    lines: tuple[str, ...]


class ParamDifference(Struct, frozen=True):
    """A parameter that was added (no `before`), removed (no `after`) or changed."""

    name: str
    kind: Kind
    before: Param | None
    after: Param | None


class FieldDifference(Struct, frozen=True):
    """A changed field with its two values; `order` is that of the common sections."""

    name: str
    before: Any
    after: Any


class Difference(Struct, frozen=True):
    """The differences of the second version from the first: added, removed and changed parts."""

    sections: tuple[SectionDifference, ...] = ()
    params: tuple[ParamDifference, ...] = ()
    fields: tuple[FieldDifference, ...] = ()


def difference(before: Version, after: Version) -> Difference:
    """Return what changed from one version to another, ignoring slug, branch, number and semver."""
    before, after = level(before), level(after)
    return Difference(
        (
            *_sections(before.sections, after.sections, override=False),
            *_sections(before.override_sections, after.override_sections, override=True),
        ),
        tuple(_params(before.params, after.params)),
        tuple(_fields(before, after)),
    )


def bump(change: Difference) -> Bump:
    """Return the semantic version bump that a difference requires, by the table above."""
    asked: list[Bump] = ["none"]
    asked += ["patch" if section.kind == "changed" else "minor" for section in change.sections]
    asked += [_of_param(param.before, param.after) for param in change.params]
    asked += ["minor" for field in change.fields if field.name in _MINOR_FIELDS]
    asked += ["patch" for field in change.fields if field.name in _PATCH_FIELDS]
    return max(asked, key=_ORDER.index)


def next_semver(semver: str, by: Bump) -> str:
    """Return the next semantic version. A pre-release becomes the release that it announces, if that is enough."""
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


def next_version(version: Version, before: Version, keys: Collection[str]) -> Version:
    """Return the version that a file is after another one. `keys` are those that its front matter sets.

    Without front matter only the text changes. The change determines the semantic version, unless the file states one.
    """
    if not keys:
        version = replace(before, sections=version.sections, override_sections={})
    if "version" in keys and version.semver != before.semver:
        return version
    return replace(version, semver=next_semver(before.semver, bump(difference(before, version))))


def free_semver(semver: str, taken: Collection[str]) -> str:
    """Return the semantic version, or the next patch that is not taken by another text."""
    while semver in taken:
        semver = next_semver(semver, "patch")
    return semver


def check_semver(semver: object, *, where: str = "semver") -> str:
    """Return a checked semantic version (2.0.0); raise InvalidInput with the reason."""
    if not isinstance(semver, str) or len(semver) > _LONGEST_SEMVER or not _SEMVER.fullmatch(semver):
        text = repr(semver[:_LONGEST_SEMVER]) if isinstance(semver, str) else f"a {type(semver).__name__}"
        raise InvalidInput(f"{where}: {text} is not a semantic version. Write it like 1.2.0.", where=where)
    return semver


def _sections(before: Mapping[str, str], after: Mapping[str, str], *, override: bool) -> Iterator[SectionDifference]:
    """Yield the changed sections: those of the older version in its order, then the new ones."""
    for name, text in before.items():
        if name not in after:
            yield SectionDifference(name, "removed", override, tuple(f"-{line}" for line in text.split("\n")))
        elif after[name] != text:
            yield SectionDifference(name, "changed", override, unified(text, after[name]))
    for name, text in after.items():
        if name not in before:
            yield SectionDifference(name, "added", override, tuple(f"+{line}" for line in text.split("\n")))


def _params(before: Sequence[Param], after: Sequence[Param]) -> Iterator[ParamDifference]:
    old, new = [{param.name: param for param in params} for params in (before, after)]
    for name in old | new:
        was, now = old.get(name), new.get(name)
        if was != now:
            yield ParamDifference(name, "added" if was is None else "removed" if now is None else "changed", was, now)


def _fields(before: Version, after: Version) -> Iterator[FieldDifference]:
    for old, new in (
        (before.sections, after.sections),
        (before.override_sections, after.override_sections),
    ):
        was = [name for name in old if name in new]
        now = [name for name in new if name in old]
        if was != now:
            yield FieldDifference("order", tuple(was), tuple(now))
    for name in FIELDS:
        was, now = getattr(before, name), getattr(after, name)
        # In Python True equals 1, but their canonical forms and digests differ.
        if (canonical(was, where=name) != canonical(now, where=name)) if name == "metadata" else (was != now):
            yield FieldDifference(name, was, now)


def _of_param(before: Param | None, after: Param | None) -> Bump:
    """Return the bump of a parameter's change, by whether it still accepts the earlier values."""
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
