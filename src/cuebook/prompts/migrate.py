"""What a migration file would write: all of it or nothing, and nothing the second time (MISSION G8).

| form | what |
| --- | --- |
| B's documented array, also as `{"prompts": […]}` | a row per version, of the fields `POST /api/prompts` takes |
| `{"prompts", "versions", "inheritance"}` | what B's own program reads |

Rows of one slug and branch are its versions in their order, by `version` where they have one. A row that stands there
already is skipped: the branch's versions are gone through in their order, so a file that was imported before is found
whole, whatever came later. A row that says nothing of `inherits` keeps the parent of the version before it.

Nothing is returned unless all of it can be written: each parent is there, no ring, each section a text. Errors name
their place, `prompts[3].sections`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cuebook.errors import InvalidInput
from cuebook.prompts.difference import Difference, bump, difference, next_semver
from cuebook.prompts.digest import sealed
from cuebook.prompts.inherit import resolve
from cuebook.prompts.migrate_rows import Row, rows_of
from cuebook.prompts.names import candidates, parse_reference
from cuebook.prompts.strict_json import parse
from cuebook.records.prompt import MAIN, Version

_Chains = Mapping[tuple[str, str], Sequence[Version]]


class Step(Struct, frozen=True):
    """A version to write: where the file has it, which number it would get, what it changes in the one before it."""

    place: str
    version: Version
    number: int
    change: Difference
    parent_place: str  # where the file names its parent


class Skip(Struct, frozen=True):
    """A row that stands there already, as this number."""

    place: str
    slug: str
    branch: str
    number: int


class Migration(Struct, frozen=True):
    """What is to write, parents and `main` first, and what is not."""

    steps: tuple[Step, ...] = ()
    skipped: tuple[Skip, ...] = ()

    @property
    def versions(self) -> tuple[Version, ...]:
        """The versions to write, in one transaction and in this order."""
        return tuple(step.version for step in self.steps)


def read(text: str | bytes) -> Any:
    """Read a migration file. Raises InvalidInput for what is no JSON, and for a key given twice."""
    return parse(text.removeprefix("\ufeff") if isinstance(text, str) else text.removeprefix(b"\xef\xbb\xbf"))


def slugs(document: Any) -> tuple[str, ...]:
    """Return the ids a document writes or inherits from: what `plan` must be told about. Raises as `plan` does."""
    named: dict[str, None] = {}
    for row in rows_of(document):
        named[row.version.slug] = None
        if row.version.inherits:
            named |= dict.fromkeys(candidates(parse_reference(row.version.inherits).slug))
    return tuple(named)


def plan(document: Any, existing: Iterable[Version]) -> Migration:
    """Return what a parsed document would write beside all versions that there are of `slugs` and their ancestors.

    Raises InvalidInput naming the place of the first thing that is wrong; then nothing may be written.
    """
    chains = _chains(existing)
    steps: list[Step] = []
    skipped: list[Skip] = []
    for key, rows in _grouped(rows_of(document)).items():
        _follow(rows, chains.get(key, []), steps, skipped)
    planned = {key: list(chain) for key, chain in chains.items()}
    for step in steps:
        planned.setdefault((step.version.slug, step.version.branch), []).append(
            replace(step.version, number=step.number)
        )
    ordered = tuple(_parents_first(steps))
    for step in ordered:
        _check_parents(step, planned)
    return Migration(ordered, tuple(skipped))


def _chains(existing: Iterable[Version]) -> dict[tuple[str, str], list[Version]]:
    chains: dict[tuple[str, str], list[Version]] = {}
    for version in sorted(existing, key=lambda version: version.number):
        chains.setdefault((version.slug, version.branch), []).append(version)
    return chains


def _grouped(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    """Put rows to their branches: `main` before the others of a slug, versions in their order."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.version.slug, row.version.branch), []).append(row)
    first = {slug: at for at, (slug, _) in reversed(list(enumerate(groups)))}
    ordered = sorted(groups, key=lambda key: (first[key[0]], key[1] != MAIN))
    for group in groups.values():
        group.sort(key=lambda row: row.order)
        for row, following in pairwise(group):
            if row.order and row.order == following.order:
                where = f"{following.place}.version"
                raise InvalidInput(f"{where}: {row.order} is given twice, first in {row.place}", where=where)
    return {key: groups[key] for key in ordered}


def _follow(rows: Sequence[Row], chain: Sequence[Version], steps: list[Step], skipped: list[Skip]) -> None:
    """Go along a branch: skip the first rows that stand there in this order, write the others behind its head."""
    at, number = 0, chain[-1].number if chain else 0
    last = chain[-1] if chain else None
    fresh = False
    for row in rows:
        found = next((place for place in range(at, len(chain)) if _same(row, chain[place])), None)
        if found is not None and not fresh:
            skipped.append(Skip(row.place, row.version.slug, row.version.branch, chain[found].number))
            at = found + 1
            continue
        fresh = True  # what follows it in the file follows it on the branch
        number += 1
        before = last or Version(slug=row.version.slug, branch=row.version.branch, type=row.version.type)
        version = _sealed(row, row.version if row.inherits else replace(row.version, inherits=before.inherits))
        change = difference(before, version)
        if last and not row.semver:
            version = replace(version, semver=next_semver(last.semver, bump(change)))
        steps.append(Step(row.place, version, number, change, row.inherits or f"{row.place}.inherits"))
        last = version


def _same(row: Row, version: Version) -> bool:
    """Whether a row says what a version does."""
    said = row.version if row.inherits else replace(row.version, inherits=version.inherits)
    return _sealed(row, said).digest == (version.digest or sealed(version).digest)


def _sealed(row: Row, version: Version) -> Version:
    try:
        return sealed(version)
    except InvalidInput as error:
        raise InvalidInput(f"{row.place}.{error}", where=f"{row.place}.{error.where}") from error


def _check_parents(step: Step, chains: _Chains) -> None:
    """Resolve a version among all that will be there."""

    def parent_of(text: str) -> Version | None:
        reference = parse_reference(text)
        for slug in candidates(reference.slug):
            chain = chains.get((slug, reference.branch or MAIN), ())
            wanted = [version for version in chain if reference.number in (None, version.number)]
            if wanted:
                return wanted[-1]
        return None

    try:
        resolve(replace(step.version, number=step.number), parent_of)
    except InvalidInput as error:
        raise InvalidInput(f"{step.parent_place}: {error}", where=step.parent_place) from error


def _parents_first(steps: Sequence[Step]) -> Iterator[Step]:
    """Give steps branch by branch, each behind its slug's `main` and its parents; no branch waits for itself."""
    branches: dict[tuple[str, str], list[Step]] = {}
    for step in steps:
        branches.setdefault((step.version.slug, step.version.branch), []).append(step)
    done: set[tuple[str, str]] = set()
    for wanted in branches:
        way = [wanted]
        while way:
            ahead = [key for key in _ahead(branches[way[-1]]) if key in branches and key not in done and key not in way]
            if ahead:
                way.append(ahead[0])
                continue
            key = way.pop()
            if key not in done:
                done.add(key)
                yield from branches[key]


def _ahead(steps: Iterable[Step]) -> Iterator[tuple[str, str]]:
    """Give the branches that must be there before these versions of one."""
    for step in steps:
        yield step.version.slug, MAIN
        if step.version.inherits:
            reference = parse_reference(step.version.inherits)
            yield from ((slug, reference.branch or MAIN) for slug in candidates(reference.slug))
