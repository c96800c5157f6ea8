"""How many versions are stored at once: all or none, each on the head that was seen, new branches with their origin."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.prompts import Prompts
from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.desk import Desk
from cuebook.ports.prompts import Family, Write
from cuebook.prompts.digest import sealed
from cuebook.prompts.names import parse_reference
from cuebook.records.memory import Scope
from cuebook.records.prompt import MAIN, Version


class Planned(Struct, frozen=True, kw_only=True):
    """A version to store and the head it goes onto, 0 for a branch that is not there yet.

    `origin` is the version a new branch began with; without one the newest of `main` is taken for it. `at` is when it
    was written, where it comes from another book; 0 for now.
    """

    version: Version
    base: int
    origin: tuple[str, int] | None = None
    at: float = 0.0

    @property
    def number(self) -> int:
        """The number it gets."""
        return self.base + 1


async def check_planned(desk: Desk, planned: Sequence[Planned]) -> None:
    """Refuse what could not be stored. Raises InvalidInput."""
    await Prompts(desk).check([replace(each.version, number=each.number) for each in planned])


async def save_planned(
    desk: Desk, planned: Sequence[Planned], families: Mapping[str, Family], *, by: str = ""
) -> list[Version]:
    """Store what was checked, parents first. Raises Conflict where a head has moved on since it was planned."""
    heads = {(slug, each.name): each.head for slug, family in families.items() for each in family.branches}
    writes = []
    for each in parents_first(planned):
        version = replace(each.version, number=0, digest="")
        slug, branch = version.slug, version.branch
        begins = None
        if branch != MAIN and (slug, branch) not in heads and (slug, MAIN) in heads:
            begins = each.origin or (MAIN, heads[slug, MAIN])
        version = sealed(version)
        told = receipt(desk, version, "branch" if begins else "write", agent=by)
        writes.append(Write(version=version, base=each.base, begins=begins, audit=told, at=each.at))
        heads[slug, branch] = each.number
    return await desk.prompts.save(Scope(), writes, by=by, now=desk.clock.now())


def parents_first(planned: Sequence[Planned]) -> list[Planned]:
    """Put each branch's versions behind `main` of its prompt and behind what they inherit; otherwise in their order."""
    groups: dict[tuple[str, str], list[Planned]] = {}
    for each in planned:
        groups.setdefault((each.version.slug, each.version.branch), []).append(each)
    ordered: dict[tuple[str, str], list[Planned]] = {}

    def put(place: tuple[str, str], way: frozenset[tuple[str, str]]) -> None:
        if place in ordered or place in way or place not in groups:
            return
        for ahead in _ahead(groups[place]):
            put(ahead, way | {place})
        ordered[place] = groups[place]

    for place in groups:
        put(place, frozenset())
    return [each for group in ordered.values() for each in group]


def _ahead(group: Sequence[Planned]) -> list[tuple[str, str]]:
    places = [(group[0].version.slug, MAIN)]
    for each in group:
        if each.version.inherits:
            named = parse_reference(each.version.inherits, where="inherits")
            places.append((named.slug, named.branch or MAIN))
    return places
